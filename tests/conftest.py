"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# Compilation of a kernel inside an example is not slowness of the example.
settings.register_profile("tstore", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("tstore")
