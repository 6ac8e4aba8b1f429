"""The labels that choose a scorer's threshold are of problems neither judged nor learned."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from mclabel.core.errors import DataError
from mclabel.judge.score import ScorerJudge
from mclabel.run.shards.labels import committed_blocks
from mclabel.run.shards.store import Store
from tests.support.labelled import arith_rows, write_run


def test_held_out_labels_of_judged_or_learned_problems_are_refused(tmp_path: Path) -> None:
    rows = arith_rows(6)
    held_out = write_run(tmp_path / "held", rows)
    settings = SimpleNamespace(held_out=held_out, prm=str(tmp_path / "prm"))
    first = rows[0].problem
    ScorerJudge.check_input(settings, lambda: ["another problem?"])
    with pytest.raises(DataError, match=r"judge\.held_out=.*: 1 of its 3 problems are also judged"):
        ScorerJudge.check_input(settings, lambda: ["other?", first.text.upper() + " "])
    (tmp_path / "prm").mkdir()
    blocks = [sorted(committed_blocks(Store(held_out)))]
    (tmp_path / "prm" / "train.json").write_text(json.dumps({"blocks": blocks}))
    with pytest.raises(DataError, match="the PRM was trained on its labels"):
        ScorerJudge.check_input(settings, lambda: ["another problem?"])
