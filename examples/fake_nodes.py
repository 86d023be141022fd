"""Nodes of an autoscaler that are further Ray processes on this machine; see autoscale.sh."""

from __future__ import annotations

from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class FakeNodes(FakeMultiNodeProvider):
    """Ray's own, for tasks that ask for memory.

    The autoscaler starts a node only if its type has the memory, but Ray's provider fails on types
    that say so. The real node tells how much it has.
    """

    def create_node_with_resources_and_labels(
        self,
        node_config: dict[str, Any],
        tags: dict[str, str],
        count: int,
        resources: dict[str, float],
        labels: dict[str, str],
    ) -> None:
        """Start `count` nodes of one type."""
        known = {name: amount for name, amount in resources.items() if name != "memory"}
        super().create_node_with_resources_and_labels(node_config, tags, count, known, labels)
