"""Functions that all adapters use: extract message text, check rewards and spread them to tokens.

They have no dependencies. The *credit* of a step is its advantage, as the reward server computes
it.
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
    find_token_end_indices,
    place_credits_at_ends,
    spread_credits,
)


def make_client_from_environment() -> RewardClient:
    """Return a client for the environment variables MCLABEL_REWARDS_URL and MCLABEL_REWARDS_TOKEN.

    It is for trainers whose configuration can name a function but not pass a client to it.

    Raises:
        RewardError: MCLABEL_REWARDS_URL is not set.
    """
    url = os.environ.get("MCLABEL_REWARDS_URL")
    if not url:
        raise RewardError(
            "MCLABEL_REWARDS_URL is not set. Set it to the address that `mclabel serve-rewards` "
            "prints, such as http://127.0.0.1:8791, also in the environment of the trainer's "
            "workers"
        )
    return RewardClient(url, token=os.environ.get("MCLABEL_REWARDS_TOKEN"))


def score_and_check(client: RewardClient, items: Sequence[RewardItem]) -> list[StepRewards]:
    """Score completions and check the rewards, so that a trainer does not train on invalid ones.

    Raises:
        RewardError: the request failed, a reward, credit or score is not finite, or the numbers of
            rewards or credits are wrong.
    """
    batch_rewards = client.score(items) if items else []
    if len(batch_rewards) != len(items):
        raise RewardError(
            f"reward server {client.url}: gave {len(batch_rewards)} rewards for {len(items)} "
            "items, but must give one reward per item"
        )
    for position, item_rewards in enumerate(batch_rewards):
        numbers = (item_rewards.reward, *item_rewards.credits, *item_rewards.scores)
        if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
            raise RewardError(
                f"reward server {client.url}: item {position} has a number that is not finite: "
                f"reward {item_rewards.reward}, credits {item_rewards.credits}, scores "
                f"{item_rewards.scores}. Check the PRM of the server. This batch was not trained on"
            )
        if not len(item_rewards.credits) == len(item_rewards.ends_segment) or len(
            item_rewards.credits
        ) not in (
            0,
            len(item_rewards.ends),
        ):
            raise RewardError(
                f"reward server {client.url}: item {position} has {len(item_rewards.ends)} steps, "
                f"{len(item_rewards.credits)} credits and {len(item_rewards.ends_segment)} flags "
                "in ends_segment, but must have as many credits and flags as steps, or none of both"
            )
    return batch_rewards


def extract_text(content: Any) -> str:
    """Return the text of a completion.

    Args:
        content: a string, a message (a mapping with `content`), or a conversation (a list of
            messages), of which the last message with text is taken.

    Returns:
        The text. It is empty if there is no text; the server then refuses the completion as
        `empty`.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return extract_text(content.get("content"))
    if isinstance(content, Sequence):
        if content and all(isinstance(block, Mapping) and "type" in block for block in content):
            return "".join(str(block.get("text") or "") for block in content)
        texts = [text for message in content if (text := extract_text(message))]
        return texts[-1] if texts else ""
    return ""


def extract_problem(prompt: Any) -> str:
    """Return the problem in a prompt: the whole text, or the last user message of a conversation.

    Raises:
        RewardError: the prompt contains no text of the user.
    """
    messages = prompt if isinstance(prompt, list | tuple) else [prompt]
    user_messages = [
        message
        for message in messages
        if not isinstance(message, Mapping) or message.get("role") == "user"
    ]
    problem = extract_text(user_messages)
    if not problem:
        raise RewardError(
            f"prompt {str(prompt)[:200]!r} contains no user message with text. Set the column that "
            "holds the problem, or write the problem as the last user message"
        )
    return problem


def spread_credits_over_tokens(
    rewards: StepRewards, ids: Sequence[int], tokenizer: Any
) -> list[float]:
    """Return one advantage per token: the credit (advantage) of the token's step.

    The end token has the credit of the last step. If the server returned no credits because it
    refused or masked the completion, all tokens have 0.

    Args:
        rewards: rewards of the text that `decode_completion` returns for `ids`.
        ids: token ids of the completion, including the end token.
        tokenizer: tokenizer of the trainer.

    Raises:
        RewardError: the server returned no credits, or its steps do not fit the text of `ids`.
    """
    return _place_credits(spread_credits, rewards, rewards.credits, ids, tokenizer)


def place_rewards_at_step_ends(
    rewards: StepRewards, ids: Sequence[int], tokenizer: Any
) -> list[float]:
    """Return one reward per token: a segment's credit at its last token, 0 at all other tokens.

    A segment is one or more consecutive steps with the same credit. Such rewards are for trainers
    that sum rewards. Arguments and errors are those of `spread_credits_over_tokens`.
    """
    return _place_credits(place_credits_at_ends, rewards, rewards.step_rewards, ids, tokenizer)


def decode_completion(ids: Sequence[int], tokenizer: Any) -> str:
    """Return the text of a completion without special tokens, as it is sent to the server.

    Raises:
        RewardError: the ids are not in the tokenizer's vocabulary.
    """
    try:
        text = tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    except (OverflowError, TypeError, ValueError, IndexError, KeyError) as error:
        raise RewardError(
            f"completion ids {list(ids)[:8]}… cannot be decoded by this tokenizer ({error}). Give "
            "the adapter the tokenizer of the policy"
        ) from error
    return str(text)


def _place_credits(
    place_on_tokens: Callable[[Sequence[float], Sequence[int], int], list[float]],
    rewards: StepRewards,
    credits: Sequence[float],
    ids: Sequence[int],
    tokenizer: Any,
) -> list[float]:
    has_no_steps = (rewards.refused is not None or rewards.masked) and not credits
    if has_no_steps or not len(ids):
        return [0.0] * len(ids)
    length = len(decode_completion(ids, tokenizer))
    if not credits:
        raise RewardError(
            "the reward server returned no step credits. Start it with a credit method, such as "
            "credit=outcome"
        )
    if rewards.ends[-1] > length:
        raise RewardError(
            f"steps end at character {rewards.ends[-1]}, but the completion has only {length} "
            "characters, so the scored text is not the text of these ids. Give the adapter the "
            "tokenizer of the policy"
        )
    ends = find_token_end_indices(
        ids, rewards.ends, lambda part: decode_completion(part, tokenizer)
    )
    return place_on_tokens(credits, ends, len(ids))
