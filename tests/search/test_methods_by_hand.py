"""Search methods and their arithmetic on small examples, computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mclabel.prm.scoring.aggregate import AGGREGATIONS
from mclabel.search.base import ROOT, Expansion, Node, SearchMethod
from mclabel.search.levels import (
    compute_effective_sample_size,
    resample_systematically,
    split_by_largest_remainder,
    temper_weights,
)
from tests.support.search_world import begin


def child(
    name: str, score: float, *, parent: str = ROOT, finished: bool = False, cut: bool = False
) -> tuple[str, Node]:
    """Return a parent's id and its continuation, as `record` takes them."""
    depth = len(name)
    node = Node(
        id=name,
        parent=parent,
        depth=depth,
        num_tokens=depth,
        is_finished=finished,
        is_cut=cut,
        scores=(score,) * depth,
    )
    return parent, node


def requests_after(method: SearchMethod, *arrivals: tuple[str, Node]) -> dict[str, int]:
    """Record the arrivals and return the number of samples that are requested per node."""
    for parent, node in arrivals:
        method.record(parent, node)
    wanted = method.wanted()
    assert all(request.steps == 1 for request in wanted)
    return {request.node: request.count for request in wanted}


def test_best_of_n_by_hand() -> None:
    method = begin("best_of_n", n=4)
    assert method.wanted() == [Expansion(node=ROOT, count=4, steps=None)]
    for arrival in (child("a", 0.1, finished=True), child("b", 0.9, cut=True)) * 2:
        assert requests_after(method, arrival) == {}
    assert method.result() == {"a": 2}


def test_beam_by_hand() -> None:
    method = begin("beam", n=4, width=2)
    assert requests_after(method) == {ROOT: 4}
    assert requests_after(method, child("a", 0.9), child("a", 0.9), child("b", 0.5)) == {}
    assert requests_after(method, child("c", 0.7)) == {"a": 2, "c": 2}
    second = [
        child("a1", 0.1, parent="a", finished=True),
        child("a2", 0.6, parent="a"),
        child("c1", 0.95, parent="c"),
        child("c2", 1.0, parent="c", cut=True),
    ]
    # Three samples are missing. There are two beams, and the better one gets the odd sample.
    assert requests_after(method, *second) == {"c1": 2, "a2": 1}
    third = [child("c11", 0.5, parent="c1", finished=True)] * 2
    assert requests_after(method, *third, child("a21", 0.5, parent="a2")) == {"a21": 1}
    assert requests_after(method, child("a211", 0.5, parent="a21", finished=True)) == {}
    assert method.result() == {"a1": 1, "c11": 2, "a211": 1}


def test_beam_with_too_few_nodes_shares_the_samples_among_them() -> None:
    method = begin("beam", n=6, width=2)
    assert requests_after(method) == {ROOT: 6}
    assert requests_after(method, *[child("a", 0.5)] * 5, child("b", 0.5)) == {"a": 3, "b": 3}


def test_dvts_by_hand() -> None:
    method = begin("dvts", n=4, width=2)
    assert requests_after(method) == {ROOT: 4}
    first = [child("d", 0.1), child("b", 0.8), child("a", 0.9), child("c", 0.2)]
    # The candidates are divided into (a, b) and (c, d).
    assert requests_after(method, *first) == {"a": 2, "c": 2}
    assert requests_after(method, child("a1", 0.4, parent="a")) == {}
    # One subtree continues while the other waits. A dead end loses to any other candidate.
    assert requests_after(method, child("a2", 0.9, parent="a", cut=True)) == {"a1": 2}
    ends = [
        child("c1", 0.4, parent="c", finished=True),
        child("c2", 0.4, parent="c"),
        child("a11", 0.9, parent="a1", cut=True),
        child("a11", 0.9, parent="a1", cut=True),
    ]
    assert requests_after(method, *ends) == {}
    assert method.result() == {"c1": 1}


def test_dvts_subtrees_on_one_node_stay_apart() -> None:
    method = begin("dvts", n=4, width=2)
    requests_after(method)
    assert requests_after(method, *[child("a", 0.5)] * 4) == {"a": 4}
    arrivals = [child(f"a{i}", i / 10, parent="a") for i in range(4)]
    moved = requests_after(method, *arrivals)
    assert moved["a3"] == 2 and sum(moved.values()) == 4


def test_rebase_by_hand() -> None:
    method = begin("rebase", n=8)
    assert requests_after(method) == {ROOT: 8}
    first = [*[child("a", 0.8)] * 3, *[child("b", 0.6)] * 3, child("c", 0.9, finished=True)]
    # The weights e : 1 of 7 samples give 5.12 : 1.88.
    assert requests_after(method, *first, child("d", 0.9, cut=True)) == {"a": 5, "b": 2}
    # A node counts as often as it was sampled.
    method = begin("rebase", n=4)
    requests_after(method)
    assert requests_after(method, *[child("a", 0.5)] * 3, child("b", 0.5)) == {"a": 3, "b": 1}


@pytest.mark.parametrize(
    ("shares", "parts"),
    [
        ([1.0], [5]),
        ([1.0, 1.0], [3, 2]),
        ([1.0, 1.0, 1.0], [2, 2, 1]),
        ([0.6, 0.3, 0.1], [3, 2, 0]),
        ([1.0, 0.0], [5, 0]),
    ],
)
def test_split_of_five_by_hand(shares: list[float], parts: list[int]) -> None:
    assert split_by_largest_remainder(5, shares) == parts


positive = st.lists(st.floats(1e-12, 1e6), min_size=1, max_size=40)


@given(total=st.integers(0, 4096), shares=positive)
def test_split_adds_up(total: int, shares: list[float]) -> None:
    parts = split_by_largest_remainder(total, shares)
    assert sum(parts) == total
    for part, share in zip(parts, shares, strict=True):
        assert abs(part - total * share / sum(shares)) < 1 + 1e-6


@given(total=st.integers(1, 4096), shares=positive, start=st.floats(0, 1, exclude_max=True))
def test_resampling_is_within_one_of_what_is_expected(
    total: int, shares: list[float], start: float
) -> None:
    counts = resample_systematically(shares, total, start)
    assert sum(counts) == total
    for count, share in zip(counts, shares, strict=True):
        assert abs(count - total * share / sum(shares)) < 1 + 1e-6


def test_resampling_is_unbiased() -> None:
    shares, starts = [0.4, 2.2, 0.0, 1.3, 0.1], [(i + 0.5) / 1000 for i in range(1000)]
    drawn = [resample_systematically(shares, 10, start) for start in starts]
    means = [sum(counts) / len(drawn) for counts in zip(*drawn, strict=True)]
    assert means == pytest.approx([1.0, 5.5, 0.0, 3.25, 0.25], abs=2e-3)


def test_resampling_by_hand() -> None:
    assert resample_systematically([3.0, 1.0], 4, 0.7) == [3, 1]
    # The sampling points are 0.25 and 0.75; the boundaries are 0.25, 0.5 and 1.
    assert resample_systematically([1.0, 1.0, 2.0], 2, 0.5) == [0, 1, 1]


@pytest.mark.parametrize(
    ("least", "weight"),
    [
        (0.0, 0.25),
        (0.7, 0.25),  # (5/4)^2 / (17/16) = 1.47 effective particles of 2
        (0.9, 0.5),  # (3/2)^2 / (5/4) = 1.8
        (1.0, 1.0),
    ],
)
def test_weights_are_tempered_until_enough_particles_count(least: float, weight: float) -> None:
    log_odds = [math.log(4), 0.0]
    assert temper_weights(log_odds, [1, 1], least) == pytest.approx([1.0, weight], abs=1e-6)


@given(
    log_odds=st.lists(st.floats(-2000, 2000), min_size=1, max_size=20),
    least=st.floats(0, 1),
    data=st.data(),
)
def test_enough_particles_stay_in_effect(
    log_odds: list[float], least: float, data: st.DataObject
) -> None:
    size = len(log_odds)
    counts = data.draw(st.lists(st.integers(1, 9), min_size=size, max_size=size))
    weights = temper_weights(log_odds, counts, least)
    assert compute_effective_sample_size(weights, counts) >= least * sum(counts) * (1 - 1e-9)
    order = sorted(range(size), key=lambda i: log_odds[i])
    assert [weights[i] for i in order] == sorted(weights)


def test_particles_by_hand() -> None:
    method = begin("particle", n=4)
    assert requests_after(method) == {ROOT: 4}
    # The odds are 1 : 1 : 1 : 0, with 0 for the dead end. Finished particles keep their place.
    first = [child("a", 0.5), child("a", 0.5), child("b", 0.5, finished=True)]
    second = requests_after(method, *first, child("c", 0.9, cut=True))
    held = method.result()["b"]
    assert (second["a"], held) in ((3, 1), (2, 2))
    # The other particles end with odds 4 against 1 for b, because weights are expected counts.
    ends = [child("a1", 0.8, parent="a", finished=True)] * second["a"]
    assert requests_after(method, *ends) == {}
    good, fair = 4 * second["a"], held
    expected = {"a1": 4 * good / (good + fair), "b": 4 * fair / (good + fair)}
    assert method.result() == pytest.approx(expected)


@pytest.mark.parametrize("aggregate", sorted(AGGREGATIONS))
def test_particles_of_one_step_count_alike_with_any_aggregation(aggregate: str) -> None:
    method = begin("particle", n=2, aggregate=aggregate)
    requests_after(method)
    requests_after(method, child("a", 0.8, finished=True), child("b", 0.5, finished=True))
    assert method.result() == pytest.approx({"a": 1.6, "b": 0.4})


def test_solutions_count_where_every_particle_left_them() -> None:
    method = begin("particle", n=2)
    requests_after(method)
    requests_after(method, child("a", 1.0), child("b", 0.0, finished=True))
    requests_after(method, *[child("a1", 1.0, parent="a", cut=True)] * 2)
    assert method.result() == {"b": 1}


@pytest.mark.parametrize("kind", ["beam", "dvts"])
@pytest.mark.parametrize(
    ("n", "width", "remedy"), [(16, 5, "width=4, or n=20"), (2, 4, "width=2, or n=4")]
)
def test_width_must_divide_n(kind: str, n: int, width: int, remedy: str) -> None:
    fault = f"width={width}: must divide n={n}. Set {remedy}"
    with pytest.raises(ValidationError, match=fault):
        begin(kind, n=n, width=width)
