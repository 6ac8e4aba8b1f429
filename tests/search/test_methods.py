"""Search methods on a synthetic world end within their bounds, for any order of results."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st

from mclabel.prm.scoring.aggregate import AGGREGATIONS
from mclabel.search import SEARCHES
from mclabel.search.base import ROOT, Node, SearchMethod
from tests.support.search_world import SCORERS, Scorer, World, begin, search

kinds = st.sampled_from(sorted(SEARCHES))
scorers = st.sampled_from([None, *SCORERS.values()])
worlds = st.builds(
    World,
    seed=st.integers(0, 10**6),
    score=scorers,
    num_choices=st.sampled_from([1, 2, 3, 10]),
    stop=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    max_depth=st.integers(1, 6),
)


@st.composite
def methods(draw: st.DrawFn) -> Callable[[int], SearchMethod]:
    """Draw a function that creates a method with random settings from a seed."""
    kind = draw(kinds)
    settings: dict[str, Any] = {
        "n": draw(st.integers(1, 12)),
        "every": draw(st.integers(1, 3)),
        "aggregate": draw(st.sampled_from(sorted(AGGREGATIONS))),
    }
    if kind in ("beam", "dvts"):
        settings["width"] = draw(st.integers(1, 4))
        settings["n"] = settings["width"] * draw(st.integers(1, 4))
    if kind == "rebase":
        settings["temperature"] = draw(st.sampled_from([1e-300, 0.2, 1e9]))
    return lambda seed: begin(kind, seed=seed, **settings)


@trials(max_examples=300)
@given(make=methods(), world=worlds, seed=st.integers(0, 3), order=st.integers(0, 10**6))
def test_every_method_ends_within_its_bound(
    make: Callable[[int], SearchMethod], world: World, seed: int, order: int
) -> None:
    method = make(seed)
    run, n = search(method, world, Random(order)), method.settings.n
    kind = method.settings.kind
    assert run.most <= n
    assert all(run.samples_at(depth) <= n for depth in range(world.max_depth))
    if kind == "best_of_n":
        assert run.num_samples == n
    if kind in ("beam", "rebase"):
        assert method.finished.total() <= n
    if kind == "particle" and method.finished:
        assert sum(method.result().values()) <= n * (1 + 1e-9)
    assert all(weight >= 0 for weight in method.result().values())
    if world.stop == 1.0:
        assert method.finished.total() >= n


@trials(max_examples=200)
@given(make=methods(), world=worlds, orders=st.tuples(st.integers(0, 99), st.integers(100, 199)))
def test_the_order_of_arrival_decides_nothing(
    make: Callable[[int], SearchMethod], world: World, orders: tuple[int, int]
) -> None:
    first_search, second_search = (search(make(1), world, Random(order)) for order in orders)
    assert first_search.asked == second_search.asked
    assert first_search.method.result() == second_search.method.result()


@pytest.mark.parametrize("kind", sorted(SEARCHES))
def test_dead_ends_end_the_search_without_result(kind: str) -> None:
    method = begin(kind, n=8)
    assert search(
        method, World(0, SCORERS["constant"], stop=0.0, max_depth=3), Random(0)
    ).num_samples
    assert method.result() == {}


@pytest.mark.parametrize("kind", sorted(SEARCHES))
def test_a_problem_without_room_is_asked_for_nothing(kind: str) -> None:
    method = begin(kind, Node(id=ROOT, parent=None, depth=0, num_tokens=0, is_cut=True), n=8)
    assert list(method.wanted()) == []
    assert method.result() == {}


def measure_share_solved(kind: str, score: Scorer) -> float:
    """Return the share of problems for which a solution is found whose steps are all 1."""
    num_solved = 0
    for seed in range(100):
        method = begin(kind, n=8, seed=seed)
        search(method, World(seed, score, stop=0.5, least_depth=3, max_depth=6), Random(seed))
        num_solved += any(not node.strip("1.") for node in method.result())
    return num_solved / 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["beam", "dvts", "rebase", "particle"])
def test_scores_that_know_something_help(kind: str) -> None:
    steered = measure_share_solved(kind, SCORERS["informative"])
    assert steered > measure_share_solved("best_of_n", SCORERS["informative"]) + 0.15
    assert steered > measure_share_solved(kind, SCORERS["constant"]) + 0.15
