"""A plain head that learns from a likelihood head, and with layers on top of a body."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForTokenClassification

from mclabel import pipelines
from mclabel.config import TrainConfig, load_config
from mclabel.errors import ConfigError
from mclabel.pipelines.train_report import TrainReport
from mclabel.prm.examples.batch import make_batch
from mclabel.prm.examples.build import ExampleSettings, make_examples
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder
from mclabel.prm.examples.packed import Example, PackedExamples
from mclabel.prm.model.likelihood_head import LikelihoodHead
from mclabel.prm.scoring.score import PRM
from mclabel.prm.training.losses import lesson_loss
from mclabel.prm.training.teacher import teach, without_step_tokens
from mclabel.records import Outcome
from tests.support.labelled import arith_rows, arith_text, write_run


@pytest.fixture(scope="module")
def teacher(base: str, labels: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("teacher") / "prm"
    train(out, base, labels, "head=likelihood", "backbone_lr=0", "head_lr=0.03")
    return str(out)


def train(out: Path, base: str, labels: str, *overrides: str) -> TrainReport:
    common = [f"out={out}", f"base={base}", f"labels=[{labels}]", "max_steps=8", "batch_size=8"]
    config = load_config(TrainConfig, None, [*common, *overrides])
    return pipelines.train(config, lambda step, total, detail: None)


def test_the_teacher_reads_the_same_steps_without_step_tokens() -> None:
    encoded = EncodedSolution(ids=(5, 6, 1, 2, 9, 3, 9), num_prompt=2, positions=(4, 6))
    plain = without_step_tokens(encoded, 9)
    assert plain.ids == (5, 6, 1, 2, 3)
    assert plain.positions == (3, 4)
    assert plain.num_prompt == 2
    assert without_step_tokens(encoded, None) is encoded


@pytest.mark.parametrize("step_token", [None, "<|step|>"])
def test_targets_of_a_teacher_are_its_scores(
    base: str, teacher: str, step_token: str | None
) -> None:
    text = arith_text()
    step_id = text.token_id(step_token) if step_token else None
    rows = arith_rows(10)
    encoder = StepEncoder(text, step_id=step_id, max_tokens=1024)
    examples = make_examples(rows, encoder, ExampleSettings(target="hard", validation=0.0)).train
    prm = PRM.load(teacher)
    assert isinstance(prm.model, LikelihoodHead)
    taught = teach(prm.model, examples, step_id, threads=1)
    scores = prm.score([r.problem.text for r in rows], [r.solution.text for r in rows])
    language = prm.model.network
    for row, before, after, score in zip(rows, examples, taught, scores, strict=True):
        assert after.targets == pytest.approx(score, abs=1e-5)
        assert after.encoded == before.encoded and after.right == before.right
        assert after.logprobs is not None
        encoded = after.encoded
        given = {i: s for i, s in enumerate(after.logprobs) if not isnan(s)}
        apart = encoded.positions if step_id is not None else ()
        assert set(given) == set(range(encoded.num_prompt, len(encoded.ids))) - set(apart)
        plain = without_step_tokens(encoded, step_id)
        with torch.no_grad():
            logprobs = language(input_ids=torch.tensor([plain.ids])).logits[0].log_softmax(-1)
        wanted = [
            float(logprobs[i - 1, plain.ids[i]]) for i in range(plain.num_prompt, len(plain.ids))
        ]
        assert list(given.values()) == pytest.approx(wanted, abs=1e-4)
        assert row.problem.id == after.problem_id


def test_lesson_loss_by_hand() -> None:
    encoded = EncodedSolution(ids=(7, 1, 2, 3), num_prompt=1, positions=(1, 3))
    short = EncodedSolution(ids=(7, 1), num_prompt=1, positions=(1,))
    batch = make_batch([encoded, short])
    nan = float("nan")
    logprobs = torch.tensor([[nan, -2.0, -0.5, -13.0], [nan, nan, nan, nan]])
    tokens = torch.tensor([[9.0, -2.5, -3.5, -10.0], [4.0, 4.0, 4.0, 4.0]])
    steps = torch.zeros(2, 2, 4)
    of_tokens = 0.5 * 0.5**2 + (3.0 - 0.5)  # Huber: half a square up to 1, linear beyond
    # Step minimum, step sum / 4, prefix minimum, prefix sum / 4.
    first = [2.0, 0.5, 2.0, 0.5]
    second = [10.0, 10.5 / 4, 10.0, 12.5 / 4]
    of_steps = sum(x - 0.5 if x > 1 else 0.5 * x**2 for x in first + second) / 4
    found = lesson_loss(tokens, steps, logprobs, batch, token_scale=2.0)
    assert float(found) == pytest.approx(2 * of_tokens + of_steps, rel=1e-6)
    nothing = lesson_loss(tokens, steps, torch.full((2, 4), nan), batch, token_scale=2.0)
    assert float(nothing) == 0.0


def test_packed_examples_keep_the_logprobs() -> None:
    encoded = EncodedSolution(ids=(1, 2, 3), num_prompt=1, positions=(2,))
    example = Example(
        problem_id="p",
        encoded=encoded,
        targets=(0.5,),
        weights=(1.0,),
        right=None,
        logprobs=(float("nan"), -0.25, -0.5),
    )
    packed = PackedExamples([example, replace(example, weights=(3.0,))])
    assert packed.is_taught
    assert packed[1].logprobs is not None and packed[1].logprobs[1:] == (-0.25, -0.5)
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
    more = [f"teacher={teacher}", "extra_layers=2", "backbone_lr=0", "validation=0"]
    report = train(tmp_path / "prm", base, unlabeled, *more)
    assert report.num_solutions == 40
    prm = PRM.load(tmp_path / "prm")
    assert prm.score([rows[0].problem.text], [rows[0].solution.text])[0]
    assert not (tmp_path / "prm" / "model" / "likelihood_head").exists()


def test_layers_on_top_are_trained_and_scored_without_a_teacher(
    base: str, labels: str, tmp_path: Path
) -> None:
    train(tmp_path / "prm", base, labels, "extra_layers=2", "backbone_lr=0", "head_lr=1e-3")
    fresh, found = (
        AutoModelForTokenClassification.from_pretrained(path).base_model
        for path in (base, tmp_path / "prm/model")
    )
    depth, width = len(fresh.layers), fresh.config.hidden_size
    assert len(found.layers) == depth + 2 and found.config.hidden_size > width
    for old, new in zip(fresh.layers, found.layers, strict=False):
        assert torch.equal(new.self_attn.q_proj.weight[:, :width], old.self_attn.q_proj.weight)
        assert not new.self_attn.q_proj.weight[:, width:].any()
    assert found.layers[-1].mlp.gate_proj.weight.any()
    prm = PRM.load(tmp_path / "prm")
    assert prm.manifest.step_token is None
    rows = arith_rows(3)
    scores = prm.score([r.problem.text for r in rows], [r.solution.text for r in rows])
    assert [len(one) for one in scores] == [len(row.steps) for row in rows]


def test_what_cannot_be_taught_is_refused(
    base: str, labels: str, teacher: str, tmp_path: Path
) -> None:
    out = tmp_path / "prm"
    with pytest.raises(ConfigError, match="of kind prm"):
        train(out, base, labels, "target=outcome", f"teacher={teacher}")
    with pytest.raises(ConfigError, match="differs from that of the base"):
        train(out, base, labels, f"teacher={teacher}", "system=Think.")
    train(tmp_path / "plain", base, labels)
    with pytest.raises(ConfigError, match="has head=token"):
        train(out, base, labels, f"teacher={tmp_path / 'plain'}")
