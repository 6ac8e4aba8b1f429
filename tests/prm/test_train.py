"""Training: it learns, it resumes exactly, it refuses what cannot work."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DataError, ShardError, TrainingError
from mclabel.data.repeats import check_runs_distinct
from mclabel.prm.config import TrainConfig
from mclabel.prm.examples.batch import make_batch
from mclabel.prm.examples.build import ExampleSettings, make_examples
from mclabel.prm.examples.encode import StepEncoder
from mclabel.prm.job import TrainReport, preflight
from mclabel.prm.model.heads import LikelihoodHead
from mclabel.prm.model.network import load_step_model, start_step_model
from mclabel.prm.model.settings import ModelSettings
from mclabel.prm.scoring.score import PRM
from mclabel.prm.training.callbacks import validate
from mclabel.prm.training.checkpoint import find_last_checkpoint
from mclabel.prm.training.head_fit import fit_head
from mclabel.prm.training.settings import TrainerSettings
from mclabel.prm.training.trainer import train_step_model
from tests.support.labelled import arith_rows, arith_text, write_run


def train_prm(out: Path, *overrides: str) -> TrainReport:
    return jobs.train(
        load_config(TrainConfig, None, [f"out={out}", *overrides]), lambda step, total, loss: None
    )


@pytest.mark.slow
def test_a_tiny_prm_overfits_16_solutions(base: str, tmp_path: Path) -> None:
    text = arith_text()
    encoder = StepEncoder(text, step_id=text.token_id("<|step|>"), max_tokens=1024)
    examples = make_examples(
        arith_rows(16), encoder, ExampleSettings(target="hard", validation=0.0)
    ).train
    torch.manual_seed(0)  # of the head, whatever ran before
    model = start_step_model(ModelSettings(base=base, head="token"))
    before = validate(model, examples).accuracy
    after = train_step_model(
        model,
        examples,
        examples,
        tmp_path,
        settings=TrainerSettings(
            max_steps=60,
            batch_size=16,
            backbone_lr=3e-3,
            head_lr=3e-3,
            save_steps=1000,
            eval_steps=1000,  # once, at the end
        ),
    ).accuracy
    assert before is not None and after is not None
    assert before < 0.9
    assert after >= 0.99


@pytest.mark.parametrize("head", ["token", "likelihood"])
def test_a_saved_model_scores_as_it_did(base: str, tmp_path: Path, head: str) -> None:
    model = start_step_model(ModelSettings(base=base, head=head)).eval()
    for parameter in model.body_and_head_parameters()[1]:
        torch.nn.init.normal_(parameter, std=0.1)
    model.save(tmp_path)
    again = load_step_model(tmp_path, head).eval()
    encoder = StepEncoder(arith_text(), step_id=None, max_tokens=1024)
    rows = arith_rows(8)
    batch = make_batch([encoder.encode_labelled(row) for row in rows])
    alone = make_batch([encoder.encode_labelled(rows[0])])
    with torch.no_grad():
        scores = model(batch)
        assert torch.equal(scores, again(batch))
        # padding and neighbours change nothing
        assert torch.allclose(scores[0, : len(rows[0].steps)], model(alone)[0], atol=1e-5)


@pytest.mark.parametrize("sees_states", [False, True])
def test_a_fitted_head_has_a_lower_loss_than_any_constant(base: str, sees_states: bool) -> None:
    examples = make_examples(
        arith_rows(40),
        StepEncoder(arith_text(), step_id=None, max_tokens=1024),
        ExampleSettings(validation=0.0),
    ).train
    model = start_step_model(ModelSettings(base=base, head="likelihood", states=sees_states))
    assert isinstance(model, LikelihoodHead)
    fit_head(model, examples, None, loss="cross_entropy", wrong_and_sound_factors=None)
    targets = [target for example in examples for target in example.targets if target is not None]
    share = sum(targets) / len(targets)
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    loss = validate(model, examples).loss
    assert loss is not None and loss < entropy - 1e-3


def test_a_frozen_body_stays_as_it_was(base: str, labels: str, tmp_path: Path) -> None:
    train_prm(
        tmp_path / "prm", f"labels=[{labels}]", f"base={base}", "head=likelihood",
        "backbone_lr=0", "head_lr=0.01", "max_steps=3",
    )  # fmt: skip
    trained = load_step_model(tmp_path / "prm" / "model", "likelihood")
    fresh = start_step_model(ModelSettings(base=base, head="likelihood"))
    assert isinstance(trained, LikelihoodHead) and isinstance(fresh, LikelihoodHead)
    for ours, theirs in zip(trained.network.parameters(), fresh.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert trained.features.weight.abs().sum() > 0


def test_a_finished_run_is_a_prm_and_is_not_trained_again(
    base: str, labels: str, tmp_path: Path
) -> None:
    changes = [f"labels=[{labels}]", f"base={base}", "max_steps=4", "batch_size=4"]
    report = train_prm(tmp_path / "prm", *changes)
    assert report.num_solutions + report.num_validation == 60
    model = tmp_path / "prm/model"
    written = (model / "model.safetensors").stat().st_mtime_ns
    assert train_prm(tmp_path / "prm", *changes) == report
    assert (model / "model.safetensors").stat().st_mtime_ns == written
    card = (model / "README.md").read_text()
    assert "A process reward model" in card and "pair accuracy" in card
    config = json.loads((model / "config.json").read_text())
    assert config["architectures"] == ["LlamaForTokenClassification"]
    assert config["id2label"] == {"0": "wrong", "1": "sound"}
    with pytest.raises(ShardError, match=r"target: 'hard' there, 'soft' here"):
        train_prm(tmp_path / "prm", *changes, "target=soft")


def test_a_training_that_is_stopped_goes_on_to_the_same_weights(
    base: str, labels: str, tmp_path: Path
) -> None:
    changes = [f"labels=[{labels}]", f"base={base}", "max_steps=8", "batch_size=4", "save_steps=3"]
    train_prm(tmp_path / "whole", *changes)
    config = load_config(TrainConfig, None, [f"out={tmp_path / 'stopped'}", *changes])

    def stop(step: int, total: int, loss: str) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.train(config, stop)
    with pytest.raises(DataError, match="has not finished"):
        PRM.load(tmp_path / "stopped")
    train_prm(tmp_path / "stopped", *changes)
    ours, theirs = (tmp_path / name / "model/model.safetensors" for name in ("stopped", "whole"))
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_torn_checkpoint_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "model.safetensors").write_bytes(b"")
        if step < 15:
            (tmp_path / f"checkpoint-{step}" / "complete").touch()
    assert find_last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert not (tmp_path / "checkpoint-15").exists()
    assert find_last_checkpoint(tmp_path / "none") is None


def test_a_loss_that_is_not_finite_stops_the_run(base: str, labels: str, tmp_path: Path) -> None:
    broken = LlamaForCausalLM.from_pretrained(base)
    broken.model.norm.weight.data.fill_(float("nan"))
    broken.save_pretrained(tmp_path / "broken")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "broken")
    with pytest.raises(TrainingError, match=r"the loss is nan before the first step\. Lower"):
        train_prm(
            tmp_path / "prm",
            f"base={tmp_path / 'broken'}",
            f"labels=[{labels}]",
            "head=likelihood",
            "max_steps=20",
            "save_steps=1",
        )
    assert not (tmp_path / "prm" / "model").exists()
    assert find_last_checkpoint(tmp_path / "prm" / "checkpoints") is None


def test_weights_that_overflow_in_the_last_step_are_not_kept(base: str, tmp_path: Path) -> None:
    encoder = StepEncoder(arith_text(), step_id=None, max_tokens=1024)
    examples = make_examples(
        arith_rows(4), encoder, ExampleSettings(target="hard", validation=0.0)
    ).train
    settings = TrainerSettings.model_construct(max_steps=1, head_lr=float("inf"), warmup=0.0)
    with pytest.raises(TrainingError, match="NaN or infinite values after the last step"):
        train_step_model(
            start_step_model(ModelSettings(base=base, head="likelihood")),
            examples,
            [],
            tmp_path,
            settings=settings,
        )


def test_what_cannot_be_trained_is_refused_and_nothing_written(
    base: str, labels: str, tmp_path: Path
) -> None:
    chosen = f"labels=[{labels}]"
    cases: list[tuple[list[str], type[Exception], str]] = [
        ([chosen, "step_token=<|nope|>"], ConfigError, "not a token of this model"),
        (
            [chosen, "max_tokens=5", "validation=0"],
            DataError,
            r"no labels left.*60 are refused, the first because",
        ),
        ([f"labels=[{tmp_path / 'none'}]"], ShardError, "no such folder"),
        (["labels=[]"], ConfigError, "labels"),
        ([chosen, "head_lr=.inf"], ConfigError, "head_lr=inf"),
    ]
    for overrides, error, message in cases:
        with pytest.raises(error, match=message):
            train_prm(tmp_path / "prm", f"base={base}", *overrides)
    assert not (tmp_path / "prm").exists()


@pytest.mark.parametrize(
    ("token", "fault"),
    [
        ("<|user|>", "because the model uses it in prompts"),
        ("<|end|>", "begin, end, separate or pad texts"),
        ("<|pad|>", "begin, end, separate or pad texts"),
        ("Ġthe", "is not a token of this model's tokenizer"),  # of the file, but not a text
        ("two words", "is not a token of this model's tokenizer"),
        (None, r"Its tokenizer reserves <\|step\|> for steps: pass step_token=null"),
    ],
)
def test_a_step_token_that_means_something_else_is_refused(
    base: str, labels: str, tmp_path: Path, token: str | None, fault: str
) -> None:
    chat = tmp_path / "chat"
    shutil.copytree(base, chat)
    tokenizer = AutoTokenizer.from_pretrained(chat)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|free|>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}"
        "{% if tools %}<|user|>{% endif %}"  # which no prompt of ours shows
    )
    tokenizer.save_pretrained(chat)

    def run_preflight(*more: str) -> None:
        preflight(
            load_config(
                TrainConfig,
                "configs/train/own-labels.yaml",
                [f"out={tmp_path / 'prm'}", f"labels=[{labels}]", f"base={chat}", *more],
            )
        )

    with pytest.raises(ConfigError, match=fault) as caught:
        run_preflight(*([] if token is None else [f"step_token={json.dumps(token)}"]))
    message = str(caught.value)
    assert "step_token=null" in message and (token is None or repr(token) in message)
    run_preflight("step_token=<|free|>" if token else "step_token=null")


def test_adapters_get_their_own_rate_and_the_plan_says_so(labels: str, tmp_path: Path) -> None:
    changes = [f"out={tmp_path / 'prm'}", f"labels=[{labels}]", "base=arith:policy"]
    changes += ["step_token=null", "device=cpu", "backbone_lr=null"]
    for more, plan in (
        ([], "trains the base's weights at 1e-05, the head at 0.0001; on cpu, with the base in fl"),
        (["lora_rank=4"], "LoRA adapters of rank 4 at 0.0001, the head"),
        (["lora_rank=4", "backbone_lr=2e-3"], "LoRA adapters of rank 4 at 0.002, the head"),
        (["backbone_lr=0"], "the head alone at 0.0001; on"),
    ):
        assert plan in next(
            iter(
                preflight(
                    load_config(TrainConfig, "configs/train/own-labels.yaml", [*changes, *more])
                ).lines(examples=False)
            )
        )


@pytest.mark.parametrize("how", ["itself", "copy", "other folder", "other labels"])
def test_runs_that_hold_the_same_solutions_are_refused(tmp_path: Path, how: str) -> None:
    rows = arith_rows(12)
    first_run = write_run(tmp_path / "one", rows)
    second_run = f"{tmp_path}/./one" if how == "itself" else str(tmp_path / "other")
    if how == "copy":
        shutil.copytree(first_run, second_run)
    elif how == "other folder":
        write_run(Path(second_run), rows[:4])
    elif how == "other labels":
        write_run(Path(second_run), [replace(row, first_error=None) for row in rows])
    with pytest.raises(
        ConfigError, match=f"^labels: {second_run} holds .* solutions of {first_run}, so each"
    ):
        preflight(
            load_config(
                TrainConfig,
                None,
                [f"out={tmp_path / 'prm'}", f"labels=[{first_run},{second_run}]", "base=none"],
            )
        )


def test_runs_may_share_half_of_their_solutions(tmp_path: Path) -> None:
    """Independent runs of the same problems may sample some solutions alike by chance."""
    rows = arith_rows(12)
    texts = [replace(row.solution, text=f"{row.solution.text} ") for row in rows[6:]]
    changed = [replace(row, solution=text) for row, text in zip(rows[6:], texts, strict=True)]
    check_runs_distinct(
        [write_run(tmp_path / "one", rows), write_run(tmp_path / "two", rows[:6] + changed)],
        "labels",
    )
