"""Pipes and devices in folders are reported at once, in any kind of folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from mclabel.core.errors import DataError, MclabelError
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
from mclabel.prm.training.checkpoint import check_trainer_files
from mclabel.run.shards.manifest import MANIFEST, read_claim
from mclabel.run.shards.store import Store
from tests.support.labelled import arith_rows, write_run

Damage = Callable[[Path], None]


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


DAMAGES: dict[Damage, str] = {pipe: "a pipe", zeros: "a device"}
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
        with pytest.raises(MclabelError, match=f"{name} is {DAMAGES[damage]}, and only plain"):
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
    message = f"{path.name} is {DAMAGES[damage]}, and only plain files are read"
    store = Store(str(run))
    for read in (store.read, lambda one: store.download(one, tmp_path / "copy")):
        with pytest.raises(MclabelError, match=message):
            read(str(path.relative_to(run)))
    if name == MANIFEST:
        with pytest.raises(MclabelError, match=message):
            read_claim(store, MANIFEST)


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
    ("changes", "said"),
    [
        ({"max_tokens": -5}, "max_tokens: must be at least 1"),
        ({"max_tokens": True}, "max_tokens: must be a whole number, is true"),
        ({"max_tokens": 10**12}, "max_tokens: must be at most 1000000000"),
        ({"step_token": ""}, "step_token: must have at least 1 characters"),
        ({"step_token": 3}, "step_token: must be a text, is a number"),
        ({"head": "other"}, "head: must be 'token' or 'likelihood'"),
        ({"kind": True}, "kind: must be 'prm' or 'orm'"),
        ({"template": "no place"}, r"template must contain {problem}"),
        ({"more": 1}, "more: unknown key"),
        ({"format": 2}, "its format is not 1"),
    ],
)
def test_a_prms_manifest_is_checked(prm: Path, changes: dict[str, object], said: str) -> None:
    path = prm / "prm.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(DataError, match=re.escape(f"{path}: not a PRM's manifest: ")) as refused:
        PrmManifest.read(prm)
    assert said in str(refused.value) and "Copy the whole folder" in str(refused.value)
