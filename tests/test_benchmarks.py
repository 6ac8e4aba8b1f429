"""Every benchmark runs at its smallest size, and the runner detects faults of a benchmark."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks import smoke
from tests.benchmarks.sizes import NOT_RUN
from tests.benchmarks.smoke import Verdict, benchmarks, recorded_keys, run

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
OTHER_KEYS = "the keys of its last line differ from keys.json"


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
    files = {path.stem for path in smoke.FOLDER.glob("*.py")}
    assert set(benchmarks()) == files - WITHOUT_PROGRAM
    assert list(recorded_keys()) == benchmarks()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "verdict", "reason"),
    [
        ("print('progress'); print('{\"b\": 1, \"a\": null}')", Verdict.RAN, ""),
        (
            "print('{\"a\": 1}')",
            Verdict.FAILED,
            "the keys of its last line differ from keys.json: missing ['b'], new []",
        ),
        (
            'print(\'{"a": 1, "b": 1, "c": 1}\')',
            Verdict.FAILED,
            f"{OTHER_KEYS}: missing [], new ['c']",
        ),
        ("print('a and b')", Verdict.FAILED, "its last line is not a JSON object: 'a and b'"),
        ("print('[1]')", Verdict.FAILED, "its last line is not a JSON object: '[1]'"),
        ("pass", Verdict.FAILED, "its last line is not a JSON object: ''"),
        (
            'print(\'{"a": 1, "b": 1}\'); raise ValueError',
            Verdict.FAILED,
            "it ended with exit code 1",
        ),
        (f"print('It needs x.'); raise SystemExit({NOT_RUN})", Verdict.NOT_RUN, "It needs x."),
    ],
)
def test_the_verdict_on_a_benchmark(code: str, verdict: Verdict, reason: str) -> None:
    ended = run(partial(exec, code), ["a", "b"])
    assert (ended.verdict, ended.reason) == (verdict, reason)


@pytest.mark.slow
def test_a_benchmark_that_hangs_is_ended() -> None:
    code = "import threading; print('began', flush=True); threading.Event().wait()"
    ended = run(partial(exec, code), [], longest_s=2.0)
    assert (ended.verdict, ended.reason) == (Verdict.FAILED, "it has not ended within 2 s")


@pytest.mark.parametrize("must_run", [False, True])
def test_what_is_not_run_is_named_and_fails_where_all_must_run(
    must_run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"print('It needs x.'); raise SystemExit({NOT_RUN})"
    real, names = run, tmp_path / "names"
    monkeypatch.setattr(smoke, "run", lambda program, keys: real(partial(exec, code), keys))
    flags = ["--all-must-run"] if must_run else []
    monkeypatch.setattr(sys, "argv", ["smoke", "peers", "--not-run", str(names), *flags])
    with pytest.raises(SystemExit) as ended:
        smoke.main()
    assert ended.value.code == int(must_run)
    assert names.read_text() == "peers\n"
