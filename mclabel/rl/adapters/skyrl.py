"""Rewards for SkyRL (0.3): an environment with one reward per completion, and a generator with one
reward per token.

The environment's name (`env_class`) is `mclabel`. The generator replaces the environment's rewards
by one reward per token, taken from the credits (advantages) that the server computes for steps. The
advantage estimator `step_credit` uses these rewards unchanged (docs/rl-trainers.md).
MCLABEL_REWARDS_URL is the address of the reward server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import skyrl_gym
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from mclabel.rl.adapters.rewards import (
    decode_completion,
    extract_problem,
    make_client_from_environment,
    place_rewards_at_step_ends,
    score_and_check,
    spread_credits_over_tokens,
)
from mclabel.rl.client import RewardItem


class ProcessRewardEnv(BaseTextEnv):  # type: ignore[misc]
    """An environment of one problem and one completion, which is rewarded by the reward server."""

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        """Create an environment. SkyRL passes the columns of the data set's row as `extras`."""
        super().__init__()
        self._extras, self._problem, self._metrics = extras or {}, "", dict[str, float]()

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Take the problem from the row, or from the prompt."""
        self._problem = str(self._extras.get("problem") or extract_problem(prompt))
        return prompt, {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Score the completion and end the episode."""
        item = RewardItem(self._problem, action, _get_gold_answer(self._extras))
        (rewarded,) = score_and_check(make_client_from_environment(), [item])
        self._metrics = {
            "refused": float(rewarded.refused is not None),
            "masked": float(rewarded.masked),
        }
        return BaseTextEnvStepOutput(
            observations=[], reward=rewarded.reward, done=True, metadata={}
        )

    def get_metrics(self) -> dict[str, float]:
        """Return `refused` and `masked`, each 1 if it is true of the completion, else 0."""
        return self._metrics


class StepRewardGenerator(SkyRLGymGenerator):  # type: ignore[misc]
    """A generator that rewards each token by the server's step credits.

    It sends one request per training batch. `credit="spread"` gives each token the credit of its
    step, for the estimator `step_credit`. `credit="ends"` puts the credit of a segment (consecutive
    steps with the same credit) at its last token, for estimators that sum rewards, such as
    `reinforce++` and `gae`. Evaluations keep the environment's rewards.
    """

    def __init__(self, *args: Any, credit: str = "spread", **kwargs: Any) -> None:
        """Create a generator.

        Args:
            *args: positional arguments of SkyRLGymGenerator.
            credit: placement of credits, `spread` or `ends`.
            **kwargs: keyword arguments of SkyRLGymGenerator.

        Raises:
            ValueError: `credit` is not one of the two, or trajectories may have several turns.
        """
        super().__init__(*args, **kwargs)
        functions = {"spread": spread_credits_over_tokens, "ends": place_rewards_at_step_ends}
        if credit not in functions:
            raise ValueError(f"credit={credit!r}: must be one of {list(functions)}")
        if self.max_turns > 1 or self.generator_cfg.step_wise_trajectories:
            raise ValueError(
                f"generator.max_turns={self.max_turns}: step rewards need completions of a single "
                "turn. Set generator.max_turns=1 and generator.step_wise_trajectories=false"
            )
        self._place, self._client = functions[credit], make_client_from_environment()

    async def generate(self, input_batch: Any, disable_tqdm: bool = False) -> Any:
        """Generate a batch as SkyRL does, with the token rewards of the server."""
        output = await super().generate(input_batch, disable_tqdm)
        metadata = input_batch.get("batch_metadata")
        if metadata is not None and metadata.training_phase != "train":
            return output
        ids = output["response_ids"]
        extras = input_batch.get("env_extras") or [{}] * len(ids)
        items = [
            RewardItem(
                str(extra.get("problem") or extract_problem(prompt)),
                decode_completion(tokens, self.tokenizer),
                _get_gold_answer(extra),
                truncated=reason == "length",
            )
            for prompt, extra, tokens, reason in zip(
                input_batch["prompts"], extras, ids, output["stop_reasons"], strict=True
            )
        ]
        scored = await asyncio.to_thread(score_and_check, self._client, items)
        rewards: list[Any] = [
            self._place(rewarded, tokens, self.tokenizer)
            for rewarded, tokens in zip(scored, ids, strict=True)
        ]
        if self.generator_cfg.zero_reward_on_non_stop:
            rewards = self._zero_reward_if_not_stop(rewards, output["stop_reasons"])
        num_completions = max(1, len(scored))
        output["rollout_metrics"] = {
            **(output["rollout_metrics"] or {}),
            "rewards/refused": sum(rewarded.refused is not None for rewarded in scored)
            / num_completions,
            "rewards/masked": sum(rewarded.masked for rewarded in scored) / num_completions,
        }
        output["rewards"] = rewards
        return output


@register_advantage_estimator("step_credit")  # type: ignore[untyped-decorator]
def step_credit(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rewards of tokens unchanged, as advantages and as returns.

    SkyRL's own estimators would sum or whiten them.
    """
    advantages = token_level_rewards * response_mask
    return advantages, advantages


def _get_gold_answer(extras: Mapping[str, Any]) -> Any:
    return (extras.get("reward_spec") or {}).get("ground_truth", extras.get("answer"))


skyrl_gym.register(id="mclabel", entry_point=f"{__name__}:{ProcessRewardEnv.__name__}")
