"""A custom estimator that learns over a run; docs/extending-estimator.md has one that does not."""

from __future__ import annotations

import asyncio
import hashlib

from mclabel.checkers import make_checker
from mclabel.core.config.load import load_config
from mclabel.core.records import Problem
from mclabel.engines import PolicySettings
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.decisions import DecisionBatcher, LearningQueue
from mclabel.labeling.estimators import (
    EstimatorSettings,
    Knowledge,
    ProblemPaths,
    RunLearner,
)
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.problem import EngineContext, ProblemLabels, label_problem, make_run_learner
from mclabel.run.cpu_executor import CpuExecutor


class Counted(FixedEstimator):
    """An estimator that learns the number of problems and makes one rollout more for each."""

    class Settings(FixedEstimator.Settings):
        """The settings of `fixed`."""

    class Learner(RunLearner):
        """A learner that counts problems."""

        def __init__(self) -> None:
            self.number = 0

        @property
        def knowledge(self) -> Counted.Number:
            return Counted.Number(self.number)

        def lag(self, number: int) -> int:
            return 1

        def record(self, problem: ProblemPaths, estimator: Counted, *, num_tokens: int) -> None:
            assert problem.paths and num_tokens > 0
            self.number += 1

    class Number(Knowledge):
        """The number of problems so far."""

        def __init__(self, number: int) -> None:
            self.number = number

        def to_json(self) -> str:
            return str(self.number)

    @classmethod
    def learner(cls, settings: Settings, read: object) -> Learner:
        return cls.Learner()

    @classmethod
    def begin(
        cls,
        settings: Settings,
        problem: ProblemPaths,
        *,
        knowledge: Number | None = None,
        min_gain: float | None = None,
    ) -> Counted:
        assert knowledge is not None and min_gain is None
        return cls(settings.with_changes(rollouts=settings.rollouts + knowledge.number), problem)


def settings_of(name: str, **settings: object) -> EstimatorSettings:
    written = [f"estimator.{key}={value}" for key, value in settings.items()]
    return load_config(
        LabelConfig, None, ["out=x", f"estimator={__name__}:{name}", *written]
    ).estimator


def label(settings: EstimatorSettings, count: int) -> list[ProblemLabels]:
    config = load_config(LabelConfig, None, ["out=x"]).model_copy(update={"estimator": settings})

    async def run() -> list[ProblemLabels]:
        engine = ScriptedEngine.Settings()
        policy, executor = (
            ScriptedEngine(PolicySettings(max_tokens=1000, engine=engine)),
            CpuExecutor(),
        )
        await policy.start()
        learner = make_run_learner(config)
        learning_queue = (
            None if learner is None else LearningQueue(learner, executor, fit=learner.fit)
        )
        shared = EngineContext(
            policy=policy,
            settings=config,
            checker=make_checker(config.checker),
            executor=executor,
            decisions=DecisionBatcher(executor),
        )
        problems = [
            Problem(id=f"p{i}", text=f"Problem {i} [answer {i}]", answer=str(i))
            for i in range(count)
        ]
        return [
            await label_problem(
                problem,
                shared,
                ticket=None if learning_queue is None else learning_queue.open_ticket(),
            )
            for problem in problems
        ]

    return asyncio.run(run())


def test_its_learner_learns_over_a_run() -> None:
    for number, problem in enumerate(label(settings_of("Counted", rollouts=1), 3)):
        identity = hashlib.sha256(str(number).encode()).hexdigest()[:16]
        assert problem.knowledge is not None and problem.knowledge.id == identity
        for row in problem.labeled:
            assert row.priors == identity and row.min_gain is None
            assert {step.counts.num_rollouts for step in row.steps[:-1]} == {number + 1}
