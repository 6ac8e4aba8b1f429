"""A reward function for OpenRLHF (0.11), used with `--reward.remote_url FILE.py`.

FILE.py contains `from mclabel.rl.adapters.openrlhf import reward_func`, or calls
`make_reward_func`. It returns one number per completion. The labels of the data set are the gold
answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from mclabel.rl.adapters.rewards import client_of_environment, score
from mclabel.rl.client import END_TOKENS, RewardClient, RewardError, RewardItem, without_end_tokens

RewardFunc = Callable[..., dict[str, Any]]
_log = logging.getLogger(__name__)


def make_reward_func(
    client: RewardClient | None = None,
    *,
    problem_of: Callable[[str], str] = str.strip,
    end_tokens: Sequence[str] = END_TOKENS,
) -> RewardFunc:
    """Make a `reward_func(queries, prompts, labels)`.

    Args:
        client: client of the server; None takes MCLABEL_REWARDS_URL and MCLABEL_REWARDS_TOKEN
            of the environment at the first call.
        problem_of: function that returns the problem in a prompt, to which a chat template may
            have been applied.
        end_tokens: texts of the tokens that end a turn, removed from the end of completions.
    """

    def reward_func(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any
    ) -> dict[str, Any]:
        nonlocal client
        try:
            client = client or client_of_environment()
            items = [
                RewardItem(problem_of(prompt), _completion(query, prompt, end_tokens), label)
                for query, prompt, label in zip(queries, prompts, labels, strict=True)
            ]
            scored = score(client, items)
        except RewardError:
            _log.exception("no rewards: OpenRLHF goes on with completions that have none")
            raise
        rewards = [rewarded.reward for rewarded in scored]
        logs = {
            "refused": [float(rewarded.refused is not None) for rewarded in scored],
            "masked": [float(rewarded.masked) for rewarded in scored],
        }
        if len(rewards) == 1:  # OpenRLHF calls it like this, and makes a tensor of each value
            first = {name: values[0] for name, values in logs.items()}
            return {"rewards": rewards[0], "scores": rewards[0], "extra_logs": first}
        return {"rewards": rewards, "scores": rewards, "extra_logs": logs}

    return reward_func


def _completion(query: str, prompt: str, end_tokens: Sequence[str]) -> str:
    start = query.find(prompt)
    if start < 0:
        raise RewardError(
            f"query {query[:80]!r}… does not contain its prompt {prompt[:80]!r}…: the prompt was "
            "cut (raise --data.max_len), or the tokenizer does not keep its text"
        )
    return without_end_tokens(query[start + len(prompt) :], end_tokens)


reward_func = make_reward_func()
"""Reward function that uses the server of MCLABEL_REWARDS_URL and MCLABEL_REWARDS_TOKEN."""
