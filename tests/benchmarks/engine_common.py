"""One loaded engine that benchmarks drive in several ways."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mclabel.core.records import Completion, Problem
from mclabel.engines import EngineSettings, EngineStats, Policy, PolicySettings, make_engine
from mclabel.engines.base import limited
from mclabel.evaluate.labels.quality import exact_first_error, has_exact_truth
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.inputs import ProblemItems
from mclabel.labeling.task import LABEL_OUTPUTS, LabelTask
from mclabel.run.blocks import plan_blocks
from mclabel.run.fleets import run_blocks
from mclabel.run.leases import LeaseBook
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.run.worker import Worker, WorkerProgress

MAX_LIVE = 384
LOOK_S = 0.02
FULL = 256
"""Live rollouts under which an engine is not kept busy."""


def engine_name() -> str:
    """The engine that is measured: vLLM where it is installed."""
    return "hf" if importlib.util.find_spec("vllm") is None else "vllm"


class LoadedPolicy:
    """A started policy that starts and closes no more; notes what it is asked for."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.prompt_ids, self.encode, self.decode = policy.prompt_ids, policy.encode, policy.decode
        self.stats, self.max_context = policy.stats, policy.max_context
        self.max_token_chars, self.room = policy.max_token_chars, policy.room
        self.asked: list[tuple[Sequence[int], Sequence[int], int]] = []
        self.num_tokens = 0

    async def start(self) -> None:
        """It is started."""

    async def close(self) -> None:
        """It is used again."""

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
        self.asked.append((prompt, prefix, seed))
        completion = await self._policy.sample(
            prompt, prefix, seed=seed, priority=priority, **limited(max_tokens, stop)
        )
        ended = completion.finish_reason == "stop" and not completion.at_stop
        self.num_tokens += len(completion.ids) + ended
        return completion

    async def forget(self) -> None:
        """Empty the prefix cache, so that no run finds what another has left."""
        engine: Any = getattr(self._policy, "_engine", None)
        if engine is not None:
            await engine.reset_prefix_cache()
        self.asked, self.num_tokens = [], 0


@asynccontextmanager
async def loaded_policy(
    model: str, *, max_tokens: int = 200, max_live: int = MAX_LIVE
) -> AsyncIterator[LoadedPolicy]:
    """An engine on this machine's CPU."""
    settings: EngineSettings
    if engine_name() == "vllm":
        from mclabel.engines.vllm import VllmEngine

        settings = VllmEngine.Settings(
            max_live=max_live,
            dtype="float32",
            device="cpu",
            kv_cache_gib=2.0,
            engine_args={"enforce_eager": True},
        )
    else:
        from mclabel.engines.hf import HfEngine

        settings = HfEngine.Settings(max_live=max_live)
    max_model_len = 512 if engine_name() == "vllm" else None
    policy = make_engine(
        PolicySettings(
            model=model,
            temperature=0.8,
            max_tokens=max_tokens,
            max_model_len=max_model_len,
            engine=settings,
        )
    )
    await policy.start()
    try:
        yield LoadedPolicy(policy)
    finally:
        await policy.close()


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one way of driving the engine gave."""

    seconds: float
    num_tokens: int
    num_solutions: int
    share_under_full: float
    """Of the time with fewer than `FULL` completions live."""
    loop_lag_s: float = 0.0
    accuracy: float | None = None
    """Share of the solutions whose first error is found, or that they have none (arith)."""

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds


async def label_job(policy: LoadedPolicy, problems: list[Problem], **estimator: Any) -> Run:
    """A labelling job as it is run on one engine, shards and journals included."""
    await policy.forget()
    with tempfile.TemporaryDirectory(prefix="mclabel-benchmark-") as folder:
        config = LabelConfig.model_validate({"out": folder, "estimator": estimator})
        task = LabelTask(make_policy=partial(_same, policy), settings=config, provenance={})
        worker = Worker(task, out=folder)
        await worker.start()
        planned = plan_blocks(
            None,
            ProblemItems(problems),
            LABEL_OUTPUTS,
            identity=config.identity(),
            block_items=config.block_problems,
        )
        blocks = list(planned.blocks())
        book = LeaseBook(blocks, num_blocks=len(blocks))
        lags: list[float] = []
        solutions = 0

        def look(progress: WorkerProgress) -> None:
            lags.append(progress.loop_lag_s)

        async with _Watch(policy) as watch:
            async for report in run_blocks(worker, book, look):
                solutions += report.counts["num_solutions"]
        await worker.close()
        assert len(list(Path(folder, "labels").iterdir())) == len(blocks)
        rows = list(read_labels(Store(folder)))
    accuracy = None
    if has_exact_truth(rows):
        accuracy = sum(row.first_error == exact_first_error(row) for row in rows) / len(rows)
    return watch.run(policy, solutions, loop_lag_s=max(lags), accuracy=accuracy)


def _same(policy: LoadedPolicy) -> Policy:
    return policy


class _Watch:
    """Takes the time, and looks at how many completions are live."""

    def __init__(self, policy: LoadedPolicy) -> None:
        self._policy = policy
        self._looks: list[int] = []

    async def __aenter__(self) -> _Watch:
        self._looking = asyncio.create_task(self._look())
        self._started = time.perf_counter()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._started
        self._looking.cancel()

    async def _look(self) -> None:
        while True:
            stats: EngineStats = self._policy.stats()
            self._looks.append(stats.num_live)
            await asyncio.sleep(LOOK_S)

    def run(
        self,
        policy: LoadedPolicy,
        num_solutions: int,
        *,
        loop_lag_s: float = 0.0,
        accuracy: float | None = None,
    ) -> Run:
        return Run(
            seconds=self.seconds,
            num_tokens=policy.num_tokens,
            num_solutions=num_solutions,
            share_under_full=sum(live < FULL for live in self._looks) / max(1, len(self._looks)),
            loop_lag_s=loop_lag_s,
            accuracy=accuracy,
        )


def watch(policy: LoadedPolicy) -> _Watch:
    """Measure what is done with the engine in this context."""
    return _Watch(policy)
