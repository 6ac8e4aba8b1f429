"""What benchmarks of scorers share: work in pieces, choices among samples, first errors."""

from __future__ import annotations

import json
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from mclabel.core.records import LabeledSolution
from mclabel.core.stats.bootstrap import Estimate
from tests.benchmarks.figures import LEGEND, finish, numbers
from tests.benchmarks.pieces import Piece, Pieces, write_json
from tests.benchmarks.scorer_figures import Comparison, choose, location_f1
from tests.benchmarks.scorers import NO_ERROR, Pool
from tests.benchmarks.selection_arms import (
    calibration_error,
    log_saving,
    resampled,
    right_at,
)


def pieces(folder: Path) -> list[Piece]:
    return [
        Piece(result=folder / f"{n}.json", work=partial(write_json, folder / f"{n}.json", n))
        for n in range(4)
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_pieces_that_are_done_are_skipped(tmp_path: Path, workers: int) -> None:
    write_json(tmp_path / "1.json", "before")
    Pieces(workers).run(pieces(tmp_path))
    assert [(tmp_path / f"{n}.json").read_text() for n in range(4)] == [
        *("0\n", '"before"\n', "2\n", "3\n")
    ]
    assert len(list(tmp_path.iterdir())) == 4


def test_figures_are_tables_and_then_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = Estimate(value=None, low=None, high=None)
    assert numbers(Estimate(value=0.33333, low=0.1, high=float("nan"))) == [0.3333, 0.1, None]
    rows = {"x": {"right": [0.5, 0.25, 0.75], "tokens": 1234.5}, "the rule": {"right": 0.25}}
    finish(figures := {"a": rows, "b": numbers(nothing), "c": {"d": 1, "e": {"f": {"g": 2}}}})
    assert capsys.readouterr().out.splitlines() == [
        LEGEND,
        "b  - [-, -]",
        "",
        "a                    right  tokens",
        "x         0.5 [0.25, 0.75]   1,234",
        "the rule              0.25",
        "",
        "c",
        "d  1",
        "",
        "c, e  g",
        "f     2",
        json.dumps(figures),
    ]


def test_choosing_is_the_mean_over_all_subsets() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, size=(20, 6)).astype(float)
    truth = rng.random((20, 6)) < 0.4
    for size in (1, 2, 4, 6):
        found = []
        for row, right in zip(scores, truth, strict=True):
            shares = []
            for chosen in combinations(range(6), size):
                best = [i for i in chosen if row[i] == max(row[list(chosen)])]
                shares.append(np.mean(right[best]))
            found.append(np.mean(shares))
        assert choose(scores, truth, size) == pytest.approx(np.array(found))


def test_the_ratio_of_costs_is_measured_where_both_curves_have_been() -> None:
    budgets = np.array([10.0, 20.0, 40.0, 80.0])
    places = [np.log(budgets), np.log(budgets[1:] / 2)]
    uniform = np.array([0.1, 0.2, 0.3, 0.4])
    same = uniform[1:]  # at half of the labels
    assert np.exp(log_saving(places, [uniform, same])) == pytest.approx(2)
    # a bend below or above the other curve's reach changes nothing
    longer = np.array([-5.0, 0.2, 0.3, 0.4])
    assert np.exp(log_saving(places, [longer, same])) == pytest.approx(2)
    # a curve that falls is levelled, and one that nobody reaches has no ratio
    fallen = np.array([0.2, 0.35, 0.25])
    assert np.exp(log_saving(places, [uniform, fallen])) == pytest.approx(
        np.exp(log_saving(places, [uniform, np.array([0.2, 0.3, 0.3])]))
    )
    assert np.isnan(log_saving(places, [uniform, same + 1]))
    assert np.isnan(log_saving(places, [np.full(4, 0.3), same]))


def test_figures_of_scores_by_hand() -> None:
    nan = np.nan
    # problem, score, share of right rollouts, sound
    rows = np.array(
        [
            [0, 0.95, 0.5, 1],
            [0, 0.15, 0.1, 0],
            [1, 0.12, 0.2, 0],
            [1, 0.55, nan, 1],
        ]
    )
    assert right_at(0.5)(rows) == 1.0 and right_at(0.6)(rows) == 0.75
    # three of ten bins: .45 too high; .05 too high and .08 too low together
    assert calibration_error(rows) == pytest.approx((0.45 + 0.03) / 3)
    value, low, high = resampled([rows, rows], right_at(0.6))
    assert (value, low, high) == (0.75, 0.5, 1.0)


def test_first_errors() -> None:
    """Three problems; the error of the first is found, that of the second is not."""
    rows: list[LabeledSolution] = []
    pool = Pool(
        rows=rows,
        index=np.array([[0, 1], [2, 3], [4, 4]]),
        right=np.zeros((3, 2), dtype=bool),
        all_right=np.zeros((3, 2), dtype=bool),
        keys=[[None, None]] * 3,
        first_errors=np.array([1, 0, 2, 0, NO_ERROR]),
    )
    steps = [np.array(s) for s in ([0.9, 0.1], [0.9], [0.1, 0.9, 0.1], [0.9], [0.9, 0.8])]
    measured = Comparison(pool).location_f1([steps], 0.5)
    assert measured.value == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert measured.less(measured).numbers == [0.0, 0.0, 0.0]
    assert location_f1(np.array([0.0, 0, 3, 3])) == 0 and location_f1(np.array([2.0, 2, 3, 3])) == 1
