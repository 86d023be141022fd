"""Predicting how well a tensor compresses against a base, from sketches alone."""
