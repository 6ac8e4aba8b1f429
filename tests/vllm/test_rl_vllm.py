"""A policy in training that vLLM samples, although TRL may reject the version of vLLM."""

from __future__ import annotations

import json
from pathlib import Path

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.rl.config import RLConfig
from tests.support.needs_vllm import NEEDS_VLLM

pytestmark = NEEDS_VLLM


def test_a_policy_is_trained_on_vllm(tmp_path: Path) -> None:
    out = tmp_path / "out"
    engine = "{kind: vllm, device: cpu, dtype: float32, engine_args: {enforce_eager: true}}"
    keys = [
        *(f"out={out}", f"policy.engine={engine}", "policy.max_tokens=120"),
        *("policy.max_model_len=512", "problems.split=train", "problems.limit=8", "steps=2"),
        *("problems_per_step=4", "group_size=4", "micro_batch=8", "learning_rate=1e-3"),
        *("measured=arith", "measured.split=validation", "measured.limit=8"),
        *("measuring.every=2", "measuring.samples=2", "credit=mc", "estimator.rollouts=1"),
    ]
    model = jobs.rl(load_config(RLConfig, None, keys))
    assert (model / "model.safetensors").is_file()
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["num_tokens"] > 0 and row["num_value_tokens"] > 0 for row in rows)
    before, after = (
        json.loads((out / "measured" / f"{step}.samples.jsonl").read_text().splitlines()[0])
        for step in (0, 2)
    )
    assert before["problem"] == after["problem"]
