"""An estimator of one's own, in this module: simulated, and used to label, by `module:Class`."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

from pydantic import Field

from mclabel.checkers import make_checker
from mclabel.core.config.load import load_config
from mclabel.core.records import Counts, Problem
from mclabel.core.stats.values import NOTHING, StepEstimate, estimate_fixed, first_error, hard_label
from mclabel.engines import PolicySettings
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.decisions import Decisions, Lessons
from mclabel.labeling.estimators import (
    Estimator,
    EstimatorSettings,
    Judgement,
    Knowledge,
    ProblemPaths,
    RecordedRollout,
    RolloutSettings,
    RunLearner,
    outcome_estimate,
    outcome_label,
)
from mclabel.labeling.problem import ProblemLabels, Shared, label_problem, run_learner
from mclabel.run.desk import Desk
from tests.benchmarks.simulate import simulate
from tests.benchmarks.simulation.measure import Measurement


class Thinned(Estimator):
    """Rolls out every `stride`-th step of each solution."""

    class Settings(RolloutSettings):
        """Every `stride`-th step is rolled out."""

        stride: int = Field(2, ge=1)
        """Steps from one that is rolled out to the next."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        self.settings, self.paths = settings, problem.paths
        chosen = {prefix for path in problem.paths for prefix in path.prefixes[:: settings.stride]}
        self.pending = sorted(chosen) * settings.rollouts

    def wanted(self) -> Sequence[int]:
        pending, self.pending = self.pending, []
        return pending

    def record(self, rollout: RecordedRollout) -> None:
        pass

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        found = []
        for path in self.paths:
            estimates: list[StepEstimate] = [
                estimate_fixed(counts[prefix]) if counts[prefix].num_rollouts else NOTHING
                for prefix in path.prefixes
            ]
            hard = [hard_label(one.value) for one in estimates] + [outcome_label(path.outcome)]
            found.append(
                Judgement(
                    hard=tuple(hard),
                    sources=(*("thinned" for _ in path.prefixes), "outcome"),
                    first_error=first_error(hard),
                    estimates=(*estimates, outcome_estimate(path.outcome)),
                )
            )
        return found


class Counted(Thinned):
    """Learns how many problems there were, and rolls out once more for each."""

    class Settings(Thinned.Settings):
        """As of `Thinned`."""

    class Learner(RunLearner):
        """Counts."""

        def __init__(self) -> None:
            self.number = 0

        @property
        def knowledge(self) -> Counted.Number:
            return Counted.Number(self.number)

        @property
        def lag(self) -> int:
            return 1

        def record(self, problem: ProblemPaths, estimator: Counted, *, num_tokens: int) -> None:
            assert problem.paths == estimator.paths and num_tokens > 0
            self.number += 1

    class Number(Knowledge):
        """A number of problems."""

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
        min_gain_per_token: float | None = None,
    ) -> Counted:
        assert knowledge is not None and min_gain_per_token is None
        return cls(settings.changed(rollouts=settings.rollouts + knowledge.number), problem)


def settings_of(name: str, **settings: object) -> EstimatorSettings:
    written = [f"estimator.{key}={value}" for key, value in settings.items()]
    overrides = ["out=x", f"estimator={__name__}:{name}", *written]
    return load_config(LabelConfig, None, overrides).estimator


def simulated(settings: EstimatorSettings) -> Measurement:
    return simulate("sharp", settings, 5)


def label(settings: EstimatorSettings, count: int) -> list[ProblemLabels]:
    config = load_config(LabelConfig, None, ["out=x"]).model_copy(update={"estimator": settings})

    async def run() -> list[ProblemLabels]:
        engine = ScriptedEngine.Settings()
        policy, desk = ScriptedEngine(PolicySettings(max_tokens=1000, engine=engine)), Desk()
        await policy.start()
        learner = run_learner(config)
        lessons = None if learner is None else Lessons(learner, desk, fit=learner.fit)
        shared = Shared(
            policy=policy,
            settings=config,
            checker=make_checker(config.checker),
            desk=desk,
            decisions=Decisions(desk),
        )
        problems = [
            Problem(id=f"p{i}", text=f"Problem {i} [answer {i}]", answer=str(i))
            for i in range(count)
        ]
        return [
            await label_problem(
                problem, shared, lesson=None if lessons is None else lessons.begin()
            )
            for problem in problems
        ]

    return asyncio.run(run())


def test_it_labels_with_its_own_settings() -> None:
    settings = settings_of("Thinned", stride=3, rollouts=5)
    assert isinstance(settings, Thinned.Settings)
    assert settings.identity() == {"kind": f"{__name__}:Thinned", "stride": 3, "rollouts": 5}
    [labels] = label(settings, 1)
    assert labels.labeled and labels.rollouts
    for row in labels.labeled:
        for index, step in enumerate(row.steps[:-1]):
            probed = step.counts.num_rollouts
            assert probed == (5 if index % 3 == 0 else 0) or probed == 5  # another one's prefix
            assert step.source == "thinned" and (step.value is None) == (probed == 0)
        assert row.steps[0].counts.num_rollouts == 5
        assert row.steps[-1].source == "outcome"
    assert any(step.value is None for row in labels.labeled for step in row.steps[:-1])


def test_it_is_simulated_with_its_own_settings() -> None:
    few, many = simulated(settings_of("Thinned", stride=4)), simulated(settings_of("Thinned"))
    assert 0 < few.num_rollouts < many.num_rollouts
    assert set(many.sources) == {"thinned"}


def test_its_learner_learns_over_a_run() -> None:
    settings = settings_of("Counted", rollouts=1, stride=1)
    labels = label(settings, 3)
    for number, problem in enumerate(labels):
        identity = hashlib.sha256(str(number).encode()).hexdigest()[:16]
        assert problem.knowledge is not None and problem.knowledge.id == identity
        for row in problem.labeled:
            assert row.priors == identity and row.min_gain_per_token is None
            assert {step.counts.num_rollouts for step in row.steps[:-1]} == {number + 1}
    # 100 problems come before those that are measured.
    plain = simulated(settings_of("Thinned", rollouts=1, stride=1))
    assert simulated(settings).num_rollouts == 101 * plain.num_rollouts
