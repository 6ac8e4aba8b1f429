"""Faults in a user's components are located in messages, and a repaired component continues."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mclabel.cli import main
from mclabel.core.boundary import find_misfit
from mclabel.judge.base import Opinion
from mclabel.labeling.estimators.base import Judgement
from mclabel.labeling.estimators.paths import Probe
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support import broken_components as table
from tests.support.broken_components import Case, broken
from tests.support.labelled import arith_rows, write_run
from tests.support.own_package import mclabel
from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems

Mclabel = Callable[..., tuple[int, str]]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that rewrites the module `own` and removes it from `sys.modules`."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source: str) -> None:
        (tmp_path / "own.py").write_text(source)
        sys.modules.pop("own", None)
        importlib.invalidate_caches()

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write("")
    return write


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Mclabel:
    """Return a function that runs a command as a user does: its exit code and its stderr."""

    def command(*arguments: str | Path) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main.main([str(argument) for argument in arguments])
        code = ended.value.code
        return (0 if code is None else int(code)), capfd.readouterr().err

    return command


def assert_told(ended: tuple[int, str], case: Case, name: str = "own") -> None:
    code, printed = ended
    assert code == 2 and "Traceback" not in printed, printed
    last = printed.strip().splitlines()[-1]
    for word in (name, *case.words):
        assert word in last, last
    assert "Correct it" in last or "must" in last or "Fix the checker" in last


def label(folder: Path, *overrides: str) -> Sequence[str]:
    problems = folder / "problems.jsonl"
    if not problems.exists():
        write_problems(folder, 2)
    return [
        "label",
        str(write_config(folder)),
        *scripted_overrides(problems, folder / "out", "ray.address=none"),
        "estimator.rollouts=2",
        *overrides,
    ]


def judge(folder: Path) -> Sequence[str]:
    write_run(folder / "run", arith_rows(6))
    return ["judge", str(folder / "run"), "-o", str(folder / "out"), "judge=own:Own"]


def estimate(folder: Path) -> Sequence[str]:
    return label(folder, "estimator.kind=own:Own")


def sample(folder: Path) -> Sequence[str]:
    return label(folder, "policy.engine=own:Own")


def grade(folder: Path) -> Sequence[str]:
    return label(folder, "checker=own:Own", "estimator.rollouts=8")


def read(folder: Path) -> Sequence[str]:
    return label(folder, "problems.source=own:Own")


def export(folder: Path) -> Sequence[str]:
    return [
        "export",
        write_run(folder / "run", arith_rows(6)),
        "--to",
        "own:Own",
        "-o",
        str(folder / "rows"),
    ]


def import_rows(folder: Path) -> Sequence[str]:
    rows = folder / "rows.jsonl"
    rows.write_text('{"problem": "p", "steps": ["a", "b"], "ratings": [1, 0]}\n')
    return ["import", str(rows), "--from", "own:Own", "-o", str(folder / "run")]


KINDS = (
    (judge, table.JUDGE, table.JUDGES, "own:Own: "),
    (estimate, table.ESTIMATOR, table.ESTIMATORS, "own:Own: "),
    (sample, table.ENGINE, table.ENGINES, "own:Own: "),
    (grade, table.CHECKER, table.CHECKERS, "own:Own"),
    (read, table.READER, table.READERS, "own:Own: "),
    (export, table.FORMAT, table.FORMATS, "own:Own"),
    (import_rows, table.FORMAT, table.READ_FORMATS, "own:Own"),
)
"""A command, a sound component for it, the component's faults, and its name in messages."""


@pytest.mark.parametrize(
    ("job", "sound", "name", "case", "goes_on"),
    [
        pytest.param(job, sound, name, case, is_first, id=f"{job.__name__}-{case.name}")
        for job, sound, cases, name in KINDS
        for number, case in enumerate(cases)
        for is_first in [case.part not in {earlier_case.part for earlier_case in cases[:number]}]
    ],
)
def test_a_broken_component_is_named_and_a_mended_one_goes_on(
    job: Callable[[Path], Sequence[str]],
    sound: str,
    name: str,
    case: Case,
    goes_on: bool,
    tmp_path: Path,
    module: Callable[[str], None],
    run: Mclabel,
) -> None:
    """The repair follows a fault of any part; for several faults in one part, the first."""
    module(broken(sound, case))
    command = job(tmp_path)
    assert_told(run(*command), case, name)
    if goes_on:
        module(sound)
        code, printed = run(*command)
        assert code == 0, printed
        if job is estimate:
            assert len(list(read_labels(Store(str(tmp_path / "out"))))) == 8


@pytest.mark.parametrize(
    ("job", "source", "words"),
    [
        (judge, table.SYNC_JUDGE, ("judge", "async def judge")),
        (sample, table.SYNC_SAMPLE, ("sample", "async def sample")),
        (grade, table.SYNC_GRADE, ("grade", "async def grade")),
        (read, table.ASYNC_ROWS, ("rows", "coroutine", "(def)")),
        (export, table.ASYNC_WRITE, ("write", "coroutine", "(def)")),
    ],
)
def test_what_should_be_a_coroutine_and_is_none_is_named_and_the_reverse(
    job: Callable[[Path], Sequence[str]],
    source: str,
    words: tuple[str, ...],
    tmp_path: Path,
    module: Callable[[str], None],
    run: Mclabel,
) -> None:
    module(source)
    assert_told(run(*job(tmp_path)), Case("", "", "", words), "own:Own")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        training if number == 0 else pytest.param(training, marks=pytest.mark.slow)
        for number, training in enumerate(table.TRAININGS)
    ],
    ids=lambda case: case.name,
)
def test_a_broken_loss_target_or_weight(
    case: Case, tmp_path: Path, module: Callable[[str], None], run: Mclabel
) -> None:
    labels = write_run(tmp_path / "run", arith_rows(8))
    chosen = [f"{key}=own:{key}" for key in ("loss", "target", "weights")]
    train = ["train", str(write_config(tmp_path)), f"labels=[{labels}]", "base=arith:policy"]
    train += [f"out={tmp_path / 'prm'}", "max_steps=1", "validation=0", *chosen]
    module(broken(table.TRAINING, case))
    assert_told(run(*train), case, f"own:{case.part}")
    if case is next(training for training in table.TRAININGS if training.part == case.part):
        module(table.TRAINING)
        code, printed = run(*train)
        assert code == 0, printed


HANGS = {
    "estimator.kind": (table.ESTIMATOR, "wanted", "time.sleep(600)"),
    "checker": (table.CHECKER, "grade", "time.sleep(600)"),
    "checker.": (table.CHECKER, "grade", "import asyncio; await asyncio.sleep(600)"),
    "checker:": (table.CHECKER, "grade", "await run_blocking(lambda: time.sleep(600))"),
    "policy.engine": (table.ENGINE, "encode", "time.sleep(600)"),
}


@pytest.mark.slow
def test_a_component_that_ends_the_process_leaves_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(broken(table.ESTIMATOR, Case("", "wanted", "os._exit(7)", ())))
    job = label(tmp_path, "estimator.kind=own:Own")
    done = mclabel(tmp_path, *job)
    assert done.returncode == 7, done.stderr
    (tmp_path / "own.py").write_text(table.ESTIMATOR)
    done = mclabel(tmp_path, *job)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    ["checker", *(pytest.param(key, marks=pytest.mark.slow) for key in HANGS if key != "checker")],
)
def test_a_call_that_does_not_return_ends_the_job(key: str, tmp_path: Path) -> None:
    sound, part, code = HANGS[key]
    (tmp_path / "own.py").write_text(
        broken(sound, Case("", part, code, ()))
        + "import mclabel.core.boundary\nmclabel.core.boundary.HANG_S = 2.0\n"
    )
    job = label(tmp_path, f"{key.rstrip('.:')}=own:Own")
    done = mclabel(tmp_path, *job)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("mclabel: own:Own: ") and "has not returned for" in last
    if key == "checker":
        (tmp_path / "own.py").write_text(sound)
        done = mclabel(tmp_path, *job)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("value", "must", "fault"),
    [
        (range(3), Sequence[int | Probe], None),
        ([1, Probe(0, 1)], Sequence[int | Probe], None),
        ([1, Probe(0, True)], Sequence[int | Probe], "[1].completer=True (bool), must be a valid"),
        (Opinion(is_known=True, scores=[1, 0.5]), Opinion, None),  # type: ignore[arg-type]
        (Opinion(is_known=True, votes=(-2,)), Opinion, "votes[0]=-2 (int), must be greater than"),
        ([None], list[Judgement], "[0]=None, must be an instance of Judgement"),
        ({"a": 1}, Mapping[str, float], None),
        (True, float, "True (bool), must be a valid number"),
        (float("nan"), float, None),
    ],
)
def test_a_value_is_told_by_its_place(value: object, must: Any, fault: str | None) -> None:
    misfit = find_misfit(value, must)
    assert misfit is None if fault is None else (misfit or "").startswith(fault)
