"""Comparisons of searches: figures of trees made by hand, and the whole command once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import sqrt
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.evaluate.search.figures import SearchComparison, SearchRun, compare_searches
from mclabel.evaluate.search.job import SearchEvalConfig
from mclabel.evaluate.search.reference import at_cost, reference_sizes, scored_tokens
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import StoredCost, StoredNode, StoredTree, read_trees
from mclabel.search.tree import ModelSizes
from tests.support.scripted_jobs import write_problems

ONE_EACH = ModelSizes(policy=1, scorer=1)


def node(
    name: str, *, count: int = 1, score: float | None = 0.5, right: bool = False
) -> StoredNode:
    """A whole solution of 10 tokens and an end token; without a score it was cut."""
    return StoredNode(
        id=name,
        parent="",
        depth=1,
        num_tokens=10,
        steps=("so",),
        scores=() if score is None else (score,),
        count=count,
        num_sampled=11 * count,
        is_finished=score is not None,
        is_cut=score is None,
        weight=None if score is None else float(count),
        score=score,
        outcome=None if score is None else "right" if right else "wrong",
        prediction=None if score is None else name,
        group=None if score is None else int(not right),
    )


def tree(
    name: str,
    nodes: Sequence[StoredNode],
    *,
    sampled: int,
    scored: int,
    cached: int = 0,
    family: str = "x",
) -> StoredTree:
    return StoredTree(
        problem_id=name,
        problem="?",
        answer="1",
        meta={"family": family},
        nodes=tuple(nodes),
        chosen=nodes[0].id,
        is_spent=False,
        cost=StoredCost(
            num_prompt=5,
            num_sampled=sampled,
            num_pruned=0,
            num_repeated=0,
            num_replayed=0,
            num_requests=1,
            num_scored=scored,
            num_score_cached=cached,
        ),
    )


HARD = [node("a", score=0.9, right=True), node("b", count=3)]
"""Drawn four times: the right one scores best, but has the fewest votes, weighted ones too."""
TREES = [
    tree("A", HARD, sampled=44, scored=25, cached=5),  # 5 of the prompt, 10 of each
    tree("B", [node("a", count=4, right=True)], sampled=44, scored=15),
    tree("C", [node("a", count=4)], sampled=44, scored=15, family="y"),
]


def searched(name: str, right: Sequence[bool], n: int = 4, **more: bool) -> SearchRun:
    """A method that costs exactly what best of 4 costs."""
    trees = [
        tree(one.problem_id, [node("a", right=flag), node("b", right=True)], sampled=44,
             scored=one.cost.num_scored)
        for one, flag in zip(TREES, right, strict=True)
    ]  # fmt: skip
    return SearchRun(name=name, method="beam", n=n, trees=trees, models=ONE_EACH, **more)


REFERENCE = SearchRun(name="best_of_n", method="best_of_n", n=4, trees=TREES, models=ONE_EACH)


def compared(*runs: SearchRun, reference: SearchRun = REFERENCE) -> SearchComparison:
    return compare_searches(runs, reference, [2, 4], group_by=["family", "level"])


def test_a_solution_costs_the_scorer_its_tokens_with_the_chance_that_it_is_drawn() -> None:
    assert [scored_tokens(TREES[0], n) for n in (1, 2, 3, 4)] == pytest.approx(
        [5 + 2.5 + 7.5, 5 + 5 + 10, 5 + 7.5 + 10, 25]
    )
    assert [scored_tokens(TREES[1], n) for n in (1, 4)] == [15, 15]  # one solution, four times
    cut = [node("a", right=True), node("c", count=3, score=None)]  # a cut one is never read
    assert scored_tokens(tree("D", cut, sampled=44, scored=15), 2) == pytest.approx(15 / 2)


def test_best_of_n_by_size() -> None:
    two, four = reference_sizes(TREES[:2], [2, 4], ONE_EACH, seed=0)
    assert (two.num_sampled, two.num_scored) == (22, (20 + 15) / 2)
    assert (two.cost, two.cost_unscored) == ((94 + 84) / 2, 54)
    assert (four.cost, four.cost_unscored) == ((148 + 128) / 2, 98)
    assert four.cost_of("weighted vote") == four.cost and four.cost_of("pass") == 98
    assert {name: list(values) for name, values in four.accuracy.items()} == {
        "best": [1, 1],
        "weighted vote": [0, 1],
        "majority": [0, 1],
        "pass": [1, 1],
    }
    assert list(two.accuracy["best"]) == pytest.approx([0.5, 1])
    assert list(two.accuracy["pass"]) == pytest.approx([0.5, 1])
    assert two.accuracy["majority"][0] == pytest.approx(0.25, abs=0.08)  # of random subsets
    assert two.accuracy["weighted vote"][0] == pytest.approx(0.5, abs=0.15)


def test_a_cut_draw_counts_and_is_never_chosen() -> None:
    nodes = [node("c", count=2, score=None), node("a", score=0.0, right=True)]
    (one, three) = reference_sizes(
        [tree("D", nodes, sampled=33, scored=15)], [1, 3], ONE_EACH, seed=0
    )
    assert one.accuracy["best"] == pytest.approx([1 / 3])
    assert three.accuracy["best"] == three.accuracy["majority"] == [1.0]
    assert three.num_sampled == 33


def test_the_reference_is_interpolated_in_the_logarithm_of_its_cost() -> None:
    points = reference_sizes(TREES[:2], [1, 2, 4], ONE_EACH, seed=0)

    def at(cost: float) -> tuple[list[float], str | None]:
        values, beyond = at_cost(points, "best", cost)
        return [round(value, 9) for value in values], beyond

    assert [one.cost for one in points] == [62, 89, 138]
    assert at(62) == ([0.25, 1], None)
    assert at(89) == ([0.5, 1], None)
    assert at(sqrt(89 * 138)) == ([0.75, 1], None)
    assert at(89**0.75 * 138**0.25) == ([0.625, 1], None)
    assert at(138) == ([1, 1], None)
    assert at(61) == ([0.25, 1], "below")
    assert at(139) == ([1, 1], "above")


def test_differences_from_best_of_n_are_paired() -> None:
    same, worse = compared(
        searched("same", [True, True, False]), searched("worse", [True, False, False], 16)
    ).methods
    assert same.cost == worse.cost == pytest.approx((148 + 128 + 128) / 3)
    assert same.accuracy.low is not None and same.accuracy.high is not None
    assert same.accuracy.low < 0.5 < same.accuracy.high
    for one in (same, worse):
        assert one.reference is not None
        assert (one.reference.choice, one.reference.beyond) == ("best", None)
        assert one.reference.accuracy.value == pytest.approx(2 / 3)
    less = same.reference.less  # type: ignore[union-attr]
    assert (less.value, less.low, less.high) == (0, 0, 0)  # right where best of 4 is
    assert worse.reference.less.value == pytest.approx(-1 / 3)  # type: ignore[union-attr]
    assert (same.pass_rate.value, same.gap.value) == (1, pytest.approx(1 / 3))


def test_larger_sizes_and_the_truth_as_scorer() -> None:
    result = compared(
        searched("few", [True, True, False]),
        searched("many", [True, False, False], 16),
        searched("few", [True, True, True], is_oracle=True),
    )
    falls = result.over_optimisation
    assert set(falls) == {"few, many", *(f"best of N: {c}" for c in ("best", "weighted vote",
                                                                     "majority"))}  # fmt: skip
    assert falls["few, many"].best_size == 4
    assert falls["few, many"].fall.value == pytest.approx(-1 / 3)
    few, many, oracle = result.methods
    assert oracle.is_oracle and oracle.reference is None and oracle.less_than_oracle is None
    assert few.less_than_oracle is not None
    assert few.less_than_oracle.value == pytest.approx(1 / 3)
    assert many.less_than_oracle is None


def test_groups_by_metadata_and_by_pass_rate() -> None:
    result = compared(searched("worse", [True, False, False]))
    assert set(result.groups) == {"family", "pass rate"}
    x, y = result.groups["family"]["x"], result.groups["family"]["y"]
    assert (x.num_problems, x.accuracy["worse"].value, x.reference["worse"].value) == (2, 0.5, 1)
    assert (x.less["worse"].value, y.less["worse"].value) == (-0.5, 0)
    rates = result.groups["pass rate"]
    assert [one.accuracy["worse"].value for one in rates.values()] == [0, 1, 0]  # C, A, B


def test_without_a_models_size_tokens_are_the_cost() -> None:
    unknown = SearchRun(name="best_of_n", method="", n=4, trees=TREES, models=None)
    result = compared(searched("one", [True] * 3), reference=unknown)
    assert result.cost_unit == "tokens"
    assert result.reference[1].cost["best"] == pytest.approx((74 + 64 + 64) / 3)
    assert result.methods[0].cost == result.reference[1].cost["best"]


def test_searches_must_be_of_the_same_problems() -> None:
    other = SearchRun(name="x", method="beam", n=4, trees=TREES[:2], models=ONE_EACH)
    with pytest.raises(ValueError, match="the same ones of each"):
        compared(other)


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("methods={}", "methods={}: must hold at least 1, holds 0"),
        ("methods={a: beam, a: rebase}", "the key 'a' a second time"),
        ("methods={a: beam, A: rebase}", "methods.A: differs from methods.a only in capital"),
        ("methods={../a: beam}", r"methods.\.\./a: names a folder"),
        ("methods={oracle: beam}", "methods.oracle: names a folder"),
        ("methods={a: {kind: beam, breadth: 2}}", "methods.a.breadth: not a setting of kind=beam"),
        ("best_of_n=[4, 2]", r"best_of_n=\[4, 2\]: sizes must rise. Write best_of_n=\[2, 4\]"),
        ("best_of_n=[4, 4]", "sizes must rise"),
        ("best_of_n=[0]", "best_of_n.0=0: must be at least 1"),
        ("search=beam", "search: unknown key"),
    ],
)
def test_bad_configurations(override: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        load_config(
            SearchEvalConfig, None, ["out=x", "scorer=exact", "methods={b: beam}", override]
        )


def run(out: Path, *more: str) -> Result:
    keys = ["problems.limit=4", "policy.max_tokens=160", "scorer=exact", "oracle=false"]
    keys += ["methods={beam: {kind: beam, n: 4, width: 2}}", "best_of_n=[2, 4]", f"out={out}"]
    return CliRunner(env={"COLUMNS": "200"}).invoke(
        main, ["eval", "search", "configs/eval/search-arith.yaml", *keys, *more]
    )


def test_problems_without_programs_have_no_oracle(tmp_path: Path) -> None:
    path = write_problems(tmp_path, 2)
    result = run(tmp_path / "out", f"problems={{source: {path}}}", "oracle=true")
    assert result.exit_code == 2, result.output
    assert "oracle=true: the scorer exact works only for arith and pyarith" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_whole_command_resumes_and_its_figures_are_those_of_the_trees(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(out)
    assert result.exit_code == 0, result.output
    assert "Searches on 4 problems" in result.output
    assert {"search.json", "search.png", "search.svg", "provenance.json", "beam", "best_of_n"} == {
        path.name for path in out.iterdir()
    }
    report = json.loads((out / "search.json").read_text())
    found, reference = report["result"]["methods"][0], report["result"]["reference"][-1]
    trees = {name: list(read_trees(Store(f"{out}/{name}"))) for name in ("beam", "best_of_n")}
    for one, figures in (("beam", found), ("best_of_n", reference)):
        sampled = [tree.cost.num_sampled for tree in trees[one]]
        assert figures["num_sampled"] == pytest.approx(sum(sampled) / 4)
    assert found["accuracy"]["value"] == sum(tree.is_right for tree in trees["beam"]) / 4
    assert report["result"]["cost_unit"] == "flops" and report["num_left_out"] == 0
    shards = sorted((out / "beam" / "trees").iterdir())
    again = run(out, "oracle=true")
    assert again.exit_code == 0, again.output
    assert sorted((out / "beam" / "trees").iterdir()) == shards  # sampled once
    names = [one["is_oracle"] for one in json.loads((out / "search.json").read_text())["result"][
        "methods"]]  # fmt: skip
    assert names == [False, True]
    changed = run(out, "methods={beam: {kind: beam, n: 4, width: 4}}")
    assert changed.exit_code == 2 and "search.width" in changed.output
