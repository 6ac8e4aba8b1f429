"""The place in a cluster of an engine's actor, and of the actors that its engine starts itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mclabel.engines.resources import EngineResources


@dataclass(frozen=True, kw_only=True)
class Place:
    """What one actor is given: options for it, and its placement group, if it needs one."""

    options: Mapping[str, Any]
    group: Any = None

    @classmethod
    def of(cls, resources: EngineResources) -> Place:
        """Ask the cluster for a place. A group's bundles lie on as few nodes as have room."""
        options: dict[str, Any] = {"num_cpus": resources.num_cpus, "num_gpus": resources.num_gpus}
        if not resources.bundles:
            return cls(options=options)
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = placement_group([dict(bundle) for bundle in resources.bundles], strategy="PACK")
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
            placement_group=group,
            placement_group_bundle_index=0,
            placement_group_capture_child_tasks=True,
        )
        return cls(options=options, group=group)

    def give_back(self) -> None:
        """Return the group's bundles to the cluster; what still runs in them ends."""
        if self.group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self.group)
