"""A PRM on real servers on the CPU gives the same scores as in transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mclabel.core.errors import EngineError
from mclabel.prm.scoring.score import PRM
from mclabel.prm.scoring.served import ServedPRM
from tests.support.labelled import arith_rows
from tests.support.needs_vllm import NEEDS_VLLM
from tests.support.serving import served, trained_prm

pytestmark = NEEDS_VLLM


@pytest.mark.parametrize(
    ("dtype", "changes", "most"),
    [
        ("bfloat16", ["head=token", "backbone_lr=1.0e-4"], 1e-2),
        ("float32", ["head=likelihood", "backbone_lr=0", "head_lr=0.03"], 1e-3),
    ],
)
def test_step_scores_are_those_of_transformers(
    dtype: str, changes: list[str], most: float, tmp_path: Path
) -> None:
    prm = trained_prm(tmp_path, *changes)
    rows = arith_rows(24, seed=5)
    local_prm = PRM.load(prm, dtype=dtype)
    encoded = [local_prm.encoder.encode_labelled(row) for row in rows]
    with served(prm, tmp_path / "server.log", dtype=dtype) as url:
        client = ServedPRM.connect(url, prm)
        theirs = client.score_encoded(encoded)
        with pytest.raises(EngineError, match="refused"):
            client._post_json("/pooling", {"model": "another", "input": [1]})
    ours = local_prm.score_encoded(encoded)
    assert [len(a) for a in ours] == [len(a) for a in theirs]
    flat = np.concatenate(ours)
    assert flat.std() > 0.01  # the scores differ between steps
    # Both round to the dtype, but in different orders, which also depend on the processor.
    exact = np.concatenate(PRM.load(prm, dtype="float32").score_encoded(encoded))
    rounding = np.abs(flat - exact).max()
    apart = np.abs(flat - np.concatenate(theirs))
    assert apart.max() < most + 3 * rounding
    assert apart.mean() < most
    with pytest.raises(EngineError, match="cannot be reached"):
        client.score_encoded(encoded[:1])
