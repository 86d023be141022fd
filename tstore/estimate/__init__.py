"""What a hub would save, from a sample of it; nothing is written."""
