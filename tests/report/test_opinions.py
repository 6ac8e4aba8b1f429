"""Opinions and the places that they mark: in the terminal, in the viewer, in the report."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mclabel.core.records import Claim, Flag, LabeledSolution, Outcome, SourceOpinion, Step
from mclabel.report.page.example import ExampleCandidate
from mclabel.report.page.facts import GatheredRun
from mclabel.run.kinds import find_runs
from mclabel.show.solutions import (
    MAX_REASON,
    MarkedPassage,
    describe_opinion,
    group_passages_by_step,
    show_solution,
    split_at_passages,
)
from tests.support.shown import combined, example_markup, report_page, solution, write_run
from tests.support.viewer_process import ViewerHere

STEPS = ["We add.\n", "  2 + 2 = 5, so 5.\n", "So \\boxed{5}."]
START = Flag(step=1, start=2, end=11, reason="2 + 2 is 4")
END = Flag(step=1, start=16, end=18, reason="follows from it")
OVER = Flag(step=1, start=6, end=14, reason="reaches over")
HOSTILE = "<script>window.executed=1</script> [red]x[/red] \x1b[31m\nforged: line \u202e"


def make_wrong(number: int = 1) -> LabeledSolution:
    return solution(number, STEPS, [3, 0, 0], outcome=Outcome.WRONG, prediction="5")


def print_row(row: LabeledSolution) -> str:
    file = io.StringIO()
    show_solution(Console(file=file, width=120, color_system=None), row)
    return file.getvalue()


def example_page(row: LabeledSolution) -> str:
    return example_markup(ExampleCandidate(row=row, has_truth=False, truth=None))


def test_code_keeps_its_indentation_and_a_gold_of_tests_is_cut() -> None:
    row = solution(
        1,
        ["def f(x):\n", "\n    y = x\n", "    return y"],
        [3, 0, 0],
        outcome=Outcome.WRONG,
        prediction="5",
    )
    row = replace(
        row,
        problem=replace(
            row.problem,
            answer=json.dumps({"test_list": ["assert f(1) == 2"] * 20}),
            answer_is_json=True,
        ),
    )
    assert re.search(r"^.* {5}y = x *$", print_row(row), re.MULTILINE)
    assert print_row(row).count("assert f(1)") == example_page(row).count("assert f(1)") == 3
    assert ">    y = x<" in example_page(row)


@pytest.mark.parametrize(
    ("claim", "is_known", "error", "words"),
    [
        ("where", True, 3, "step 3"),
        ("where", True, None, "no error"),
        ("where", False, None, "unknown"),
        ("at_or_before", True, 2, "at or before step 2"),
        ("at_or_before", True, None, "nothing found"),
        ("at_or_before", False, None, "unknown"),
        ("scores", True, 0, "step 0"),
        ("scores", True, None, "no error"),
    ],
)
def test_what_an_opinion_says(claim: Claim, is_known: bool, error: int | None, words: str) -> None:
    assert (
        describe_opinion(
            SourceOpinion(source="a", claim=claim, is_known=is_known, first_error=error)
        )
        == words
    )


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], [("abcdef", "")]),
        ([(0, 2)], [("ab", "0"), ("cdef", "")]),
        ([(4, 6)], [("abcd", ""), ("ef", "0")]),
        ([(0, 6)], [("abcdef", "0")]),
        ([(1, 2), (4, 5)], [("a", ""), ("b", "0"), ("cd", ""), ("e", "1"), ("f", "")]),
        ([(0, 4), (2, 6)], [("ab", "0"), ("cd", "01"), ("ef", "1")]),
        ([(3, 3)], [("abc", ""), ("def", "")]),
        ([(2, 99)], [("ab", ""), ("cdef", "0")]),
    ],
)
def test_a_text_is_cut_where_places_begin_and_end(
    spans: list[tuple[int, int]], expected: list[tuple[str, str]]
) -> None:
    places = [
        MarkedPassage(start=a, end=b, words=str(number)) for number, (a, b) in enumerate(spans)
    ]
    assert (
        [
            (part, "".join(p.words for p in over))
            for part, over in split_at_passages("abcdef", places)
        ]
    ) == expected


def test_places_lie_in_their_step_whatever_was_recorded() -> None:
    flags = [
        Flag(step=0, start=-5, end=2, reason="before"),
        Flag(step=0, start=2, end=99, reason="behind\nit"),
        Flag(step=0, start=50, end=40, reason="r" * 1000),
        Flag(step=7, start=0, end=1, reason="no such step"),
        Flag(step=-1, start=0, end=1, reason="no such step"),
    ]
    consensus = combined(make_wrong(), *flags).consensus
    assert group_passages_by_step(consensus, [Step(text="abcd", end=1)]) == {
        0: [
            MarkedPassage(start=0, end=2, words="symbolic, “ab”: before"),
            MarkedPassage(start=2, end=4, words="symbolic, “cd”: behind it"),
            MarkedPassage(start=4, end=4, words=f"symbolic: {'r' * (MAX_REASON - 1)}…"),
        ]
    }


def test_the_terminal_names_opinions_and_reasons() -> None:
    lines = print_row(combined(make_wrong(), START, END)).splitlines()
    (consensus_line,) = [line for line in lines if line.startswith("same_location")]
    assert consensus_line == (
        "same_location: kept  rollouts: step 1, symbolic: at or before step 1, critic: unknown, "
        "prm: no error"
    )
    step = next(number for number, line in enumerate(lines) if "2 + 2 = 5, so" in line)
    assert lines[step].split("2 + 2")[0].split()[-1] == "1"  # opinions name the step by this index
    assert [line.strip() for line in lines[step + 1 : step + 3]] == [
        "symbolic, “2 + 2 = 5”: 2 + 2 is 4",
        "symbolic, “5.”: follows from it",
    ]
    assert "same_location: not kept  rollouts" in print_row(combined(make_wrong(), kept=False))


def test_hostile_reasons_and_names_are_text_in_the_terminal() -> None:
    shown = print_row(
        combined(
            solution(1, [f"{HOSTILE}\n", *STEPS[1:]], [3, 0, 0], outcome=Outcome.WRONG),
            replace(START, reason=HOSTILE),
            source="[bold]<b>judge\x07\nsame_location: kept",
        )
    )
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "<script>window.executed=1</script> [red]x[/red] \\x1b[31m forged: line" in shown
    assert shown.count("[red]x[/red] \\x1b[31m") == 2  # of the step and of the reason
    assert "[bold]<b>judge\\x07 same_location" in shown
    assert sum(line.startswith(("same_location", "forged")) for line in shown.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "marked"),
    [
        ((START,), ["2 + 2 = 5"]),
        ((END,), ["5."]),
        ((START, END), ["2 + 2 = 5", "5."]),
        ((START, OVER), ["2 + ", "2 = 5", ", s"]),
        ((replace(START, start=0, end=19),), ["  2 + 2 = 5, so 5."]),
        ((replace(START, end=2),), []),
    ],
)
def test_the_report_marks_places_in_its_example(flags: tuple[Flag, ...], marked: list[str]) -> None:
    markup = example_page(combined(make_wrong(), *flags))
    assert re.findall(r"<mark[^>]*>(.*?)</mark>", unescape(markup), re.DOTALL) == marked
    reasons = re.findall(r"<li>(.*?)</li>", markup.split('class="reasons"')[1].split("</ul>")[0])
    assert len(reasons) == len(flags) and all(flag.reason in markup for flag in flags)
    words = " ".join(re.sub(r"<[^>]+>", " ", markup).split())
    assert "2 + 2 = 5, so 5." in unescape(re.sub(r"</?mark[^>]*>", "", markup))
    assert "Consensus, same_location kept rollouts step 1 symbolic at or before step 1" in words


def test_the_report_says_how_many_are_kept_by_which_rule(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run",
        [combined(make_wrong(number), START, kept=number > 0) for number in range(3)],
        None,
    )
    assert GatheredRun(find_runs([run])[0]).compute_facts()["kept"] == "2 of 3 by same_location"
    plain = write_run(tmp_path / "plain", [make_wrong()], None)
    (line,) = re.findall(
        r'<th scope="row">kept</th>(.*?)</tr>',
        report_page([run, plain], str(tmp_path / "both.html")).read_text(encoding="utf-8"),
    )
    assert re.findall(r"<td[^>]*>(.*?)</td>", line) == ["2 of 3 by same_location", "-"]
    assert "<dt>kept</dt><dd>2 of 3 by same_location</dd>" in report_page(
        [run], str(tmp_path / "one.html")
    ).read_text(encoding="utf-8")
    assert ">kept<" not in report_page([plain], str(tmp_path / "alone.html")).read_text(
        encoding="utf-8"
    )


def test_the_viewer_is_told_opinions_and_places_and_finds_what_is_not_kept(
    tmp_path: Path,
) -> None:
    with ViewerHere(
        write_run(
            tmp_path / "run",
            (
                [
                    make_wrong(0),
                    combined(make_wrong(1), START, END),
                    combined(make_wrong(2), kept=False),
                ]
            ),
            None,
        )
    ) as viewer:
        viewer.wait_for(3)
        answers: list[dict[str, Any]] = [
            viewer.get("solution", id=f"solution-{n}") for n in range(3)
        ]
        assert viewer.get("state")["counts"]["marks"]["unkept"] == 1
        assert [
            (row["solution_id"], row["kept"])
            for row in viewer.get("solutions", mark="unkept")["rows"]
        ] == [("solution-2", False)]
    assert answers[0]["consensus"] is None
    assert [step["places"] for step in answers[0]["steps"]] == [[], [], []]
    assert answers[1]["consensus"] == {
        "rule": "same_location",
        "kept": True,
        "word": "kept",
        "opinions": [
            {"source": "rollouts", "words": "step 1"},
            {"source": "symbolic", "words": "at or before step 1"},
            {"source": "critic", "words": "unknown"},
            {"source": "prm", "words": "no error"},
        ],
    }
    assert answers[1]["steps"][1]["places"] == [
        {"start": 2, "end": 11, "words": "symbolic, “2 + 2 = 5”: 2 + 2 is 4"},
        {"start": 16, "end": 18, "words": "symbolic, “5.”: follows from it"},
    ]
    assert answers[2]["consensus"]["kept"] is False
    assert answers[2]["consensus"]["opinions"][1]["words"] == "nothing found"
