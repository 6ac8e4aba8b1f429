"""The quickstart with a real language model, at its smallest size."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from mclabel.domains.words.smollm2 import SMOLLM2_INSTALL, SMOLLM2_PACKAGE
from tests.support.commands import run_verb


@pytest.mark.slow
@pytest.mark.ray
def test_it_ends_with_figures_and_a_report(tmp_path: Path) -> None:
    if find_spec(SMOLLM2_PACKAGE) is None or find_spec("gguf") is None:
        pytest.skip(f"SmolLM2 is not installed: {SMOLLM2_INSTALL}")
    words = ["quickstart", "--model", "smollm2:135m", "--size", "small", "--out", str(tmp_path)]
    assert "too few to prove quality" in run_verb(words).output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary["seconds"]) == {"label", "train", "evaluate", "total"}
    assert {"majority", "orm", "prm:last", "vote:prm", "pass"} <= set(summary["best_of_n"])
    assert "Accuracy by N" in (tmp_path / "report.html").read_text(encoding="utf-8")
