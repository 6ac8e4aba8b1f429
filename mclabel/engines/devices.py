"""Resources of engines: CPUs and GPUs of a cluster, and the torch device that `auto` selects."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mclabel.core.errors import EngineError
from mclabel.engines.pretrained import reason

AUTO: Final = "auto"
"""A device that each process chooses for itself."""


def resolve_device(device: str) -> str:
    """Return the torch device that `auto` means in this process; any other unchanged.

    That is cuda where torch sees a GPU, and cpu elsewhere. A worker of Ray takes cuda only if a GPU
    is reserved for it.
    """
    if device != AUTO:
        return device
    import torch

    return "cuda" if torch.cuda.is_available() and not _is_denied() else "cpu"


def check_device(device: str) -> str:
    """See that torch computes on a device here.

    Args:
        device: name of a torch device, or `auto`.

    Returns:
        The device that it stands for here.

    Raises:
        EngineError: torch does not compute there.
    """
    import torch

    resolved = resolve_device(device)
    try:
        torch.ones(1, device=resolved).item()
    except Exception as error:  # each backend refuses in its own way
        raise EngineError(
            f"device={device!r}: torch cannot compute there on this machine ({reason(error)}). "
            "Give cpu, cuda where there is a GPU, or auto to choose"
        ) from error
    return resolved


def has_bfloat16(device: str) -> bool:
    """Return whether a device is a GPU that computes in bfloat16 by itself."""
    import torch

    if torch.device(device).type != "cuda" or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _is_denied() -> bool:
    """Return whether this is a Ray worker without a GPU, which may see those of others."""
    ray = sys.modules.get("ray")  # a worker has imported it
    if ray is None or not ray.is_initialized():
        return False
    context = ray.get_runtime_context()
    return context.worker.mode == ray.WORKER_MODE and not context.get_accelerator_ids().get("GPU")


@dataclass(frozen=True, kw_only=True)
class EngineResources:
    """Resources of one engine's actor."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    gpu_memory: float = 0.0
    """Share of the memory of each of its GPUs that it holds while it is loaded, in [0, 1]; 0 where
    that is not known before."""
    bundles: tuple[Mapping[str, float], ...] = ()
    """Bundles of a placement group over several nodes, if the engine's own workers are Ray actors;
    the engine's actor is in the first. Without bundles, the actor has all resources on one node."""

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
            num_cpus: CPUs of the engine's actor; None leaves them unchanged.
            num_gpus: GPUs of an engine on a single node; None leaves them unchanged.
        """
        changed = self if num_cpus is None else replace(self, num_cpus=num_cpus)
        if self.bundles:
            first = {**self.bundles[0], "CPU": changed.num_cpus}
            return replace(changed, bundles=(first, *self.bundles[1:]))
        return changed if num_gpus is None else replace(changed, num_gpus=num_gpus)

    def room(self, nodes: Iterable[Mapping[str, float]]) -> int:
        """Return about how many engines would fit the nodes if these were empty."""
        have = list(nodes)
        if self.bundles:
            return int(sum(node.get("GPU", 0) for node in have) // self.total_gpus)
        needs = [("CPU", self.num_cpus), ("GPU", self.num_gpus)]
        return sum(
            min((int(node.get(kind, 0) // need) for kind, need in needs if need), default=1)
            for node in have
        )


ONE_CPU = EngineResources()
