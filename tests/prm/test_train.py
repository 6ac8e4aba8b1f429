"""Training: it learns, it resumes exactly, it refuses what cannot work."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DataError, ShardError, TrainingError
from mclabel.data.repeats import check_distinct
from mclabel.prm.config import TrainConfig
from mclabel.prm.examples.build import ExampleSettings, make_examples
from mclabel.prm.examples.encode import StepEncoder
from mclabel.prm.job import TrainReport, preflight
from mclabel.prm.model.heads import LikelihoodHead
from mclabel.prm.model.network import load_step_model, start_step_model
from mclabel.prm.model.settings import ModelSettings
from mclabel.prm.scoring.score import PRM
from mclabel.prm.training.callbacks import validate
from mclabel.prm.training.checkpoint import last_checkpoint
from mclabel.prm.training.settings import TrainerSettings
from mclabel.prm.training.trainer import train_step_model
from tests.support.labelled import arith_rows, arith_text, write_run


def train(out: Path, *overrides: str) -> TrainReport:
    config = load_config(TrainConfig, None, [f"out={out}", *overrides])
    return jobs.train(config, lambda step, total, loss: None)


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
    for parameter in model.parts()[1]:
        torch.nn.init.normal_(parameter, std=0.1)
    model.save(tmp_path)
    again = load_step_model(tmp_path, head).eval()
    text = arith_text()
    encoder = StepEncoder(text, step_id=None, max_tokens=1024)
    rows = arith_rows(8)
    from mclabel.prm.examples.batch import make_batch

    batch = make_batch([encoder.labeled(row) for row in rows])
    alone = make_batch([encoder.labeled(rows[0])])
    with torch.no_grad():
        assert torch.equal(model(batch), again(batch))
        # padding and neighbours change nothing
        ours = model(batch)[0, : len(rows[0].steps)]
        assert torch.allclose(ours, model(alone)[0], atol=1e-5)


def test_a_frozen_body_stays_as_it_was(base: str, labels: str, tmp_path: Path) -> None:
    train(
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
    report = train(tmp_path / "prm", *changes)
    assert report.num_solutions + report.num_validation == 60
    weights = (tmp_path / "prm/model/model.safetensors").stat().st_mtime_ns
    assert train(tmp_path / "prm", *changes) == report
    assert (tmp_path / "prm/model/model.safetensors").stat().st_mtime_ns == weights
    card = (tmp_path / "prm/model/README.md").read_text()
    assert "A process reward model" in card and "pair accuracy" in card
    config = json.loads((tmp_path / "prm/model/config.json").read_text())
    assert config["architectures"] == ["LlamaForTokenClassification"]
    assert config["id2label"] == {"0": "wrong", "1": "sound"}
    rows = arith_rows(3)
    scores = PRM.load(tmp_path / "prm").score(
        [row.problem.text for row in rows], [row.solution.text for row in rows]
    )
    assert [len(one) for one in scores] == [len(row.steps) for row in rows]
    assert all(0 <= score <= 1 for one in scores for score in one)
    with pytest.raises(ShardError, match=r"target: 'hard' there, 'soft' here"):
        train(tmp_path / "prm", *changes, "target=soft")


def test_a_training_that_is_stopped_goes_on_to_the_same_weights(
    base: str, labels: str, tmp_path: Path
) -> None:
    changes = [f"labels=[{labels}]", f"base={base}", "max_steps=8", "batch_size=4", "save_steps=3"]
    train(tmp_path / "whole", *changes)
    config = load_config(TrainConfig, None, [f"out={tmp_path / 'stopped'}", *changes])

    def stop(step: int, total: int, loss: str) -> None:
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.train(config, stop)
    with pytest.raises(DataError, match="has not finished"):
        PRM.load(tmp_path / "stopped")
    train(tmp_path / "stopped", *changes)
    ours, theirs = (tmp_path / name / "model/model.safetensors" for name in ("stopped", "whole"))
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_torn_checkpoint_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    for step, whole in ((5, True), (10, True), (15, False)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"")
        if whole:
            (folder / "complete").touch()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert not (tmp_path / "checkpoint-15").exists()
    assert last_checkpoint(tmp_path / "none") is None


def test_a_loss_that_is_not_finite_stops_the_run(base: str, labels: str, tmp_path: Path) -> None:
    broken = LlamaForCausalLM.from_pretrained(base)
    broken.model.norm.weight.data.fill_(float("nan"))
    broken.save_pretrained(tmp_path / "broken")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "broken")
    common = [f"labels=[{labels}]", "head=likelihood", "max_steps=20", "save_steps=1"]
    with pytest.raises(TrainingError, match=r"the loss is nan at step 0\. Lower head_lr"):
        train(tmp_path / "prm", f"base={tmp_path / 'broken'}", *common)
    assert not (tmp_path / "prm" / "model").exists()
    assert last_checkpoint(tmp_path / "prm" / "checkpoints") is None
    with pytest.raises(ConfigError, match="head_lr=inf"):
        train(tmp_path / "prm", f"base={base}", *common, "head_lr=.inf")


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
    out = tmp_path / "prm"
    good = [f"labels=[{labels}]", f"base={base}"]
    with pytest.raises(ConfigError, match="not a token of this model"):
        train(out, *good, "step_token=<|nope|>")
    with pytest.raises(DataError, match=r"no labels left.*60 are refused, the first because"):
        train(out, *good, "max_tokens=5", "validation=0")
    with pytest.raises(ShardError, match="no such folder"):
        train(out, f"labels=[{tmp_path / 'none'}]", f"base={base}")
    with pytest.raises(ConfigError, match="labels"):
        train(out, "labels=[]", f"base={base}")
    assert not out.exists()


@pytest.mark.parametrize(
    ("token", "fault"),
    [
        ("<|user|>", "its model's prompts use it"),
        ("<|end|>", "begins, ends, separates or fills up texts"),
        ("<|pad|>", "begins, ends, separates or fills up texts"),
        ("Ġthe", "is not a token of this model's tokenizer"),  # of the file, but not a text
        ("two words", "is not a token of this model's tokenizer"),
    ],
)
def test_a_step_token_that_means_something_else_is_refused(
    base: str, labels: str, tmp_path: Path, token: str, fault: str
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
    changes = [f"out={tmp_path / 'prm'}", f"labels=[{labels}]", f"base={chat}"]
    path = "configs/train/own-labels.yaml"
    with pytest.raises(ConfigError, match=fault) as caught:
        preflight(load_config(TrainConfig, path, [*changes, f"step_token={json.dumps(token)}"]))
    assert repr(token) in str(caught.value) and "step_token=null" in str(caught.value)
    preflight(load_config(TrainConfig, path, [*changes, "step_token=<|free|>"]))


def test_adapters_get_their_own_rate_and_the_plan_says_so(labels: str, tmp_path: Path) -> None:
    path = "configs/train/own-labels.yaml"
    changes = [f"out={tmp_path / 'prm'}", f"labels=[{labels}]", "base=arith:policy"]
    changes += ["step_token=null", "device=cpu", "backbone_lr=null"]

    def plan(*more: str) -> str:
        found = preflight(load_config(TrainConfig, path, [*changes, *more]))
        return next(iter(found.lines(examples=False)))

    assert plan() == (
        "trains the base's weights at 1e-05, the head at 0.0001; on cpu, with the base in float32"
    )
    assert "LoRA adapters of rank 4 at 0.0001, the head" in plan("lora_rank=4")
    assert "LoRA adapters of rank 4 at 0.002, the head" in plan("lora_rank=4", "backbone_lr=2e-3")
    assert "the head alone at 0.0001; on" in plan("backbone_lr=0")


def test_a_step_token_of_another_base_is_answered_with_what_to_set(
    base: str, labels: str, tmp_path: Path
) -> None:
    path = "configs/train/own-labels.yaml"
    changes = [f"out={tmp_path / 'prm'}", f"labels=[{labels}]", f"base={base}"]

    def look(*more: str) -> None:
        preflight(load_config(TrainConfig, path, [*changes, *more]))

    with pytest.raises(ConfigError) as caught:
        look()
    assert "Its tokenizer reserves <|step|> for steps: pass step_token=null" in str(caught.value)
    look("step_token=null")


@pytest.mark.parametrize("how", ["itself", "copy", "other folder", "other labels", "half"])
def test_runs_that_hold_the_same_solutions_are_refused(tmp_path: Path, how: str) -> None:
    rows = arith_rows(12)
    one = write_run(tmp_path / "one", rows)
    other = str(tmp_path / "other")
    if how == "itself":
        other = f"{tmp_path}/./one"
    elif how == "copy":
        shutil.copytree(one, other)
    elif how == "other folder":
        write_run(Path(other), rows[:4])
    elif how == "other labels":
        write_run(Path(other), [replace(row, first_error=None) for row in rows])
    else:  # as independent runs of the same problems may by chance
        texts = [replace(row.solution, text=f"{row.solution.text} ") for row in rows[6:]]
        changed = [replace(row, solution=text) for row, text in zip(rows[6:], texts, strict=True)]
        write_run(Path(other), [*rows[:6], *changed])
    if how == "half":
        check_distinct([one, other], "labels")
        return
    changes = [f"out={tmp_path / 'prm'}", f"labels=[{one},{other}]", "base=none"]
    with pytest.raises(ConfigError, match=f"^labels: {other} holds .* solutions of {one}, so each"):
        preflight(load_config(TrainConfig, None, changes))
