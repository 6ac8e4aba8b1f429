"""From steps to tokens: one number a token, for trainers. Needs nothing but Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def token_ends(
    ids: Sequence[int], ends: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> list[int]:
    """Where steps end in a trainer's tokens.

    A token belongs to the step in which its last character lies. Tokens behind the last step, such
    as the end token, belong to the last step.

    Args:
        ids: of the completion, in the trainer's tokens.
        ends: characters of the completion's text where its steps end, rising.
        decode: text of ids, in which special tokens are left out.

    Returns:
        One position for each step, exclusive, rising, the last is `len(ids)`.
    """
    if not ends:
        return []
    found: list[int] = []
    low = 0
    for end in ends[:-1]:
        high = len(ids)
        while low < high:  # the first position whose text is as long as the step's end
            middle = (low + high) // 2
            if len(decode(ids[:middle])) < end:
                low = middle + 1
            else:
                high = middle
        found.append(low)
    return [*found, len(ids)]


def spread(credits: Sequence[float], ends: Sequence[int], num_tokens: int) -> list[float]:
    """Advantages: each token has the credit of its step.

    Args:
        credits: one a step.
        ends: positions behind the last token of each step, rising.
        num_tokens: of the completion, 0 are put behind the last step.
    """
    tokens: list[float] = []
    for credit, end in zip(credits, ends, strict=True):
        tokens += [float(credit)] * (end - len(tokens))
    return tokens + [0.0] * (num_tokens - len(tokens))


def at_ends(credits: Sequence[float], ends: Sequence[int], num_tokens: int) -> list[float]:
    """Rewards: each step's credit is at its last token. What falls on one token is added up.

    Args:
        credits: one a step.
        ends: positions behind the last token of each step, rising.
        num_tokens: of the completion.
    """
    tokens = [0.0] * num_tokens
    for credit, end in zip(credits, ends, strict=True):
        tokens[max(0, end - 1)] += float(credit)
    return tokens


# Texts that deserve no reward, whatever they end with. Needs nothing but Python.
#
# A policy in training finds what a reward does not look at: no text at all, or one step written
# again and again, which a mean of step scores likes (2410.15115).

FEWEST = 4
"""Steps below which nothing counts as repeated."""


def unfit(steps: Sequence[str]) -> str | None:
    """Why a solution has the reward 0: `empty`, or `repeated`; None if nothing is wrong.

    Repeated is a solution of at least 4 steps of which more than half, blank ones left out, are
    word for word among those before.

    Args:
        steps: their texts.
    """
    texts = [text for step in steps if (text := step.strip())]
    if not texts:
        return "empty"
    if len(texts) >= FEWEST and len(texts) - len(set(texts)) > len(texts) / 2:
        return "repeated"
    return None
