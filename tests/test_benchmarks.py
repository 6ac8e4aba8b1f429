"""Every benchmark can be run at its smallest size, and the runner sees what is wrong with one."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks import smoke
from tests.benchmarks.sizes import DISCLAIMER, NOT_RUN, BenchmarkSize, SizedParser, need
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
    "large_bucket",
    "figures",
    "pieces",
    "runs",
    "prm_vs_orm_study",
    "scorer_figures",
    "scorers",
    "rl_arms",
    "rl_flaw",
    "rl_server",
    "rl_values",
    "rl_wider",
    "search_ways",
    "selection_arms",
    "selection_figures",
    "sizes",
    "smoke",
}
"""Files of the folder that are no benchmarks."""
OTHER_KEYS = "the keys of its last line are not those of keys.json"


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
            "the keys of its last line are not those of keys.json: missing ['b'], new []",
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


@pytest.mark.slow
def test_a_benchmark_that_fails_beside_a_pool_ends_like_a_program() -> None:
    code = (
        "import atexit; from concurrent.futures import ProcessPoolExecutor; "
        "atexit.register(print, 'the end'); pool = ProcessPoolExecutor(1); "
        "pool.submit(int).result(); raise ValueError('of mine')"
    )
    ended = run(partial(exec, code), [])
    assert (ended.verdict, ended.reason) == (Verdict.FAILED, "it ended with exit code 1")
    assert "the end" in ended.output and "of mine" in ended.output


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


@pytest.mark.parametrize(
    ("arguments", "size", "count"),
    [
        ([], BenchmarkSize.FULL, 3),
        (["--quick"], BenchmarkSize.QUICK, 2),
        (["--smoke"], BenchmarkSize.SMOKE, 1),
    ],
)
def test_sizes(
    arguments: list[str], size: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = SizedParser("A benchmark.").read(arguments).size
    assert found is BenchmarkSize(size) and found.pick(smoke=1, quick=2, full=3) == count
    assert (DISCLAIMER in capsys.readouterr().out) == (size == "smoke")


def test_a_missing_package_is_one_line_and_a_code_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    need("json", remedy="nothing")
    with pytest.raises(SystemExit, match=str(NOT_RUN)):
        need("no_such_package", remedy="pip install it")
    assert capsys.readouterr().out == (
        "The package no_such_package is not installed. Install it with pip install it\n"
    )
