"""A checker that always fails ends its job in an orderly way, and a repaired one continues it."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mclabel.checkers import Checker, CheckerSettings, Grade, GradeItem, ThreadRunner, run_inline
from mclabel.checkers.guarded import MAX_FAILURES, GuardedChecker
from mclabel.cli import main
from mclabel.core.boundary import Boundary
from mclabel.core.errors import CheckerError, MclabelError
from mclabel.core.records import Outcome, Problem, Verdict
from mclabel.run.shards.journal import FOLDER, parse_journal_lines, write_journal
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.own_package import write_module
from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems

BROKEN = """
def grade(completion, gold):
    return table[gold] in completion
"""
MENDED = """
def grade(completion, gold):
    return "boxed{%s}" % gold in completion
"""


class Picky(Checker):
    """A checker that raises on some completions, according to their text."""

    def __init__(self, settings: CheckerSettings) -> None:
        self.name, self.version = "picky", "1"

    async def grade(
        self, items: Sequence[GradeItem], run_blocking: ThreadRunner = run_inline
    ) -> list[Grade]:
        return [self._grade_text(item.completion) for item in items]

    def _grade_text(self, text: str) -> Grade:
        if text.startswith("refuse"):
            raise MclabelError("the server of verdicts is away")
        return Grade(verdict=[Verdict.WRONG, Verdict.RIGHT][int(text)])


def grade_texts(checker: Checker, *texts: str) -> list[Grade]:
    problem = Problem(id="p", text="?", answer="1")
    items = [GradeItem(problem=problem, completion=text) for text in texts]
    return list(asyncio.run(checker.grade(items)))


def make_checker() -> GuardedChecker:
    return GuardedChecker(Picky(CheckerSettings(kind="picky")), Boundary("checkers", Picky))


def test_what_raises_now_and_then_is_unknown_with_its_reason_for_ever() -> None:
    checker = make_checker()
    assert [g.verdict for g in grade_texts(checker, "1", "x", "0")] == ["right", "unknown", "wrong"]
    for _ in range(2 * MAX_FAILURES):
        (failed,) = grade_texts(checker, "x")
    assert failed.verdict is Verdict.UNKNOWN
    assert failed.failure is not None and failed.failure.startswith("ValueError at test_guarded.py")
    assert failed.reason.startswith(f"the checker raised {failed.failure}: invalid literal for int")


def test_as_many_failures_alike_and_nothing_else_end_it() -> None:
    checker = make_checker()
    for number in range(MAX_FAILURES - 1):
        grade_texts(checker, "x")
        if number % 2:
            grade_texts(checker, "7")  # raises another exception
    with pytest.raises(CheckerError, match=r"checker=picky: .* ValueError at test_guarded.py:\d+"):
        grade_texts(checker, "x")
    with pytest.raises(CheckerError):
        grade_texts(checker, "x")


def test_an_error_for_the_user_is_no_grade() -> None:
    with pytest.raises(MclabelError, match="the server of verdicts is away"):
        grade_texts(make_checker(), "refuse")


def write_checker(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> str:
    """Write a module of a user's checker, importable as in a new process."""
    name = write_module(folder, source, monkeypatch)
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return f"{name}:grade"


def run_label(folder: Path, checker: str, *more: str) -> Result:
    overrides = scripted_overrides(
        folder / "problems.jsonl", folder / "out", f"checker={checker}", "estimator.kind=fixed"
    )
    config = str(write_config(folder))
    return CliRunner().invoke(main, ["label", config, *overrides, "ray.address=none", *more])


def test_a_job_with_a_broken_checker_ends_and_goes_on_with_the_mended_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_problems(tmp_path, 16)
    name = write_checker(tmp_path, monkeypatch, BROKEN)
    failed = run_label(tmp_path, name, "block_problems=16")
    assert failed.exit_code == 2 and f"checker={name}" in failed.output, failed.output
    assert "NameError at own_" in failed.output and "golds" not in failed.output
    store = Store(str(tmp_path / "out"))
    assert store.names("labels") == []
    kept = {
        line["solution"]["id"]: line["solution"]["text"]
        for journal in store.names(FOLDER)
        for line in parse_journal_lines(store.read(journal) or b"")
        if "solution" in line
    }
    assert len(kept) >= MAX_FAILURES - 1

    name = write_checker(tmp_path, monkeypatch, MENDED)
    for more in (["--dry-run"], []):
        resumed = run_label(tmp_path, name, "block_problems=16", *more)
        assert resumed.exit_code == 0, resumed.output
    rows = list(read_labels(store))
    assert len(rows) == 64 and all(row.solution.outcome is not Outcome.UNGRADED for row in rows)
    assert {row.solution.id: row.solution.text for row in rows}.items() >= kept.items()

    refused = run_label(tmp_path, write_checker(tmp_path, monkeypatch, BROKEN), "block_problems=16")
    assert refused.exit_code == 2 and "checker.version" in refused.output
    assert "mclabel regrade" in refused.output


def test_verdicts_in_a_journal_keep_their_checker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_problems(tmp_path, 16)
    name = write_checker(tmp_path, monkeypatch, BROKEN)
    assert run_label(tmp_path, name, "block_problems=16").exit_code == 2
    store = Store(str(tmp_path / "out"))
    (journal, *_) = store.names(FOLDER)
    line = next(iter(parse_journal_lines(store.read(journal) or b"")))
    judged = {key: value for key, value in line.items() if key != "failed"}
    write_journal(store, journal.split("/")[1], "other", 0, [judged])
    refused = run_label(tmp_path, write_checker(tmp_path, monkeypatch, MENDED), "block_problems=16")
    assert refused.exit_code == 2 and "verdicts come from another version" in refused.output
