"""Labels that are all the same are refused before anything is trained, for every target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from mclabel.core.records import Counts, LabeledSolution, Outcome
from mclabel.prm.examples.targets import TARGETS
from tests.support.labelled import arith_rows, write_run


def alike(rows: list[LabeledSolution], *, sound: bool) -> list[LabeledSolution]:
    """The same solutions, every label of which says the same."""
    value = float(sound)

    def outcomes(counts: Counts) -> Counts:
        all_of_them = counts.num_rollouts
        right, wrong = (all_of_them, 0) if sound else (0, all_of_them)
        return Counts(num_right=right, num_wrong=wrong, num_tokens=counts.num_tokens)

    return [
        replace(
            row,
            solution=replace(row.solution, outcome=Outcome.RIGHT if sound else Outcome.WRONG),
            steps=tuple(
                replace(
                    step,
                    hard=sound,
                    value=value,
                    counts=outcomes(step.counts),
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


def train(run: str, out: Path, base: str, *overrides: str) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        main,
        [
            *("train", "/dev/null", f"out={out}", f"labels=[{run}]", f"base={base}"),
            *("max_steps=1", "validation=0", "batch_size=4", *overrides),
        ],
    )
    assert "Traceback" not in result.output
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("sound", [False, True], ids=["wrong", "sound"])
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "exact"])
def test_one_class_is_refused(target: str, sound: bool, base: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", alike(arith_rows(12), sound=sound))
    code, said = train(run, tmp_path / "prm", base, f"target={target}")
    assert code == 2
    assert f"{target} labels to train on are" in said and "At least 1 must differ" in said
    if target != "advantage":
        assert ("harder problems" if sound else "easier problems") in said
    assert not (tmp_path / "prm").exists()
    code, said = train(run, tmp_path / "prm", base, f"target={target}", "--preflight")
    assert code == 2 and "At least 1 must differ" in said


def test_a_handful_among_thousands_is_refused(base: str, tmp_path: Path) -> None:
    """As in the run of the complaint, with one sound step of 2,127."""
    rows = alike(arith_rows(240), sound=False)
    first = rows[0]
    rows[0] = replace(first, steps=(replace(first.steps[0], hard=True), *first.steps[1:]))
    count = sum(len(row.steps) for row in rows)
    assert 1000 < count < 2000
    code, said = train(write_run(tmp_path / "run", rows), tmp_path / "prm", base)
    assert code == 2
    assert f"{count - 1:,} of {count:,} hard labels to train on are 0" in said
    assert "At least 2 must differ" in said and "policy.max_tokens" in said
