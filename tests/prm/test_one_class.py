"""Labels that are all equal are refused before training, for every target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mclabel.core.records import Counts, LabeledSolution, Outcome
from mclabel.prm.examples.targets import TARGETS
from tests.support.commands import run_verb
from tests.support.labelled import arith_rows, write_run


def with_equal_labels(rows: list[LabeledSolution], *, sound: bool) -> list[LabeledSolution]:
    """Return the same solutions with all labels sound, or all wrong."""
    value = float(sound)

    def decide_counts(counts: Counts) -> Counts:
        return Counts(
            **{"num_right" if sound else "num_wrong": counts.num_rollouts},
            num_tokens=counts.num_tokens,
        )

    return [
        replace(
            row,
            solution=replace(row.solution, outcome=Outcome.RIGHT if sound else Outcome.WRONG),
            steps=tuple(
                replace(
                    step,
                    hard=sound,
                    value=value,
                    counts=decide_counts(step.counts),
                    state="sound" if sound else "error",
                )
                for step in row.steps
            ),
            first_error=None if sound else 0,
            root_value=value,
            posterior=(0.0,) * len(row.steps) + (1.0,)
            if sound
            else (1.0,) + (0.0,) * len(row.steps),
        )
        for row in rows
    ]


def run_refused_training(run: str, out: Path, base: str, *overrides: str) -> str:
    command = ["train", "/dev/null", f"out={out}", f"labels=[{run}]", f"base={base}"]
    command += ["max_steps=1", "validation=0", "batch_size=4", *overrides]
    return " ".join(run_verb(command, code=2).output.split())


@pytest.mark.parametrize("sound", [False, True], ids=["wrong", "sound"])
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "exact"])
def test_one_class_is_refused(target: str, sound: bool, base: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", with_equal_labels(arith_rows(12), sound=sound))
    for more in ([], ["--preflight"]):
        message = run_refused_training(run, tmp_path / "prm", base, f"target={target}", *more)
        assert f"{target} labels to train on are" in message and "At least 1 must differ" in message
        if target != "advantage":
            assert ("harder problems" if sound else "easier problems") in message
    assert not (tmp_path / "prm").exists()


def test_a_handful_among_thousands_is_refused(base: str, tmp_path: Path) -> None:
    """A reported run had only one sound step among 2,127."""
    rows = with_equal_labels(arith_rows(240), sound=False)
    first = rows[0]
    rows[0] = replace(first, steps=(replace(first.steps[0], hard=True), *first.steps[1:]))
    count = sum(len(row.steps) for row in rows)
    assert 1000 < count < 2000
    message = run_refused_training(write_run(tmp_path / "run", rows), tmp_path / "prm", base)
    assert f"{count - 1:,} of {count:,} hard labels to train on are 0" in message
    assert "At least 2 must differ" in message and "policy.max_tokens" in message
