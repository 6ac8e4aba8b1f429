"""Defaults of classes that derive from `Estimator`, and their settings in a configuration."""

from __future__ import annotations

import pytest

from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.core.records import Counts, Outcome
from mclabel.core.seeds import content_id
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators import (
    Estimator,
    EstimatorSettings,
    Judgement,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
    decide_together,
)
from tests.support.estimating import make, settings_of

PATHS = [
    SolutionPath(prefixes=(1, 2), outcome=Outcome.WRONG),
    SolutionPath(prefixes=(1, 3), outcome=Outcome.RIGHT),
]


class Bare(Estimator):
    """An estimator that defines only the three methods without a default."""

    def wanted(self) -> list[int]:
        return []

    def record(self, rollout: RecordedRollout) -> None:
        pass

    def judge(self, counts: list[Counts]) -> list[Judgement]:
        return []


class Batched(Bare):
    """An estimator that decides in batches and records them."""

    batches: list[list[int]] = []  # noqa: RUF012

    def __init__(self, settings: EstimatorSettings, problem: ProblemPaths) -> None:
        self.number, self.is_decided = len(problem.paths), False

    @property
    def is_due(self) -> bool:
        return not self.is_decided

    @classmethod
    def decide_together(cls, estimators: list[Batched]) -> None:
        cls.batches.append([estimator.number for estimator in estimators])
        for estimator in estimators:
            estimator.is_decided = True


def test_estimators_that_are_due_decide_together_by_class() -> None:
    Batched.batches.clear()
    some = [Batched(settings_of("outcome"), ProblemPaths(paths=PATHS[:n])) for n in (1, 2)]
    bare = Bare(settings_of("outcome"), ProblemPaths(paths=PATHS))
    bayesian = make("posterior", PATHS, min_gain=0.0006)
    assert bayesian.is_due
    decide_together([some[0], bare, bayesian, some[1]])
    assert Batched.batches == [[1, 2]] and not bayesian.is_due
    decide_together([some[0], bayesian])
    assert Batched.batches == [[1, 2]]  # no estimator is due any more


GOLDEN = {
    "{kind: posterior}": "ed78bae6c47a810e",
    "{kind: posterior, agreement: false, every: 2, tokens_per_solution: 60}": "94b8d35fcdb819fa",
    "{kind: fixed}": "3000dcc700339f6c",
    "{kind: fixed, rollouts: 8, root_rollouts: 4, truncated: exclude}": "c9a01af75d00680c",
    "{kind: first_error, rollouts: 8}": "91b2af241a50b383",
    "{kind: bisect, rollouts: 32, batch: 1}": "f8ed5bfee3778a5b",
    "{kind: tree, searches: 3}": "9beaf09415d13fc0",
    "{kind: outcome}": "f04247095a394f21",
}
"""Ids of estimators' settings. A run is resumed only if its ids match, so no later release may
change them."""


def estimator_of(*overrides: str) -> EstimatorSettings:
    return load_config(LabelConfig, None, ["out=x", *overrides]).estimator


@pytest.mark.parametrize(("written", "golden"), GOLDEN.items())
def test_the_identity_of_settings_stays_from_release_to_release(written: str, golden: str) -> None:
    assert content_id("estimator", estimator_of(f"estimator={written}").identity()) == golden


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{kind: posterior, width: 0.9}", "estimator.width: not a setting of kind=posterior"),
        ("{kind: posterior, rollout: 9}", "did you mean estimator.rollouts"),
        ("{kind: fixed, searches: 9}", "estimator.searches: not a setting of kind=fixed"),
        ("{kind: fixed, root_rollout: 9}", "did you mean estimator.root_rollouts"),
        ("{kind: outcome, rollouts: 9}", "estimator.rollouts: not a setting of kind=outcome"),
        ("{kind: posterio}", "posterio: is not among the estimators. did you mean posterior"),
        ("{kind: 'tests.estimators.test_protocol:Gone'}", "cannot be imported"),
        ("{kind: 'tests.estimators.test_protocol:PATHS'}", "its attribute Settings is None"),
        ("{kind: posterior, every: 9, rollouts: 4}", "every=9 must be at most rollouts=4"),
    ],
)
def test_what_is_no_setting_of_the_estimator_is_an_error(written: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        estimator_of(f"estimator={written}")
    assert message in str(caught.value)
