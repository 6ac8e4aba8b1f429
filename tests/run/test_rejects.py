"""Problems that cannot be labelled are left out with a reason, and no block changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import DataError
from mclabel.labeling.config import LabelConfig
from mclabel.run.tally import JobReport
from tests.support.commands import run_verb
from tests.support.exactness import check_exact

LONG = "long " * 40


def write_rows(folder: Path) -> Path:
    """Write 20 good problems and 5 bad rows; `long` fails at the engine, `odd` at the checker."""
    rows: list[bytes] = []
    for i in range(20):
        text = f"P{i} [answer {i}]"
        good = {"id": f"p{i}", "problem": text, "answer": str(i)}
        rows.append(json.dumps(good).encode())
        if i == 5:
            rows += [b'{"id": "broken', b'{"id": "none", "problem": "x"}', rows[2]]
        if i == 7:
            rows.append(json.dumps({**good, "id": "long", "problem": LONG + text}).encode())
        if i == 11:
            rows.append(json.dumps({**good, "id": "odd", "answer": r"\oint_C f"}).encode())
    path = folder / "problems.jsonl"
    path.write_bytes(b"\n".join(rows))
    return path


EXPECTED = [
    (7, None, "not_json"),
    (8, "none", "no_column"),
    (9, "p2", "duplicate"),
    (None, "long", "prompt_too_long"),
    (None, "odd", "unparsed_gold"),
]


def overrides(folder: Path, *more: str) -> list[str]:
    source = folder / "problems.jsonl"
    base = [f"problems.source={source}", f"out={folder / 'out'}", "policy.engine=scripted"]
    base += [
        "policy.engine={kind: scripted, max_context: 200}",
        "ray.address=none",
        "block_problems=4",
    ]
    return [*base, "estimator.kind=fixed", "estimator.rollouts=4", *more]


def label(folder: Path, *more: str, on_state: Any = lambda state: None) -> JobReport:
    return jobs.label(load_config(LabelConfig, None, overrides(folder, *more)), on_state)


def rejected(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "rejects.jsonl").open()]


def test_a_job_goes_on_without_what_cannot_be_labelled(tmp_path: Path) -> None:
    source = write_rows(tmp_path)
    report = label(tmp_path)
    assert report.num_rejected == 5 and (report.num_blocks, report.counts["num_solutions"]) == (
        6,
        80,
    )
    assert sorted(
        [(r["row"], r["problem_id"], r["reason"]) for r in rejected(tmp_path)], key=str
    ) == sorted(EXPECTED, key=str)
    check_exact(tmp_path / "out")
    first, *_, last = rejected(tmp_path)
    assert list(first) == ["problem_id", "row", "source", "reason", "detail", "run", "digest"]
    assert list(last) == ["problem_id", "row", "source", "reason", "detail"]
    assert first["source"] == str(source) and last["source"] is None
    by_reason = {row["reason"]: row["detail"] for row in rejected(tmp_path)}
    assert "has 214 tokens, but the model takes 200" in by_reason["prompt_too_long"]
    assert r"\\oint_C f" in by_reason["unparsed_gold"]
    # After a second run, the file is the same and nothing is left to do.
    before = (tmp_path / "out" / "rejects.jsonl").read_bytes()
    again = label(tmp_path)
    assert (again.num_blocks_resumed, again.num_items, again.num_rejected) == (6, 0, 5)
    assert (tmp_path / "out" / "rejects.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("drop", "fault"),
    [
        (0, r"line 7: not valid JSON"),
        (3, r"problem long: its prompt has 214 tokens, but the model takes 200"),
        (4, r"problem odd: the checker math does not understand the gold"),
    ],
)
def test_strict_stops_at_the_first(tmp_path: Path, drop: int, fault: str) -> None:
    path = write_rows(tmp_path)
    lines = path.read_bytes().split(b"\n")
    del lines[6 : 6 + min(drop, 3)]
    path.write_bytes(b"\n".join(lines))
    more = ["policy.engine={kind: scripted, max_context: 10000}"] if drop == 4 else []
    with pytest.raises(DataError, match=fault):
        label(tmp_path, "strict=true", *more)
    if drop == 0:
        assert not (tmp_path / "out").exists()


def test_a_job_that_leaves_out_every_problem_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text(
        json.dumps({"id": "p", "problem": "P [answer 1]", "answer": "1"})
    )
    narrow = "policy.engine={kind: scripted, max_context: 5}"
    for _ in range(2):  # a second run changes nothing
        printed = " ".join(
            run_verb(["label", "/dev/null", *overrides(tmp_path, narrow)], code=1).output.split()
        )
        assert "no problem could be labelled: all were left out" in printed
