"""The device of torch on which a model computes: what `auto` stands for, and whether it works."""

from __future__ import annotations

import sys
from typing import Final

from mclabel.core.errors import EngineError
from mclabel.engines.pretrained import reason

AUTO: Final = "auto"
"""A device that each process chooses for itself."""


def resolve_device(device: str) -> str:
    """The torch device that `auto` stands for in this process; any other stands for itself.

    That is cuda where torch sees a GPU, and cpu elsewhere. A worker of Ray takes cuda only if a GPU
    is reserved for it.
    """
    if device != AUTO:
        return device
    import torch

    return "cuda" if torch.cuda.is_available() and not _is_denied() else "cpu"


def check_device(device: str, key: str = "device") -> str:
    """See that torch computes on a device here.

    Args:
        device: of torch, or `auto`.
        key: of the setting, for messages.

    Returns:
        The device that it stands for here.

    Raises:
        EngineError: torch does not compute there.
    """
    import torch

    found = resolve_device(device)
    try:
        torch.ones(1, device=found).item()
    except Exception as error:  # each backend refuses in its own way
        raise EngineError(
            f"{key}={device!r}: torch cannot compute there on this machine ({reason(error)}). "
            "Give cpu, cuda where there is a GPU, or auto to choose"
        ) from error
    return found


def has_bfloat16(device: str) -> bool:
    """Whether a device is a GPU that computes in bfloat16 by itself."""
    import torch

    if torch.device(device).type != "cuda" or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _is_denied() -> bool:
    """Whether this is a worker of Ray without a GPU: it may see those of others on its node."""
    ray = sys.modules.get("ray")  # a worker has imported it
    if ray is None or not ray.is_initialized():
        return False
    context = ray.get_runtime_context()
    return context.worker.mode == ray.WORKER_MODE and not context.get_accelerator_ids().get("GPU")
