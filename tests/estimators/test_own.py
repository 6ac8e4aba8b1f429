"""A custom estimator that learns over a run; docs/extending-estimator.md has one that does not."""

from __future__ import annotations

import hashlib
from pathlib import Path

from mclabel.labeling.estimators import (
    Knowledge,
    ProblemPaths,
    RunLearner,
)
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems


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


def test_its_learner_learns_over_a_run(tmp_path: Path) -> None:
    more = ["ray.address=none", f"estimator={__name__}:Counted", "estimator.rollouts=1"]
    run_label_job(scripted_overrides(write_problems(tmp_path, 3), tmp_path / "out", *more))
    for row in read_labels(Store(str(tmp_path / "out"))):
        number = int(row.problem.id[1:])
        assert row.priors == hashlib.sha256(str(number).encode()).hexdigest()[:16]
        assert row.min_gain is None
        assert {step.counts.num_rollouts for step in row.steps[:-1]} == {number + 1}
