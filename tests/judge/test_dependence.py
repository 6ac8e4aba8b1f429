"""Judges that copy each other or the rollouts count once, as learned on simulated runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest

from mclabel.judge.consensus.models import JudgeModel
from mclabel.judge.consensus.posterior import FusedPosterior, fuse_judges_with_rollouts
from tests.support.opinion_world import World, scripted, simulated

SIZE = 1000
"""Number of solutions of a simulated world."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(8, id="8 rollouts"),
        pytest.param(2, id="2 rollouts", marks=pytest.mark.slow),
    ],
)
def world(request: pytest.FixtureRequest) -> World:
    return simulated(0, SIZE, request.param)


@pytest.fixture(scope="module")
def judges(world: World) -> dict[str, Mapping[str, JudgeModel]]:
    return scripted(world)


@pytest.fixture(scope="module")
def fused(
    world: World, judges: dict[str, Mapping[str, JudgeModel]]
) -> Callable[[str], FusedPosterior]:
    """Return a cached function from the name of a set of judges to their fused opinions."""

    @cache
    def fuse_judges(name: str) -> FusedPosterior:
        return fuse_judges_with_rollouts(
            world.chances, world.num_steps, judges[name], labels=world.labels
        )

    return fuse_judges


@pytest.mark.slow
@pytest.mark.parametrize(
    ("single", "copies"),
    [
        ("a fair judge", "the same twice"),
        ("a fair judge", "the same five times"),
        ("a random judge", "the same five times, random"),
        ("its scores", "its scores twice"),
    ],
)
def test_copies_change_no_belief(
    judges: dict[str, Mapping[str, JudgeModel]],
    fused: Callable[[str], FusedPosterior],
    single: str,
    copies: str,
) -> None:
    alone, several = fused(single), fused(copies)
    apart = np.abs(alone.chances - several.chances).max(1)
    assert apart.mean() <= 0.02 and apart.max() <= 0.05
    assert [sorted(group) for group in several.groups] == [sorted(judges[copies])]


def test_copies_of_a_random_judge_do_no_harm_to_a_fair_one(
    world: World, fused: Callable[[str], FusedPosterior]
) -> None:
    alone = fused("a fair judge")
    crowded = fused("a fair judge and a random one five times")
    assert world.right(crowded.chances) >= world.right(alone.chances) - 0.01
    assert all("fair" not in group for group in crowded.groups)


def test_independent_judges_keep_their_full_weight(
    world: World, fused: Callable[[str], FusedPosterior]
) -> None:
    fusion = fused("five independent fair judges")
    assert fusion.groups == []
    assert world.right(fusion.chances) >= 0.975


def test_a_judge_that_copies_the_labels_counts_as_the_rollouts(
    world: World, fused: Callable[[str], FusedPosterior]
) -> None:
    without = fuse_judges_with_rollouts(world.chances, world.num_steps, {}, labels=world.labels)
    copied = fused("a copier of the labels")
    assert copied.groups == [["rollouts", "copier"]]
    assert np.abs(without.chances - copied.chances).max() <= 0.05


def test_the_order_of_judges_does_not_matter(
    world: World, judges: dict[str, Mapping[str, JudgeModel]]
) -> None:
    models = judges["that PRM at three thresholds"]
    turned, in_order = (
        fuse_judges_with_rollouts(world.chances, world.num_steps, dict(these), labels=world.labels)
        for these in (reversed(models.items()), models.items())
    )
    assert turned.chances == pytest.approx(in_order.chances, abs=1e-9)
