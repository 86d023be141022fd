"""From a committed store back to files: look-up, decoding, checked writes, verification."""
