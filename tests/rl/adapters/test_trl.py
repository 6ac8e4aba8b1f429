"""TRL's GRPOTrainer trains with mclabel's rewards, step advantages and rollouts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from mclabel.domains.arith import bundled_model
from mclabel.rl import client
from mclabel.rl.adapters.trl import (
    ProcessReward,
    ServerCredit,
    StepGRPOTrainer,
)
from mclabel.rl.client import RewardError, StepRewards
from tests.support.reward_server import RewardServer

MODEL = str(bundled_model("policy"))
ROWS = [
    {"prompt": "What is 2 + 3?\n", "answer": "5"},
    {"prompt": "What is 7 - 4?\n", "answer": "3"},
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    loaded = AutoTokenizer.from_pretrained(MODEL)
    loaded.pad_token = loaded.pad_token or loaded.eos_token
    return loaded


def make_trainer(trainer: type, tmp_path: Path, tokenizer: Any, **options: Any) -> Any:
    settings = {
        "output_dir": str(tmp_path),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 24,
        "max_steps": 1,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "report_to": [],
        "bf16": False,
        "use_cpu": True,
        "save_strategy": "no",
        "seed": 3,
        "temperature": 1.0,
        **options.pop("config", {}),
    }
    return trainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32),
        args=GRPOConfig(**settings),
        train_dataset=Dataset.from_list(ROWS),
        processing_class=tokenizer,
        **options,
    )


def reward_lengths(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [float(len(set(ids))) for ids in completion_ids]


class Watching:
    """A mixin that keeps each loss and the tensors from which it was computed."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)  # type: ignore[misc]
        self.__dict__.setdefault("seen", []).append((float(loss.detach()), dict(inputs)))
        return loss


Plain = type("Plain", (Watching, GRPOTrainer), {})
Stepwise = type("Stepwise", (Watching, StepGRPOTrainer), {})


def list_completions(trainer: Any) -> list[tuple[list[int], list[float]]]:
    """Return the unmasked ids of each completion, and the advantages of its tokens."""
    rows = []
    for _, inputs in trainer.seen:
        for ids, mask, advantages in zip(
            *(inputs[f"completion_{name}"] for name in ("ids", "mask")),
            inputs["advantages"],
            strict=True,
        ):
            assert not advantages[~mask.bool()].any()
            rows.append((ids[mask.bool()].tolist(), advantages[mask.bool()].tolist()))
    return rows


def gradients_after(trainer: Any) -> dict[str, torch.Tensor]:
    """Return the gradients of one whole training step, before the optimizer changes the weights."""
    kept: dict[str, torch.Tensor] = {}

    def keep_gradients(*_: Any) -> None:
        for name, weight in trainer.model.named_parameters():
            kept[name] = weight.grad.detach().clone()

    trainer.create_optimizer()
    trainer.optimizer.register_step_pre_hook(keep_gradients)
    trainer.train()
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
def test_equal_advantages_give_the_losses_and_gradients_of_trl(
    loss_type: str, tmp_path: Path, tokenizer: Any
) -> None:
    config = {"loss_type": loss_type, "scale_rewards": "group"}
    plain = make_trainer(Plain, tmp_path, tokenizer, reward_funcs=reward_lengths, config=config)
    expected = gradients_after(plain)

    def spread_advantages(completion_ids: list[list[int]], **_: Any) -> list[list[float]]:
        rewards = torch.tensor(reward_lengths(completion_ids)).view(-1, 4)
        centred = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        return [
            [float(x)] * len(ids) for x, ids in zip(centred.flatten(), completion_ids, strict=True)
        ]

    stepwise = make_trainer(
        Stepwise,
        tmp_path,
        tokenizer,
        reward_funcs=reward_lengths,
        step_credit=spread_advantages,
        config=config,
    )
    gradients = gradients_after(stepwise)
    assert len(plain.seen) == len(stepwise.seen) == 2
    for (loss, inputs), (own_loss, own_inputs) in zip(plain.seen, stepwise.seen, strict=True):
        assert torch.equal(inputs["completion_ids"], own_inputs["completion_ids"])
        assert inputs["advantages"].abs().max() > 0.1
        assert own_inputs["advantages"].shape == own_inputs["completion_ids"].shape
        assert own_loss == pytest.approx(loss, abs=1e-6)
    assert max(float(grad.abs().max()) for grad in expected.values()) > 1e-4
    for name, grad in expected.items():
        torch.testing.assert_close(gradients[name], grad, atol=1e-6, rtol=0)


def test_a_completion_of_which_nothing_is_known_is_in_no_loss(
    tmp_path: Path, tokenizer: Any
) -> None:
    """The credits are None, as for completions that could not be graded."""
    credited: list[list[int]] = []

    def credit_some(completion_ids: list[list[int]], **_: Any) -> list[list[float] | None]:
        credited.extend(ids for k, ids in enumerate(completion_ids) if k % 4)
        return [None if k % 4 == 0 else [1.0] * len(x) for k, x in enumerate(completion_ids)]

    trainer = make_trainer(
        Stepwise,
        tmp_path,
        tokenizer,
        reward_funcs=reward_lengths,
        step_credit=credit_some,
        config={"beta": 0.1, "loss_type": "dr_grpo", "scale_rewards": "none"},
    )
    trainer.train()
    rows = list_completions(trainer)
    assert sorted(ids for ids, _ in rows) == [[], [], *sorted(credited)]
    assert all(all(advantages) for _, advantages in rows)


def test_a_server_teaches_steps(tmp_path: Path, tokenizer: Any) -> None:
    with RewardServer() as server:
        credit = ServerCredit(server.url, tokenizer)
        trainer = make_trainer(
            Stepwise,
            tmp_path,
            tokenizer,
            reward_funcs=credit.process_reward,
            step_credit=credit,
            config={"max_completion_length": 120},
        )
        trainer.train()
    assert [len(items) for items in server.asked] == [8], "one request for reward and credit"
    assert {item["answer"] for item in server.asked[0]} == {"5", "3"}
    assert {item["problem"] for item in server.asked[0]} == {row["prompt"] for row in ROWS}
    (log,) = [row for row in trainer.state.log_history if "reward" in row]
    assert log["rewards/refused"] == 0 and "rewards/process_reward/mean" in log
    num_ended = 0
    for ids, tokens in list_completions(trainer):
        num_lines = len(tokenizer.decode(ids, skip_special_tokens=True).splitlines())
        assert sorted(set(tokens)) == pytest.approx(
            sorted({(k + 1) / num_lines for k in range(num_lines)})
        ) and tokens == sorted(tokens)
        if ids[-1] == tokenizer.eos_token_id:
            num_ended += 1
            assert tokens[-1] == tokens[-2] == 1.0, "the end token has the last step's credit"
    assert num_ended > 0


def test_the_page_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/rl-trainers.md").read_text(encoding="utf-8")
    (block,) = [
        code
        for code in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        if "GRPOConfig(" in code
    ]
    small = f"use_cpu=True, bf16=False, report_to=[], output_dir={str(tmp_path)!r}, "
    with RewardServer() as server:
        shown = block.replace("http://127.0.0.1:8791", server.url).replace("=200", "=1")
        shown = shown.replace("Qwen/Qwen2.5-0.5B-Instruct", MODEL)
        exec(shown.replace("GRPOConfig(loss", f"GRPOConfig({small}loss"), {})
    assert [len(items) for items in server.asked] == [8]


def test_conversations_and_completions_without_text() -> None:
    logged: dict[str, float] = {}
    prompt = [{"role": "system", "content": "Think."}, {"role": "user", "content": "2 + 3?"}]
    with RewardServer() as server:
        rewards = ProcessReward(server.url)(
            prompts=[prompt] * 3,
            completions=[
                [{"role": "assistant", "content": "It is 5."}],
                [{"role": "assistant", "content": None}],
                [{"role": "assistant", "content": [{"type": "text", "text": "5"}]}],
            ],
            completion_ids=[[1]] * 3,
            answer=[5, 5, 5],
            log_metric=logged.__setitem__,
        )
    assert rewards == [1.0, 0.0, 1.0]
    assert logged == {"rewards/refused": pytest.approx(1 / 3), "rewards/masked": 0}
    assert [item["problem"] for item in server.asked[0]] == ["2 + 3?"] * 3


def test_ungraded_outcomes_are_none() -> None:
    with RewardServer(lambda item: StepRewards(0.5, outcome="ungraded", masked=True)) as server:
        assert ProcessReward(server.url, reduce="outcome", answer_column=None)(
            prompts=["2?"], completions=["x"]
        ) == [None]


def test_what_is_wrong_is_said(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT_S", 0.001)
    batch: dict[str, Any] = {"prompts": ["2?"], "completions": ["2"], "completion_ids": [[5]]}
    with RewardServer(lambda item: StepRewards(float("nan"))) as server:
        with pytest.raises(RewardError, match=r"no column 'answer', but the columns \['gold'\]"):
            ProcessReward(server.url)(**batch, gold=["2"])
        with pytest.raises(RewardError, match="tokenizer of the policy"):
            ServerCredit(server.url, tokenizer)(
                **{**batch, "completion_ids": [[10**12]]}, answer=["2"]
            )
    with RewardServer(lambda item: StepRewards(1.0)) as server:
        with pytest.raises(RewardError, match="no step credits"):
            ServerCredit(server.url, tokenizer)(**batch, answer=["2"])
        with pytest.raises(RewardError, match="no PRM"):
            ProcessReward(server.url, reduce="min_score")(**batch, answer=["2"])
    with pytest.raises(ValueError, match="min_scores"):
        ProcessReward("http://127.0.0.1:9", reduce="min_scores")  # type: ignore[arg-type]


def test_losses_for_whole_completions_are_refused(tmp_path: Path, tokenizer: Any) -> None:
    def give_one_credit(completion_ids: list[list[int]], **_: Any) -> list[list[float]]:
        return [[1.0] for _ in completion_ids]

    options = {"reward_funcs": reward_lengths, "step_credit": give_one_credit}
    with pytest.raises(ValueError, match="needs one advantage per completion"):
        make_trainer(
            StepGRPOTrainer,
            tmp_path,
            tokenizer,
            config={"off_policy_mask_threshold": 0.5},
            **options,
        )
    with pytest.raises(ValueError, match="step_credit gave"):
        make_trainer(StepGRPOTrainer, tmp_path, tokenizer, **options).train()
