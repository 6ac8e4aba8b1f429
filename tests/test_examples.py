"""The example scripts run, on the bundled models."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from mclabel.judge.verifier_chains import export_chains
from tests.benchmarks import simulate
from tests.support.forked import Forked
from tests.support.labelled import arith_rows, tiny_model, write_run
from tests.support.verifier_chains import answer, chain, write_critic

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = {
    "label_in_python.py": r"\d\.\d\d  .+\n(.*\n)+16 solutions, .+ tokens\nscores .+: 0\.\d",
    "select_and_train.py": r"turn 0:\n.*\n.*10 drawn(.*\n)+turn 1:\n(.*\n)+.*in \d+% of pairs",
    "own_checker.py": r"1\.5 h\. +right\n.+wrong\n.+unknown\n.+90 min -> right\n.+33 min -> wrong",
    "own_estimator.py": r"fixed.+0\.\d\d of first .+\nuntil both.+0\.\d\d of first errors found",
}
"""Regular expression for each script's output."""
VERIFIER = "train_verifier.py"
"""A script that needs arguments, and has its own test."""
LEARNING = "learning_estimator.py"
"""A module of estimators, which has its own test."""


def test_every_script_is_run_here() -> None:
    assert {*PRINTED, VERIFIER, LEARNING} == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_scripts_run(name: str, tmp_path: Path) -> None:
    """Each script runs as a user runs it, in its own folder."""
    script = Forked(EXAMPLES / name, folder=tmp_path, COLUMNS="200")
    output, _ = script.communicate()
    assert script.returncode == 0, output
    assert re.search(PRINTED[name], output), output


def test_learning_estimators_are_simulated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    names = ["learning_estimator:Batched", "learning_estimator:Rationed"]
    words = [*names, "tokens_per_solution=300", "--problems=50", "--profile=sharp"]
    monkeypatch.setattr(sys, "argv", ["simulate", *words])
    simulate.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["sharp"]
    batched, rationed = (figure["tokens"] for figure in figures.values())
    assert batched > 1_000 and rationed < 300


LAST_CELL = """
assert solutions[0]._repr_html_().count("<tr") == len(solutions[0].steps)
assert "40 of 40" in run._repr_html_()
assert report.num_rows > 100 and len(answers) == 20 and num_right > 4
"""
"""Code appended to the notebook to check the results of its cells."""


@pytest.mark.slow
def test_the_notebook_runs_in_a_kernel(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
    import nbformat

    notebook = nbformat.read(EXAMPLES / "label.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(LAST_CELL))
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=place).execute()


def test_the_notebook_holds_no_outputs() -> None:
    for cell in json.loads((EXAMPLES / "label.ipynb").read_text())["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


@pytest.mark.slow
def test_a_verifier_is_trained_on_the_chains_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script trains on exported chains, fully and by LoRA.

    The saved model loads, and the prompt opens a thought only once.
    """
    pytest.importorskip("trl")
    rows = arith_rows(16, per_problem=1)
    labels = write_run(tmp_path / "labels", rows)
    critic = write_critic(
        tmp_path / "critic", rows, lambda row: [answer(row, chain(row, row.first_error))]
    )
    export_chains(critic, labels, str(tmp_path / "chains"))
    base, out = tiny_model(tmp_path / "base"), tmp_path / "verifier"
    short = {"use_cpu": True, "max_steps": 2, "gradient_accumulation_steps": 1}
    pairs = [f"{key}={json.dumps(value)}" for key, value in short.items()]
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "chains"), base, str(out), *pairs])
    module = runpy.run_path(str(EXAMPLES / VERIFIER), run_name="__main__")
    assert re.search(r"loss \d\.\d{3}; the verifier is in ", capsys.readouterr().out)

    tokenizer = AutoTokenizer.from_pretrained(base)
    lines = (tmp_path / "chains" / "data.jsonl").read_text().splitlines()
    chains = {json.loads(line)["completion"][0]["content"] for line in lines}
    for batch in module["trainer"].get_train_dataloader():
        learned = [label for label in batch["labels"][0].tolist() if label != -100]
        text = tokenizer.decode(learned)
        assert text.endswith(tokenizer.eos_token)
        assert text.removesuffix(tokenizer.eos_token) in chains
        assert len(learned) < len(batch["input_ids"][0])

    monkeypatch.setitem(module["train"].__globals__, "LARGE", 0)
    module["train"](str(tmp_path / "chains"), base, str(tmp_path / "lora"), **short)
    start = AutoModelForCausalLM.from_pretrained(base).state_dict()
    for folder in (out, tmp_path / "lora"):
        trained = AutoModelForCausalLM.from_pretrained(folder).state_dict()
        assert trained.keys() == start.keys()
        assert any(not torch.equal(trained[name], start[name]) for name in start)
        assert AutoTokenizer.from_pretrained(folder).chat_template == tokenizer.chat_template

    with_thought = module["with_thought"]
    for prompt, completion, expected in (
        ("<user>x<assistant><think>\n", "<think>\na</think>b", "a</think>b"),
        ("<user>x<assistant><think>\n", "a</think>b", "a</think>b"),
        ("<user>x<assistant>", "a</think>b", "<think>\na</think>b"),
        ("<user>x<assistant>", "<think>\na</think>b", "<think>\na</think>b"),
        ("<user>x<assistant>", "Step 1", "Step 1"),
    ):
        assert with_thought(prompt, completion) == expected
