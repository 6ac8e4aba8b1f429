"""`mclabel doctor`: installed parts, and the missing parts with the verbs that need them."""

from __future__ import annotations

import socket
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from tests.test_import import base_alone
from tests.test_json_results import read_result


def test_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{server.getsockname()[1]}")
        result = CliRunner().invoke(main, ["doctor", "--json"])
    report = read_result(result.stdout)
    assert report["packages"]["torch"] == version("torch")
    assert report["checker"] is None
    assert report["ray"]["answers"] is True
    assert report["disks"][str(Path.cwd())]["free_gib"] > 0
    assert "run" not in report["missing"]
    assert (Path(report["pages"]) / "llms.txt").is_file()
    assert report["devices"]["cores"] >= 1


@pytest.mark.slow
def test_what_is_missing_in_the_base_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    done = base_alone("from mclabel.cli import main; main()", "doctor")
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert len(lines) <= 11
    assert lines["devices"].startswith("torch is not installed; ")
    assert lines["ray"] == "127.0.0.1:1: answers: False"
    assert lines["checker"] == "its workers start"
    assert lines["missing"].startswith("run (labelling, training, ")
