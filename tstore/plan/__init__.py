"""Deciding which tensors are stored whole and which against which base."""
