"""Provenance of scores: the PRM that gave them, and whether its code was trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mclabel.prm.scoring.manifest import compute_scorer_fingerprint, strip_credentials
from tests.support.commands import run_verb

SOLUTION = {"problem": "A boy has 1 apple.", "solution": "1 + 1 = 2\nThe answer is 2."}
JUDGED = [
    {"id": "gsm8k-0", "problem": "P", "steps": ["1 + 1 = 2"], "label": -1},
    {"id": "gsm8k-1", "problem": "P", "steps": ["1 + 1 = 3", "So 3"], "label": 0},
]


@pytest.fixture(scope="module")
def prm(base: str, labels: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("prm") / "prm"
    run_verb(
        ["train", "/dev/null", f"out={out}", f"labels=[{labels}]", f"base={base}", "max_steps=1"]
    )
    return str(out)


def read_provenance(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    assert set(content.pop("versions")) >= {"mclabel", "torch", "transformers", "python"}
    return content


def test_scores_and_processbench_record_whether_code_was_trusted(prm: str, tmp_path: Path) -> None:
    trust = "--trust-remote-code"
    file, bench = tmp_path / "in.jsonl", tmp_path / "processbench_gsm8k.json"
    file.write_text(json.dumps(SOLUTION))
    bench.write_text(json.dumps(JUDGED))
    run_verb(["score", prm, str(file), "-o", f"{tmp_path}/out.jsonl", trust])
    run_verb(["eval", "processbench", str(bench), "--model", prm, "-o", f"{tmp_path}/bench", trust])
    expected = {"prm": prm, "weights": compute_scorer_fingerprint(prm), "trust_remote_code": True}
    assert read_provenance(tmp_path / "out.jsonl.provenance.json") == {
        **expected,
        "format": "mclabel",
        "url": None,
    }
    assert read_provenance(tmp_path / "bench" / "provenance.json") == expected


def test_an_address_is_recorded_without_its_password() -> None:
    assert strip_credentials("http://me:secret@host:8000/x?key=1#y") == "http://host:8000"
