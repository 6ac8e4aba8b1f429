"""The embedded engine: any transformers causal LM with full attention, in this process.

A thread of its own runs the decoding loop; completions are asked for and delivered on the
caller's asyncio loop. For a model that fits one CPU or one GPU; for anything large use vLLM.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from mclabel.errors import EngineDied, EngineError
from mclabel.policy.base import NO_ROOM, EngineStats, SamplingParams
from mclabel.policy.hub import fetch_model
from mclabel.policy.pretrained import load_model
from mclabel.policy.text import PolicyText, TextPolicy, ends_with_stop, quiet_transformers
from mclabel.records import Completion

if TYPE_CHECKING:
    from mclabel.policy.cascade import Row
    from mclabel.policy.decoder import SharedPrefixDecoder

LOOKAHEAD = 512  # waiting contexts considered when a prefix is computed


class HfPolicy(TextPolicy):
    """A `Policy` on transformers."""

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
        dtype: str = "float32",
        device: str = "cpu",
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
        threads: of torch, on a CPU.
        dtype: torch dtype the weights are loaded in; `auto` for the model's own.
        device: torch device.
        """
        self._model, self._revision = model, revision
        self._template, self._system, self._few_shot = template, system, few_shot
        self._trust_remote_code, self._max_model_len = trust_remote_code, max_model_len
        self._sampling, self._max_live = sampling, max_live
        self._threads, self._dtype, self._device = threads, dtype, device
        self._decoder: SharedPrefixDecoder | None = None
        self._queue: list[tuple[int, int, Row]] = []
        self._order = itertools.count()
        self._wake = threading.Condition()
        self._closing = False
        self._failure: BaseException | None = None
        self._futures: dict[int, asyncio.Future[Completion]] = {}

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._decoder = await asyncio.to_thread(self._load)
        self._thread = threading.Thread(target=self._run, name="hf-engine", daemon=True)
        self._thread.start()

    def _load(self) -> SharedPrefixDecoder:
        import torch
        from transformers import AutoModelForCausalLM, GenerationConfig

        from mclabel.policy.cascade import ATTENTION
        from mclabel.policy.decoder import SharedPrefixDecoder

        if self._device == "cuda" and not torch.cuda.is_available():
            raise EngineError(
                "policy.device=cuda: torch sees no GPU here. Give the engine one (ray.num_gpus=1, "
                "on a node that has it and its driver), or set policy.device=cpu"
            )
        folder = fetch_model(self._model, revision=self._revision, code=self._trust_remote_code)
        self._text = PolicyText.load(
            folder,
            revision=None,
            template=self._template,
            system=self._system,
            few_shot=self._few_shot,
            trust_remote_code=self._trust_remote_code,
        )
        torch.set_num_threads(self._threads)
        quiet_transformers()
        model = load_model(
            AutoModelForCausalLM,
            folder,
            trust_remote_code=self._trust_remote_code,
            dtype=self._dtype if self._dtype == "auto" else getattr(torch, self._dtype),
            attn_implementation=ATTENTION,
        )
        try:
            cast(torch.nn.Module, model).to(self._device)
        except torch.OutOfMemoryError as error:
            raise EngineError(
                f"policy.model={self._model!r}: does not fit the GPU's memory. Set "
                "policy.dtype=bfloat16, or policy.engine=vllm with policy.tensor_parallel=2 or more"
            ) from error
        model.eval()
        generation = model.generation_config or GenerationConfig()
        stop = self._sampling.stop
        return SharedPrefixDecoder(
            model,
            end_ids=[
                *self._text.end_ids(model.config.eos_token_id, generation.eos_token_id),
                *self._sampling.stop_token_ids,
            ],
            stops=partial(ends_with_stop, stop=stop, decode=self._text.decode) if stop else None,
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
            top_k=self._sampling.top_k,
            max_live=self._max_live,
            max_context=self._max_model_len,
        )

    @property
    def max_context(self) -> float:
        assert self._decoder is not None, "start() first"
        return self._decoder.max_context

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        from mclabel.policy.cascade import Row

        assert self._decoder is not None
        context = (*prompt, *prefix)
        budget = self._sampling.room(len(prompt), len(prefix), self._decoder.max_context)
        if budget < 1:
            return NO_ROOM
        if self._failure is not None:
            raise self._dead()
        number = next(self._order)
        future: asyncio.Future[Completion] = self._loop.create_future()
        self._futures[number] = future
        row = Row(context=context, max_tokens=budget, seed=seed, tag=number)
        with self._wake:
            heapq.heappush(self._queue, (priority, number, row))
            self._wake.notify()
        return await future

    def stats(self) -> EngineStats:
        if self._decoder is None:
            return EngineStats()
        return EngineStats(
            num_live=self._decoder.num_live,
            max_live=self._max_live,
            num_waiting=len(self._queue),
            num_sampled_tokens=self._decoder.num_sampled_tokens,
            num_prefill_tokens=self._decoder.num_prefill_tokens,
        )

    async def close(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._decoder is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        """The engine's thread: admit, step, deliver, until closed."""
        assert self._decoder is not None
        try:
            while self._admit(self._decoder):
                ended = self._decoder.step()
                if ended:
                    self._loop.call_soon_threadsafe(
                        self._deliver, [(row.tag, self._completion(row)) for row in ended]
                    )
        except BaseException as error:  # the waiting callers must hear of it, whatever it is
            self._failure = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._abandon)

    def _admit(self, decoder: SharedPrefixDecoder) -> bool:
        """Move waiting completions into free lanes; False when the engine is closed."""
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

    def _completion(self, row: Row) -> Completion:
        assert self._decoder is not None
        ended = self._decoder.ended_by_token(row)
        ids = tuple(row.sampled[:-1] if ended else row.sampled)
        stopped = ended or self._decoder.ended_by_text(row)
        return Completion(
            ids=ids,
            text=self._loaded_text().decode(ids),
            finish_reason="stop" if stopped else "length",
        )

    def _deliver(self, completions: list[tuple[int, Completion]]) -> None:
        for number, completion in completions:
            future = self._futures.pop(number)
            if not future.done():
                future.set_result(completion)

    def _abandon(self) -> None:
        for future in self._futures.values():
            if not future.done():
                future.set_exception(self._dead())
        self._futures.clear()

    def _dead(self) -> EngineDied:
        reason = "was closed" if self._failure is None else f"died: {self._failure!r}"
        error = EngineDied(f"policy.engine=hf: the engine {reason}")
        error.__cause__ = self._failure
        return error
