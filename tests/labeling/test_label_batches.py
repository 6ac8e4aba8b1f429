"""Labelling on an engine that sends its requests in batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from tests.support.batch_server import BatchServer
from tests.support.scripted_jobs import write_config


def test_fixed_takes_two_batches_and_others_warn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "problems.jsonl"
    rows = [{"problem": f"{i}: What is 1 + 1?", "answer": "2"} for i in range(8)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for kind in ("fixed", "bisect"):
        with BatchServer() as server:
            settings = [
                *(f"problems.source={source}", f"out={tmp_path / kind}", "policy.engine=openai"),
                *(f"policy.engine.endpoints=['{server.url}']", "policy.engine.batch=true"),
                "policy.engine.batch_poll_s=0.3",
                *("policy.max_tokens=100", f"estimator.kind={kind}", "estimator.rollouts=2"),
                *("solutions.per_problem=1", "block_problems=8", "ray.address=none"),
            ]
            done = CliRunner().invoke(main, ["label", str(write_config(tmp_path)), *settings])
            assert done.exit_code == 0, done.output
            assert set(server.paid.values()) == {1}
            assert len(server.bodies) == 1  # a probe of whether the server offers batches
            assert len(server.batches) == 2 or kind != "fixed"
        warned = f"estimator.kind={kind} requests rollouts in many rounds" in caplog.text
        assert warned == (kind == "bisect")
