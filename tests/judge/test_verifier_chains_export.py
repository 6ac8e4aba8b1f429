"""Chains of a critic that agree with labels become training data for a verifier."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import Consensus, LabeledSolution, Outcome, StepLabel
from mclabel.judge.base import Answer, hash_prompt
from mclabel.judge.critic import TEMPLATES
from mclabel.judge.verifier_chains import ChainSelection, ChainsReport, export_chains
from tests.support.labelled import arith_rows, write_run
from tests.support.verifier_chains import answer, chain, write_critic

ROWS = arith_rows(24, per_problem=1, seed=3)
RIGHT = [row for row in ROWS if row.first_error is None]
WRONG = [row for row in ROWS if row.first_error not in (None, 0)]


def run_export(
    tmp_path: Path,
    rows: list[LabeledSolution],
    say: Callable[[LabeledSolution], list[Answer]],
    **choice: Any,
) -> tuple[ChainsReport, list[dict[str, Any]]]:
    labels = write_run(tmp_path / "labels", rows)
    critic = write_critic(tmp_path / "critic", rows, say)
    report = export_chains(critic, labels, str(tmp_path / "out"), ChainSelection(**choice))
    lines = (tmp_path / "out" / "data.jsonl").read_text().splitlines()
    return report, [json.loads(line) for line in lines]


def test_chains_that_agree_with_every_label_are_written(tmp_path: Path) -> None:
    rows = [*RIGHT[:5], *WRONG[:4]]
    lost = {RIGHT[0].solution.id: "disagrees", WRONG[0].solution.id: "late"}

    def say(row: LabeledSolution) -> list[Answer]:
        kind = lost.get(row.solution.id)
        error = 0 if kind == "disagrees" else None if kind == "late" else row.first_error
        return [answer(row, chain(row, error))]

    report, written = run_export(tmp_path, rows, say)
    believed = {row.solution.id: row for row in rows if row.solution.id not in lost}
    assert len(written) == report.num_rows == 6
    assert sum(row["first_error"] == -1 for row in written) == 3
    for row in written:
        labeled = believed[row["id"]]
        error = labeled.first_error
        assert row["first_error"] == (-1 if error is None else error)
        ((user,), (assistant,)) = row["prompt"], row["completion"]
        assert (user["role"], assistant["role"]) == ("user", "assistant")
        assert hash_prompt(user["content"]) == answer(labeled, "").prompt
        assert assistant["content"] == chain(labeled, error)
    assert report.left_out == {
        "that disagree with the labels": 2,
        "to have as many on right as on wrong solutions": 1,
    }
    assert (
        report.eligible_shares_text
        == "4 of 5 on right solutions (80%), 3 of 4 on wrong solutions (75%)"
    )


def test_the_choice_does_not_depend_on_the_order(tmp_path: Path) -> None:
    def say(row: LabeledSolution) -> list[Answer]:
        return [answer(row, chain(row, row.first_error, word), n) for n, word in enumerate("ab")]

    rows = [*RIGHT[:6], *WRONG[:3]]
    exports = [
        run_export(tmp_path / str(number), order, say, seed=seed)[1]
        for number, (order, seed) in enumerate([(rows, 0), (rows[::-1], 0), (rows, 1)])
    ]
    assert exports[0] == exports[1] != exports[2]
    assert len(exports[0]) == len({row["id"] for row in exports[0]}) == 6
    more, _ = run_export(tmp_path / "more", rows, say, per_solution=2)
    assert more.num_rows == 2 * 6


@pytest.mark.parametrize(
    ("hard", "error", "is_believed"),
    [
        ([True, True, True], None, True),
        ([True, True, True], 1, False),
        ([True, False, False], 1, True),
        ([True, False, False], 0, False),
        ([True, False, False], 2, False),
        ([True, False, True], 1, True),  # the outcome is right despite the error
        ([True, None, False], 1, True),  # the error is at step 1 or step 2
        ([True, None, False], 2, True),
        ([True, None, False], 0, False),
        ([True, None, False], None, False),
        ([None, True, True], 0, False),  # later steps are sound, so step 0 is too
        ([None, True, True], None, True),
    ],
)
def test_steps_without_a_label_are_left_out_of_the_comparison(
    hard: list[bool | None], error: int | None, is_believed: bool, tmp_path: Path
) -> None:
    row = next(row for row in ROWS if len(row.steps) >= 3)
    solution = replace(row.solution, id="x", steps=(row.solution.steps[:3]))
    steps = tuple(
        replace(label, hard=is_sound) for label, is_sound in zip(row.steps[:3], hard, strict=True)
    )
    decided = None not in hard and False in hard
    first = hard.index(False) if decided else None
    mine = replace(row, solution=solution, steps=steps, first_error=first)

    def say(row: LabeledSolution) -> list[Answer]:
        return [answer(row, chain(row, error if row.solution.id == "x" else row.first_error))]

    report, _ = run_export(tmp_path, [mine, RIGHT[-1], WRONG[-1]], say)
    assert sum(report.num_eligible.values()) == 2 + is_believed


def test_other_filters(tmp_path: Path) -> None:
    """Filtered by outcome, a chain may name any step; without a filter it must only be complete."""

    def say(row: LabeledSolution) -> list[Answer]:
        if row.solution.outcome is Outcome.UNGRADED:
            return [answer(row, chain(row, None))]
        return [answer(row, chain(row, 0), 0), answer(row, chain(row, None), 1)]

    ungraded = replace(
        RIGHT[2], solution=replace(RIGHT[2].solution, outcome=Outcome.UNGRADED, id="u")
    )
    rows = [*RIGHT[:2], *WRONG[:2], ungraded]
    report, written = run_export(tmp_path / "a", rows, say, filter="outcome", per_solution=9)
    errors = {row.solution.id: row.first_error for row in rows}
    assert len(written) == 4
    assert all((row["first_error"] == -1) == (errors[row["id"]] is None) for row in written)
    assert report.left_out["that disagree with the outcome"] == 4
    assert report.left_out["on solutions that could not be graded"] == 1
    report, written = run_export(tmp_path / "b", rows, say, filter="none", per_solution=9)
    assert len(written) == 8


def test_what_is_not_whole_or_there_already_is_left_out(tmp_path: Path) -> None:
    right, wrong = RIGHT[0], WRONG[0]

    def say(row: LabeledSolution) -> list[Answer]:
        good = chain(row, row.first_error)
        return [
            answer(row, good, 0),
            answer(row, good, 1),
            answer(row, good + " And", 2, finish_reason="length"),
            answer(row, "no server", 3, finish_reason="failed"),
            answer(row, good + "!", 4, num_tokens=5000),
            answer(row, "I like it.", 5),
            answer(row, f"<think>{good}", 6),
        ]

    dropped = Consensus(rule="same_location", kept=False, opinions=())
    unkept = replace(right, solution=replace(right.solution, id="c"), consensus=dropped)
    report, written = run_export(tmp_path, [right, wrong, unkept], say, per_solution=9)
    assert len(written) == 2
    assert report.left_out == {
        "that repeat another chain of the same solution": 2,
        "truncated": 2,
        "whose sampling failed": 2,
        "longer than 4,096 tokens": 2,
        "with no verdicts that can be read": 2,
        "with a thought that never ends": 2,
        "on solutions that a consensus does not keep": 7,
    }


def test_the_prompt_of_thinkprm_may_be_written(tmp_path: Path) -> None:
    """ThinkPRM's chains end with a verdict on the whole solution, which is not added twice."""
    ended = chain(WRONG[0], WRONG[0].first_error) + "\nIs the solution correct? No"

    def say(row: LabeledSolution) -> list[Answer]:
        return [answer(row, chain(row, None) if row.first_error is None else ended)]

    _, written = run_export(tmp_path, [RIGHT[0], WRONG[0]], say, prompt="thinkprm")
    texts = {row["first_error"]: row["completion"][0]["content"] for row in written}
    assert texts == {
        -1: chain(RIGHT[0], None) + "\nIs the solution correct? Yes",
        WRONG[0].first_error: ended,
    }
    for row in written:
        content = row["prompt"][0]["content"]
        assert content.startswith("You are given a math problem and a proposed step-by-step")
        assert content.endswith("If the solution is incomplete, only verify the provided steps.")
        assert "\nStep 1: " in content


def test_faults_are_explained(tmp_path: Path) -> None:
    rows = [*RIGHT[:2], *WRONG[:2]]

    def answer_well(row: LabeledSolution) -> list[Answer]:
        return [answer(row, chain(row, row.first_error))]

    def keep_outcome_labels(row: LabeledSolution) -> tuple[StepLabel, ...]:
        return tuple(replace(s, hard=s.hard if s.is_from_outcome else None) for s in row.steps)

    labels = write_run(tmp_path / "labels", rows)
    other_run = write_run(tmp_path / "other", arith_rows(4, seed=9))
    bare = write_run(
        tmp_path / "bare", [replace(row, steps=keep_outcome_labels(row)) for row in rows]
    )
    critic = write_critic(tmp_path / "critic", rows, answer_well)
    shown = write_critic(tmp_path / "shown", rows, answer_well, use_reference=True)
    silent = write_critic(tmp_path / "silent", rows, lambda row: [], template=None)
    reworded = asdict(replace(TEMPLATES["step_verdicts"], text="{problem} {steps}"))
    moved = write_critic(tmp_path / "moved", rows, answer_well, template=reworded)
    cases: list[tuple[type[Exception], str, str, str, dict[str, Any]]] = [
        (DataError, "has no opinion on the solutions of", critic, other_run, {}),
        (DataError, "only last steps have a label.*--filter outcome", critic, bare, {}),
        (DataError, "no chains are left.*4 longer than 9 tokens", critic, labels,
         {"max_tokens": 9}),
        (ConfigError, "--prompt lessons: must ask for the answer format", critic, labels,
         {"prompt": "lessons"}),
        (DataError, "was shown references", shown, labels, {}),
        (ShardError, "does not contain the critic's prompt", silent, labels, {}),
        (ShardError, "differs from the prompt that its template gives today", moved, labels, {}),
        (ShardError, "is not a run of `mclabel judge`", labels, labels, {}),
    ]  # fmt: skip
    for error, match, opinions, run, choice in cases:
        with pytest.raises(error, match=match):
            export_chains(opinions, run, str(tmp_path / "out"), ChainSelection(**choice))
        assert not (tmp_path / "out").exists()
