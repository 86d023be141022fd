"""Compiled loops over arrays: no allocation of results, no errors, no I/O."""
