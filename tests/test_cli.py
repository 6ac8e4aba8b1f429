"""The command line as users see it: exit codes, messages, and no lost work."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.support.commands import run_verb
from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems

NOBODY = "http://127.0.0.1:9/v1"
KEY_ENV = "policy.engine.api_key_env"
VLLM = find_spec("vllm")
HAS_VLLM = VLLM is not None and VLLM.origin is not None  # tests/vllm is a namespace package
SCRIPTED = ["policy.engine=scripted", "ray.address=none", "estimator.rollouts=2"]


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "problems.jsonl").write_text(
        "\n".join(map(json.dumps, [{"id": "a", "problem": "A [answer 1]", "answer": "1"}]))
    )
    path = tmp_path / "job.yaml"
    path.write_text(
        f"problems: {{source: {tmp_path / 'problems.jsonl'}}}\nout: {tmp_path / 'out'}\n"
    )
    return str(path)


def test_label_show_and_labels(config: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    first = run_verb(["label", config, *SCRIPTED]).output
    assert "1 problems, 4 solutions" in first
    assert first.count("The first labelled solution:") == 1
    assert "The first labelled solution:" not in run_verb(["label", config, *SCRIPTED]).output
    shown = run_verb(["show", out]).output
    assert shown.count("gold 1") == 4 and "Line 1 is" in shown
    assert "rollout tokens a solution" in run_verb(["labels", out]).output
    quality = json.loads(run_verb(["labels", out, "--json"]).output)
    assert quality["quality"] == {} and quality["cost"]["tokens_per_solution"] > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["policy.engine=openai", f"policy.engine.endpoints=[{NOBODY}]"],
            "gave no response within",
        ),
        (
            ["policy.engine=openai", f"policy.engine.endpoints=[{NOBODY}]", f"{KEY_ENV}=NO_KEY_X"],
            "NO_KEY_X: the variable is not set",
        ),
        pytest.param(
            ["policy.engine=vllm"],
            "Install it from a clone of mclabel: on a machine with GPUs by pip install '.[gpu]'",
            marks=pytest.mark.skipif(HAS_VLLM, reason="vLLM is installed"),
        ),
        pytest.param(
            ["policy.engine=hf", "policy.engine.device=cuda"],
            "policy.engine.device=cuda: PyTorch finds no GPU on this machine",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        (["policy.model=no/such-model"], "policy.model='no/such-model': not in this machine's"),
    ],
)
def test_an_engine_that_cannot_start_is_one_clear_message(
    config: str, overrides: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mclabel.engines.served.ServedEngine.start_s", 0.1)
    printed = run_verb(["label", config, "ray.address=none", *overrides], code=2).output
    assert message in printed and "Traceback" not in printed


def test_a_file_of_problems_in_place_of_the_configuration(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"problem": "1 + 1?", "answer": "2"}\n' * 2)
    assert (
        f"configs/label/own-data.yaml, and then problems.source={problems}"
        in run_verb(["label", str(problems)], code=2).stderr
    )


def test_a_folder_of_several_runs_and_a_run_as_configuration_say_what_to_type(
    tmp_path: Path,
) -> None:
    shard = tmp_path / "labels" / "labels" / "block.parquet"
    shard.parent.mkdir(parents=True)
    shard.write_bytes(b"PAR1")
    for verb, remedy in (
        ("labels", f"Give {tmp_path}/labels"),
        ("train", f"own-labels.yaml labels=[{tmp_path}] base=MODEL"),
    ):
        assert remedy in run_verb([verb, str(tmp_path)], code=2).stderr


def test_a_job_with_a_limit_says_how_many_rows_it_leaves(tmp_path: Path) -> None:
    source = write_problems(tmp_path, 5)
    keys = scripted_overrides(source, tmp_path / "out")[:-1]
    keys += ["estimator=outcome", "ray.address=none"]
    label = ["label", str(write_config(tmp_path)), *keys]
    assert (
        f"The job takes 2 of 5 rows of {source}: problems.limit=2."
        in run_verb([*label, "problems.limit=2"]).output
    )
    assert "The job takes" not in run_verb([*label, "problems.limit=5"]).output
