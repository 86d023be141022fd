"""Object stores: a flat namespace of keys, on a local directory or in a bucket."""

from tstore.objects.base import PROBE_PREFIX, ObjectInfo, ObjectStore
from tstore.objects.location import open_objects

__all__ = ["PROBE_PREFIX", "ObjectInfo", "ObjectStore", "open_objects"]
