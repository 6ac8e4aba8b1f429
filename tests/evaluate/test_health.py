"""The health of runs: every figure counted by hand, thresholds from both sides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.records import Counts, LabeledSolution, Outcome
from mclabel.evaluate.health import CHECKS, CountedShare, Health, assess_run_health
from mclabel.report.page.health import make_health_grid
from mclabel.run.shards.labels import commit_block
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.rows import row, step
from tests.support.scripted_jobs import scripted_overrides, write_problems

R, W, T, U = Outcome.RIGHT, Outcome.WRONG, Outcome.TRUNCATED, Outcome.UNGRADED
CONFIG = {"config": {"policy": {"max_tokens": 36}}}


def write(folder: Path, rows: list[LabeledSolution], *, block: int = 0, **more: Any) -> Store:
    store = Store(str(folder), create=True)
    assert commit_block(store, f"{block:016x}", "one", rows, None, CONFIG, **more)
    return store


def solution(
    problem: str,
    hard: list[bool | None],
    outcome: Outcome,
    *,
    sample: int = 0,
    tokens: int = 10,
    counts: Counts | None = None,
    prefix: str | None = None,
    root: Counts | None = None,
) -> LabeledSolution:
    """Return a labelled solution with rollouts `counts` of each step but the last."""
    name = f"{problem}.{sample}" if prefix is None else prefix
    steps = [
        step(label, prefix=f"{name}.{i}", counts=counts if i < len(hard) - 1 else None)
        for i, label in enumerate(hard)
    ]
    labelled = row(
        problem,
        steps,
        (hard.index(False) if False in hard else None),
        sample=sample,
        outcome=outcome,
        root=root,
    )
    return replace(
        labelled,
        solution=replace(
            labelled.solution,
            ids=tuple(range(tokens)),
            finish_reason=("length" if outcome is T else "stop"),
        ),
    )


def shares(health: Health | None) -> dict[str, tuple[int, int]]:
    assert health is not None
    return {name: (figure.count, figure.total) for name, figure in health.figures.items()}


def findings(health: Health | None) -> dict[str, str]:
    assert health is not None
    return {finding.check: finding.severity for finding in health.findings}


def test_every_figure_by_hand(tmp_path: Path) -> None:
    four = Counts(num_right=1, num_wrong=1, num_truncated=1, num_ungraded=1, num_tokens=40)
    rows = [
        # Shares its prefix `x.0` with the next: four rollouts, not eight.
        solution("a", [True, False, False], W, counts=four, prefix="x", root=four),
        solution("a", [True, True], R, sample=1, counts=four, prefix="x", root=four),
        solution("b", [False, True], R, tokens=5),
        solution("b", [True, True], W, sample=1, tokens=5),
        solution("c", [None, None], U, tokens=1),
        solution("c", [False], T, sample=1, tokens=30),
    ]
    health = assess_run_health(write(tmp_path, rows))
    assert shares(health) == {
        "solutions_truncated": (1, 6),
        # prefixes x.0, x.1 and the problem alone a, four each
        "rollouts_truncated": (3, 12),
        "rollouts_withheld": (0, 12),
        "tokens_at_limit": (30, 61),
        "solutions_ungraded": (1, 6),
        "rollouts_ungraded": (3, 12),
        "rollouts_weak": (0, 12),
        # a: two solutions and nine graded rollouts, of them right: 1 + 3; b and c: two tries each
        "never_solved": (0, 1),
        "guessable": (0, 3),
        "always_solved": (0, 1),
        "right_answers_differ": (0, 0),
        "labels_wrong": (4, 10),
        "labels_sound": (6, 10),
        "undecided": (0, 4),
        "one_step": (1, 6),
        "many_steps": (0, 6),
        "right_with_error": (1, 2),
        "wrong_without_error": (1, 2),
    }
    assert health is not None
    assert (health.num_problems, health.num_solutions) == (3, 6)
    assert (health.median_steps, health.max_steps) == (2.0, 3)
    assert health.findings == ()  # of so few nothing is concluded


def alternate_outcome(number: int) -> Outcome:
    return R if number % 2 == 0 else W


def cut_first(num_cut: int) -> list[LabeledSolution]:
    return [
        solution(f"p{i}", [i % 2 == 0] * 3, T if i < num_cut else alternate_outcome(i))
        for i in range(20)
    ]


NEVER_OR_ALWAYS = [
    *(solution(f"n{i}", [False, False], W, counts=Counts(num_wrong=4)) for i in range(10)),
    *(solution(f"a{i}", [True, True], R, counts=Counts(num_right=4)) for i in range(6)),
    *(
        solution(f"o{i}", [True, False], W, counts=Counts(num_right=1, num_wrong=3))
        for i in range(4)
    ),
]
UNDECIDED = [
    *(solution(f"p{i}", [True, None, True], R) for i in range(12)),
    *(solution(f"q{i}", [True, False], W) for i in range(8)),
]
LONG_CUT = [
    solution(f"p{i}", [i % 2 == 0] * 2, T if i == 0 else alternate_outcome(i), tokens=tokens)
    for i, tokens in enumerate([100, *[10] * 19])
]
KEPT = replace(
    solution("kept", [True, True], R), chosen_by_outcome=True, num_sampled=8, num_sampled_right=3
)
DROPPED = {f"d{i}": {"num_sampled": 8, "num_right": 0} for i in range(19)}


@pytest.mark.parametrize(
    ("rows", "more", "expected", "figures"),
    [
        # the threshold from both sides
        (cut_first(1), {}, {}, {}),
        (cut_first(2), {}, {"solutions_truncated": "warning"}, {}),
        (cut_first(10), {}, {"solutions_truncated": "error"}, {}),
        # nineteen decide nothing
        ([solution(f"p{i}", [False], T) for i in range(19)], {}, {}, {}),
        (UNDECIDED, {}, {"undecided": "warning"}, {"undecided": (12, 20)}),
        (
            NEVER_OR_ALWAYS,
            {},
            {"never_solved": "warning"},
            {"never_solved": (10, 20), "always_solved": (6, 20)},
        ),
        (
            [KEPT],
            {"dropped": DROPPED},
            {"never_solved": "error"},
            {"never_solved": (19, 20)},
        ),
        (
            [solution(f"p{i}", [i % 2 == 0], alternate_outcome(i)) for i in range(20)],
            {},
            {"one_step": "error"},
            {},
        ),
        (
            [
                solution(f"p{i}", [True] * 30 + [i % 2 == 0] * 21, alternate_outcome(i))
                for i in range(20)
            ],
            {},
            {"many_steps": "warning"},
            {},
        ),
        (LONG_CUT, {}, {"tokens_at_limit": "warning"}, {}),
        (
            [
                *(solution(f"r{i}", [i < 10, True], R) for i in range(20)),
                *(solution(f"w{i}", [i < 10, i < 10], W) for i in range(20)),
            ],
            {},
            {"wrong_without_error": "error", "right_with_error": "warning"},
            {},
        ),
        (
            [],
            {"set_aside": {"a": {"reason": "unparsed_gold", "detail": "?"}}},
            {"no_solutions": "error"},
            {},
        ),
    ],
)
def test_findings_of_runs(
    tmp_path: Path,
    rows: list[LabeledSolution],
    more: dict[str, Any],
    expected: dict[str, str],
    figures: dict[str, tuple[int, int]],
) -> None:
    health = assess_run_health(write(tmp_path, rows, **more))
    assert findings(health) == expected
    assert shares(health).items() >= figures.items()


@pytest.mark.parametrize(
    ("answers", "warns"),
    [
        (("1,200", "1200"), False),
        (("3.14", "3.14159"), False),
        (("12", "14"), True),
        (("x", "y"), False),
    ],
)
def test_right_answers_that_differ_are_reported(
    tmp_path: Path, answers: tuple[str, str], warns: bool
) -> None:
    rows = [
        replace(row, solution=replace(row.solution, prediction=answer))
        for number in range(20)
        for sample, answer in enumerate(answers)
        for row in [solution(f"p{number}", [True, True, True], R, sample=sample)]
    ]
    assert ("right_answers_differ" in findings(assess_run_health(write(tmp_path, rows)))) == warns


def test_problems_solved_at_times_are_counted_by_their_solutions_alone(tmp_path: Path) -> None:
    right = {"never": 0, "rarely": 1, "often": 8, "mostly": 9, "always": 10}
    rows = [
        solution(name, [True, sample < many], R if sample < many else W, sample=sample)
        for name, many in right.items()
        for sample in range(10)
    ]
    rows += [solution("few", [True, True], R, counts=Counts(num_right=4, num_wrong=4))]
    health = assess_run_health(
        write(
            tmp_path,
            rows,
            dropped={
                "d": {"num_sampled": 20, "num_right": 3},
                "e": {"num_sampled": 20, "num_right": 2},
            },
        )
    )
    assert health is not None
    assert health.solved_sometimes == CountedShare(count=2, total=7)  # often, and d at .15
    assert next(row for row in make_health_grid(health).rows if "15% to 80%" in row[0])[1:3] == (
        "29%",
        "7",
    )


def test_labels_of_one_class(tmp_path: Path) -> None:
    """The run of the complaint: one sound step of 2,127."""
    rows = [solution(f"p{i}", [False] * 3, W) for i in range(709)]
    rows[0] = solution("p0", [True, False, False], W)
    health = assess_run_health(write(tmp_path, rows))
    assert health is not None
    (finding,) = health.findings
    assert (finding.check, finding.severity) == ("labels_wrong", "error")
    assert finding.text == "2,126 of 2,127 step labels (99.95%) are wrong"
    assert finding.threshold == 0.995 and "completers" in finding.remedy


def test_labels_of_last_steps_alone_say_nothing_of_where_an_error_is(tmp_path: Path) -> None:
    outcomes = [solution(f"o{i}", [None, False], W) for i in range(20)]
    rows = [replace(row, first_error=None) for row in outcomes]
    assert shares(assess_run_health(write(tmp_path, rows)))["wrong_without_error"] == (0, 0)


def test_a_part_of_the_shards_is_read(tmp_path: Path) -> None:
    four = Counts(num_right=2, num_wrong=2, num_tokens=40)
    for block in range(12):
        store = write(
            tmp_path,
            [solution(f"p{block}.{i}", [True, i == 0], R, counts=four) for i in range(2)],
            block=block,
        )
    whole = assess_run_health(store)
    part = assess_run_health(store, max_files=4)
    assert whole is not None and part is not None
    assert (whole.num_shards, whole.num_read, whole.num_solutions) == (12, 12, 24)
    assert (part.num_shards, part.num_read, part.num_solutions) == (12, 4, 8)


FAULT = "the checker raised KeyError at grading.py:3"


def test_reasons_of_rollouts_without_a_verdict_are_counted(tmp_path: Path) -> None:
    counts = Counts(num_right=1, num_ungraded=7)
    for block, reasons in enumerate(({"no_answer": 30, FAULT: 20}, {"timeout": 5, FAULT: 1})):
        rows = [solution(f"p{block}.{i}", [True, True], R, counts=counts) for i in range(4)]
        store = write(tmp_path, rows, block=block, ungraded=reasons)
    health = assess_run_health(store)
    assert health is not None
    (finding,) = [reported for reported in health.findings if reported.check == "rollouts_ungraded"]
    assert finding.text.endswith(f"graded: no_answer (30), {FAULT} (21), timeout (5)")
    assert "golds" in finding.remedy and "Repair the checker" not in finding.remedy
    assert dict(health.ungraded) == {"no_answer": 30, FAULT: 21, "timeout": 5}
    assert (
        json.loads(mclabel("labels", str(tmp_path), "--json"))["health"]["ungraded"]
        == health.ungraded
    )
    rows = {row[0]: row[1] for row in make_health_grid(health).rows}
    assert rows[f"rollouts without a verdict: {FAULT}"] == "38%"  # 21 of 56


def test_a_job_s_guesses_reach_its_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guessing.py").write_text(
        "from mclabel import Grade, Verdict\n"
        "def grade(completion):\n"
        "    return Grade(verdict=Verdict.WRONG, reason='guess_different')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    source = write_problems(tmp_path, 4)
    out = tmp_path / "out"
    mclabel(
        "label",
        "/dev/null",
        *scripted_overrides(
            source, out, *("checker=guessing:grade", "ray.address=none"), "estimator.kind=fixed"
        ),
    )
    count, total = shares(assess_run_health(Store(str(out))))["rollouts_weak"]
    assert count == total > 20
    mclabel("regrade", str(out), "-o", str(tmp_path / "maths"), "checker=math", "--change-checker")
    count, total = shares(assess_run_health(Store(str(tmp_path / "maths"))))["rollouts_weak"]
    assert count == 0 < total


def test_a_job_s_reasons_reach_its_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "moody_grading.py").write_text(
        "calls = []\n"
        "def grade(completion):\n"
        "    calls.append(completion)\n"
        "    return True if len(calls) == 1 else {}[completion]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    source = write_problems(tmp_path, 12)
    printed = mclabel(
        "label",
        "/dev/null",
        *scripted_overrides(
            source,
            (tmp_path / "out"),
            *("checker=moody_grading:grade", "ray.address=none", "keep_rollouts=false"),
            "estimator.kind=fixed",
            "block_problems=1",
        ),
    )
    assert "graded: the checker raised KeyError at moody_grading.py:4 (" in printed
    assert "Repair the checker: the checker raised KeyError at moody_grading.py:4." in printed
    assert "Correct the golds" not in printed


def test_runs_without_solutions(tmp_path: Path) -> None:
    assert assess_run_health(Store(str(tmp_path / "new"), create=True)) is None


def mclabel(*arguments: str) -> str:
    return run_verb(arguments).output


def test_the_documentation_lists_every_check_with_its_thresholds() -> None:
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    for name, check in CHECKS.items():
        error = "-" if check.error_share is None else f"{check.error_share:.1%}".replace(".0%", "%")
        assert f"| `{name}` | {check.name} | {check.warning_share:.0%} | {error} |" in text
