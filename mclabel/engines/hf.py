"""The `hf` engine: runs any transformers causal LM with full attention in this process.

A thread runs the decoding loop; a *lane* of the decoder computes one token sequence for all
rollouts that have sampled the same tokens. Completions are requested and delivered on the caller's
asyncio loop. The engine suits a model that fits one CPU or one GPU; use vLLM for larger models.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, cast

from mclabel.core.cores import limit_to_cores
from mclabel.core.errors import EngineDied, EngineError
from mclabel.core.records import Completion
from mclabel.engines.base import NO_ROOM, EngineStats
from mclabel.engines.devices import EngineResources
from mclabel.engines.loading import load_in_thread, silence_transformers
from mclabel.engines.model import ModelEngine
from mclabel.engines.pretrained import check_finite, load_model
from mclabel.engines.settings import DeviceSettings, PolicySettings
from mclabel.engines.text import StopTextDetector

if TYPE_CHECKING:
    from mclabel.engines.cascade import LiveRollout
    from mclabel.engines.decoder import SharedPrefixDecoder

LOOKAHEAD = 512
"""Maximum number of waiting requests that are searched for a longer common prefix when a prefix is
computed."""
CPU_FIRST_STEP = 16
"""Maximum number of lanes per decoding step at the beginning of a job on a CPU. The time of a step
grows nearly in proportion to its lanes. Without the limit, later requests would delay the first
results. A GPU computes all lanes in every step."""


class HfEngine(ModelEngine):
    """Runs a policy with a model of transformers in a thread of this process."""

    class Settings(DeviceSettings):
        """The embedded engine, for a model that fits one CPU or one GPU."""

    settings: Settings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Store the policy without loading the model."""
        super().__init__(policy, seed=seed)
        self._decoder: SharedPrefixDecoder | None = None
        self._max_context: float = inf
        self._last_stats = EngineStats()
        """Statistics that `stats` returns before the start and after the engine is closed."""
        self._queue: list[tuple[int, int, LiveRollout]] = []
        self._order = itertools.count()
        self._wake = threading.Condition()
        self._closing = False
        self._failure: BaseException | None = None
        self._futures: dict[int, asyncio.Future[Completion]] = {}

    @property
    def place(self) -> str:
        """Device that the model runs on: `cpu` or `cuda`."""
        return self.settings.resolved_device

    def resources(self) -> EngineResources:
        """Return one GPU and one CPU core, or on a CPU as many cores as threads."""
        if self.settings.resolved_device == "cpu":
            return EngineResources(num_cpus=self.settings.threads)
        return EngineResources(num_gpus=1)

    async def start(self) -> None:
        """Load the model, and start the thread that runs the decoding loop."""
        self._loop = asyncio.get_running_loop()
        self._decoder = await load_in_thread(self._load_decoder)
        self._max_context, self._closing = self._decoder.max_context, False
        self._thread = threading.Thread(target=self._run_decoder, name="hf-engine", daemon=True)
        self._thread.start()

    def _load_decoder(self) -> SharedPrefixDecoder:
        import torch
        from transformers import AutoModelForCausalLM, GenerationConfig

        from mclabel.engines.cascade import ATTENTION
        from mclabel.engines.decoder import SharedPrefixDecoder

        policy, settings = self.policy, self.settings
        if settings.device == "cuda" and not torch.cuda.is_available():
            raise EngineError(
                "policy.engine.device=cuda: PyTorch finds no GPU on this machine. Reserve a GPU "
                "for the engine (ray.num_gpus=1, on a node with a GPU and its driver), or set "
                "policy.engine.device=cpu"
            )
        folder = self.fetch()
        text = self.load_text(folder)
        torch.set_num_threads(limit_to_cores(settings.threads))
        silence_transformers()
        dtype = settings.weights_dtype
        model = load_model(
            AutoModelForCausalLM,
            folder,
            trust_remote_code=policy.trust_remote_code,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            attn_implementation=ATTENTION,
        )
        try:
            cast(torch.nn.Module, model).to(settings.resolved_device)
        except torch.OutOfMemoryError as error:
            raise EngineError(
                f"policy.model={policy.model!r}: the model does not fit the GPU's memory. Set "
                "policy.engine.dtype=bfloat16, or policy.engine=vllm with "
                "policy.engine.tensor_parallel=2 or more"
            ) from error
        check_finite(model, f"policy.model={policy.model!r}")
        model.eval()
        generation = model.generation_config or GenerationConfig()
        return SharedPrefixDecoder(
            model,
            end_ids=[
                *text.end_ids(model.config.eos_token_id, generation.eos_token_id),
                *policy.stop_token_ids,
            ],
            stop=policy.stop,
            ends_with=StopTextDetector(text.decode).ends,
            temperature=policy.temperature,
            top_p=policy.top_p,
            top_k=policy.top_k,
            max_live=settings.max_live,
            first_step=CPU_FIRST_STEP if settings.resolved_device == "cpu" else None,
            max_context=policy.max_model_len,
        )

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
        from mclabel.engines.cascade import LiveRollout

        context = (*prompt, *prefix)
        budget = self.policy.room(len(prompt), len(prefix), self._max_context, max_tokens)
        if budget < 1:
            return NO_ROOM
        row = LiveRollout(context=context, max_tokens=budget, seed=seed, stop=tuple(stop))
        return await self._sample_row(row, priority)

    async def logprobs(
        self, prompt: Sequence[int], prefix: Sequence[int], tokens: Sequence[int]
    ) -> tuple[float, ...] | None:
        """Return the log-probability of each of `tokens` as the next token, in nats.

        To compute them, one token is sampled and then dropped.
        """
        from mclabel.engines.cascade import LiveRollout

        row = LiveRollout(
            context=(*prompt, *prefix), max_tokens=1, seed=0, scored_ids=tuple(tokens)
        )
        await self._sample_row(row, 0)
        return row.logprobs

    async def _sample_row(self, row: LiveRollout, priority: int) -> Completion:
        """Queue a rollout for the engine's thread, and wait for its completion."""
        if self._decoder is None or self._failure is not None:
            raise self._make_engine_died_error()
        number = row.caller_data = next(self._order)
        row.priority_and_number = priority, number
        future: asyncio.Future[Completion] = self._loop.create_future()
        self._futures[number] = future
        with self._wake:
            heapq.heappush(self._queue, (priority, number, row))
            self._wake.notify()
        try:
            return await future
        except asyncio.CancelledError:
            row.max_tokens = 0  # the rollout is not needed any more, so it ends at the next token
            raise

    def stats(self) -> EngineStats:
        """Return the engine's counters and load at this moment; callable from any thread."""
        decoder = self._decoder
        if decoder is None:
            return self._last_stats
        return EngineStats(
            num_live=decoder.num_live,
            max_live=self.settings.max_live,
            num_waiting=len(self._queue),
            num_sampled_tokens=decoder.num_sampled_tokens,
            num_prefill_tokens=decoder.num_prefill_tokens,
        )

    async def close(self) -> None:
        """End the thread, and free the model; unfinished completions fail."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._decoder is not None:
            await asyncio.to_thread(self._thread.join)
            self._last_stats = replace(self.stats(), num_live=0, num_waiting=0)
            self._decoder = None
            self._queue.clear()
            if self.settings.resolved_device == "cuda":
                import torch

                # PyTorch caches freed memory, so other processes could not use it.
                torch.cuda.empty_cache()

    def _run_decoder(self) -> None:
        """Admit rollouts, step the decoder and deliver completions until the engine is closed.

        This method runs in the engine's thread.
        """
        import torch

        assert self._decoder is not None
        # The number of threads is set for this thread alone: a trainer or a PRM in the same process
        # has its own number. PyTorch fixes the number when it is read for the first time. Before
        # that, this thread would take the number that another thread sets later.
        torch.set_num_threads(limit_to_cores(self.settings.threads))
        torch.get_num_threads()
        try:
            while self._admit_waiting_rollouts(self._decoder):
                ended = self._decoder.step()
                if ended:
                    self._loop.call_soon_threadsafe(
                        self._deliver_completions,
                        [(row.caller_data, self._build_completion(row)) for row in ended],
                    )
        except BaseException as error:  # callers that wait for completions get this error
            self._failure = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fail_waiting_rollouts)

    def _admit_waiting_rollouts(self, decoder: SharedPrefixDecoder) -> bool:
        """Admit waiting rollouts while there is room. Return False once the engine is closed."""
        with self._wake:
            self._wake.wait_for(lambda: self._queue or decoder.num_live or self._closing)
            if self._closing:
                return False
        while True:
            with self._wake:
                if not self._queue:
                    return True
                item = heapq.heappop(self._queue)
                waiting = [other.context for _, _, other in self._queue[:LOOKAHEAD]]
            if not decoder.admit(item[2], waiting):
                with self._wake:
                    heapq.heappush(self._queue, item)
                return True

    def _build_completion(self, row: LiveRollout) -> Completion:
        assert self._decoder is not None
        ended = self._decoder.ended_by_token(row)
        ids = tuple(row.new_ids[:-1] if ended else row.new_ids)
        stopped = ended or self._decoder.ended_by_text(row)
        at_stop = not stopped and self._decoder.is_at_stop(row)
        return Completion(
            ids=ids,
            text=self.text.decode(ids),
            finish_reason="stop" if stopped or at_stop else "length",
            at_stop=at_stop,
        )

    def _deliver_completions(self, completions: list[tuple[int, Completion]]) -> None:
        for number, completion in completions:
            future = self._futures.pop(number)
            if not future.done():
                future.set_result(completion)

    def _fail_waiting_rollouts(self) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(self._make_engine_died_error())
        self._futures.clear()

    def _make_engine_died_error(self) -> EngineDied:
        reason = "was closed" if self._failure is None else f"died: {self._failure!r}"
        error = EngineDied(f"policy.engine=hf: the engine {reason}")
        error.__cause__ = self._failure
        return error
