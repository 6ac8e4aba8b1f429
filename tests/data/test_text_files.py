"""Options that take a text file: what is no UTF-8, or never ends, is refused in one line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from mclabel.data.readers import rows
from tests.support.shown import plain_run

OPTIONS: dict[str, Callable[[str, str, str], list[str]]] = {
    "annotate --guidelines": lambda run, file, out: [
        *("annotate", run, "-o", out, "--guidelines", file)
    ],
    "annotate --gold": lambda run, file, out: ["annotate", run, "-o", out, "--gold", file],
    "annotate --select": lambda run, file, out: ["annotate", run, "-o", out, "--select", file],
    "import, Label Studio": lambda run, file, out: [
        *("import", file, "--from", "label-studio", "-o", out)
    ],
    "import, rows": lambda run, file, out: ["import", file, "--from", "prm800k", "-o", out],
    "regrade --golds": lambda run, file, out: ["regrade", run, "-o", out, "--golds", file],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return plain_run(tmp_path_factory.mktemp("run") / "run")


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", ["no UTF-8", "too large", "device", "pipe", "missing"])
def test_a_file_that_cannot_be_read_is_one_line(
    option: str, kind: str, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_TEXT", 1000)
    file = tmp_path / ("rows.json" if "rows" in option or "gold" in option else "text.txt")
    match kind:
        case "no UTF-8":
            file.write_bytes(b"\xff\xfe")
        case "too large":
            file.write_text("x" * 1001)
        case "device":
            file.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(file)
    result = CliRunner().invoke(main, OPTIONS[option](run, str(file), str(tmp_path / "out")))
    assert result.exit_code == 2, result.output
    assert file.name in result.output and result.output.count("mclabel: ") == 1
    assert "Traceback" not in result.output and len(result.output) < 1000
    assert not (tmp_path / "out").exists()
