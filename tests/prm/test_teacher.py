"""A plain head that learns from a likelihood head, and layers on top of a body."""

from __future__ import annotations

from dataclasses import replace
from math import isnan, log
from pathlib import Path

import pytest
import torch
from labelled import arith_rows, arith_text, write_run
from transformers import (
    AutoModelForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from mclabel import edge
from mclabel.config import TrainConfig, load_config
from mclabel.edge.train import TrainReport
from mclabel.errors import ConfigError, EngineError
from mclabel.prm.batch import make_batch
from mclabel.prm.depth import add_layers
from mclabel.prm.encode import EncodedSolution, StepEncoder
from mclabel.prm.examples import Example, PackedExamples, make_examples
from mclabel.prm.losses import SURPRISE_WEIGHT, surprise_loss
from mclabel.prm.model import LikelihoodHead, start_step_model
from mclabel.prm.score import PRM
from mclabel.prm.teacher import teach, without_step_tokens
from mclabel.records import Outcome


@pytest.fixture(scope="module")
def teacher(base: str, labels: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("teacher") / "prm"
    train(out, base, labels, "head=likelihood", "backbone_lr=0", "head_lr=0.03")
    return str(out)


def train(out: Path, base: str, labels: str, *overrides: str) -> TrainReport:
    common = [f"out={out}", f"base={base}", f"labels=[{labels}]", "max_steps=8", "batch_size=8"]
    config = load_config(TrainConfig, None, [*common, *overrides])
    return edge.train(config, lambda step, total, detail: None)


def test_new_layers_change_nothing_until_they_are_trained(base: str, tmp_path: Path) -> None:
    text = arith_text()
    encoder = StepEncoder(text, step_id=text.token_id("<|step|>"), max_tokens=1024)
    batch = make_batch([encoder.labeled(row) for row in arith_rows(6)])
    plain = start_step_model(base, "token").eval()
    deep = start_step_model(base, "token", extra_layers=2).eval()
    deep.head_modules()[0].load_state_dict(plain.head_modules()[0].state_dict())
    with torch.no_grad():
        assert torch.equal(deep(batch), plain(batch))
    body, head = deep.parts()
    assert len(body) == len(plain.parts()[0])
    assert sum(p.numel() for p in body + head) == sum(p.numel() for p in deep.parameters())
    for parameter in head:
        torch.nn.init.normal_(parameter, std=0.05)
    with torch.no_grad():
        said = deep(batch)
    assert not torch.allclose(said, plain(batch))
    deep.save(tmp_path)
    again = AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
    assert again.config.num_hidden_layers == plain.network.config.num_hidden_layers + 2
    with torch.no_grad():
        logits = again(input_ids=batch.ids, attention_mask=batch.mask).logits
    row = [float(a - b) for b, a in logits[0][batch.positions[0][:3]]]
    assert said[0][:3].tolist() == pytest.approx(row, abs=1e-5)


SMALL = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}
WINDOWS = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}


@pytest.mark.parametrize(
    "config",
    [Qwen2Config(**SMALL), Qwen2Config(**SMALL, **WINDOWS), Qwen3Config(**SMALL, **WINDOWS)],
)
def test_new_layers_of_other_architectures_are_loaded_as_they_stand(
    config: PreTrainedConfig, tmp_path: Path
) -> None:
    network = AutoModelForTokenClassification.from_config(config).eval()
    ids = torch.arange(1, 13)[None]
    with torch.no_grad():
        before = network(input_ids=ids).logits
        new = add_layers(network, 2)
        assert torch.equal(network(input_ids=ids).logits, before)
        for layer in new:
            for parameter in layer.parameters():
                torch.nn.init.normal_(parameter, std=0.1)
        after = network(input_ids=ids).logits
        network.save_pretrained(tmp_path)
        again = AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
        assert again.config.num_hidden_layers == 5
        assert torch.allclose(again(input_ids=ids).logits, after, atol=1e-6)
    assert not torch.allclose(after, before)


def test_layers_of_another_kind_are_refused() -> None:
    network = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16))
    with pytest.raises(EngineError, match="extra_layers=2: the layers of GPT2LMHeadModel"):
        add_layers(network, 2)


def test_the_teacher_reads_the_same_steps_without_step_tokens() -> None:
    encoded = EncodedSolution(ids=(5, 6, 1, 2, 9, 3, 9), num_prompt=2, positions=(4, 6))
    plain = without_step_tokens(encoded, 9)
    assert plain.ids == (5, 6, 1, 2, 3)
    assert plain.positions == (3, 4)
    assert plain.num_prompt == 2
    assert without_step_tokens(encoded, None) is encoded


@pytest.mark.parametrize("step_token", [None, "<|step|>"])
def test_what_the_teacher_says_is_what_it_scores(
    base: str, teacher: str, step_token: str | None
) -> None:
    text = arith_text()
    step_id = text.token_id(step_token) if step_token else None
    rows = arith_rows(10)
    encoder = StepEncoder(text, step_id=step_id, max_tokens=1024)
    examples = make_examples(rows, encoder, target="hard", validation=0.0).train
    prm = PRM.load(teacher)
    assert isinstance(prm.model, LikelihoodHead)
    taught = teach(prm.model, examples, step_id, threads=1)
    scores = prm.score([r.problem.text for r in rows], [r.solution.text for r in rows])
    language = prm.model.network
    for row, before, after, score in zip(rows, examples, taught, scores, strict=True):
        assert after.targets == pytest.approx(score, abs=1e-5)
        assert after.encoded == before.encoded and after.right == before.right
        assert after.surprise is not None
        encoded = after.encoded
        told = {i: s for i, s in enumerate(after.surprise) if not isnan(s)}
        apart = encoded.positions if step_id is not None else ()
        assert set(told) == set(range(encoded.num_prompt, len(encoded.ids))) - set(apart)
        plain = without_step_tokens(encoded, step_id)
        with torch.no_grad():
            chances = language(input_ids=torch.tensor([plain.ids])).logits[0].softmax(-1)
        wanted = [
            1 - float(chances[i - 1, plain.ids[i]]) for i in range(plain.num_prompt, len(plain.ids))
        ]
        assert list(told.values()) == pytest.approx(wanted, abs=1e-4)
        assert row.problem.id == after.problem_id


def test_surprise_loss_by_hand() -> None:
    logits = torch.tensor([[0.0, 2.0, 7.0]])
    surprise = torch.tensor([[1.0, 0.25, float("nan")]])
    sure, not_sure = 1 / (1 + 2.718281828459045**-2), 1 / (1 + 2.718281828459045**2)
    wanted = SURPRISE_WEIGHT * log(2)
    wanted -= SURPRISE_WEIGHT * 0.25 * log(sure) + 0.75 * log(not_sure)
    assert float(surprise_loss(logits, surprise)) == pytest.approx(wanted, rel=1e-5)
    assert float(surprise_loss(logits, torch.full((1, 3), float("nan")))) == 0.0


def test_packed_examples_keep_the_surprise() -> None:
    encoded = EncodedSolution(ids=(1, 2, 3), num_prompt=1, positions=(2,))
    example = Example(
        problem_id="p",
        encoded=encoded,
        targets=(0.5,),
        weights=(1.0,),
        right=None,
        surprise=(float("nan"), 0.25, 0.5),
    )
    packed = PackedExamples([example, replace(example, weights=(3.0,))])
    assert packed.is_taught
    assert packed[1].surprise is not None and packed[1].surprise[1:] == (0.25, 0.5)
    assert packed.steps_per_token == pytest.approx(4.0 / 4)


def test_solutions_without_labels_are_learned_from(base: str, teacher: str, tmp_path: Path) -> None:
    rows = [
        replace(
            row,
            solution=replace(row.solution, outcome=Outcome.UNGRADED),
            steps=tuple(replace(step, hard=None, value=None) for step in row.steps),
        )
        for row in arith_rows(40)
    ]
    unlabeled = write_run(tmp_path / "unlabeled", rows)
    more = [f"teacher={teacher}", "extra_layers=1", "backbone_lr=1e-3", "validation=0"]
    report = train(tmp_path / "prm", base, unlabeled, *more)
    assert report.num_solutions == 40
    prm = PRM.load(tmp_path / "prm")
    assert prm.score([rows[0].problem.text], [rows[0].solution.text])[0]
    assert not (tmp_path / "prm" / "model" / "likelihood_head").exists()


@pytest.mark.parametrize("more", [["lora_rank=2", "backbone_lr=0.01"], ["backbone_lr=0"]])
def test_new_layers_are_trained_whole_on_a_fixed_body(
    base: str, labels: str, tmp_path: Path, more: list[str]
) -> None:
    train(tmp_path / "prm", base, labels, "extra_layers=1", *more)
    old = AutoModelForTokenClassification.from_pretrained(base).base_model
    new = AutoModelForTokenClassification.from_pretrained(tmp_path / "prm/model").base_model
    assert len(new.layers) == len(old.layers) + 1
    assert all(p.any() for p in new.layers[-1].parameters())
    theirs = old.state_dict()
    changed = {n for n, p in new.state_dict().items() if n in theirs and not p.equal(theirs[n])}
    assert all("proj" in name for name in changed)
    assert bool(changed) == ("backbone_lr=0" not in more)


def test_what_cannot_be_taught_is_refused(
    base: str, labels: str, teacher: str, tmp_path: Path
) -> None:
    out = tmp_path / "prm"
    with pytest.raises(ConfigError, match="extra_layers and teacher are for head=token"):
        train(out, base, labels, "head=likelihood", f"teacher={teacher}")
    for more in ("target=neutral", "to_first_error=true"):
        with pytest.raises(ConfigError, match="a teacher tells sound steps from wrong ones"):
            train(out, base, labels, more, f"teacher={teacher}")
    with pytest.raises(ConfigError, match="of kind prm"):
        train(out, base, labels, "target=outcome", f"teacher={teacher}")
    with pytest.raises(ConfigError, match="is not that of the base"):
        train(out, base, labels, f"teacher={teacher}", "system=Think.")
    train(tmp_path / "plain", base, labels)
    with pytest.raises(ConfigError, match="has head=token"):
        train(out, base, labels, f"teacher={tmp_path / 'plain'}")
