"""Lossless, tensor-centric storage for AI model hubs."""

__version__ = "0.1.0"
