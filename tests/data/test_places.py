"""No command writes into the output of another command, or into foreign folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mclabel.run import outputs
from mclabel.run.outputs import (
    BEST_OF_N,
    EXPORT,
    FIGURES,
    QUICKSTART,
    RUN,
    TRAINING,
    OutputKind,
)
from tests.support.commands import run_verb
from tests.support.scripted_jobs import scripted_overrides, write_problems

SCRIPTED = ("policy.engine=scripted", "ray.address=none")
VERBS: dict[str, tuple[OutputKind, list[str]]] = {
    "label": (RUN, ["label", "/dev/null", "problems.source=PROBLEMS", "out=OUT", *SCRIPTED]),
    "regrade": (RUN, ["regrade", "LABELS", "-o", "OUT"]),
    "judge": (RUN, ["judge", "LABELS", "-o", "OUT", "judge=symbolic", "ray.address=none"]),
    "combine": (RUN, ["combine", "LABELS", "OPINIONS", "-o", "OUT", "--rule", "same_location"]),
    "score": (RUN, ["score", "nowhere", "ROWS", "-o", "OUT"]),
    "search": (
        RUN,
        ["search", "/dev/null", "problems.source=PROBLEMS", "out=OUT", "scorer=constant"],
    ),
    "import": (RUN, ["import", "ROWS", "--from", "trl", "-o", "OUT"]),
    "train": (TRAINING, ["train", "/dev/null", "labels=[LABELS]", "base=arith:policy", "out=OUT"]),
    "best-of-n": (BEST_OF_N, ["eval", "best-of-n", "/dev/null", "samples=2", "out=OUT"]),
    "eval labels": (FIGURES, ["eval", "labels", "LABELS", "-o", "OUT"]),
    "processbench": (FIGURES, ["eval", "processbench", "ROWS", "--labels", "LABELS", "-o", "OUT"]),
    "export": (EXPORT, ["export", "LABELS", "--to", "trl", "-o", "OUT"]),
    "export tables": (EXPORT, ["export", "LABELS", "--to", "parquet", "-o", "OUT"]),
    "quickstart": (QUICKSTART, ["quickstart", "--size", "small", "--out", "OUT"]),
}


@pytest.fixture(scope="module")
def command_inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the paths of the commands' inputs, by placeholder."""
    root = tmp_path_factory.mktemp("given")
    problems, labels, opinions = write_problems(root, 4), root / "run", root / "opinions"
    label = ["label", "/dev/null", *scripted_overrides(problems, labels, "ray.address=none")]
    judge = ["judge", str(labels), "-o", str(opinions), "judge=symbolic", "ray.address=none"]
    for command in (label, judge):
        run_verb(command)
    rows = root / "rows.jsonl"
    rows.write_text(json.dumps({"problem": "1 + 1?", "solution": "2"}) + "\n")
    paths = {"PROBLEMS": problems, "LABELS": labels, "OPINIONS": opinions, "ROWS": rows}
    return {name: str(path) for name, path in paths.items()}


def contents(folder: Path) -> dict[Path, str]:
    """Return all paths under a folder, with the contents of files and "" for folders."""
    return {path: path.read_text() if path.is_file() else "" for path in folder.rglob("*")}


def refused(command: list[str], command_inputs: dict[str, str], out: Path) -> str:
    """Return the command's output, and check that the command changes no file."""
    before = contents(out.parent)
    for name, place in {**command_inputs, "OUT": str(out)}.items():
        command = [word.replace(name, place) for word in command]
    result = run_verb(command, code=2)
    assert "Traceback" not in result.output, result.output
    assert contents(out.parent) == before
    return " ".join(result.output.split())


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_writes_into_what_another_one_or_somebody_has_written(
    verb: str, command_inputs: dict[str, str], tmp_path: Path
) -> None:
    own_kind, command = VERBS[verb]
    for number, kind in enumerate((*outputs.KINDS, *outputs._THEIRS)):
        if kind is own_kind:
            continue
        out = tmp_path / str(number) / "out"
        mark = out / kind.mark_patterns[0].replace("*", "x")
        mark.parent.mkdir(parents=True)
        mark.write_text("{}")
        message = refused(command, command_inputs, out)
        assert f"{out}: holds {kind.noun} ({kind.mark_patterns[0].replace('*', 'x')})" in message, (
            kind.noun
        )
        assert "Give another folder" in message


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_writes_into_a_folder_of_a_run_or_of_a_training(
    verb: str, command_inputs: dict[str, str], tmp_path: Path
) -> None:
    for kind in (RUN, TRAINING):
        above = tmp_path / str(kind.manifest) / "run"
        out = above / kind.folders[0] / "mine"
        out.mkdir(parents=True)
        (above / str(kind.manifest)).write_text("{}")
        assert f"is part of {kind.noun} in {above}" in refused(VERBS[verb][1], command_inputs, out)


@pytest.mark.parametrize(
    "command",
    [
        ["report", "LABELS", "-o", "OUT"],
        ["check", "--file", "ROWS", "-o", "OUT"],
        ["eval", "processbench-golds", "ROWS", "-o", "OUT"],
        ["score", "nowhere", "ROWS", "-o", "OUT"],
    ],
    ids=lambda command: command[0],
)
def test_no_file_is_written_over_one_of_a_run(
    command: list[str], command_inputs: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    for name in ("run.json", "rejects.jsonl"):
        (tmp_path / "run" / name).write_text("{}")
    out = tmp_path / "run" / "rejects.jsonl"
    assert f"{out}: belongs to a run of labels" in refused(command, command_inputs, out)
