"""Pipes, devices and damaged files in folders are reported at once, with their name."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from mclabel.core.errors import DataError, EngineError, MclabelError, TrainingError
from mclabel.domains.arith import bundled_model
from mclabel.engines.hub import compute_weights_fingerprint
from mclabel.engines.pretrained import (
    load_model,
    load_model_config,
    load_tokenizer,
    load_torch_state,
)
from mclabel.prm.scoring.manifest import PrmManifest, compute_scorer_fingerprint
from mclabel.prm.scoring.scorer import load_prm
from mclabel.prm.training.checkpoint import (
    check_checkpoint,
    check_trainer_files,
    explain_write_errors,
    find_last_checkpoint,
)
from mclabel.run.shards.manifest import MANIFEST, read_manifest
from mclabel.run.shards.store import Store
from mclabel.run.trainings import mark_checkpoint
from tests.support.labelled import arith_rows, write_run

Damage = Callable[[Path], None]


def make_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def link_zeros(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


DAMAGES: dict[Damage, str] = {make_pipe: "a pipe", link_zeros: "a device"}
NAMES = ["config.json", "model.safetensors", "tokenizer.json", "prm.json", "whatever.jinja"]


@pytest.fixture
def prm(tmp_path: Path) -> Path:
    folder = shutil.copytree(bundled_model("strong"), tmp_path / "prm")
    PrmManifest(
        kind="prm", head="token", step_token=None, template=None, system=None, max_tokens=512
    ).save(folder)
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_models_folder_holds_plain_files(prm: Path, name: str, damage: Damage) -> None:
    damage(prm / name)
    place = str(prm)
    loads: list[Callable[[], object]] = [
        lambda: load_model_config(place, trust_remote_code=False),
        lambda: load_tokenizer(place, trust_remote_code=False),
        lambda: load_model(AutoModelForCausalLM, place, trust_remote_code=False),
        lambda: load_prm(place),
        lambda: load_prm(place, format="qwen"),
        lambda: load_prm(place, url="http://127.0.0.1:9"),
        lambda: compute_scorer_fingerprint(place),
        lambda: compute_weights_fingerprint(prm),
    ]
    for load in loads:
        with pytest.raises(MclabelError, match=f"{name} is {DAMAGES[damage]}, but must be a"):
            load()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_below_is_looked_into(prm: Path, damage: Damage) -> None:
    (prm / "likelihood_head").mkdir()
    damage(prm / "likelihood_head" / "head.safetensors")
    with pytest.raises(MclabelError, match=r"head\.safetensors is a"):
        load_prm(prm)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [MANIFEST, "labels"])
def test_a_run_holds_plain_files(tmp_path: Path, name: str, damage: Damage) -> None:
    run = Path(write_run(tmp_path / "run", arith_rows(2)))
    path = run / name if name == MANIFEST else next((run / "labels").glob("*.parquet"))
    damage(path)
    message = f"{path.name} is {DAMAGES[damage]}, but must be a regular file"
    store = Store(str(run))
    for read in (store.read, lambda file_name: store.download(file_name, tmp_path / "copy")):
        with pytest.raises(MclabelError, match=message):
            read(str(path.relative_to(run)))
    if name == MANIFEST:
        with pytest.raises(MclabelError, match=message):
            read_manifest(store, MANIFEST)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["trainer_state.json", "optimizer.pt", "trained.safetensors"])
def test_a_checkpoint_holds_plain_files(tmp_path: Path, name: str, damage: Damage) -> None:
    (tmp_path / "trainer_state.json").write_text('{"global_step": 1}')
    damage(tmp_path / name)
    with pytest.raises(MclabelError, match=f"{name} is {DAMAGES[damage]}"):
        check_trainer_files(tmp_path)
    with pytest.raises(MclabelError, match=f"{name} is {DAMAGES[damage]}"):
        load_torch_state(tmp_path / name)


def test_a_link_to_a_plain_file_is_one(prm: Path, tmp_path: Path) -> None:
    """The Hugging Face hub's cache consists of such links."""
    (prm / "config.json").rename(tmp_path / "blob")
    (prm / "config.json").symlink_to(tmp_path / "blob")
    load_model_config(str(prm), trust_remote_code=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": -5}, "max_tokens: must be at least 1"),
        ({"max_tokens": True}, "max_tokens: must be a whole number, is true"),
        ({"max_tokens": 10**12}, "max_tokens: must be at most 1000000000"),
        ({"step_token": ""}, "step_token: must have at least 1 characters"),
        ({"step_token": 3}, "step_token: must be a string, is a number"),
        ({"head": "other"}, "head: must be 'token' or 'likelihood'"),
        ({"kind": True}, "kind: must be 'prm' or 'orm'"),
        ({"template": "no place"}, r"template must contain {problem}"),
        ({"more": 1}, "more: unknown key"),
        ({"format": 2}, "format must be 1"),
    ],
)
def test_a_prms_manifest_is_checked(prm: Path, changes: dict[str, object], message: str) -> None:
    path = prm / "prm.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(DataError, match=re.escape(f"{path}: not a PRM's manifest: ")) as refused:
        PrmManifest.read(prm)
    assert message in str(refused.value) and "Copy the whole folder" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
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
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / "trainer_state.json").write_text('{"global_step": 1}')
    check_trainer_files(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TrainingError, match=re.escape(f"{tmp_path / name}: {message}")) as refused:
        check_trainer_files(tmp_path)
    assert f"Remove the folder {tmp_path} to train from the start" in str(refused.value)


def make_checkpoint(folder: Path, step: int) -> Path:
    """Return a checkpoint of a few bytes that is marked as complete."""
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    (made / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    (made / "trained.safetensors").write_bytes(bytes(100))
    mark_checkpoint(made)
    return made


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            lambda path: flip_byte(path / "trained.safetensors"),
            "trained.safetensors: damaged: its content",
        ),
        (lambda path: (path / "trained.safetensors").unlink(), "trained.safetensors: missing"),
        (lambda path: flip_byte(path / "complete"), "complete: damaged"),
        (lambda path: (path / "complete").write_text(""), "complete: damaged"),
        (
            lambda path: (path / "pytorch_model.bin").write_bytes(b"x"),
            "pytorch_model.bin: does not belong to the checkpoint",
        ),
        (
            lambda path: shutil.copy(path.with_name("checkpoint-2") / "complete", path),
            "complete: belongs to the checkpoint of step 2",
        ),
        (
            lambda path: (path / "trainer_state.json").write_text('{"global_step": 1000000000}'),
            "trainer_state.json: global_step=1000000000 must be 4",
        ),
    ],
)
def test_a_checkpoint_that_is_not_what_was_written_is_refused_and_the_one_before_is_named(
    tmp_path: Path, harm: Callable[[Path], object], message: str
) -> None:
    earlier, last = make_checkpoint(tmp_path, 2), make_checkpoint(tmp_path, 4)
    check_checkpoint(last)
    harm(last)
    assert find_last_checkpoint(tmp_path) == last
    with pytest.raises(TrainingError, match=re.escape(message)) as refused:
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
