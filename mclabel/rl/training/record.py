"""Records of a training run besides its weights: the log, measurements and sample solutions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mclabel.core.errors import DataError
from mclabel.core.plain_files import check_plain, write_atomically
from mclabel.core.settings import Count, read_record
from mclabel.rl.groups import Group
from mclabel.rl.measure import Measurement

LOG, MEASURED = "log.jsonl", "measured"
"""Names of the log file and of the folder of measurements in the output folder."""

NUM_KEPT = 20
"""Number of problems for which a sample solution is stored, the same problems at each
measurement."""


def write_samples(path: Path, groups: Sequence[Group]) -> None:
    """Write the first solution of each of the first `NUM_KEPT` problems, as JSON lines."""
    rows = [
        {
            "problem": group.problem.text,
            "answer": group.problem.answer,
            "solution": group.solutions[0].text,
            "outcome": group.solutions[0].outcome.value,
        }
        for group in groups[:NUM_KEPT]
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    write_atomically(path, text.encode())


def read_samples(path: Path) -> list[dict[str, str]]:
    """Read the rows that `write_samples` wrote; empty if the file is missing."""
    return _read_lines(path)


def read_measurements(out: Path) -> dict[int, Measurement]:
    """Read the measurements, by optimizer step.

    Raises:
        DataError: a file is not a measurement.
    """
    measurements = {}
    for path in sorted((out / MEASURED).glob("*.json"), key=_step_of):
        check_plain(path, DataError)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            measurements[_step_of(path)] = Measurement.from_json(content)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}: is not a measurement ({error}). Delete the file and run the training "
                "again, which repeats the measurement"
            ) from error
    return measurements


def read_log(out: Path) -> list[dict[str, float]]:
    """Read the figures of every step, in order. An incomplete last line is ignored.

    Raises:
        DataError: the file is not a log.
    """
    lines = _read_lines(out / LOG)
    for line in lines:
        try:
            read_record(Count, line.get("step"))
        except ValueError as error:
            raise DataError(f"{out / LOG}: step={line.get('step')!r}: {error}") from error
    return lines


def remove_records_after(out: Path, step: int) -> None:
    """Remove the log lines and measurements after a step.

    A resumed run repeats the steps after its last checkpoint, and writes these records again.

    Args:
        out: output folder of the training run.
        step: number of optimizer steps at the last checkpoint.
    """
    kept = [line for line in read_log(out) if line["step"] <= step]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    write_atomically(out / LOG, text.encode())
    for path in (out / MEASURED).glob("*.json"):
        if _step_of(path) > step:
            path.unlink()


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON objects, one per line. An incomplete last line is ignored."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    objects = []
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise DataError(f"{path}: line {number} is not valid JSON ({error})") from error
        if not isinstance(content, dict):
            raise DataError(f"{path}: line {number} must be a JSON object, but is {line[:80]!r}")
        objects.append(content)
    return objects


def _step_of(path: Path) -> int:
    """Return the optimizer step in the name of a measurement file; -1 for any other file."""
    return int(path.stem) if path.stem.isascii() and path.stem.isdecimal() else -1
