"""SkyRL's generator, trainer code and environments call mclabel's functions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("skyrl", exc_type=ImportError)
import skyrl_gym
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import compute_advantages_and_returns
from skyrl.train.config import GeneratorConfig, SkyRLGymConfig, SkyRLTrainConfig
from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
from skyrl.train.generators.base import BatchMetadata
from skyrl.train.trainer import RayPPOTrainer
from transformers import AutoTokenizer

from mclabel.domains.arith import bundled_model
from mclabel.rl.adapters.skyrl import StepRewardGenerator
from mclabel.rl.client import RewardError
from tests.support.reward_server import RewardServer

TEXTS = ("2 + 3 = 5\n", "2 + 3 = 6\nso 6\n", "\n")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    found = AutoTokenizer.from_pretrained(str(bundled_model("policy")))
    found.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return found


class Engine:
    """An engine that answers `What is K + 3?` with text K.

    SkyRL's own engines need vLLM and an accelerator.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.model_name = tokenizer, "policy"

    async def generate(self, asked: Any, model: str | None = None) -> dict[str, Any]:
        prompts = [self.tokenizer.decode(ids) for ids in asked["prompt_token_ids"]]
        texts = [TEXTS[int(prompt.split("What is ")[1][0])] for prompt in prompts]
        ids = [[*self.tokenizer(text)["input_ids"], self.tokenizer.eos_token_id] for text in texts]
        return {"responses": texts, "response_ids": ids, "stop_reasons": ["stop"] * len(texts)}

    async def finish_session(self, session: Any) -> None:
        pass


def generated(tokenizer: Any, phase: str, batched: bool, **options: Any) -> Any:
    config = GeneratorConfig(batched=batched, max_input_length=512)
    generator = StepRewardGenerator(
        config, SkyRLGymConfig(max_env_workers=0), Engine(tokenizer), tokenizer, **options
    )
    chats = [[{"role": "user", "content": f"What is {k} + 3?\n"}] for k in range(len(TEXTS))]
    batch = {
        "prompts": chats,
        "env_classes": ["mclabel"] * 3,
        "env_extras": [{"reward_spec": {"ground_truth": "5"}} for _ in TEXTS],
        "sampling_params": None,
        "trajectory_ids": None,
        "batch_metadata": BatchMetadata(1, phase),
    }
    return asyncio.run(generator.generate(batch, disable_tqdm=True))


@pytest.mark.parametrize("batched", [False, True])
def test_step_credits_become_advantages(
    batched: bool, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RewardServer() as server:
        monkeypatch.setenv("MCLABEL_REWARDS_URL", server.url)
        output = generated(tokenizer, "train", batched)
    assert [len(items) for items in server.asked] == [1, 1, 1, 3], "environments, then the batch"
    assert [(item["problem"], item["answer"]) for item in server.asked[-1]] == [
        (f"What is {k} + 3?\n", "5") for k in range(3)
    ]
    assert output["rollout_metrics"]["rewards/refused"] == pytest.approx(1 / 3)
    config = SkyRLTrainConfig()
    trainer = SimpleNamespace(cfg=config, all_metrics={})
    output, uids = RayPPOTrainer.postprocess_generator_output(trainer, output, ["a"] * 3)
    tensors = convert_prompts_responses_to_batch_tensors(
        tokenizer,
        output["prompt_token_ids"],
        output["response_ids"],
        output["rewards"],
        output["loss_masks"],
    )
    _, _, mask, rewards, *_ = tensors
    advantages, _ = compute_advantages_and_returns(
        rewards, mask, uids, "step_credit", config.trainer.algorithm
    )
    rows = [row[kept.bool()].tolist() for row, kept in zip(advantages, mask, strict=True)]
    lengths = [len(ids) for ids in output["response_ids"]]
    assert [len(row) for row in rows] == lengths
    assert set(rows[0]) == {1.0} and set(rows[2]) == {0.0}
    assert sorted(set(rows[1])) == [0.5, 1.0] and rows[1] == sorted(rows[1])
    assert not advantages[~mask.bool()].any() and torch.is_tensor(rewards)


def test_rewards_at_ends_are_summed_by_skyrl(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RewardServer() as server:
        monkeypatch.setenv("MCLABEL_REWARDS_URL", server.url)
        output = generated(tokenizer, "train", False, credit="ends")
    assert [sum(row) for row in output["rewards"]] == [1.0, 1.5, 0.0]
    assert [sum(x != 0 for x in row) for row in output["rewards"]] == [1, 2, 0]
    assert output["rewards"][1][-1] == 1.0


def test_the_environment_gives_one_number(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with RewardServer() as server:
        monkeypatch.setenv("MCLABEL_REWARDS_URL", server.url)
        output = generated(tokenizer, "eval", True)
        assert output["rewards"] == [1.0, 0.0, 0.0]
        env = skyrl_gym.make("mclabel", env_config={}, extras={"problem": "2 + 3?"})
        env.init([])
        step = env.step("")
    assert (step["reward"], step["done"], env.get_metrics()) == (0.0, True, {"refused": 1.0})


def test_what_is_wrong_is_said(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCLABEL_REWARDS_URL", raising=False)
    with pytest.raises(RewardError, match="MCLABEL_REWARDS_URL is not set"):
        generated(tokenizer, "train", True)
    with pytest.raises(ValueError, match="credit='sum'"):
        generated(tokenizer, "train", True, credit="sum")
    with pytest.raises(ValueError, match=r"generator\.max_turns=3"):
        StepRewardGenerator(
            GeneratorConfig(max_turns=3), SkyRLGymConfig(), Engine(tokenizer), tokenizer
        )
