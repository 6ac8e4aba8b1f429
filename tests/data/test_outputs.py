"""Obstacles to writing an output are found before any work is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mclabel.core.errors import ShardError
from mclabel.run.outputs import BEST_OF_N, RUN, TRAINING, OutputKind, check_output_is_usable
from tests.support.commands import run_verb
from tests.support.scripted_jobs import scripted_overrides, write_problems


def refused(out: Path, *arguments: str) -> str:
    """Return the error message, and check that the command leaves the output unchanged."""
    before = sorted(out.rglob("*"))
    result = run_verb(arguments, code=2)
    assert "Traceback" not in result.output
    assert sorted(out.rglob("*")) == before
    return result.output


def test_every_place_that_a_run_writes_to_is_checked(tmp_path: Path) -> None:
    """A new output folder must be added to the list of checked places."""
    out = tmp_path / "out"
    job = scripted_overrides(write_problems(tmp_path, 8), out, "ray.address=none")
    run_verb(["label", "/dev/null", *job])
    is_folder_by_name = {str(path.relative_to(out)): path.is_dir() for path in out.rglob("*")}
    folders = {name for name, is_folder in is_folder_by_name.items() if is_folder}
    files = {
        name for name, is_folder in is_folder_by_name.items() if not is_folder and "/" not in name
    }
    assert "labels" in folders and "run.json" in files
    assert folders <= set(RUN.folders) and files <= set(RUN.all_files)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in (RUN, TRAINING, BEST_OF_N)
        for name in (*kind.folders, *kind.all_files)
    ],
)
def test_what_stands_in_the_way_of_an_output_is_named(
    tmp_path: Path, kind: OutputKind, name: str
) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.mkdir() if name in kind.all_files else path.write_text("precious")
    with pytest.raises(ShardError, match=f"{path}: is a .*, must be a"):
        check_output_is_usable(str(tmp_path / "out"), kind)


def test_a_file_on_the_way_and_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    job = scripted_overrides(write_problems(tmp_path, 4), tmp_path / "file/a/b", "ray.address=none")
    assert "file: is a file, must be a folder" in refused(tmp_path, "label", "/dev/null", *job)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/labels").symlink_to(tmp_path / "nowhere")
    job = scripted_overrides(write_problems(tmp_path, 4), tmp_path / "out", "ray.address=none")
    assert "labels: is a file" in refused(tmp_path / "out", "label", "/dev/null", *job)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "out/rollouts").mkdir(parents=True)
    (tmp_path / "out/rollouts").chmod(0o500)
    job = scripted_overrides(write_problems(tmp_path, 4), tmp_path / "out", "ray.address=none")
    assert "rollouts: is not writable" in refused(tmp_path / "out", "label", "/dev/null", *job)


@pytest.mark.parametrize("verb", ["label", "train"])
def test_a_folder_of_other_files_is_refused(tmp_path: Path, verb: str) -> None:
    out = tmp_path / "out"
    (out / "notes").mkdir(parents=True)
    (out / "thesis.tex").write_text("precious")
    job = (
        scripted_overrides(write_problems(tmp_path, 4), out, "ray.address=none")
        if verb == "label"
        else [f"out={out}", f"labels=[{tmp_path}]", "base=arith:strong"]
    )
    message = refused(out, verb, "/dev/null", *job)
    assert f"out={out}: holds notes, thesis.tex, and this command would write" in message
    assert f"Give a new folder, such as {out / 'run'}" in message


def test_logs_and_configurations_may_be_there_first(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in (".DS_Store", "job.yaml", "slurm-7.out", "stdout.log"):
        (out / name).write_text("precious")
    check_output_is_usable(str(out), RUN)
    (out / "run.json").write_text("{}")
    (out / "thesis.tex").write_text("precious")  # a foreign file beside a run that was begun
    check_output_is_usable(str(out), RUN)
