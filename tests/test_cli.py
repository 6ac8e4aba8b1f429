"""The command line as a user meets it: exit codes, messages, and that nothing is lost."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from mclabel.cli import main
from mclabel.cli.output import say_left_out
from mclabel.run.shards.rejects import Reject, write_rejects
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems

NOBODY = "http://127.0.0.1:9/v1"
KEY_ENV = "policy.engine.api_key_env"
VLLM = find_spec("vllm")
HAS_VLLM = VLLM is not None and VLLM.origin is not None  # tests/vllm is a namespace package
SCRIPTED = ["policy.engine=scripted", "ray.address=none", "estimator.rollouts=2"]


def mclabel(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, arguments)


@pytest.fixture
def config(tmp_path: Path) -> str:
    rows = [{"id": "a", "problem": "A [answer 1]", "answer": "1"}]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = tmp_path / "job.yaml"
    path.write_text(
        f"problems: {{source: {tmp_path / 'problems.jsonl'}}}\nout: {tmp_path / 'out'}\n"
    )
    return str(path)


def test_label_show_and_labels(config: str, tmp_path: Path) -> None:
    result = mclabel("label", config, *SCRIPTED)
    assert result.exit_code == 0, result.output
    assert "1 problems, 4 solutions" in result.output
    shown = mclabel("show", str(tmp_path / "out"))
    assert shown.exit_code == 0
    assert shown.output.count("gold 1") == 4
    assert "Line 1 is" in shown.output
    counts = mclabel("labels", str(tmp_path / "out"))
    assert "solutions" in counts.output and "rollout tokens a solution" in counts.output
    quality = json.loads(mclabel("labels", str(tmp_path / "out"), "--json").output)
    assert quality["quality"] == {}
    assert quality["cost"]["tokens_per_solution"] > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["policy.engine=openai", f"policy.engine.endpoints=[{NOBODY}]"], "gave no answer within"),
        (
            ["policy.engine=openai", f"policy.engine.endpoints=[{NOBODY}]", f"{KEY_ENV}=NO_KEY_X"],
            "NO_KEY_X: the variable is not set",
        ),
        pytest.param(
            ["policy.engine=vllm"],
            "In a clone of mclabel, on a machine with GPUs: pip install '.[gpu]'",
            marks=pytest.mark.skipif(HAS_VLLM, reason="vLLM is installed"),
        ),
        pytest.param(
            ["policy.engine=hf", "policy.engine.device=cuda"],
            "policy.engine.device=cuda: PyTorch finds no GPU here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        (["policy.model=no/such-model"], "policy.model='no/such-model': not in this machine's"),
    ],
)
def test_an_engine_that_cannot_start_is_one_clear_message(
    config: str, overrides: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mclabel.engines.served.ServedEngine.start_s", 0.1)
    result = mclabel("label", config, "ray.address=none", *overrides)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_hostile_text_is_shown_as_text(config: str, tmp_path: Path) -> None:
    text = "[bold]x[/bold] \x1b[31mred\x07\x00 \u202e\n\\boxed{1}"
    row = {"problem_id": "a", "solution": text}
    (tmp_path / "solutions.jsonl").write_text(json.dumps(row))
    given = f"solutions.path={tmp_path / 'solutions.jsonl'}"
    assert mclabel("label", config, *SCRIPTED, given).exit_code == 0
    shown = mclabel("show", str(tmp_path / "out")).output
    assert "[bold]x[/bold]" in shown
    assert "\\x1b[31mred\\x07\\x00" in shown
    assert not {"\x1b", "\x07", "\x00", "\u202e"} & set(shown)


def test_a_file_of_problems_in_place_of_the_configuration(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"problem": "1 + 1?", "answer": "2"}\n' * 2)
    done = CliRunner().invoke(main, ["label", str(problems)])
    assert done.exit_code == 2
    assert f"configs/label/own-data.yaml, and then problems.source={problems}" in done.stderr


def test_what_was_left_out_is_counted_by_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = ("no_gold", "empty", "no_gold")
    write_rejects(Store(str(tmp_path)), [Reject(reason=one, detail="-") for one in reasons])
    say_left_out(3, "rows were left out", str(tmp_path))
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("3 rows were left out (2 no_gold, 1 empty); the reasons are in")


def test_a_folder_of_several_runs_and_a_run_as_configuration_say_what_to_type(
    tmp_path: Path,
) -> None:
    shard = tmp_path / "labels" / "labels" / "block.parquet"
    shard.parent.mkdir(parents=True)
    shard.write_bytes(b"PAR1")
    done = CliRunner().invoke(main, ["labels", str(tmp_path)])
    assert done.exit_code == 2 and f"Give {tmp_path}/labels" in done.stderr
    done = CliRunner().invoke(main, ["train", str(tmp_path)])
    assert done.exit_code == 2 and f"own-labels.yaml labels=[{tmp_path}] base=MODEL" in done.stderr


def test_a_job_with_a_limit_says_how_many_rows_it_leaves(tmp_path: Path) -> None:
    source = write_problems(tmp_path, 5)
    keys = scripted_overrides(source, tmp_path / "out")[:-1]
    keys += ["estimator=outcome", "ray.address=none"]
    label = ["label", str(write_config(tmp_path)), *keys]
    limited = run_verb([*label, "problems.limit=2"]).output
    assert f"The job takes 2 of 5 rows of {source}: problems.limit=2." in limited
    assert "The job takes" not in run_verb([*label, "problems.limit=5"]).output
