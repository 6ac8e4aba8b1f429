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
from mclabel.engines.base import build_limit_arguments
from mclabel.evaluate.labels.quality import find_exact_first_error, has_exact_truth
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
POLL_S = 0.02
MIN_BUSY_LIVE = 256
"""Number of live rollouts below which the engine counts as not busy."""


def engine_name() -> str:
    """Return the name of the measured engine: vLLM if it is installed, otherwise hf."""
    return "hf" if importlib.util.find_spec("vllm") is None else "vllm"


class LoadedPolicy:
    """A started policy whose `start` and `close` do nothing; it records all requests."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.prompt_ids, self.encode, self.decode = policy.prompt_ids, policy.encode, policy.decode
        self.stats, self.max_context = policy.stats, policy.max_context
        self.max_token_chars, self.room = policy.max_token_chars, policy.room
        self.requests: list[tuple[Sequence[int], Sequence[int], int]] = []
        self.num_tokens = 0

    async def start(self) -> None:
        """Do nothing, since the policy has been started."""

    async def close(self) -> None:
        """Do nothing, since the policy is used again."""

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
        self.requests.append((prompt, prefix, seed))
        completion = await self._policy.sample(
            prompt, prefix, seed=seed, priority=priority, **build_limit_arguments(max_tokens, stop)
        )
        ended = completion.finish_reason == "stop" and not completion.at_stop
        self.num_tokens += len(completion.ids) + ended
        return completion

    async def reset_cache(self) -> None:
        """Empty the prefix cache and the record, so that runs do not profit from earlier ones."""
        engine: Any = getattr(self._policy, "_engine", None)
        if engine is not None:
            await engine.reset_prefix_cache()
        self.requests, self.num_tokens = [], 0


@asynccontextmanager
async def loaded_policy(
    model: str, *, max_tokens: int = 200, max_live: int = MAX_LIVE
) -> AsyncIterator[LoadedPolicy]:
    """Load an engine on this machine's CPU, and close it afterwards."""
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
    """Measurements of one way of driving the engine."""

    seconds: float
    num_tokens: int
    num_solutions: int
    share_under_full: float
    """Share of the time with fewer than `MIN_BUSY_LIVE` live completions."""
    loop_lag_s: float = 0.0
    accuracy: float | None = None
    """Share of solutions whose first error, or its absence, is labelled right; None without exact
    truth.
    """

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds


async def label_job(policy: LoadedPolicy, problems: list[Problem], **estimator: Any) -> Run:
    """Run a labelling job on one engine, including its shards and journals."""
    await policy.reset_cache()
    with tempfile.TemporaryDirectory(prefix="mclabel-benchmark-") as folder:
        config = LabelConfig.model_validate({"out": folder, "estimator": estimator})
        task = LabelTask(make_policy=partial(_keep_policy, policy), settings=config, provenance={})
        worker = Worker(task, out=folder)
        await worker.start()
        planned = plan_blocks(
            None,
            ProblemItems(problems),
            LABEL_OUTPUTS,
            identity=config.identity(),
            block_items=config.block_problems,
        )
        blocks = list(planned.read_blocks())
        book = LeaseBook(blocks, num_blocks=len(blocks))
        lags: list[float] = []
        solutions = 0

        def record_lag(progress: WorkerProgress) -> None:
            lags.append(progress.loop_lag_s)

        async with _Watch(policy) as watch:
            async for report in run_blocks(worker, book, record_lag):
                solutions += report.counts["num_solutions"]
        await worker.close()
        assert len(list(Path(folder, "labels").iterdir())) == len(blocks)
        rows = list(read_labels(Store(folder)))
    accuracy = None
    if has_exact_truth(rows):
        accuracy = sum(row.first_error == find_exact_first_error(row) for row in rows) / len(rows)
    return watch.run(policy, solutions, loop_lag_s=max(lags), accuracy=accuracy)


def _keep_policy(policy: LoadedPolicy) -> Policy:
    return policy


class _Watch:
    """Measurement of the time and of the number of live completions within a context."""

    def __init__(self, policy: LoadedPolicy) -> None:
        self._policy = policy
        self._live_counts: list[int] = []

    async def __aenter__(self) -> _Watch:
        self._looking = asyncio.create_task(self._poll_live_count())
        self._started = time.perf_counter()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._started
        self._looking.cancel()

    async def _poll_live_count(self) -> None:
        while True:
            stats: EngineStats = self._policy.stats()
            self._live_counts.append(stats.num_live)
            await asyncio.sleep(POLL_S)

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
            share_under_full=sum(live < MIN_BUSY_LIVE for live in self._live_counts)
            / max(1, len(self._live_counts)),
            loop_lag_s=loop_lag_s,
            accuracy=accuracy,
        )


def watch(policy: LoadedPolicy) -> _Watch:
    """Return a context in which the use of the engine is measured."""
    return _Watch(policy)
