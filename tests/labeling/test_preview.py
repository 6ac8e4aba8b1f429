"""`--dry-run` reads the inputs, inspects the model, and stops where the job would stop."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main
from mclabel.domains.arith import bundled_model
from tests.support.scripted_jobs import write_config

LONG = "long " * 300


def write_rows(folder: Path) -> Path:
    good = [{"id": f"p{i}", "problem": f"P{i}", "answer": str(i)} for i in range(6)]
    rows: list[object] = [*good, {"id": "none", "problem": "x"}, good[2], good[3]]
    rows.append({"id": "odd", "problem": "odd", "answer": r"\oint_C f"})
    rows.append({"id": "long", "problem": LONG, "answer": "1"})
    path = folder / "problems.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def dry_run(folder: Path, *more: str) -> Result:
    config, out = write_config(folder), folder / "out"
    overrides = [f"out={out}", "policy.model=arith:policy", "ray.address=none", *more]
    result = CliRunner().invoke(main, ["label", str(config), *overrides, "--dry-run"])
    assert not out.is_dir()
    return result


def lines(result: Result) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in result.output.splitlines() if ": " in line)


def test_inputs_are_counted_and_the_model_is_looked_at(tmp_path: Path) -> None:
    source = write_rows(tmp_path)
    result = dry_run(tmp_path, f"problems.source={source}", "policy.max_tokens=900")
    assert result.exit_code == 0, result.output
    printed = lines(result)
    assert printed["input"] == "8 problems"
    assert printed["left out"].startswith(
        "3 of 11 rows or problems: 1 no_column, 2 duplicate; the first: "
    )
    assert f"{source}, line 7: no answer" in printed["left out"]
    assert "WARNING" not in printed
    assert (
        "does not understand 1 of the first 8 gold answers, such as '\\\\oint_C f'"
        in printed["golds"]
    )
    assert "the model's chat template; ends at <|end|>" in printed["tokenizer"]
    assert "context takes 1,024; 1 of the problems leave no room" in printed["longest problem"]
    assert printed["forecast"].startswith("none yet")


def test_solutions_that_will_be_cut_are_announced(tmp_path: Path) -> None:
    more = ["problems.limit=20", "policy.max_tokens=1000"]
    printed = lines(dry_run(tmp_path, *more))
    assert printed["input"] == "20 problems"
    room = printed["longest problem"].partition("its solutions are cut at ")[2].partition(" ")[0]
    assert int(room) == 1024 - int(printed["longest problem"].split()[3])
    assert "cut" not in lines(dry_run(tmp_path, *more[:1]))["longest problem"]


def test_an_input_that_is_mostly_of_no_use_is_warned_of(tmp_path: Path) -> None:
    good = [{"problem": f"P{i}", "answer": str(i)} for i in range(5)]
    source = tmp_path / "problems.jsonl"
    for num_bad, warns in [(5, False), (6, True)]:
        rows = [*good, *good, *({"problem": f"Q{i}"} for i in range(num_bad))]
        source.write_text("\n".join(map(json.dumps, rows)))
        printed = lines(dry_run(tmp_path, f"problems.source={source}", "policy.engine=scripted"))
        total, reasons = 10 + num_bad, f"5 duplicate, {num_bad} no_column"
        assert printed["left out"].startswith(
            f"{5 + num_bad} of {total} rows or problems: {reasons};"
        )
        assert ("more than half of the input" in printed.get("WARNING", "")) == warns
    golds = [{"problem": f"G{i}", "answer": r"\oint_C f"} for i in range(6)]
    source.write_text("\n".join(map(json.dumps, [*good, *golds])))
    printed = lines(dry_run(tmp_path, f"problems.source={source}", "policy.engine=scripted"))
    assert "the checker understands less than half of the golds" in printed["WARNING"]


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("problems.source=nowhere.jsonl", "nowhere.jsonl: no such file"),
        ("problems.source={folder}", "is a folder, must be a .jsonl"),
        ("problems.source={folder}/empty.jsonl", "holds no problems"),
        ("problems.source=hf:{folder}/nothing", "cannot load split"),
        ("solutions.path=nowhere.jsonl", "nowhere.jsonl: no such file"),
        ("policy.few_shot=nowhere.jsonl", "nowhere.jsonl: no such file"),
        ("policy.model={folder}", "the folder holds no config.json"),
        ("policy.model={folder}/nothing", "no such folder"),
        ("policy.model=nobody/nothing", "not in this machine's cache"),
        ("policy.model={folder}/weightless", "safetensors"),
        ("policy.model={folder}/mute", "its tokenizer"),
        ("policy.model={folder}/odd", "policy.model="),
        ("out={folder}/empty.jsonl", "is a file, must be a folder"),
        ("out=/proc/mclabel-run", "/proc"),
    ],
)
def test_what_would_stop_the_job_stops_the_plan(tmp_path: Path, override: str, reason: str) -> None:
    (tmp_path / "empty.jsonl").touch()
    model = bundled_model("policy")
    for name, left_out in [("weightless", "*.safetensors"), ("mute", "tokenizer*"), ("odd", "x")]:
        shutil.copytree(model, tmp_path / name, ignore=shutil.ignore_patterns(left_out))
    (tmp_path / "odd" / "config.json").write_text('{"model_type": "of no kind"}')
    result = dry_run(tmp_path, "problems.limit=4", override.format(folder=tmp_path))
    assert result.exit_code == 2, result.output
    assert reason in result.output and "Traceback" not in result.output


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    result = dry_run(tmp_path, "problems.source=nowhere.jsonl", "policy.model=/nowhere")
    assert result.exit_code == 2 and "this job would not run:" in result.output
    assert "nowhere.jsonl: no such file" in result.output
    assert "policy.model='/nowhere': no such folder" in result.output
