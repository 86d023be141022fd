"""Object stores: a flat namespace of keys, today on a local directory."""

from tstore.objects.base import ObjectInfo, ObjectStore
from tstore.objects.location import open_objects

__all__ = ["ObjectInfo", "ObjectStore", "open_objects"]
