"""Rewards for verl (0.9): `compute_score`, and reward managers with one reward per token.

`StepRewardManager` and `StepCreditManager` are loaded with `reward.reward_manager.source=importlib`
(docs/rl-trainers.md). verl takes token rewards only if it computes rewards after sampling, which
requires `reward.reward_model.enable=True` without a separate resource pool. Otherwise the managers
return one reward per completion. MCLABEL_REWARDS_URL is the address of the reward server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.trainer.ppo.core_algos import register_adv_est

from mclabel.rl.adapters.rewards import (
    decode_completion,
    extract_problem,
    make_client_from_environment,
    place_rewards_at_step_ends,
    score_and_check,
    spread_credits_over_tokens,
)
from mclabel.rl.client import RewardError, RewardItem, StepRewards


def compute_score(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **_: Any,
) -> dict[str, float]:
    """Score one completion, as a `reward.custom_reward_function` of verl, which may use threads.

    Args:
        data_source: name of the data set; not used.
        solution_str: text of the completion.
        ground_truth: gold answer from the data set, or None.
        extra_info: mapping that holds the problem as `problem` or `question`.

    Raises:
        RewardError: `extra_info` holds no problem, or the server cannot score the completion.
    """
    item = RewardItem(_get_problem(extra_info, None), solution_str, ground_truth)
    (item_rewards,) = score_and_check(make_client_from_environment(), [item])
    return {"score": item_rewards.reward, **_make_logged_figures(item_rewards)}


class StepRewardManager(RewardManagerBase):  # type: ignore[misc]
    """A reward manager that puts each segment's credit (advantage) at its last token.

    A segment is one or more consecutive steps with the same credit.

    It is for estimators that sum rewards, such as `reinforce_plus_plus` or `gae`. Completions that
    verl scores at the same time are sent in one request. With `reward.num_workers=1`, each request
    therefore contains complete groups.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        """Create a manager. verl calls this in a reward worker."""
        super().__init__(config, tokenizer, compute_score)
        self.client = make_client_from_environment()
        model = config.reward.reward_model
        self.per_token = bool(model.enable and not model.enable_resource_pool)
        self._pending_items: list[tuple[RewardItem, asyncio.Future[StepRewards]]] = []
        self._request_tasks: set[asyncio.Task[None]] = set()

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Score the last completion of a trajectory. Return its reward and figures for the log."""
        row = data[-1]
        fields = row.non_tensor_batch
        length = int(row.batch["attention_mask"][-row.batch["responses"].shape[-1] :].sum())
        ids = row.batch["responses"][:length].tolist()
        item = RewardItem(
            _get_problem(fields.get("extra_info"), fields.get("raw_prompt")),
            decode_completion(ids, self.tokenizer),
            (fields.get("reward_model") or {}).get("ground_truth"),
            truncated=length == row.batch["responses"].shape[-1]
            and ids[-1:] != [self.tokenizer.eos_token_id],
        )
        item_rewards = await self._score_in_batch(item)
        reward = (
            self._place_values_on_tokens(item_rewards, ids)
            if self.per_token
            else item_rewards.reward
        )
        return {"reward_score": reward, "reward_extra_info": _make_logged_figures(item_rewards)}

    @classmethod
    def assemble_rm_scores(cls, data: Any, scores: Sequence[Sequence[float]]) -> torch.Tensor:
        """Return token rewards [batch, response], padded with 0 after each completion."""
        token_scores = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
        for row, token_rewards in zip(token_scores, scores, strict=True):
            row[: len(token_rewards)] = torch.tensor(token_rewards, dtype=torch.float32)
        return token_scores

    def _place_values_on_tokens(self, item_rewards: StepRewards, ids: list[int]) -> list[float]:
        return place_rewards_at_step_ends(item_rewards, ids, self.tokenizer)

    async def _score_in_batch(self, item: RewardItem) -> StepRewards:
        loop = asyncio.get_running_loop()
        reward_future: asyncio.Future[StepRewards] = loop.create_future()
        self._pending_items.append((item, reward_future))
        if len(self._pending_items) == 1:  # the task starts after all items of this batch are added
            task = loop.create_task(self._score_pending_items())
            self._request_tasks.add(task)
            task.add_done_callback(self._request_tasks.discard)
        return await reward_future

    async def _score_pending_items(self) -> None:
        batch, self._pending_items = self._pending_items, []
        try:
            batch_rewards = await asyncio.to_thread(
                score_and_check, self.client, [item for item, _ in batch]
            )
        except Exception as error:  # raised again in every waiting caller
            for _, reward_future in batch:
                reward_future.set_exception(error)
            return
        for (_, reward_future), item_rewards in zip(batch, batch_rewards, strict=True):
            reward_future.set_result(item_rewards)


class StepCreditManager(StepRewardManager):
    """A reward manager that gives every token the credit (advantage) of its step.

    It is for `algorithm.adv_estimator=step_credit`.
    """

    def _place_values_on_tokens(self, item_rewards: StepRewards, ids: list[int]) -> list[float]:
        return spread_credits_over_tokens(item_rewards, ids, self.tokenizer)


@register_adv_est("step_credit")  # type: ignore[untyped-decorator]
def step_credit(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rewards of tokens unchanged, as advantages and as returns.

    verl's own estimators would sum or whiten them.
    """
    advantages = token_level_rewards * response_mask
    return advantages, advantages


def _make_logged_figures(item_rewards: StepRewards) -> dict[str, float]:
    accuracy = (
        item_rewards.reward
        if item_rewards.outcome is None
        else float(item_rewards.outcome == "right")
    )
    return {
        "acc": accuracy,
        "refused": float(item_rewards.refused is not None),
        "masked": float(item_rewards.masked),
    }


def _get_problem(extra_info: Mapping[str, Any] | None, prompt: Any) -> str:
    extra_fields = extra_info or {}
    problem = extra_fields.get("problem") or extra_fields.get("question")
    if problem:
        return str(problem)
    if prompt is None:
        raise RewardError(
            f"extra_info has the fields {sorted(extra_fields)}, but must contain the problem as "
            "`problem` or `question`. Add it to extra_info in the data set"
        )
    return extract_problem(prompt if isinstance(prompt, str) else list(prompt))
