"""What an engine takes of a cluster, from how its policy is to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EngineResources:
    """What one engine's actor is given."""

    num_cpus: float
    num_gpus: float
    bundles: tuple[Mapping[str, float], ...] = ()
    """Of a placement group over nodes, where the engine's own workers are Ray actors, too; the
    engine's actor sits in the first. Without any, the actor holds all of it on one node."""

    @property
    def total_gpus(self) -> float:
        """GPUs of the actor and of its workers."""
        return self.num_gpus + sum(bundle.get("GPU", 0) for bundle in self.bundles)

    def __str__(self) -> str:
        group = f" over {len(self.bundles)} bundles" if self.bundles else " on one node"
        return f"an engine takes {self.num_cpus:g} CPUs and {self.total_gpus:g} GPUs{group}"

    def room(self, nodes: Iterable[Mapping[str, float]]) -> int:
        """Engines that fit some nodes, were they empty; about, where one lies on several."""
        have = list(nodes)
        if self.bundles:
            return int(sum(node.get("GPU", 0) for node in have) // self.total_gpus)
        needs = [("CPU", self.num_cpus), ("GPU", self.num_gpus)]
        return sum(
            min((int(node.get(kind, 0) // need) for kind, need in needs if need), default=1)
            for node in have
        )


ONE_CPU = EngineResources(num_cpus=1, num_gpus=0)


def engine_resources(
    *,
    engine: str,
    device: str,
    threads: int = 1,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
) -> EngineResources:
    """What an engine takes.

    Args:
        engine: name of the policy's engine.
        device: `cpu` or `cuda`, where it computes itself.
        threads: of an engine on a CPU.
        tensor_parallel: GPUs of one node that hold a layer together.
        pipeline_parallel: such groups; more than one may lie on several nodes.
        num_cpus: in place of what is derived.
        num_gpus: in place of what is derived, where all lies on one node.
    """
    if engine in ("openai", "scripted"):
        gpus, cpus = 0, 1.0
    elif device == "cpu":
        gpus, cpus = 0, float(threads)
    else:
        gpus = tensor_parallel if engine == "vllm" else 1
        cpus = float(gpus)
    cpus = cpus if num_cpus is None else num_cpus
    if engine == "vllm" and device != "cpu" and pipeline_parallel > 1:
        rest = tensor_parallel * pipeline_parallel - 1
        bundles = ({"CPU": cpus, "GPU": 1.0}, *([{"GPU": 1.0}] * rest))
        return EngineResources(num_cpus=cpus, num_gpus=0, bundles=bundles)
    return EngineResources(num_cpus=cpus, num_gpus=gpus if num_gpus is None else num_gpus)


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
