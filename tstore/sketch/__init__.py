"""Fingerprints of tensors: bit-level sketches and byte statistics."""
