"""Code that lies beside a PRM's weights: no file alone has it run, whatever the verb."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from mclabel.domains.arith import bundled_model
from tests.support.hostile_models import change

POLICY = {"model": "arith:policy", "max_tokens": 80}
SCORER = {"kind": "prm"}
VERBS: dict[tuple[str, ...], tuple[str, dict[str, object]]] = {
    ("judge",): (
        "judge",
        {"solutions": "SOLUTIONS", "judge": {"kind": "scorer", "threshold": 0.5}},
    ),
    ("search",): ("scorer", {"policy": POLICY, "problems": {"limit": 1}, "scorer": SCORER}),
    ("serve-search",): ("scorer", {"policy": POLICY, "scorer": SCORER}),
    ("eval", "search"): (
        "scorer",
        {
            "policy": POLICY,
            "problems": {"limit": 1},
            "scorer": SCORER,
            "methods": {"a": {"kind": "beam", "n": 4}},
            "best_of_n": [1],
        },
    ),
    ("serve-rewards",): ("", {}),
}
"""By command: the key of the scorer, and a configuration without its PRM."""
SAID = "own code has run"


@pytest.fixture
def prm(tmp_path: Path) -> Path:
    """A PRM whose configuration is a class of its own, which leaves a marker when it is loaded."""
    folder = shutil.copytree(bundled_model("strong"), tmp_path / "prm")
    change(folder / "config.json", model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
    marker = tmp_path / "marker"
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w')\nraise RuntimeError({SAID!r})\n")
    manifest = {"format": 1, "kind": "prm", "head": "token", "step_token": None}
    manifest |= {"template": None, "system": None, "max_tokens": 512}
    (folder / "prm.json").write_text(json.dumps(manifest))
    return folder


class Trial:
    """One verb on the configuration of a stranger, who names the PRM."""

    def __init__(self, tmp_path: Path, prm: Path, command: tuple[str, ...], **more: object) -> None:
        section, content = VERBS[command]
        solutions = tmp_path / "solutions.jsonl"
        solutions.write_text(json.dumps({"problem": "p", "steps": ["1 + 1 = 2\n"]}) + "\n")
        content = json.loads(json.dumps(content))
        if section:
            content[section] |= {"prm": str(prm), **more}
        else:
            content |= {"prm": str(prm), **more}
        options = []
        if command[0].startswith("serve"):
            with socket.create_server(("127.0.0.1", 0)) as free:
                options = [f"--port={free.getsockname()[1]}"]
        else:
            content |= {"out": str(tmp_path / "out"), "ray": {"address": "none"}}
        if command == ("judge",):
            command = ("judge", str(solutions), "-o", str(tmp_path / "out"), "--config")
        config = tmp_path / "stranger.yaml"
        config.write_text(json.dumps(content))
        self.key = f"{section}.trust_remote_code".lstrip(".")
        self._arguments = [*command, str(config), *options]

    def refused(self) -> str:
        result = CliRunner().invoke(main, self._arguments)
        assert result.exit_code == 2, result.output
        return " ".join(result.output.split())

    def allowed(self) -> str:
        return " ".join(
            CliRunner().invoke(main, [*self._arguments, f"{self.key}=true"]).output.split()
        )


@pytest.mark.parametrize("command", VERBS, ids=" ".join)
def test_a_file_alone_does_not_have_it_run(
    tmp_path: Path, prm: Path, command: tuple[str, ...]
) -> None:
    trial = Trial(tmp_path, prm, command, trust_remote_code=True)
    said = trial.refused()
    assert not (tmp_path / "marker").exists()
    assert f"{trial.key}: runs Python code that comes with a model, so a file alone must" in said
    assert f"pass {trial.key}=true on the command line" in said

    assert SAID in trial.allowed()
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("command", VERBS, ids=" ".join)
def test_the_message_names_the_option_of_the_verb(
    tmp_path: Path, prm: Path, command: tuple[str, ...]
) -> None:
    trial = Trial(tmp_path, prm, command)
    said = trial.refused()
    assert f"If you have read it and trust it: {trial.key}=true" in said
    assert "--trust-remote-code" not in said

    shutil.rmtree(tmp_path / "out", ignore_errors=True)  # begun with other weights
    change(prm / "config.json", model_type="llama", auto_map={}, attn_implementation="evil/repo")
    said = trial.refused()
    assert "config.json names 'evil/repo' as its attention" in said
    assert f"If you have read it and trust it: {trial.key}=true" in said
