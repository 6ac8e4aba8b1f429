"""verl's own reward loop and advantage code call mclabel's functions and managers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", exc_type=ImportError)
import numpy as np
import ray
import torch
import verl
from hydra import compose, initialize_config_dir
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopManager, RewardLoopWorker
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.reward import load_reward_manager, resolve_reward_manager_cls

from mclabel.domains.arith import bundled_model
from mclabel.rl.client import RewardError, StepRewards
from tests.support.reward_server import RewardServer

MODEL = str(bundled_model("policy"))
OURS = "pkg://mclabel.rl.adapters.verl"
TEXTS = ("2 + 3 = 5\n", "2 + 3 = 6\nso 6\n", "\n")


def load_verl_config(*overrides: str) -> Any:
    with initialize_config_dir(
        str(Path(verl.__file__).parent / "trainer/config"), version_base=None
    ):
        return compose("ppo_trainer", [f"actor_rollout_ref.model.path={MODEL}", *overrides])


def load_manager_config(name: str, *overrides: str) -> Any:
    return load_verl_config(
        "reward.num_workers=1",
        "reward.reward_manager.source=importlib",
        f"reward.reward_manager.name={name}",
        f"reward.reward_manager.module.path={OURS}",
        f"reward.custom_reward_function.path={OURS}",
        *overrides,
    )


COLOCATED = (
    "reward.reward_model.enable=True",
    f"reward.reward_model.model_path={MODEL}",
    "reward.reward_model.rollout.name=vllm",
)


@pytest.fixture
def batch() -> Any:
    """Return prompts padded on the left and responses padded on the right, as in verl."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    prompts = [tokenizer("What is 2 + 3?\n")["input_ids"]] * len(TEXTS)
    responses = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in TEXTS]
    width = max(map(len, responses)) + 2
    tensors = {
        "prompts": torch.tensor([[0, 0, *ids] for ids in prompts]),
        "responses": torch.tensor([ids + [0] * (width - len(ids)) for ids in responses]),
        "response_mask": torch.tensor(
            [[1] * len(ids) + [0] * (width - len(ids)) for ids in responses]
        ),
    }
    tensors["attention_mask"] = torch.cat(
        [torch.tensor([[0, 0] + [1] * len(prompts[0])] * len(TEXTS)), tensors["response_mask"]],
        dim=1,
    )

    def make_column(values: list[Any]) -> Any:
        made = np.empty(len(values), dtype=object)
        made[:] = values
        return made

    return DataProto(
        batch=TensorDict(tensors, batch_size=len(TEXTS)),
        non_tensor_batch={
            "data_source": make_column(["arith"] * 3),
            "raw_prompt": make_column([[{"role": "user", "content": "2 + 3?"}]] * 3),
            "reward_model": make_column([{"ground_truth": "5"}] * 3),
            "extra_info": make_column([{"problem": "2 + 3?"}] * 3),
            "uid": make_column(["a"] * 3),
        },
    )


def test_the_naive_manager_calls_compute_score(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with RewardServer(token="secret") as server:
        monkeypatch.setenv("MCLABEL_REWARDS_URL", server.url)
        monkeypatch.setenv("MCLABEL_REWARDS_TOKEN", "secret")

        async def scored() -> list[Any]:
            return await RewardLoopWorker(
                load_verl_config(f"reward.custom_reward_function.path={OURS}")
            ).compute_score_batch(batch)

        outputs = asyncio.run(scored())
    assert [output["reward_score"] for output in outputs] == [1.0, 0.0, 0.0]
    assert [output["reward_extra_info"]["refused"] for output in outputs] == [0.0, 0.0, 1.0]


def test_a_manager_gives_one_number_where_verl_takes_no_more(
    batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RewardServer() as server:
        monkeypatch.setenv("MCLABEL_REWARDS_URL", server.url)

        async def scored() -> list[Any]:
            return await RewardLoopWorker(
                load_manager_config("StepRewardManager")
            ).compute_score_batch(batch)

        outputs = asyncio.run(scored())
    assert [output["reward_score"] for output in outputs] == [1.0, 0.0, 0.0]
    assert [len(items) for items in server.asked] == [3], "one request for what is asked at once"


@pytest.fixture
def local_ray() -> Iterator[None]:
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def rm_scores(config: Any, batch: Any, url: str) -> Any:
    """Call verl's `compute_rm_score` with one worker, without starting a reward model."""
    manager = RewardLoopManager.__new__(RewardLoopManager)
    manager.config, manager.reward_model_manager = config, None
    manager.reward_manager_cls = resolve_reward_manager_cls(config)
    manager.reward_loop_workers = [
        ray.remote(RewardLoopWorker)
        .options(runtime_env={"env_vars": {"MCLABEL_REWARDS_URL": url}})
        .remote(config)
    ]
    return manager.compute_rm_score(batch)


@pytest.mark.ray
def test_step_credits_become_advantages(batch: Any, local_ray: None) -> None:
    config = load_manager_config(
        "StepCreditManager", *COLOCATED, "algorithm.adv_estimator=step_credit"
    )
    with RewardServer() as server:
        scored = rm_scores(config, batch, server.url)
    assert [len(items) for items in server.asked] == [3]
    assert scored.non_tensor_batch["refused"].tolist() == [0.0, 0.0, 1.0]
    data = batch.union(scored)
    data.batch["token_level_rewards"] = data.batch["rm_scores"]
    data = compute_advantage(data, config.algorithm.adv_estimator, config=config.algorithm)
    first, second, refused = data.batch["advantages"]
    mask = data.batch["response_mask"].bool()
    assert set(first[mask[0]].tolist()) == {1.0} and not first[~mask[0]].any()
    assert second[mask[1]].unique().tolist() == [0.5, 1.0]
    assert second[mask[1]].tolist() == sorted(second[mask[1]].tolist())
    assert not refused.any()


@pytest.mark.ray
def test_step_rewards_are_summed_by_verl(batch: Any, local_ray: None) -> None:
    config = load_manager_config(
        "StepRewardManager", *COLOCATED, "algorithm.adv_estimator=reinforce_plus_plus"
    )
    with RewardServer() as server:
        data = batch.union(rm_scores(config, batch, server.url))
    assert data.batch["rm_scores"].sum(1).tolist() == [1.0, 1.5, 0.0]
    assert (data.batch["rm_scores"] != 0).sum(1).tolist() == [1, 2, 0]
    last = data.batch["response_mask"].sum(1) - 1
    assert data.batch["rm_scores"][1, last[1]] == 1.0, "the last step's is on the end token"
    data.batch["token_level_rewards"] = data.batch["rm_scores"]
    data = compute_advantage(data, config.algorithm.adv_estimator, config=config.algorithm)
    assert data.batch["returns"][1, 0] == 1.5 and data.batch["returns"][1, last[1]] == 1.0


def test_what_is_wrong_is_said(batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from mclabel.rl.adapters.verl import compute_score

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    monkeypatch.delenv("MCLABEL_REWARDS_URL", raising=False)
    with pytest.raises(RewardError, match="MCLABEL_REWARDS_URL is not set"):
        load_reward_manager(load_manager_config("StepRewardManager"), tokenizer)
    with pytest.raises(RewardError, match="as `problem` or `question`"):
        compute_score("arith", "5", "5", {"index": 1})
    with RewardServer(lambda item: StepRewards(float("nan"))) as server:
        monkeypatch.setenv("MCLABEL_REWARDS_URL", server.url)

        async def scored() -> Any:
            manager = load_reward_manager(load_manager_config("StepRewardManager"), tokenizer)
            return await asyncio.gather(*(manager.run_single(batch[k : k + 1]) for k in range(3)))

        with pytest.raises(RewardError, match="not finite"):
            asyncio.run(scored())
