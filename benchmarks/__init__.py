"""Ratio, speed and memory of the codecs beside their peers, on the same bytes in the same run."""
