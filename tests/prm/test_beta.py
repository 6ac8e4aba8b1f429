"""target=beta: the likelihood of counts, what a head learns from them, and what it is saved as."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy.stats import betabinom
from torch import Tensor
from transformers import AutoModelForTokenClassification

from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import CompleterCounts, Counts, StepLabel
from mclabel.prm.config import TrainConfig
from mclabel.prm.examples.targets import step_targets, step_trials, without_truncated
from mclabel.prm.job import preflight
from mclabel.prm.model.network import start_step_model
from mclabel.prm.model.settings import ModelSettings
from mclabel.prm.scoring.incremental import IncrementalPRM
from mclabel.prm.scoring.score import PRM
from mclabel.prm.training.losses import beta_binomial_loss, step_loss
from mclabel.run.shards.manifest import MANIFEST, Semantic, claim
from mclabel.run.shards.store import Store
from tests.support.labelled import arith_rows, write_run

NAN = float("nan")
COUNTS = [(0, 1), (1, 1), (0, 8), (3, 8), (8, 8), (0, 10_000), (9_999, 10_000), (10_000, 10_000)]


def leaf(*values: float) -> Tensor:
    return torch.tensor(values, requires_grad=True)


@pytest.mark.parametrize(("right", "trials"), COUNTS)
@pytest.mark.parametrize("mean", [1e-4, 0.3, 0.5, 0.999])
@pytest.mark.parametrize("concentration", [0.02, 1.0, 2_900.0])
def test_the_loss_is_that_of_scipy(
    right: int, trials: int, mean: float, concentration: float
) -> None:
    odds, log_c = (
        torch.tensor([mean]).double().logit(),
        torch.tensor([concentration]).double().log(),
    )
    found = beta_binomial_loss(odds, log_c, torch.tensor([right]), torch.tensor([trials]))
    m, c = float(odds.sigmoid()), float(log_c.exp())
    expected = -betabinom.logpmf(right, trials, m * c, (1 - m) * c)
    assert float(found) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("odds", [-300.0, -5.0, 0.0, 40.0, 300.0])
@pytest.mark.parametrize("log_c", [-4.0, 2.0, 8.0])
def test_gradients_are_finite_and_never_vanish_where_the_mean_is_wrong(
    odds: float, log_c: float
) -> None:
    for right, trials in COUNTS:
        means, sure = leaf(odds), leaf(log_c)
        loss = beta_binomial_loss(means, sure, torch.tensor([right]), torch.tensor([trials]))
        loss.sum().backward()
        assert means.grad is not None and sure.grad is not None
        assert torch.isfinite(torch.cat([loss, means.grad, sure.grad])).all(), (right, trials)
        if abs(odds) == 300 and right in (0, trials) and (right == 0) == (odds > 0):
            assert abs(float(means.grad)) > 0.9  # surely wrong: as of a cross-entropy


def test_one_trial_is_a_cross_entropy_and_stopping_early_adds_a_constant() -> None:
    odds, log_c = torch.tensor([0.7]), torch.tensor([1.0])
    alone = beta_binomial_loss(odds, log_c, torch.tensor([1]), torch.tensor([1]))
    assert float(alone) == pytest.approx(-float(odds.sigmoid().log()))
    # Wrong, wrong, right, after which `first_success` stops: but for C(3, 1), the chance of that
    found = beta_binomial_loss(odds, log_c, torch.tensor([1]), torch.tensor([3]))
    a, b = float(odds.sigmoid() * log_c.exp()), float((-odds).sigmoid() * log_c.exp())
    sequence = b / (a + b) * (b + 1) / (a + b + 1) * a / (a + b + 2)
    assert float(found) == pytest.approx(-np.log(3 * sequence), rel=1e-5)


def test_steps_without_counts_carry_no_loss() -> None:
    logits = leaf(0.5, 1.0, 0.5, 1.0)
    targets = torch.tensor([[0.25, NAN]])
    loss = step_loss(
        logits.view(1, 2, 2), targets, torch.ones(1, 2), trials=torch.tensor([[8.0, 0.0]])
    )
    m, c = 1 / (1 + np.exp(-0.5)), np.exp(1.0)
    expected = -betabinom.logpmf(2, 8, m * c, (1 - m) * c)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert logits.grad is not None and logits.grad[2:].tolist() == [0.0, 0.0]


def label(counts: Counts, source: str = "fixed", *, hard: bool | None = None) -> StepLabel:
    return StepLabel(
        prefix_id="p", counts=counts, source=source, hard=hard, value=None, low=None, high=None
    )


def test_trials_are_those_that_count_of_the_completer_that_values_are_of() -> None:
    row = next(row for row in arith_rows(8) if len(row.steps) >= 4)
    rest = len(row.steps) - 4
    steps = (
        label(Counts(num_right=3, num_wrong=1, num_truncated=4, num_ungraded=2)),
        label(Counts(), "implied", hard=True),
        label(Counts(num_ungraded=2)),
        *[label(Counts(num_wrong=2))] * rest,
        label(Counts(num_right=5), "outcome", hard=False),
    )
    row = replace(row, steps=steps)
    trials, zeros = (8, 0, 0, *[2] * rest, 1), (*[0.0] * rest, 0.0)
    assert step_trials(row, "beta") == trials
    assert step_targets(row, "beta") == (3 / 8, None, None, *zeros)
    assert step_trials(without_truncated(row), "beta")[0] == 4
    assert step_trials(row, "soft") == ()
    own = CompleterCounts(
        name="strong", cost=1.0, root=Counts(), steps=(Counts(num_wrong=2),) * len(steps)
    )
    ruled = replace(row, completers=(own,), values_of="strong")
    assert step_trials(ruled, "beta") == (*[2] * (len(steps) - 1), 1)
    assert step_trials(replace(ruled, values_of="any"), "beta") == trials


def test_a_run_that_leaves_out_cut_rollouts_has_fewer_trials(base: str, tmp_path: Path) -> None:
    rows = [
        replace(
            row,
            steps=(
                *[
                    label(Counts(num_right=1, num_wrong=n % 2, num_truncated=2))
                    for n, _ in enumerate(row.steps[:-1])
                ],
                row.steps[-1],
            ),
        )
        for row in arith_rows(12)
    ]
    shown = []
    for truncated in ("wrong", "exclude"):
        labels = write_run(tmp_path / truncated, rows)
        config = {"estimator": {"truncated": truncated}}
        claim(Store(labels), MANIFEST, Semantic(identity=config, config=config), {})
        overrides = [f"out={tmp_path}/prm", f"labels=[{labels}]", f"base={base}", "target=beta"]
        shown.append("".join(preflight(load_config(TrainConfig, None, overrides)).shown))
    assert "0.33 of 3" in shown[0] and "0.25 of 4" in shown[0]
    assert "1.00 of 1" in shown[1] and "0.50 of 2" in shown[1] and " of 3" not in shown[1]


def test_a_head_recovers_means_and_how_much_counts_agree(base: str) -> None:
    model = start_step_model(
        ModelSettings(base=base, head="token"), has_concentration=True, trains_body=False
    )
    width, rng = model.observed_width, np.random.default_rng(0)
    # Three kinds of steps: always .8, always .2, and half of them 1, half 0.
    kinds = torch.arange(900) % 3
    values = np.where(kinds == 0, 0.8, np.where(kinds == 1, 0.2, rng.integers(0, 2, 900)))
    observed = torch.nn.functional.one_hot(kinds, width).float()[None]
    trials = torch.full((1, 900), 16.0)
    shares = torch.tensor(rng.binomial(16, values) / 16)[None].float()
    head = model.parts()[1]
    optimizer = torch.optim.Adam(head, lr=0.3)
    for _ in range(150):
        optimizer.zero_grad()
        step_loss(model(observed), shares, torch.ones(1, 900) / 900, trials=trials).backward()
        optimizer.step()
    found = model(observed)[0, :3].detach()
    assert found[:, 0].sigmoid().tolist() == pytest.approx([0.8, 0.2, 0.5], abs=0.03)
    sure = found[:, 1].exp().tolist()
    assert min(sure[:2]) > 100 and sure[2] < 0.1


def train(out: Path, labels: str, base: str, *more: str) -> PRM:
    overrides = [f"out={out}", f"labels=[{labels}]", f"base={base}", "target=beta", "max_steps=3"]
    overrides += ["batch_size=8", "backbone_lr=1.0e-3", "head_lr=1.0e-2", "patience=2"]
    config = load_config(TrainConfig, None, [*overrides, *more])
    report = jobs.train(config, lambda step, total, detail: None)
    assert report.validation["loss"] is not None and report.validation["calibration_error"]
    return PRM.load(out)


@pytest.mark.parametrize("head", ["token", "likelihood"])
def test_what_is_saved_is_an_ordinary_prm_of_the_means(
    base: str, labels: str, tmp_path: Path, head: str
) -> None:
    prm = train(tmp_path / "prm", labels, base, f"head={head}")
    assert prm.manifest.has_concentration
    rows = arith_rows(3)
    encoded = [prm.encoder.labeled(row) for row in rows]
    estimates = prm.estimate_encoded(encoded)
    scores = prm.score_encoded(encoded)
    sure = [one.concentrations for one in estimates]
    assert scores == [one.scores for one in estimates]
    assert all(own is not None and len(own) == len(s) for own, s in zip(sure, scores, strict=True))
    assert len({c for own in sure if own for c in own}) > 3
    # A copy without the concentration is a PRM with the same scores.
    manifest = json.loads((tmp_path / "prm/model/prm.json").read_text())
    manifest["has_concentration"] = False
    (tmp_path / "prm/model/prm.json").write_text(json.dumps(manifest))
    plain = PRM.load(tmp_path / "prm")
    assert plain.score_encoded(encoded) == scores
    assert plain.estimate_encoded(encoded)[0].concentrations is None
    incremental = IncrementalPRM(prm)
    ends = [0, *(step.end for step in rows[0].solution.steps)]
    steps = [rows[0].solution.ids[a:b] for a, b in pairwise(ends)]
    (prefix,) = incremental.extend([(incremental.begin(rows[0].problem.text), steps)])
    assert not isinstance(prefix, DataError)
    assert list(prefix.scores) == pytest.approx(scores[0], abs=1e-5)
    if head == "token":
        model = AutoModelForTokenClassification.from_pretrained(tmp_path / "prm/model")
        for one, own in zip(encoded, scores, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([one.ids])).logits[0]
            assert logits.shape[-1] == 2
            means = logits.softmax(-1)[list(one.positions), 1].tolist()
            assert means == pytest.approx(own, abs=1e-6)


def test_scored_lines_hold_the_concentration(base: str, labels: str, tmp_path: Path) -> None:
    train(tmp_path / "prm", labels, base, "head=likelihood")
    solution = {"problem": "A boy has 1 apple.", "solution": "1 + 1 = 2\nThe answer is 2."}
    (tmp_path / "in.jsonl").write_text(json.dumps(solution))
    result = CliRunner().invoke(main, ["score", f"{tmp_path}/prm", f"{tmp_path}/in.jsonl"])
    assert result.exit_code == 0, result.output
    line = json.loads(result.stdout)
    assert len(line["concentration"]) == len(line["scores"]) == 2
    assert all(0.018 < c < 2_981 for c in line["concentration"])


@pytest.mark.parametrize("source", ["given", "implied"])
def test_labels_without_counts_are_refused(base: str, tmp_path: Path, source: str) -> None:
    rows = [
        replace(
            row,
            steps=(
                *[label(Counts(), source, hard=step.hard) for step in row.steps[:-1]],
                row.steps[-1],
            ),
        )
        for row in arith_rows(12)
    ]
    labels = write_run(tmp_path / "labels", rows)
    config = load_config(
        TrainConfig,
        None,
        [f"out={tmp_path}/prm", f"labels=[{labels}]", f"base={base}", "target=beta"],
    )
    with pytest.raises(
        DataError, match=rf"target=beta: .*source: {source}, outcome.*estimator\.kind=fixed"
    ):
        preflight(config)


@pytest.mark.parametrize("more", ["loss=mse", "weights=rollouts", "weights=interval"])
def test_what_counts_make_useless_is_refused(more: str) -> None:
    with pytest.raises(ConfigError, match=f"{more}: target=beta"):
        load_config(TrainConfig, None, ["out=o", "labels=[l]", "base=b", "target=beta", more])
