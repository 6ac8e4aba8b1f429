"""`import mclabel` is light: engines, torch and Ray are only loaded where they are used."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mclabel.core.extras import EXTRAS, is_installed
from tests.support.commands import run_verb

HEAVY = (
    *("torch", "ray", "vllm", "transformers", "datasets", "pyarrow", "pydantic", "matplotlib"),
    *("duckdb", "starlette", "uvicorn"),
)


@pytest.mark.parametrize("module", ["mclabel", "mclabel.cli"])
def test_import_leaves_heavy_modules_alone(module: str) -> None:
    assert (
        subprocess.run(
            [
                sys.executable,
                "-c",
                (f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"),
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    ).stdout.strip() == "[]"


@pytest.mark.slow
def test_a_run_with_nothing_left_to_do_loads_no_engine(tmp_path: Path) -> None:
    words = ["problems.source=arith", "problems.limit=1", "policy.model=arith:policy"]
    words += ["estimator=outcome", "solutions.per_problem=1", "policy.max_tokens=8"]
    (tmp_path / "job.yaml").write_text("ray: {address: none}\n")
    words = ["label", str(tmp_path / "job.yaml"), f"out={tmp_path / 'run'}", *words]
    run_verb(words)
    code = (
        "import sys\n"
        "from mclabel.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "engines = ('torch', 'transformers', 'ray', 'vllm')\n"
        "print([name for name in engines if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert "1 of 1 blocks were done before" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


BASE = (
    f"import sys; sys.modules |= dict.fromkeys({[m for e in EXTRAS.values() for m in e.modules]!r})"
)
"""Code that makes the modules of the extras impossible to import in a process."""


def base_alone(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{BASE}\n{code}", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_grading_needs_nothing_that_a_trainer_pins() -> None:
    done = base_alone(
        "import mclabel as mc\n"
        "print(mc.grade(r'\\boxed{1/2}', '0.5').verdict, mc.grade(r'\\boxed{\\int_0^1 x^2 dx}', "
        "'1/3').layer)\n"
        "print([m for m in sys.modules if m in ('sympy', 'antlr4') and sys.modules[m]])"
    )
    assert done.stdout.splitlines() == ["right sympy", "[]"], done.stderr


def test_a_file_is_graded_by_the_base_alone(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"gold": "1/2", "answer": "0.5"}\n')
    done = base_alone(
        "from mclabel.cli import main; main()", "check", "--file", str(tmp_path / "pairs.jsonl")
    )
    assert '"verdict": "right"' in done.stdout, done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    "words",
    [("label", "x.yaml"), ("train", "x.yaml"), ("quickstart",), ("view", "x"), ("label", "--keys")],
    ids=" ".join,
)
def test_a_verb_whose_part_is_missing_names_the_extra(words: tuple[str, ...]) -> None:
    done = base_alone("from mclabel.cli import main; main()", *words)
    assert done.returncode == 2
    assert re.fullmatch(
        r"mclabel: \w+: not installed, and needed here\. It comes with the extra 'run', for .+: "
        r"pip install '\.\[run\]'\n",
        done.stderr,
    ), done.stderr


def test_a_folder_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tracked_runs").mkdir()  # trackers create folders with their own names
    monkeypatch.syspath_prepend(str(tmp_path))
    assert is_installed("numpy") and not is_installed("tracked_runs")


def test_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for name, extra in EXTRAS.items():
        packages = [
            re.split(r"[^\w-]", requirement)[0]
            for requirement in project["optional-dependencies"][name]
        ]
        assert (
            tuple([package.replace("-", "_") for package in packages if package != "mclabel"])
            == extra.modules
        )
    assert (set(project["optional-dependencies"]) - set(EXTRAS)) == {"dev", "docs"}
