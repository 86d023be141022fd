"""Who was made from whom, told from the fingerprints of the catalog; no weights are read."""
