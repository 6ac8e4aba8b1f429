"""Resources of engines: CPUs and GPUs on a cluster, and the torch device that `auto` stands for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mclabel.core.errors import EngineError
from mclabel.engines.pretrained import format_error_reason

AUTO: Final = "auto"
"""Value of a setting `device` with which each process chooses its own torch device: `cuda` if it
may use a GPU, else `cpu`."""


def resolve_device(device: str) -> str:
    """Replace `auto` by a torch device; return any other device unchanged.

    The device is `cuda` if torch finds a GPU in this process, else `cpu`. A Ray worker uses `cuda`
    only if a GPU is reserved for it.
    """
    if device != AUTO:
        return device
    import torch

    return "cuda" if torch.cuda.is_available() and not _lacks_reserved_gpu() else "cpu"


def check_device(device: str) -> str:
    """Check that torch can compute on a device in this process.

    Args:
        device: name of a torch device, or `auto`.

    Returns:
        The device, with `auto` resolved.

    Raises:
        EngineError: torch cannot compute on the device.
    """
    import torch

    resolved = resolve_device(device)
    try:
        torch.ones(1, device=resolved).item()
    except Exception as error:  # each backend raises its own type of exception
        raise EngineError(
            f"device={device!r}: torch cannot compute on this device of this machine "
            f"({format_error_reason(error)}). Use cpu, cuda on a machine with a GPU, "
            "or auto, which "
            "chooses one of the two"
        ) from error
    return resolved


def has_bfloat16(device: str) -> bool:
    """Return whether a device is a GPU that computes in bfloat16 without emulation."""
    import torch

    if torch.device(device).type != "cuda" or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _lacks_reserved_gpu() -> bool:
    """Return whether this process is a Ray worker without a reserved GPU.

    Such a worker may see GPUs that are reserved for other workers.
    """
    ray = sys.modules.get("ray")  # a worker has imported it
    if ray is None or not ray.is_initialized():
        return False
    context = ray.get_runtime_context()
    return context.worker.mode == ray.WORKER_MODE and not context.get_accelerator_ids().get("GPU")


@dataclass(frozen=True, kw_only=True)
class EngineResources:
    """CPUs and GPUs that an engine reserves on a cluster."""

    num_cpus: float = 1.0
    """Number of CPUs of the engine's Ray actor."""
    num_gpus: float = 0.0
    """Number of GPUs of the engine's Ray actor; 0 if the GPUs are in `bundles`."""
    gpu_memory: float = 0.0
    """Fraction of the memory of each reserved GPU that a loaded engine occupies, in [0, 1]; 0 if
    the fraction is not known before loading."""
    bundles: tuple[Mapping[str, float], ...] = ()
    """Bundles of a Ray placement group over several nodes, for an engine whose own workers are Ray
    actors. The first bundle includes the engine's actor. If empty, all resources are on one node.
    """

    @property
    def total_gpus(self) -> float:
        """Number of GPUs of the engine's actor and its workers."""
        return self.num_gpus + sum(bundle.get("GPU", 0) for bundle in self.bundles)

    def __str__(self) -> str:
        group = f" over {len(self.bundles)} bundles" if self.bundles else " on one node"
        return f"an engine takes {self.num_cpus:g} CPUs and {self.total_gpus:g} GPUs{group}"

    def with_overrides(self, *, num_cpus: float | None, num_gpus: float | None) -> EngineResources:
        """Return a copy in which the numbers that are given replace the engine's own.

        Args:
            num_cpus: CPUs of the engine's actor; None leaves them unchanged.
            num_gpus: GPUs of an engine on a single node; None leaves them unchanged.
        """
        changed = self if num_cpus is None else replace(self, num_cpus=num_cpus)
        if self.bundles:
            first = {**self.bundles[0], "CPU": changed.num_cpus}
            return replace(changed, bundles=(first, *self.bundles[1:]))
        return changed if num_gpus is None else replace(changed, num_gpus=num_gpus)

    def count_fitting_engines(self, nodes: Iterable[Mapping[str, float]]) -> int:
        """Return about how many engines would fit on the nodes if the nodes were empty.

        Args:
            nodes: resources of each node, such as {"CPU": 16, "GPU": 1}.
        """
        have = list(nodes)
        if self.bundles:
            return int(sum(node.get("GPU", 0) for node in have) // self.total_gpus)
        needs = [("CPU", self.num_cpus), ("GPU", self.num_gpus)]
        return sum(
            min((int(node.get(kind, 0) // need) for kind, need in needs if need), default=1)
            for node in have
        )


ONE_CPU = EngineResources()
"""Resources of an engine that needs one CPU and no GPU."""
