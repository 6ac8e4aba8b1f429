"""The health of runs: every figure counted by hand, thresholds from both sides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from mclabel.core.records import Counts, LabeledSolution, Outcome
from mclabel.evaluate.health import CHECKS, Figure, Health, run_health, share_text
from mclabel.report.page.health import health_grid
from mclabel.run.shards.compact import compact
from mclabel.run.shards.labels import commit_block
from mclabel.run.shards.store import Store
from tests.support.rows import row, step
from tests.support.scripted_jobs import scripted_overrides, write_problems
from tests.support.shown import report_page

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
    """A labelled solution; the rollouts of every step but the last are `counts`."""
    name = f"{problem}.{sample}" if prefix is None else prefix
    steps = [
        step(label, prefix=f"{name}.{i}", counts=counts if i < len(hard) - 1 else None)
        for i, label in enumerate(hard)
    ]
    error = hard.index(False) if False in hard else None
    found = row(problem, steps, error, sample=sample, outcome=outcome, root=root)
    end = "length" if outcome is T else "stop"
    whole = replace(found.solution, ids=tuple(range(tokens)), finish_reason=end)
    return replace(found, solution=whole)


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
    health = run_health(write(tmp_path, rows))
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


@pytest.mark.parametrize(("num_cut", "severity"), [(1, None), (2, "warning"), (10, "error")])
def test_thresholds_from_both_sides(tmp_path: Path, num_cut: int, severity: str | None) -> None:
    rows = [
        solution(f"p{i}", [i % 2 == 0] * 3, T if i < num_cut else R if i % 2 == 0 else W)
        for i in range(20)
    ]
    found = findings(run_health(write(tmp_path, rows)))
    assert found.get("solutions_truncated") == severity


def test_undecided_solutions_are_counted(tmp_path: Path) -> None:
    rows = [solution(f"p{i}", [True, None, True], R) for i in range(12)]
    rows += [solution(f"q{i}", [True, False], W) for i in range(8)]
    health = run_health(write(tmp_path, rows))
    assert shares(health)["undecided"] == (12, 20)
    assert findings(health) == {"undecided": "warning"}


def test_nineteen_decide_nothing(tmp_path: Path) -> None:
    rows = [solution(f"p{i}", [False], T) for i in range(19)]
    assert findings(run_health(write(tmp_path, rows))) == {}


def test_problems_never_and_always_solved(tmp_path: Path) -> None:
    good, bad = Counts(num_right=4), Counts(num_wrong=4)
    lucky = Counts(num_right=1, num_wrong=3)
    rows = [
        *(solution(f"never{i}", [False, False], W, counts=bad) for i in range(10)),
        *(solution(f"always{i}", [True, True], R, counts=good) for i in range(6)),
        *(solution(f"once{i}", [True, False], W, counts=lucky) for i in range(4)),
    ]
    health = run_health(write(tmp_path, rows))
    assert shares(health)["never_solved"] == (10, 20)
    assert shares(health)["always_solved"] == (6, 20)
    assert findings(health) == {"never_solved": "warning"}


def test_problems_that_balance_dropped_count(tmp_path: Path) -> None:
    dropped = {f"d{i}": {"num_sampled": 8, "num_right": 0} for i in range(19)}
    kept = replace(
        solution("kept", [True, True], R),
        chosen_by_outcome=True,
        num_sampled=8,
        num_sampled_right=3,
    )
    store = write(tmp_path, [kept], dropped=dropped)
    health = run_health(store)
    assert shares(health)["never_solved"] == (19, 20)
    assert findings(health) == {"never_solved": "error"}


def test_problems_solved_at_times_are_counted_by_their_solutions_alone(tmp_path: Path) -> None:
    right = {"never": 0, "rarely": 1, "often": 8, "mostly": 9, "always": 10}
    rows = [
        solution(name, [True, sample < many], R if sample < many else W, sample=sample)
        for name, many in right.items()
        for sample in range(10)
    ]
    rows += [solution("few", [True, True], R, counts=Counts(num_right=4, num_wrong=4))]
    dropped = {"d": {"num_sampled": 20, "num_right": 3}, "e": {"num_sampled": 20, "num_right": 2}}
    health = run_health(write(tmp_path, rows, dropped=dropped))
    assert health is not None
    assert health.solved_sometimes == Figure(count=2, total=7)  # often, and d at .15
    line = next(row for row in health_grid(health).rows if "15% to 80%" in row[0])
    assert line[1:3] == ("29%", "7")


def test_labels_of_one_class(tmp_path: Path) -> None:
    """The run of the complaint: one sound step of 2,127."""
    rows = [solution(f"p{i}", [False] * 3, W) for i in range(709)]
    rows[0] = solution("p0", [True, False, False], W)
    health = run_health(write(tmp_path, rows))
    assert health is not None
    (finding,) = health.findings
    assert (finding.check, finding.severity) == ("labels_wrong", "error")
    assert finding.text == "2,126 of 2,127 step labels (99.95%) are wrong"
    assert finding.threshold == 0.995 and "completers" in finding.remedy


def test_a_share_that_is_not_all_is_not_rounded_to_all() -> None:
    assert share_text(Figure(count=999_999, total=1_000_000)) == "99.99%"
    assert share_text(Figure(count=20, total=20)) == "100%"
    assert share_text(Figure(count=0, total=0)) == "-"


def test_splits_that_do_not_fit(tmp_path: Path) -> None:
    one = [solution(f"p{i}", [i % 2 == 0], R if i % 2 == 0 else W) for i in range(20)]
    assert findings(run_health(write(tmp_path / "one", one))) == {"one_step": "error"}
    many = [
        solution(f"p{i}", [True] * 30 + [i % 2 == 0] * 21, R if i % 2 == 0 else W)
        for i in range(20)
    ]
    assert findings(run_health(write(tmp_path / "many", many))) == {"many_steps": "warning"}


def test_labels_against_outcomes(tmp_path: Path) -> None:
    right = [solution(f"r{i}", [i < 10, True], R) for i in range(20)]
    wrong = [solution(f"w{i}", [i < 10, i < 10], W) for i in range(20)]
    health = run_health(write(tmp_path, right + wrong))
    assert findings(health) == {"wrong_without_error": "error", "right_with_error": "warning"}
    # labels of the last step alone say nothing of where an error is
    outcomes = [solution(f"o{i}", [None, False], W) for i in range(20)]
    alone = [replace(row, first_error=None) for row in outcomes]
    assert shares(run_health(write(tmp_path / "alone", alone)))["wrong_without_error"] == (0, 0)


def test_long_solutions_that_were_cut_cost_most(tmp_path: Path) -> None:
    rows = [
        solution(f"p{i}", [i % 2 == 0] * 2, T if i == 0 else R if i % 2 == 0 else W, tokens=tokens)
        for i, tokens in enumerate([100, *[10] * 19])
    ]
    assert findings(run_health(write(tmp_path, rows))) == {"tokens_at_limit": "warning"}


def test_the_same_from_merged_shards_and_from_many(tmp_path: Path) -> None:
    four = Counts(num_right=2, num_wrong=2, num_tokens=40)
    for block in range(12):
        rows = [solution(f"p{block}.{i}", [True, i == 0], R, counts=four) for i in range(2)]
        store = write(tmp_path, rows, block=block)
    whole = run_health(store)
    part = run_health(store, max_files=4)
    assert whole is not None and part is not None
    assert (whole.num_shards, whole.num_read, whole.num_solutions) == (12, 12, 24)
    assert (part.num_shards, part.num_read, part.num_solutions) == (12, 4, 8)
    compact(store, rows=100)
    merged = run_health(store)
    assert merged is not None and merged.num_shards == 1
    assert (merged.figures, merged.findings) == (whole.figures, whole.findings)


FAULT = "the checker raised KeyError at grading.py:3"


def test_reasons_of_rollouts_without_a_verdict_are_counted(tmp_path: Path) -> None:
    counts = Counts(num_right=1, num_ungraded=7)
    for block, reasons in enumerate(({"no_answer": 30, FAULT: 20}, {"timeout": 5, FAULT: 1})):
        rows = [solution(f"p{block}.{i}", [True, True], R, counts=counts) for i in range(4)]
        store = write(tmp_path, rows, block=block, ungraded=reasons)
    health = run_health(store)
    assert health is not None
    (found,) = [one for one in health.findings if one.check == "rollouts_ungraded"]
    assert found.text.endswith(f"graded: no_answer (30), {FAULT} (21), timeout (5)")
    assert "golds" in found.remedy and "Mend the checker" not in found.remedy
    assert dict(health.ungraded) == {"no_answer": 30, FAULT: 21, "timeout": 5}
    compact(store, rows=100)
    merged = run_health(store)
    assert merged is not None and merged.ungraded == health.ungraded
    told = json.loads(mclabel("labels", str(tmp_path), "--json"))["health"]
    assert told["ungraded"] == health.ungraded
    rows = {row[0]: row[1] for row in health_grid(health).rows}
    assert rows[f"rollouts without a verdict: {FAULT}"] == "38%"  # 21 of 56


def test_guesses_are_counted_and_reported(tmp_path: Path) -> None:
    counts = Counts(num_right=1, num_wrong=7)
    for block, number in enumerate((3, 5)):
        rows = [solution(f"p{block}.{i}", [True, True], R, counts=counts) for i in range(4)]
        store = write(tmp_path, rows, block=block, weak=number)
    for _ in range(2):
        health = run_health(store)
        assert shares(health)["rollouts_weak"] == (8, 64)
        assert findings(health)["rollouts_weak"] == "warning"
        compact(store, rows=100)


def test_a_job_s_guesses_reach_its_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guessing.py").write_text(
        "from mclabel import Grade, Verdict\n"
        "def grade(completion):\n"
        "    return Grade(verdict=Verdict.WRONG, reason='guess_different')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    source = write_problems(tmp_path, 4)
    own = ("checker=guessing:grade", "ray.address=none")
    out = tmp_path / "out"
    mclabel("label", "/dev/null", *scripted_overrides(source, out, *own, "estimator.kind=fixed"))
    count, total = shares(run_health(Store(str(out))))["rollouts_weak"]
    assert count == total > 20
    mclabel("regrade", str(out), "-o", str(tmp_path / "maths"), "checker=math", "--change-checker")
    count, total = shares(run_health(Store(str(tmp_path / "maths"))))["rollouts_weak"]
    assert count == 0 < total


def test_a_fault_of_the_checker_is_its_own_remedy(tmp_path: Path) -> None:
    rows = [solution(f"p{i}", [None, None], U, counts=Counts(num_ungraded=1)) for i in range(20)]
    store = write(tmp_path, rows, ungraded={FAULT: 11, "no_answer": 9})
    health = run_health(store)
    assert health is not None
    remedies = {one.check: one.remedy for one in health.findings}
    for check in ("rollouts_ungraded", "solutions_ungraded"):
        assert remedies[check].startswith(f"Mend the checker: {FAULT};")
        assert "golds" not in remedies[check]


def test_a_job_s_reasons_reach_its_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "moody_grading.py").write_text(
        "calls = []\n"
        "def grade(completion):\n"
        "    calls.append(completion)\n"
        "    return True if len(calls) == 1 else {}[completion]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    source = write_problems(tmp_path, 12)
    out = tmp_path / "out"
    own = ("checker=moody_grading:grade", "ray.address=none", "keep_rollouts=false")
    overrides = scripted_overrides(source, out, *own, "estimator.kind=fixed", "block_problems=1")
    said = mclabel("label", "/dev/null", *overrides)
    assert "graded: the checker raised KeyError at moody_grading.py:4 (" in said
    assert "Mend the checker: the checker raised KeyError at moody_grading.py:4;" in said
    assert "mend the golds" not in said


def test_runs_without_solutions(tmp_path: Path) -> None:
    assert run_health(Store(str(tmp_path / "new"), create=True)) is None
    set_aside = {"a": {"reason": "unparsed_gold", "detail": "?"}}
    found = findings(run_health(write(tmp_path / "empty", [], set_aside=set_aside)))
    assert found == {"no_solutions": "error"}


def mclabel(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_job_ends_with_what_is_wrong(tmp_path: Path) -> None:
    """No answer of the scripted policy is the gold one: nothing is ever right."""
    problems = [{"problem": f"P{i} [answer {i}]", "answer": f"{1000 + i}"} for i in range(12)]
    source = tmp_path / "problems.jsonl"
    source.write_text("\n".join(map(json.dumps, problems)))
    out = str(tmp_path / "out")
    job = [f"problems.source={source}", "policy.engine=scripted", "ray.address=none", f"out={out}"]
    said = mclabel("label", "/dev/null", "estimator.kind=fixed", *job)
    assert f"Health of the run (all figures: mclabel labels {out}):" in said
    assert "error: 240 of 240 step labels (100%) are wrong" in said
    assert "let a stronger model roll out" in said
    content = json.loads(mclabel("labels", out, "--json"))["health"]
    assert content["figures"]["labels_wrong"] == {"count": 240, "total": 240, "share": 1.0}
    page = report_page([out], str(tmp_path / "report.html")).read_text()
    assert "Health of the run" in page and "240 of 240 step labels (100%) are wrong" in page


def test_the_documentation_lists_every_check_with_its_thresholds() -> None:
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    for name, check in CHECKS.items():
        error = "-" if check.error is None else f"{check.error:.1%}".replace(".0%", "%")
        assert f"| `{name}` | {check.name} | {check.warning:.0%} | {error} |" in text
