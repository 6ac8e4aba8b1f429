"""Damaged files of a training checkpoint: the message names the file that prevents resuming."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mclabel.core.errors import EngineError, TrainingError
from mclabel.engines.pretrained import load_torch_state
from mclabel.prm.training.checkpoint import (
    check_checkpoint,
    check_trainer_files,
    explain_write_errors,
    find_last_checkpoint,
)
from mclabel.run.trainings import mark_checkpoint


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "trainer_state.json",
            b"\x80\x04\xff",
            "does not hold the state of a training run (UnicodeDecodeError",
        ),
        ("trainer_state.json", b"[1]", "does not hold the state of a training run (TypeError"),
        (
            "trainer_state.json",
            b'{"other": 1}',
            "does not hold the state of a training run (TypeError",
        ),
        ("trainer_state.json", b'{"global_step": "1"}', "global_step='1' must be of type int"),
        (
            "scaler.pt",
            b"",
            "holds the state of a loss scaler. This training does not use a loss scaler",
        ),
    ],
)
def test_a_damaged_file_of_the_trainer_is_named(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / "trainer_state.json").write_text('{"global_step": 1}')
    check_trainer_files(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TrainingError, match=re.escape(f"{tmp_path / name}: {said}")) as refused:
        check_trainer_files(tmp_path)
    assert f"Remove the folder {tmp_path} to train from the start" in str(refused.value)


def checkpoint(folder: Path, step: int) -> Path:
    """Return a checkpoint of a few bytes that is marked as complete."""
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    (made / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    (made / "trained.safetensors").write_bytes(bytes(100))
    mark_checkpoint(made)
    return made


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (
            lambda one: flip(one / "trained.safetensors"),
            "trained.safetensors: damaged: its content",
        ),
        (lambda one: (one / "trained.safetensors").unlink(), "trained.safetensors: missing"),
        (lambda one: flip(one / "complete"), "complete: damaged"),
        (lambda one: (one / "complete").write_text(""), "complete: damaged"),
        (
            lambda one: (one / "pytorch_model.bin").write_bytes(b"x"),
            "pytorch_model.bin: does not belong to the checkpoint",
        ),
        (
            lambda one: shutil.copy(one.with_name("checkpoint-2") / "complete", one),
            "complete: belongs to the checkpoint of step 2",
        ),
        (
            lambda one: (one / "trainer_state.json").write_text('{"global_step": 1000000000}'),
            "trainer_state.json: global_step=1000000000 must be 4",
        ),
    ],
)
def test_a_checkpoint_that_is_not_what_was_written_is_refused_and_the_one_before_is_named(
    tmp_path: Path, harm: Callable[[Path], object], said: str
) -> None:
    earlier, last = checkpoint(tmp_path, 2), checkpoint(tmp_path, 4)
    check_checkpoint(last)
    harm(last)
    assert find_last_checkpoint(tmp_path) == last
    with pytest.raises(TrainingError, match=re.escape(said)) as refused:
        check_checkpoint(last)
    assert f"Remove the folder {last} to resume from checkpoint-2, the one before" in str(
        refused.value
    )
    check_checkpoint(earlier)


def test_what_pytorch_says_of_a_file_that_is_no_state_does_not_get_through(tmp_path: Path) -> None:
    torch.save({"a": Path}, tmp_path / "optimizer.pt")  # a class, which pickles as code
    with pytest.raises(EngineError) as refused:
        load_torch_state(tmp_path / "optimizer.pt")
    assert str(tmp_path / "optimizer.pt") in str(refused.value)
    assert "weights_only" not in str(refused.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_text("x" * 100_000),
        lambda path: torch.save({"a": torch.zeros(100_000)}, path),
    ],
)
def test_a_full_disk_is_one_line_that_names_the_file(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    path = tmp_path / "file"
    path.symlink_to("/dev/full")
    with pytest.raises(TrainingError) as refused, explain_write_errors(path):
        write(path)
    assert re.match(rf"{path}: could not be written \(.*Free some disk space", str(refused.value))
    assert "\n" not in str(refused.value)
