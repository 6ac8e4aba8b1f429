"""The trainer: equal optimizer steps for all batch splits, adapters, early stopping, logs."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForTokenClassification, AutoTokenizer

from mclabel.core.errors import ConfigError
from mclabel.prm.examples.encode import EncodedSolution, Example, PackedExamples
from mclabel.prm.job import TrainReport
from mclabel.prm.model.heads import prepare_step_token
from mclabel.prm.model.network import add_adapters, start_step_model
from mclabel.prm.model.settings import ModelSettings
from mclabel.prm.scoring.score import PRM
from mclabel.prm.training.items import (
    TrainingItem,
    choose_num_pieces,
    collate,
    compute_wrong_and_sound_factors,
    cut_batch_into_pieces,
    sort_rows_longest_first,
)
from mclabel.run.shards.labels import commit_block
from mclabel.run.shards.store import Store
from tests.prm.test_train import train_prm
from tests.support.labelled import arith_rows, write_run
from tests.support.process_group import train_in_group


def read_weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model" / "model.safetensors")


def assert_close(a: Path, b: Path, tolerance: float) -> None:
    ours, theirs = read_weights(a), read_weights(b)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert (tensor - theirs[name]).abs().max() < tolerance, name


@pytest.mark.slow
def test_pieces_add_up_to_the_batch(base: str, labels: str, tmp_path: Path) -> None:
    common = [f"labels=[{labels}]", f"base={base}", "max_steps=2", "batch_size=8"]
    common += ["balance=true", "weights=rollouts", "backbone_lr=1.0e-3", "head_lr=1.0e-3"]
    train_prm(tmp_path / "whole", *common)
    train_prm(tmp_path / "cut", *common, "micro_tokens=300", "gradient_checkpointing=true")
    assert_close(tmp_path / "whole", tmp_path / "cut", 1e-4)


def test_pieces_hold_no_more_than_they_may() -> None:
    lengths = [10, 200, 190, 30, 180, 20, 150, 170]
    examples = [
        Example(
            problem_id=f"p{i // 2}",
            encoded=EncodedSolution(ids=(7,) * n, num_prompt=1, positions=(n // 2, n - 1)),
            targets=(1.0, 0.0),
            weights=(1.0, 1.0),
            is_right=None,
        )
        for i, n in enumerate(lengths)
    ]
    whole = collate([TrainingItem(example, None, None) for example in examples])
    rows = sort_rows_longest_first(whole)
    assert [choose_num_pieces(whole, rows, n) for n in ((1600, 1599, 800, 400, 399, 1))] == [
        1,
        2,
        2,
        4,
        8,
        8,
    ]
    for number in range(1, 10):
        pieces = cut_batch_into_pieces(whole, rows, number)
        assert len(pieces) == number
        real = [piece for piece in pieces if piece["weights"].any()]
        assert len(real) == min(number, len(rows))
        assert sorted(n for p in real for n in p["mask"].sum(1).tolist()) == sorted(lengths)
        for piece in pieces:
            assert piece["ids"].shape[1] == (piece["ids"] > 0).sum(1).max()


@pytest.mark.parametrize(
    "changes",
    [
        ["target=soft", "loss=mse"],
        ["target=neutral"],
        ["target=outcome_steps"],
        ["target=hard", "bf16=true"],
        ["target=hard", "head=likelihood", "states=false", "backbone_lr=0"],
    ],
)
def test_every_way_trains_and_scores(
    base: str, labels: str, tmp_path: Path, changes: list[str]
) -> None:
    assert (
        train_prm(
            tmp_path / "prm",
            f"labels=[{labels}]",
            f"base={base}",
            "max_steps=1",
            "batch_size=4",
            *changes,
        ).validation["loss"]
        is not None
    )
    rows = arith_rows(3)
    prm = PRM.load(tmp_path / "prm")
    scores = prm.score([r.problem.text for r in rows], [r.solution.text for r in rows])
    assert [len(s) for s in scores] == [len(r.steps) for r in rows]
    assert all(0 <= score <= 1 for step_scores in scores for score in step_scores)
    assert prm.manifest.kind == ("orm" if "target=outcome_steps" in changes else "prm")


def test_balance_gives_both_sides_half() -> None:
    example = Example(
        problem_id="p",
        encoded=EncodedSolution(ids=(1, 2, 3, 4, 5), num_prompt=1, positions=(1, 2, 3, 4)),
        targets=(1.0, 1.0, None, 0.0),
        weights=(2.0, 1.0, 9.0, 1.0),
        is_right=None,
    )
    # 3 of 4 labels are sound: wrong steps weigh 4 / (2 * 1), sound ones 4 / (2 * 3)
    factors = compute_wrong_and_sound_factors(PackedExamples([example]))
    assert factors == (2.0, pytest.approx(2 / 3))
    assert collate([TrainingItem(example, None, factors)])["weights"][0][
        [0, 1, 3]
    ].tolist() == pytest.approx([4 / 3, 2 / 3, 2.0])


def test_adapters_alone_are_trained_and_then_merged(base: str, labels: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    train_prm(
        tmp_path / "prm",
        f"labels=[{labels}]",
        f"base={base}",
        "max_steps=2",
        "lora_rank=4",
        "backbone_lr=1.0e-2",
        "save_steps=1",
    )
    assert all(
        "lora_" in name or "score" in name
        for name in load_file(tmp_path / "prm/checkpoints/checkpoint-2/trained.safetensors")
    )
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "prm/model")
    ours, theirs = (
        model.model.state_dict(),
        AutoModelForTokenClassification.from_pretrained(base, num_labels=2).model.state_dict(),
    )
    assert ours.keys() == theirs.keys()  # a plain checkpoint without adapters
    changed = {name for name in ours if not torch.equal(ours[name], theirs[name])}
    assert changed and all("proj" in name for name in changed)


@pytest.mark.parametrize(
    ("module", "key", "fault"),
    [
        ("peft", "lora_rank=4", r"lora_rank=4: peft: not installed.*'\.\[lora\]'"),
        ("mlflow", "report_to=mlflow", r"report_to=mlflow: .+ lacks mlflow\. .+ pip install"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_written(
    base: str,
    labels: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    key: str,
    fault: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if the module were not installed
    with pytest.raises(ConfigError, match=fault):
        train_prm(tmp_path / "prm", f"labels=[{labels}]", f"base={base}", key)
    assert not (tmp_path / "prm").exists()


def test_adapters_of_a_base_in_bfloat16_are_float32(base: str) -> None:
    pytest.importorskip("peft")
    network = start_step_model(ModelSettings(base=base, lora_rank=2, dtype="bfloat16")).network
    add_adapters(network, rank=2, alpha=4)
    assert {("lora_" in name, p.dtype) for name, p in network.base_model.named_parameters()} == {
        (True, torch.float32),
        (False, torch.bfloat16),
    }


@pytest.mark.slow
def test_early_stopping_keeps_the_best_weights(base: str, labels: str, tmp_path: Path) -> None:
    report = train_prm(
        tmp_path / "prm", f"labels=[{labels}]", f"base={base}", "max_steps=400", "batch_size=8",
        "backbone_lr=3.0e-3", "head_lr=3.0e-3", "eval_steps=10", "patience=3", "validation=0.3",
    )  # fmt: skip
    losses = {
        r["step"]: r["validation_loss"]
        for r in [json.loads(line) for line in (tmp_path / "prm/log.jsonl").open()]
        if "validation_loss" in r
    }
    best = min(losses, key=losses.__getitem__)
    assert max(losses) == best + 30 < 400
    assert report.validation["loss"] == pytest.approx(losses[best])
    assert all(
        report.validation[name] is not None
        for name in (("f1_wrong", "auc", "calibration_error", "pair_accuracy"))
    )


def test_tensorboard_is_written(base: str, labels: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train_prm(
        tmp_path / "prm", f"labels=[{labels}]", f"base={base}", "max_steps=1",
        "report_to=tensorboard",
    )  # fmt: skip
    assert list((tmp_path / "prm" / "tensorboard").glob("events*"))


def test_a_run_goes_on_with_the_blocks_it_began_with(
    base: str, labels: str, tmp_path: Path
) -> None:
    """More blocks may be labelled while the training runs."""
    rows = arith_rows(60)
    run = write_run(tmp_path / "labels", rows[:30])
    common = [f"labels=[{run}]", f"base={base}", "max_steps=2"]
    first = train_prm(tmp_path / "prm", *common)
    commit_block(Store(run), "f" * 16, "test", rows[30:], None, {})
    assert train_prm(tmp_path / "prm", *common) == first
    later = train_prm(tmp_path / "other", *common)
    assert later.num_solutions + later.num_validation == 60


def test_a_step_token_that_was_never_trained_gets_the_mean(base: str) -> None:
    for value in (0.0, float("nan"), 100.0):
        network = start_step_model(ModelSettings(base=base, head="token")).network
        rows = network.get_input_embeddings().weight
        with torch.no_grad():
            rows[5] = value
        message = prepare_step_token(network, 5, len(rows))
        usual = torch.cat([rows[:5], rows[6:]]).norm(dim=1).median()
        assert "the mean" in message
        assert rows[5].isfinite().all() and rows[5].norm() < usual
        assert "kept" in prepare_step_token(network, 7, len(rows))


def test_a_step_token_can_be_added(base: str, labels: str, tmp_path: Path) -> None:
    train_prm(
        tmp_path / "prm",
        f"labels=[{labels}]",
        f"base={base}",
        "max_steps=2",
        "step_token=<|new|>",
        "add_step_token=true",
    )
    prm = PRM.load(tmp_path / "prm")
    identity = AutoTokenizer.from_pretrained(tmp_path / "prm/model").convert_tokens_to_ids(
        "<|new|>"
    )
    assert (
        identity
        < AutoModelForTokenClassification.from_pretrained(tmp_path / "prm/model")
        .get_input_embeddings()
        .weight.shape[0]
    )
    row = arith_rows(1)[0]
    assert prm.encoder.encode_labelled(row).ids.count(identity) == len(row.steps)


def train_in_two(out: Path, *overrides: str, by_ray: bool = False) -> TrainReport:
    """Train in two workers, started by Ray or forked; both ways form the same group."""
    if by_ray:
        return train_prm(out, *overrides, "workers=2", "ray.num_cpus=1")
    train_in_group([f"out={out}", *overrides, "workers=2"], out.parent)
    # the training has already ended, so this only reports
    return train_prm(out, *overrides, "workers=2")


@pytest.mark.slow
@pytest.mark.parametrize("how", [["backbone_lr=1.0e-3"], ["head=likelihood", "backbone_lr=0"]])
def test_two_workers_equal_one(base: str, labels: str, tmp_path: Path, how: list[str]) -> None:
    common = [f"labels=[{labels}]", f"base={base}", "max_steps=4", "batch_size=8", *how]
    common += ["head_lr=1.0e-3", "save_steps=3"]
    train_prm(tmp_path / "one", *common)
    assert train_in_two(tmp_path / "two", *common) == replace(
        train_prm(tmp_path / "two", *common), model=str(tmp_path / "two/model")
    )
    assert_close(tmp_path / "one", tmp_path / "two", 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_ray", "more"),
    [
        pytest.param(True, ["head=token"], marks=pytest.mark.ray),
        (False, ["head=likelihood", "lora_rank=2"]),
    ],
)
def test_split_over_workers_it_equals_one_and_others_go_on_from_it(
    base: str, labels: str, tmp_path: Path, by_ray: bool, more: list[str]
) -> None:
    common = [f"labels=[{labels}]", f"base={base}"]
    common += ["epochs=1.5", "batch_size=8", *more]
    common += ["backbone_lr=1.0e-3", "head_lr=1.0e-3", "save_steps=7", "patience=5"]
    common += ["eval_steps=3", "micro_tokens=300"]
    train_prm(tmp_path / "one", *common)
    train_in_two(tmp_path / "split", *common, "shard=true", by_ray=by_ray)
    assert_close(tmp_path / "one", tmp_path / "split", 1e-4)
    shutil.rmtree(tmp_path / "split/model")
    for folder in (tmp_path / "split/checkpoints").glob("checkpoint-*"):
        if folder.name != "checkpoint-7":
            shutil.rmtree(folder)
    if by_ray:  # each training continues with the other way of starting workers
        train_prm(tmp_path / "split", *common)
    else:
        train_in_two(tmp_path / "split", *common, "shard=true")
    assert_close(tmp_path / "one", tmp_path / "split", 1e-4)
