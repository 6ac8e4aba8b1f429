"""Priors that one worker has learned serve the next worker on the same output."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from mclabel.core.records import Problem
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.priors import Priors, starting_priors
from mclabel.labeling.inputs import ProblemItem
from mclabel.labeling.sampling import SolutionSettings
from mclabel.labeling.task import LabelTask
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.run.task import Block
from mclabel.run.worker import Worker
from tests.support.scripted_jobs import scripted


def test_a_second_worker_begins_with_what_the_first_learned(tmp_path: Path) -> None:
    problems = [
        Problem(id=f"p{i}", text=f"Problem {i} [answer {i + 10}]", answer=str(i + 10))
        for i in range(30)
    ]
    blocks = [
        Block(id=f"b{i}", items=tuple(map(ProblemItem, problems[i : i + 10])), priority=i)
        for i in (0, 10, 20)
    ]
    store = Store(str(tmp_path / "run"), create=True)
    make_policy = partial(ScriptedEngine, scripted())
    settings = LabelSettings(
        solutions=SolutionSettings(per_problem=2),
        estimator=PosteriorEstimator.Settings(rollouts=8, min_gain=0.08, pilot=20),
    )

    async def run(some: list[Block]) -> None:
        task = LabelTask(
            make_policy=make_policy, settings=settings, provenance={}, keep_rollouts=False
        )
        worker = Worker(task, out=str(tmp_path / "run"))
        await worker.start()
        for block in some:
            await worker.run_block(block)

    asyncio.run(run(blocks[:2]))
    asyncio.run(run(blocks[2:]))
    rests_on = {row.problem.id: row.priors for row in read_labels(store)}
    assert {rests_on[f"p{i}"] for i in range(20)} == {starting_priors().id}
    # the last priors that the first worker fitted
    (adopted,) = {rests_on[f"p{i}"] for i in range(20, 30)}
    assert (
        Priors.from_json((store.read(f"priors/{adopted}.json") or b"").decode()).num_solutions >= 20
    )
