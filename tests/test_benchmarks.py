"""Every benchmark takes its sizes, and the runner knows all benchmarks."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.benchmarks import smoke
from tests.benchmarks.smoke import benchmarks, recorded_keys

WITHOUT_PROGRAM = {
    "chaos_world",
    "code_checker",
    "code_labels",
    "code_scorers",
    "engine_common",
    "raw_vllm",
    "splits",
    "estimators_common",
    "estimators_values",
    "figures",
    "pieces",
    "runs",
    "prm_vs_orm_study",
    "scorer_figures",
    "scorers",
    "sizes",
    "smoke",
}
"""Names of the folder's files that are not benchmarks."""


@pytest.mark.parametrize("name", benchmarks())
def test_every_benchmark_takes_either_size(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = importlib.import_module(f"tests.benchmarks.{name}").main
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert {"--smoke", "--quick"} <= set(capsys.readouterr().out.replace("[", " ").split())
    monkeypatch.setattr(sys, "argv", [name, "--smoke", "--quick"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "not allowed with argument --smoke" in capsys.readouterr().err


def test_the_runner_knows_every_file_and_the_keys_of_every_benchmark() -> None:
    assert set(benchmarks()) == {path.stem for path in smoke.FOLDER.glob("*.py")} - WITHOUT_PROGRAM
    assert list(recorded_keys()) == benchmarks()
