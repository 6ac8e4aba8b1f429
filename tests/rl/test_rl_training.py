"""Training of a policy by reinforcement: interrupted, resumed, measured, saved, refused."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import AutoModelForCausalLM

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DataError, EngineError, ShardError, TrainingError
from mclabel.core.records import Outcome, Problem, Solution, Step
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate_problems
from mclabel.engines.pretrained import load_model, load_tensors
from mclabel.rl.client import find_zero_reward_reason
from mclabel.rl.config import RLConfig
from mclabel.rl.credits import Segment
from mclabel.rl.groups import Group
from mclabel.rl.measure import Measurement
from mclabel.rl.training.crediting import CreditAssigner, spread_advantages_over_tokens
from mclabel.rl.training.rollouts import compute_step_figures
from mclabel.rl.training.trainer import estimate_kl_divergence
from tests.support.serving import trained_prm

pytest.importorskip("trl")

KEYS = [
    *(
        "policy.max_tokens=120",
        "problems.split=train",
        "problems.limit=24",
        "measured=arith",
        "measured.split=validation",
    ),
    *("measured.limit=6", "measuring.samples=2", "measuring.every=2"),
    *("steps=4", "problems_per_step=4", "group_size=4", "micro_batch=8", "save_steps=2"),
    *("credit=mc", "estimator.rollouts=1", "learning_rate=1e-3"),
]


def config(out: Path, *changes: str) -> RLConfig:
    return load_config(RLConfig, None, [*KEYS, f"out={out}", *changes])


def log(out: Path) -> list[dict[str, float]]:
    """Return the logged figures of each step, without durations."""
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


class Stop(Exception):
    """An exception that stops a training, like a kill."""


@pytest.fixture(scope="module")
def finished_training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished training."""
    out = tmp_path_factory.mktemp("rl") / "whole"
    jobs.rl(config(out))
    return out


@pytest.mark.slow
def test_a_training_moves_the_policy_and_is_not_begun_again(
    finished_training: Path, tmp_path: Path
) -> None:
    model = finished_training / "model"
    first = load_tensors(bundled_model("policy") / "model.safetensors")
    trained = load_tensors(model / "model.safetensors")
    assert any((trained[name] - first[name]).abs().max() > 1e-4 for name in trained)
    figures = log(finished_training)[-1]
    assert figures["num_value_tokens"] > 0 and 0 < figures["length"] <= 120
    moved = [
        json.loads((finished_training / "measured" / f"{i}.json").read_text())["kl"]
        for i in (0, 2, 4)
    ]
    assert moved[0] == pytest.approx(0, abs=1e-6) and 1e-4 < moved[2] < 10

    def never(step: int, total: int, detail: str) -> None:
        raise AssertionError("a training that has ended was begun again")

    assert jobs.rl(config(finished_training), never) == model
    with pytest.raises(ShardError, match="credit"):
        jobs.rl(config(finished_training, "credit=outcome"))
    trained_on = config(tmp_path / "more", f"policy.model={model}", "steps=1")
    assert jobs.rl(trained_on).is_dir()


@pytest.mark.slow
def test_a_training_stopped_before_its_first_checkpoint_begins_its_log_anew(tmp_path: Path) -> None:
    def stop(step: int, total: int, detail: str) -> None:
        if step == 1:
            raise Stop

    changes = ["credit=outcome", "steps=2", "measuring.samples=1", "policy.stop=['boxed{']"]
    with pytest.raises(Stop):
        jobs.rl(config(tmp_path / "out", *changes), stop)
    with (tmp_path / "out" / "log.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')  # the training was killed while it wrote a row
    jobs.rl(config(tmp_path / "out", *changes))
    assert [row["step"] for row in log(tmp_path / "out")] == [1, 2]


def test_the_distance_from_the_first_policy_is_that_of_their_distributions() -> None:
    load = partial(
        load_model, AutoModelForCausalLM, bundled_model("policy"), trust_remote_code=False
    )
    first, policy = (load(dtype=torch.float32) for _ in range(2))
    with torch.no_grad():
        policy.get_output_embeddings().weight.mul_(0.5)
    policy.train()
    own = replace(solution("abc"), ids=(5, 6, 7))
    group = Group(problem=Problem(id="p", text="", answer="1"), prompt=(1, 2), solutions=(own,))
    found = estimate_kl_divergence(policy, first, [group], temperature=2.0)
    ids = torch.tensor([[1, 2, 5, 6, 7]])
    after, before = (
        torch.log_softmax(one.eval()(ids).logits[0, 1:-1].detach() / 2.0, -1)
        for one in (policy, first)
    )
    expected = torch.nn.functional.kl_div(before, after, log_target=True, reduction="none").sum(-1)
    assert found == pytest.approx(float(expected.mean()), rel=1e-4)
    assert estimate_kl_divergence(first, first, [group], temperature=1.0) == 0


@pytest.mark.slow
def test_a_prm_gives_credit_and_what_it_says_is_measured(tmp_path: Path) -> None:
    prm = trained_prm(tmp_path, "head=likelihood", "backbone_lr=0")
    out = tmp_path / "out"
    jobs.rl(config(out, "credit=prm_min", f"prm={prm}", "steps=1", "report_to=tensorboard"))
    assert list((out / "tensorboard").glob("events*"))
    (figures,) = log(out)
    assert -1 <= figures["prm_less_outcome"] <= 1 and figures["num_value_tokens"] == 0
    measured = json.loads((out / "measured" / "1.json").read_text())
    last, score = measured["summary"], sum(one["score"] for one in measured["problems"]) / 12
    assert 0 <= last["prm_brier"] <= 1
    assert last["prm_less_outcome"] == pytest.approx(score - last["pass_at_1"])


@pytest.mark.slow
def test_first_errors_are_placed_without_a_prm_and_a_torn_checkpoint_is_left(
    tmp_path: Path,
) -> None:
    changes = ("credit=first_error", "estimator=posterior", "steps=1", "save_steps=1")
    jobs.rl(config(tmp_path / "out", *changes))
    checkpoints = tmp_path / "out" / "checkpoints"
    assert (checkpoints / "checkpoint-1" / "complete").is_file()
    state = checkpoints / "checkpoint-1" / "trainer_state.json"
    state.write_text("{")
    (tmp_path / "out" / "model").rename(tmp_path / "gone")
    with pytest.raises(TrainingError, match="does not hold the state of a training run"):
        jobs.rl(config(tmp_path / "out", *changes))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (["micro_batch=7"], ConfigError, "must divide the 16 solutions"),
        (["credit=prm_min"], ConfigError, "needs the step scores of a PRM"),
        (["credit=prm_min", "prm=nowhere"], DataError, "nowhere"),
        (["policy.engine=scripted"], ConfigError, "has no weights to train"),
        (["problems.limit=2"], ConfigError, "only 2 problems"),
        (["policy.temperature=0"], ConfigError, "would be the same"),
        (["policy.top_p=0.95"], ConfigError, r"Set policy\.top_p=1"),
        (["policy.top_k=20"], ConfigError, r"Set policy\.top_k=0"),
        (["measured.split=train"], DataError, "are also in the training problems"),
        (["policy.model=nowhere/at/all"], EngineError, "nowhere"),
        (["device=nowhere"], EngineError, "nowhere"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    changes: list[str], error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        jobs.rl(config(tmp_path / "out", *changes))
    assert not (tmp_path / "out").exists()


def solution(*steps: str, outcome: Outcome = Outcome.RIGHT, number: int = 0) -> Solution:
    """Return a solution with one token id per character."""
    text, ends = "".join(steps), []
    for step in steps:
        ends.append(len(step) + (ends[-1] if ends else 0))
    return Solution(
        id=f"s{number}",
        problem_id="p",
        sample_index=number,
        text=text,
        ids=tuple(map(ord, text)),
        steps=tuple(Step(text=step, end=end) for step, end in zip(steps, ends, strict=True)),
        finish_reason="length" if outcome is Outcome.TRUNCATED else "stop",
        origin="sampled",
        prediction=None,
        outcome=outcome,
    )


def test_each_token_has_the_credit_of_its_segment_and_the_end_that_of_the_last() -> None:
    one = solution("ab", "c", "def")
    segments = [Segment(end=2, credit=0.5), Segment(end=3, credit=-1.0)]
    assert spread_advantages_over_tokens(one, segments) == [0.5] * 3 + [-1.0] * 4
    assert spread_advantages_over_tokens(solution(), []) == [0.0]


@pytest.mark.parametrize("truncated", ["wrong", "exclude"])
def test_what_could_not_be_graded_is_left_out_of_reward_and_baseline(truncated: str) -> None:
    outcomes = [Outcome.RIGHT, Outcome.UNGRADED, Outcome.WRONG, Outcome.TRUNCATED]
    solutions = tuple(
        solution("ab", outcome=one, number=number) for number, one in enumerate(outcomes)
    )
    group = Group(problem=Problem(id="p", text="?", answer="1"), prompt=(1,), solutions=solutions)
    settings = config(Path("out"), "credit=outcome", f"truncated={truncated}")
    credited = CreditAssigner(settings, cast(Any, None), None).assign([group], seed=0)
    [advantages] = credited.advantages
    baseline = 1 / 3 if truncated == "wrong" else 1 / 2
    assert advantages[:3] == [[1 - baseline] * 3, None, [-baseline] * 3]
    assert advantages[3] == ([-baseline] * 3 if truncated == "wrong" else None)
    assert compute_step_figures([group], credited)["masked"] == (
        0.25 if truncated == "wrong" else 0.5
    )
    lost = replace(group, solutions=solutions[1:2])
    assert CreditAssigner(settings, cast(Any, None), None).assign([lost], seed=0).advantages == [
        [None]
    ]


def test_measurements_know_luck_where_there_is_truth() -> None:
    problem = generate_problems(1, seed=3, split="test")[0]
    right = [solution("nonsense = 3\n", "4", number=number) for number in range(2)]
    wrong = solution("x", outcome=Outcome.WRONG, number=2)
    cut = solution("y", outcome=Outcome.TRUNCATED, number=3)
    group = Group(problem=problem, prompt=(), solutions=(*right, wrong, cut))
    found = Measurement.from_groups([group])
    assert (found.pass_at(4), found.pass_at(2)) == (1, pytest.approx(1 - 1 / 6))
    expected = {"pass_at_1": 0.5, "lucky": 1, "sound": 0, "truncated": 0.25}
    assert found.summary().items() >= expected.items()
    assert Measurement.from_json(json.loads(json.dumps(found.to_json()))) == found
    other = Group(problem=Problem(id="q", text="?", answer="1"), prompt=(), solutions=(wrong,))
    assert "lucky" not in Measurement.from_groups([group, other]).summary()


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([], "empty"),
        (["\n", "  "], "empty"),
        (["2 + 2 = 4\n"], None),
        (["a\n", "a\n", "a\n"], None),
        (["a\n", "a\n", "a\n", "a\n"], "repeated"),
        (["a\n", "b\n", "a\n", "b\n"], None),
        ([f"{n}\n" for n in range(1000)], None),
        (["a\n"] * 1000, "repeated"),
    ],
)
def test_texts_without_content_have_no_reward(steps: list[str], reason: str | None) -> None:
    assert find_zero_reward_reason(steps) == reason
