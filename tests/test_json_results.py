"""With `--json`, verbs that end with figures print them as one JSON object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main
from tests.support.broken_inputs import World, verbs

ROOT = Path(__file__).parents[1]
ELSEWHERE = {"annotate", "doctor", "quickstart"}
"""Verbs whose JSON results are tested with the verbs themselves."""
WITHOUT = {"completion", "submit label", "serve", "serve-search", "serve-rewards", "view"}
"""Verbs that end without figures: a script, the log of another machine, servers."""
NOISY = """
import subprocess
import click
from mclabel.cli.output import console, add_json_option, record_json_result

@click.command()
@add_json_option
def noisy():
    subprocess.run(["echo", "child"], check=True)
    assert record_json_result({"share": float("nan"), "num": 2})
    print("print")
    console.print("rich")

noisy()
"""
NO_RAY = "ray.address=none"
COMMANDS: dict[str, Callable[[World, str], list[str]]] = {
    "label": lambda w, out: ["label", w["label.yaml"], f"out={out}"],
    "label --dry-run": lambda w, out: [
        *("label", w["label.yaml"], f"out={out}", "--dry-run", "--pilot", "2")
    ],
    "regrade": lambda w, out: ["regrade", w["run"], "-o", out],
    "train": lambda w, out: [
        *("train", w["train.yaml"], f"labels=[{w['arith']}]", f"out={out}", "validation=0"),
        *(f"base={w['model']}", "head=token"),
    ],
    "train --preflight": lambda w, out: [
        *("train", w["train.yaml"], f"labels=[{w['arith']}]", f"out={out}", "--preflight")
    ],
    "export": lambda w, out: ["export", w["run"], "--to", "trl", "-o", out],
    "export --to parquet": lambda w, out: ["export", w["run"], "--to", "parquet", "-o", out],
    "export --to verifier-chains": lambda w, out: [
        *("export", w["critic"], "--to", "verifier-chains", "--labels", w["arith"], "-o", out)
    ],
    "import": lambda w, out: ["import", w["trl.jsonl"], "--from", "trl", "-o", out],
    "score": lambda w, out: ["score", w["prm"], w["solutions.jsonl"], "-o", out, NO_RAY],
    "select": lambda w, out: [
        *("select", w["solutions.jsonl"], "--rule", "uniform", "--budget", "1"),
        *("-o", f"{out}.parquet"),
    ],
    "search": lambda w, out: ["search", w["search.yaml"], f"out={out}", NO_RAY],
    "search --dry-run": lambda w, out: ["search", w["search.yaml"], f"out={out}", "--dry-run"],
    "judge": lambda w, out: ["judge", w["solutions.jsonl"], "-o", out, NO_RAY],
    "combine": lambda w, out: ["combine", w["run"], w["judged"], "-o", out],
    "eval best-of-n": lambda w, out: [
        *("eval", "best-of-n", w["best.yaml"], f"out={out}", f"run={w['arith']}"),
        *("samples=2", "scorers={prm: " + w["prm"] + "}"),
    ],
    "eval labels": lambda w, out: ["eval", "labels", w["arith"]],
    "eval processbench": lambda w, out: [
        *("eval", "processbench", w["processbench_gsm8k.jsonl"], "--model", w["prm"]),
        *("--threshold", "0.5"),
    ],
    "eval processbench-golds": lambda w, out: [
        *("eval", "processbench-golds", w["processbench_gsm8k.jsonl"], "-o", f"{out}.jsonl")
    ],
    "check": lambda w, out: ["check", "--gold", "1", "--answer", "1"],
    "check --file": lambda w, out: ["check", "--file", w["pairs.jsonl"], "-o", f"{out}.jsonl"],
    "show": lambda w, out: ["show", w["arith"]],
    "labels": lambda w, out: ["labels", w["arith"]],
    "report": lambda w, out: ["report", w["run"], "-o", f"{out}.html"],
    "verify": lambda w, out: ["verify", w["run"]],
}


def run_cli(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made_world = World(tmp_path_factory.mktemp("world"))
    assert run_cli("judge", made_world["run"], "-o", made_world["judged"], NO_RAY).exit_code == 0
    return made_world


def refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def read_result(text: str) -> dict[str, Any]:
    """Read a verb's output, which is one JSON object with at least one field."""
    fields: dict[str, Any] = json.loads(text, parse_constant=refuse_constant)
    assert fields
    return fields


@pytest.mark.parametrize("name", COMMANDS)
def test_a_result_is_one_object(name: str, world: World, tmp_path: Path) -> None:
    result = run_cli(*COMMANDS[name](world, str(tmp_path / "out")), "--json")
    assert result.exit_code == 0, result.output
    read_result(result.stdout)


def test_every_verb_with_figures_has_the_option() -> None:
    named = dict(verbs(main))
    have = {name for name, verb in named.items() if "as_json" in {p.name for p in verb.params}}
    assert have == named.keys() - WITHOUT, "give it add_json_option and result (cli/output.py)"
    assert have == ({name.split(" --")[0] for name in COMMANDS} | ELSEWHERE), (
        "give it a command above"
    )


def test_a_verb_that_ends_with_a_code_prints_its_result_all_the_same(
    world: World, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    stopped = run_cli("label", world["label.yaml"], f"out={out}", "budget.max_tokens=1", "--json")
    assert stopped.exit_code == 3 and "stopped by" in stopped.stderr
    job = read_result(stopped.stdout)["job"]
    assert job["stopped_by"] is not None and job["num_blocks_left"] == 1
    next((out / "labels").iterdir()).write_bytes(b"torn")
    damaged = run_cli("verify", str(out), "--json")
    assert damaged.exit_code == 1 and json.loads(damaged.stdout)["is_sound"] is False
    wrong = run_cli("label", world["label.yaml"], f"out={out}", "seed=x", "--json")
    assert wrong.exit_code == 2 and wrong.stdout == "" and "seed" in wrong.stderr


def test_what_else_is_printed_goes_to_standard_error(tmp_path: Path) -> None:
    """Output of child processes and output after the result also go to standard error."""
    (tmp_path / "noisy.py").write_text(NOISY)
    done = subprocess.run(
        [sys.executable, tmp_path / "noisy.py", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout, parse_constant=refuse_constant) == {"share": None, "num": 2}
    assert sorted(done.stderr.split()) == ["child", "print", "rich"]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_is_utf8_whatever_the_text_and_the_locale(encoding: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mclabel", "check", "--json"),
            *("--gold", "5", "--answer", b"\xff\xc2\xbd"),
        ],
        env={**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout.decode())["answer"] == "\udcff½"


def test_people_who_have_ended_are_summed_up(world: World, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "mclabel", *("annotate", world["arith"], "-o", tmp_path / "by"),
         "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any("Stop with" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=120)
    assert read_result(stdout)["num_done"] == 0
