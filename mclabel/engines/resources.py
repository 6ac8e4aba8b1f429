"""What an engine takes of a cluster: CPUs and GPUs, on one node or over several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class EngineResources:
    """What one engine's actor is given."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    gpu_memory: float = 0.0
    """Share of the memory of each of its GPUs that it holds while it is loaded, in [0, 1]; 0 where
    that is not known before."""
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

    def replaced(self, *, num_cpus: float | None, num_gpus: float | None) -> EngineResources:
        """These resources with what a configuration sets in their place.

        Args:
            num_cpus: of the engine's actor; None leaves them.
            num_gpus: of an engine that lies on one node; None leaves them.
        """
        changed = self if num_cpus is None else replace(self, num_cpus=num_cpus)
        if self.bundles:
            first = {**self.bundles[0], "CPU": changed.num_cpus}
            return replace(changed, bundles=(first, *self.bundles[1:]))
        return changed if num_gpus is None else replace(changed, num_gpus=num_gpus)

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


ONE_CPU = EngineResources()
