"""The head of the report: its figures, its example solution, and runs that lack parts."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.core.stats.bootstrap import Estimate
from mclabel.report.page.choices import choose_main_results
from mclabel.report.page.example import MAX_SHOWN_STEPS, ExampleCandidate, choose_better_example
from mclabel.report.page.facts import GatheredRun
from mclabel.report.page.html import (
    format_count,
    format_duration,
    format_percent,
    format_percent_range,
    format_points,
    format_points_range,
)
from mclabel.run.kinds import find_runs
from tests.support.shown import (
    SCORED,
    evaluation,
    example_markup,
    plain_run,
    report_page,
    solution,
    write_run,
)


def read_head(tmp_path: Path, *runs: str) -> str:
    """Return the text of the report's head, in one line."""
    page = report_page(runs, str(tmp_path / "report.html")).read_text(encoding="utf-8")
    section = re.search(r'<section id="headline">(.*?)</section>', page, flags=re.DOTALL)
    assert section is not None and page.index('id="headline"') < page.index("<table")
    return " ".join(
        unescape(
            re.sub(r"<[^>]+>", " ", re.sub(r"<script.*?</script>", "", section[1], flags=re.DOTALL))
        ).split()
    )


def test_a_run_and_an_evaluation_are_told_in_figures(tmp_path: Path) -> None:
    text = read_head(tmp_path, plain_run(tmp_path / "run"), evaluation(tmp_path / "best", **SCORED))
    for words in (
        "3 solutions to 3 problems, in 7 steps end right 33% 0 to 96%",
        "labelled with an error 67%",
        "160 tokens in 16 rollouts tokens per solution 53 time not recorded",
        "Quality of the labels Not known",
        "mclabel eval labels",
        "Gain from the PRM +15 points over majority vote (+10 to +20)",
        "over the best likelihood no clear difference -3 to +7 points",
        "prm:last 60% 55 to 65%",
        "some sample is right 80%",
        "Share of 300 problems that are solved if each method chooses one of 4 samples.",
        "One solution, step by step",
        "Choosing among samples",
    ):
        assert words in text


def test_the_scorer_told_of_is_the_first_named_and_not_the_best_here(tmp_path: Path) -> None:
    choice = choose_main_results(
        json.loads((Path(evaluation(tmp_path / "best", **SCORED)) / "best_of_n.json").read_text())[
            "result"
        ]
    )
    assert {name: choice[name] for name in ("scorer", "likelihood", "methods")} == {
        "scorer": "prm:last",
        "likelihood": "likelihood:b:sum",
        "methods": ["prm:last", "likelihood:b:sum", "majority", "random"],
    }


@pytest.mark.parametrize(
    ("accuracy", "words"),
    [
        ({}, "45% solved by majority vote (40 to 50%); no scorer took part"),
        ({"orm": 0.3}, "Gain from the scorer -15 points over majority vote (-20 to -10): worse"),
    ],
)
def test_evaluations_alone(tmp_path: Path, accuracy: dict[str, float], words: str) -> None:
    text = read_head(tmp_path, evaluation(tmp_path / "best", num_problems=12, **accuracy))
    assert words in text and "With fewer than 20 problems, the intervals are too narrow." in text
    assert "Labelled solutions" not in text and "step by step" not in text


def test_several_runs_are_compared(tmp_path: Path) -> None:
    rows = [solution(n, ["a\n", "b\n", "c"], [4, 4, 4]) for n in range(4)]
    text = read_head(tmp_path, plain_run(tmp_path / "one"), write_run(tmp_path / "two", rows, None))
    assert "Summary of the runs, with 95% intervals" in text and "Labelled solutions" not in text
    assert re.search(r"one 3 33% .* two 4 100% 40 to 100% 0% 0 to 60% 80 - -", text)
    both = read_head(tmp_path, *(evaluation(tmp_path / n, **SCORED) for n in ("a", "b")))
    assert "Gain from the PRM: a" in both and "Gain from the PRM: b" in both


def test_outcomes_that_decided_which_solutions_are_kept_are_no_draws(tmp_path: Path) -> None:
    rows = [solution(n, ["a\n", "b"], [2, 4]) for n in range(2)]
    for name, kept, gap, drawn in (
        ("a", rows, -0.5, 1.0),
        ("b", [replace(row, chosen_by_outcome=True) for row in rows], None, 0.0),
    ):
        run = GatheredRun(find_runs([write_run(tmp_path / name, kept, None)])[0])
        assert run.compute_facts()["shares"]["gap"].value == gap and set(run.steps["drawn"]) == {
            drawn
        }


def make_wrong(number: int, good: list[int]) -> LabeledSolution:
    """Return a wrong solution; `good` holds the number of right rollouts of 4 per step."""
    return solution(number, [f"step {i}\n" for i in range(len(good))], good, outcome=Outcome.WRONG)


CASES = {
    "large fall": ExampleCandidate(row=make_wrong(1, [4, 4, 0, 0]), has_truth=True, truth=2),
    "same fall, higher id": ExampleCandidate(
        row=make_wrong(2, [4, 4, 0, 0]), has_truth=True, truth=2
    ),
    "small fall": ExampleCandidate(row=make_wrong(0, [4, 1, 0, 0]), has_truth=True, truth=2),
    "long": ExampleCandidate(row=make_wrong(0, [4] * 12 + [0, 0]), has_truth=True, truth=12),
    "elsewhere in truth": ExampleCandidate(
        row=make_wrong(0, [4, 4, 0, 0]), has_truth=True, truth=1
    ),
    "error at the start": ExampleCandidate(row=make_wrong(0, [0, 0, 0]), has_truth=True, truth=0),
    "right": ExampleCandidate(row=solution(0, ["a", "b"], [4, 4]), has_truth=True, truth=None),
}
"""Candidates for the example solution, best first."""


def test_the_solution_shown_does_not_depend_on_the_order() -> None:
    for names in itertools.permutations(CASES):
        best: ExampleCandidate | None = None
        for name in names:
            best = choose_better_example(best, CASES[name])
        assert best is CASES["large fall"]
    assert list(
        reversed(sorted(CASES.values(), key=lambda e: (e.rank, -int(e.row.solution.id[-1]))))
    ) == list(CASES.values())


def test_a_solution_is_shown_with_what_is_known_of_each_step() -> None:
    markup, elsewhere, right = (
        example_markup(CASES[name]) for name in ("large fall", "elsewhere in truth", "right")
    )
    text = unescape(re.sub(r"<[^>]+>", " ", markup))
    assert 'title="4 of 4 right · 95% 0.40 to 1.00"' in markup
    for words in (
        "4 of 4 right",
        "labelled and true first error",
        "it falls from 1.00 to 0.00 at step 2",
        "as a clear case",
        "is labelled correctly",
    ):
        assert words in text
    assert "true first error" in elsewhere and "is labelled correctly" not in elsewhere
    assert "No wrong solution has its first error" in right


def test_of_a_long_solution_the_steps_around_the_error_are_shown() -> None:
    markup = example_markup(
        ExampleCandidate(row=make_wrong(0, [4] * 30 + [0] * 10), has_truth=False, truth=None)
    )
    assert markup.count("<li ") == MAX_SHOWN_STEPS
    assert "Steps 10 to 39 of 40 are shown." in markup and 'start="10"' in markup


@pytest.mark.parametrize(
    ("show", "figures", "shown"),
    [
        (format_percent, (0.614, 0.5, 0.7), "61%"),
        (format_percent, (None, None, None), "-"),
        (format_percent_range, (0.614, 0.5, 0.7), "50 to 70%"),
        (format_percent_range, (0.614, 0.605, 0.62), "60.5 to 62.0%"),
        (format_points, (0.002, -0.003, 0.008), "+0.2 points"),
        (format_points_range, (0.002, -0.003, 0.008), "-0.3 to +0.8"),
        (format_points, (-0.0001, -0.2, 0.2), "0 points"),
        (format_points, (-0.012, -0.2, -0.001), "-1 point"),
        *(
            (format_count, number, words)
            for number, words in {
                9_999: "9,999",
                12_345: "12 thousand",
                52_700: "53 thousand",
                1_260_000: "1.3 million",
                3e9: "3.0 billion",
                5e13: "50 trillion",
            }.items()
        ),
        *(
            (format_duration, seconds, words)
            for seconds, words in {
                0.4: "0 s",
                28: "28 s",
                125: "2 min 5 s",
                3600: "1 h",
                12_000: "3 h 20 min",
                187_200: "2 d 4 h",
            }.items()
        ),
    ],
)
def test_figures_are_worded(show: Callable[[Any], str], figures: Any, shown: str) -> None:
    if isinstance(figures, tuple):
        figures = Estimate(**dict(zip(("value", "low", "high"), figures, strict=True)))
    assert show(figures) == shown
