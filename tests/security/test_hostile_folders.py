"""Verbs that open a foreign run or configuration execute no code from hostile ones."""

from __future__ import annotations

import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from tests.support.broken_inputs import World
from tests.support.commands import run_verb
from tests.support.hostile_models import hostile_models
from tests.support.hostile_runs import SCRIPT, Touches, hostile_configurations, hostile_runs

pytestmark = pytest.mark.slow

Verb = Callable[[World, str, str], list[str]]
MODULE = "stranger_s_module"
VERBS: dict[str, Verb] = {
    "verify": lambda w, run, out: ["verify", run],
    "labels": lambda w, run, out: ["labels", run],
    "show": lambda w, run, out: ["show", run],
    "report": lambda w, run, out: ["report", run, "-o", f"{out}.html"],
    "export": lambda w, run, out: ["export", run, "--to", "trl", "-o", out],
    "export parquet": lambda w, run, out: ["export", run, "--to", "parquet", "-o", out],
    "regrade": lambda w, run, out: ["regrade", run, "-o", out],
    "regrade, math": lambda w, run, out: [
        *("regrade", run, "-o", out, "checker=math", "--change-checker")
    ],
    "label --dry-run": lambda w, run, out: ["label", w["label.yaml"], f"out={run}", "--dry-run"],
    "label": lambda w, run, out: ["label", w["label.yaml"], f"out={run}"],
    "train": lambda w, run, out: [
        *("train", w["train.yaml"], f"labels=[{run}]", f"out={out}", "--preflight")
    ],
    "score": lambda w, run, out: ["score", w["prm"], run, "-o", out],
    "score by it": lambda w, run, out: ["score", run, w["solutions.jsonl"]],
    "eval labels": lambda w, run, out: ["eval", "labels", run, "--truth", f"run:{w['run']}"],
    "eval labels, exact": lambda w, run, out: ["eval", "labels", run, "--truth", "exact"],
    "eval best-of-n": lambda w, run, out: [
        *("eval", "best-of-n", w["best.yaml"], f"out={out}", f"run={run}", "samples=2")
    ],
    "eval processbench": lambda w, run, out: [
        *("eval", "processbench", w["processbench_gsm8k.jsonl"], "--labels", run)
    ],
}
"""Verbs that open a run."""
CONFIGURED: dict[str, tuple[list[str], ...]] = {
    "label": (
        ["label"],
        ["label", "--dry-run"],
        ["label", "--dry-run", "--pilot"],
        ["submit", "label", "--address", "http://127.0.0.1:9"],
    ),
    "train": (["train"], ["train", "--preflight"]),
    "best-of-n": (["eval", "best-of-n"],),
}
"""Commands that read a configuration, by its kind."""


class Stranger:
    """A hostile folder of another person, in which the user runs the verbs."""

    def __init__(self, folder: Path) -> None:
        self.canary, self.folder = folder / "canary", folder / "theirs"
        self.folder.mkdir()
        (folder / "world").mkdir()
        self.world = World(folder / "world")
        code = f"open({str(self.canary)!r}, 'w').close()\ngrade = Component = print\n"
        (self.folder / f"{MODULE}.py").write_text(code)
        self.runs = hostile_runs(Path(self.world["run"]), self.folder, self.canary, MODULE)
        (folder / "models").mkdir()
        models = hostile_models(Path(self.world["model"]), folder / "models", self.canary)
        model = str(models["auto-map-of-an-unknown-model"])
        self.configurations = hostile_configurations(self.folder, self.canary, MODULE, model)

    def invoke(self, arguments: list[str]) -> str | None:
        """Run a command, and return what is wrong with its end, or None."""
        result = CliRunner().invoke(main, arguments, input="y\n" * 9)
        if self.canary.exists():
            self.canary.unlink()
            return "the canary is there"
        if not isinstance(result.exception, SystemExit | None):
            return f"{type(result.exception).__name__}: {str(result.exception)[:300]}"
        if "Traceback" in result.output or result.exit_code not in (0, 1, 2):
            return f"exit code {result.exit_code}: {result.output[-300:]}"
        return None


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    return Stranger(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(autouse=True)
def in_their_folder(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The working directory is the hostile folder, and Python finds modules there."""
    monkeypatch.chdir(stranger.folder)
    monkeypatch.syspath_prepend(stranger.folder)
    yield
    assert MODULE not in sys.modules


def test_a_training_is_not_resumed_from_pickles(stranger: Stranger, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["train", stranger.world["train.yaml"], f"labels=[{stranger.world['arith']}]"]
    command += [f"out={out}", "max_steps=2", "save_steps=1"]
    run_verb(command)
    shutil.rmtree(out / "model")
    whole = shutil.copytree(out, tmp_path / "whole")
    names = sorted(path.name for path in (whole / "checkpoints" / "checkpoint-1").iterdir())
    assert {"optimizer.pt", "scheduler.pt", "trained.safetensors"} <= set(names)
    assert "trainer_state.json" in names
    faults = {}
    for name in (*names, "pytorch_model.bin", "training_args.bin", "rng_state.pth", "scaler.pt"):
        shutil.rmtree(out)
        shutil.copytree(whole, out)
        for checkpoint in (out / "checkpoints").glob("checkpoint-*"):
            (checkpoint / name).write_bytes(pickle.dumps(Touches(stranger.canary)))
        if (fault := stranger.invoke(command)) is not None:
            faults[name] = fault
    assert not faults


@pytest.mark.parametrize("verb", VERBS)
def test_hostile_runs_run_nothing(stranger: Stranger, tmp_path: Path, verb: str) -> None:
    faults = {}
    for name, run in stranger.runs.items():
        out = tmp_path / run.name
        fault = stranger.invoke(VERBS[verb](stranger.world, str(run), str(out)))
        page = out.with_suffix(".html")
        if page.exists() and SCRIPT.partition("</")[0] in page.read_text():
            fault = "the page holds a script of theirs"
        if fault is not None:
            faults[name] = fault
    assert not faults


@pytest.mark.parametrize("verb", CONFIGURED)
def test_hostile_configurations_run_nothing(stranger: Stranger, tmp_path: Path, verb: str) -> None:
    faults = {}
    for name, (of, path) in stranger.configurations.items():
        for number, command in enumerate(CONFIGURED[verb] if of == verb else ()):
            changes = [f"out={tmp_path}/{Path(path).stem}-{number}"]
            if verb == "train":
                changes.append(f"labels=[{stranger.world['arith']}]")
            fault = stranger.invoke([*command, path, *changes])
            if fault is not None:
                faults[f"{name}: {' '.join(command)}"] = fault
    assert not faults
