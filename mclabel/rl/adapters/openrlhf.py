"""A reward function for OpenRLHF (0.11), used with `--reward.remote_url FILE.py`.

FILE.py must define `reward_func`: by `from mclabel.rl.adapters.openrlhf import reward_func`, or as
the result of `make_reward_func`. The function returns one reward per completion. The labels of the
data set are the gold answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from mclabel.rl.adapters.rewards import make_client_from_environment, score_and_check
from mclabel.rl.client import END_TOKENS, RewardClient, RewardError, RewardItem, strip_end_tokens

RewardFunc = Callable[..., dict[str, Any]]
_log = logging.getLogger(__name__)


def make_reward_func(
    client: RewardClient | None = None,
    *,
    problem_of: Callable[[str], str] = str.strip,
    end_tokens: Sequence[str] = END_TOKENS,
) -> RewardFunc:
    """Return a reward function for OpenRLHF, called as `reward_func(queries, prompts, labels)`.

    Args:
        client: client of the reward server; None reads the environment variables
            MCLABEL_REWARDS_URL and MCLABEL_REWARDS_TOKEN at the first call.
        problem_of: function that extracts the problem from a prompt. The prompt may include the
            texts of a chat template.
        end_tokens: texts of end tokens, which are removed from the end of completions.
    """

    def reward_func(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any
    ) -> dict[str, Any]:
        nonlocal client
        try:
            client = client or make_client_from_environment()
            items = [
                RewardItem(
                    problem_of(prompt), _extract_completion(query, prompt, end_tokens), label
                )
                for query, prompt, label in zip(queries, prompts, labels, strict=True)
            ]
            batch_rewards = score_and_check(client, items)
        except RewardError:
            _log.exception("no rewards: OpenRLHF continues with completions without rewards")
            raise
        rewards = [item_rewards.reward for item_rewards in batch_rewards]
        logs = {
            "refused": [float(item_rewards.refused is not None) for item_rewards in batch_rewards],
            "masked": [float(item_rewards.masked) for item_rewards in batch_rewards],
        }
        if len(rewards) == 1:  # OpenRLHF passes one completion and converts each value to a tensor
            first = {name: values[0] for name, values in logs.items()}
            return {"rewards": rewards[0], "scores": rewards[0], "extra_logs": first}
        return {"rewards": rewards, "scores": rewards, "extra_logs": logs}

    return reward_func


def _extract_completion(query: str, prompt: str, end_tokens: Sequence[str]) -> str:
    start = query.find(prompt)
    if start < 0:
        raise RewardError(
            f"query {query[:80]!r}… does not contain its prompt {prompt[:80]!r}…. If the prompt "
            "was cut off, raise --data.max_len. Otherwise, the tokenizer changes the prompt's text"
        )
    return strip_end_tokens(query[start + len(prompt) :], end_tokens)


reward_func = make_reward_func()
"""Reward function that uses the server of MCLABEL_REWARDS_URL and MCLABEL_REWARDS_TOKEN."""
