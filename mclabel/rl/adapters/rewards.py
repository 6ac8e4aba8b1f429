"""Functions that all adapters use: texts of messages, checked rewards, credits of tokens. They need
only Python.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mclabel.rl.client import (
    RewardClient,
    RewardError,
    RewardItem,
    StepRewards,
    at_ends,
    spread,
    token_ends,
)


def client_of_environment() -> RewardClient:
    """Make a client from MCLABEL_REWARDS_URL and MCLABEL_REWARDS_TOKEN, for trainers that take no
    objects.

    Raises:
        RewardError: there is no MCLABEL_REWARDS_URL.
    """
    url = os.environ.get("MCLABEL_REWARDS_URL")
    if not url:
        raise RewardError(
            "MCLABEL_REWARDS_URL is not set: set it to the address that `mclabel serve-rewards` "
            "prints, such as http://127.0.0.1:8791, for the trainer's workers too"
        )
    return RewardClient(url, token=os.environ.get("MCLABEL_REWARDS_TOKEN"))


def score(client: RewardClient, items: Sequence[RewardItem]) -> list[StepRewards]:
    """Score completions, and raise an error for rewards that a trainer would silently train on
    wrongly.

    Raises:
        RewardError: the client raised it, a reward or a credit is not finite, or counts differ.
    """
    scored = client.score(items) if items else []
    if len(scored) != len(items):
        raise RewardError(
            f"reward server {client.url}: {len(scored)} rewards for {len(items)} items"
        )
    for position, rewarded in enumerate(scored):
        numbers = (rewarded.reward, *rewarded.credits, *rewarded.scores)
        if not all(isinstance(x, int | float) and math.isfinite(x) for x in numbers):
            raise RewardError(
                f"reward server {client.url}: item {position} has a number that is not finite: "
                f"reward {rewarded.reward}, credits {rewarded.credits}, scores {rewarded.scores}. "
                "Look at its PRM; nothing was trained on this batch"
            )
        if not len(rewarded.credits) == len(rewarded.ends_segment) or len(rewarded.credits) not in (
            0,
            len(rewarded.ends),
        ):
            raise RewardError(
                f"reward server {client.url}: item {position} has {len(rewarded.ends)} steps, "
                f"{len(rewarded.credits)} credits and {len(rewarded.ends_segment)} marks of "
                "segments"
            )
    return scored


def text_of(content: Any) -> str:
    """Return the text of a completion: a string, or the last message of a conversation that has
    text.

    Returns:
        The text; an empty one if there is none, which the server refuses as `empty`.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return text_of(content.get("content"))
    if isinstance(content, Sequence):
        if content and all(isinstance(x, Mapping) and "type" in x for x in content):
            return "".join(str(block.get("text") or "") for block in content)
        texts = [text for message in content if (text := text_of(message))]
        return texts[-1] if texts else ""
    return ""


def problem_of(prompt: Any) -> str:
    """Return the problem that a prompt states: the text itself, or the last message of the user.

    Raises:
        RewardError: the prompt states no problem.
    """
    messages = prompt if isinstance(prompt, list | tuple) else [prompt]
    user_messages = [x for x in messages if not isinstance(x, Mapping) or x.get("role") == "user"]
    problem = text_of(user_messages)
    if not problem:
        raise RewardError(
            f"prompt {str(prompt)[:200]!r} has no text of a user: name the column that holds the "
            "problem, or write the problem as the user's last message"
        )
    return problem


def token_credits(rewards: StepRewards, ids: Sequence[int], tokenizer: Any) -> list[float]:
    """Return advantages: each token has the credit of its step, the end token that of the last
    step.

    A refused completion has the credits that the server returns for it. They are 0 if it has no
    steps or is masked.

    Args:
        rewards: rewards of the text that `decode` returns for `ids`.
        ids: ids of the completion, end token included.
        tokenizer: tokenizer of the trainer.

    Raises:
        RewardError: the server gives no credits, or its steps are those of another text.
    """
    return _place_credits(spread, rewards, rewards.credits, ids, tokenizer)


def token_rewards(rewards: StepRewards, ids: Sequence[int], tokenizer: Any) -> list[float]:
    """Return rewards to be summed: the credit of each segment, placed at its last token.

    All else is as in `token_credits`.
    """
    return _place_credits(at_ends, rewards, rewards.step_rewards, ids, tokenizer)


def decode(ids: Sequence[int], tokenizer: Any) -> str:
    """Return the text of a completion without special tokens, as it is sent to the server.

    Raises:
        RewardError: the tokenizer does not know these ids.
    """
    try:
        text = tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    except (OverflowError, TypeError, ValueError, IndexError, KeyError) as error:
        raise RewardError(
            f"completion ids {list(ids)[:8]}… are not of this tokenizer ({error}): give the "
            "adapter the tokenizer of the policy"
        ) from error
    return str(text)


def _place_credits(
    place: Callable[[Sequence[float], Sequence[int], int], list[float]],
    rewards: StepRewards,
    credits: Sequence[float],
    ids: Sequence[int],
    tokenizer: Any,
) -> list[float]:
    without_steps = (rewards.refused is not None or rewards.masked) and not credits
    if without_steps or not len(ids):
        return [0.0] * len(ids)
    length = len(decode(ids, tokenizer))
    if not credits:
        raise RewardError("the reward server gives no credits of steps: start it with a credit")
    if rewards.ends[-1] > length:
        raise RewardError(
            f"steps end at character {rewards.ends[-1]} of a completion of {length}: the text "
            "that was scored is not that of these ids"
        )
    ends = token_ends(ids, rewards.ends, lambda part: decode(part, tokenizer))
    return place(credits, ends, len(ids))
