"""Model hubs as input: which files there are, and where the tensors lie in them.

``snapshot`` lists a hub, ``reader`` reads its files, ``formats`` cuts a file into extents.
"""
