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
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    marker = tmp_path / "marker"
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w')\nraise RuntimeError({SAID!r})\n")
    manifest = {"format": 1, "kind": "prm", "head": "token", "step_token": None}
    manifest |= {"template": None, "system": None, "max_tokens": 512}
    (folder / "prm.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("command", VERBS, ids=" ".join)
def test_a_file_alone_does_not_have_it_run(
    tmp_path: Path, prm: Path, command: tuple[str, ...]
) -> None:
    section, content = VERBS[command]
    solutions = tmp_path / "solutions.jsonl"
    solutions.write_text(json.dumps({"problem": "p", "steps": ["1 + 1 = 2\n"]}) + "\n")
    content = json.loads(json.dumps(content))
    trusting = {"prm": str(prm), "trust_remote_code": True}
    if section:
        content[section] |= trusting
    else:
        content |= trusting
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
    key = f"{section}.trust_remote_code".lstrip(".")
    arguments = [*command, str(config), *options]

    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2 and not (tmp_path / "marker").exists(), refused.output
    said = " ".join(refused.output.split())
    assert f"{key}: runs Python code that comes with a model, so a file alone must not" in said
    assert f"pass {key}=true on the command line" in said

    allowed = CliRunner().invoke(main, [*arguments, f"{key}=true"])
    assert (tmp_path / "marker").exists(), allowed.output
    assert SAID in " ".join(allowed.output.split())
