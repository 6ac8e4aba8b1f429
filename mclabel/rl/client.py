"""A client of the reward server (`mclabel serve-rewards`). Needs nothing but Python.

client = RewardClient("http://127.0.0.1:8791", token=os.environ.get("REWARDS_TOKEN"))
(rewards,) = client.score([RewardItem(problem="2 + 2 = ?", completion="4.", answer="4")])

`token_ends`, `spread` and `at_ends` turn numbers of steps into one number a token, for trainers.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from http.client import HTTPException
from typing import Any, TypeVar

T = TypeVar("T")

END_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end_of_text|>"),
    *("<end_of_turn>", "<eos>", "<|end|>", "<|return|>"),
)
"""How tokenizers write the end of a turn, which trainers leave in completions."""
MAX_TRIES = 8
"""Requests for one call, where the server is not there yet or has too much to do."""
BAD_TRIES = 3
"""Of them, those that are answered with what cannot be read."""
FIRST_WAIT_S, LAST_WAIT_S = 0.25, 10.0
"""Seconds before the second try, doubled from try to try, and at most."""
MAX_SAID = 4_096
"""Bytes of a refusal that are read."""


class RewardError(RuntimeError):
    """The server cannot be reached, or refuses the request as a whole."""


@dataclass(frozen=True)
class RewardItem:
    """A completion to score."""

    problem: str
    completion: str
    answer: Any = None
    """The gold answer as the data set has it: a text (also a whole solution with `#### 72` or a
    box), a number, a list of acceptable ones, also an array; needed where the server checks
    answers."""
    group: str | None = None
    """Completions of one group are compared with each other; None groups by problem."""
    truncated: bool = False
    """True if the completion was cut at a limit of tokens."""


@dataclass(frozen=True)
class StepRewards:
    """What the server says of one completion."""

    reward: float
    """One number for the completion, in [0, 1]; 0 where it was refused. Where it is masked, the
    mean of its group's others, by which it moves no baseline and has no advantage of its own."""
    masked: bool = False
    """True if nothing is known of the completion, as it could not be graded or read: leave it out
    of rewards, baselines and the loss. Its credits are 0."""
    outcome: str | None = None
    """`right`, `wrong`, `truncated` or `ungraded`; None where the server checks no answers."""
    ends: tuple[int, ...] = ()
    """Characters of the completion where its steps end."""
    scores: tuple[float, ...] = ()
    """Of a PRM, one a step; empty where the server has none."""
    credits: tuple[float, ...] = ()
    """Advantage of each step, by the credit that the server was started with."""
    ends_segment: tuple[bool, ...] = ()
    """True if each step is the last of its segment, where a reward is placed."""
    refused: str | None = None
    """Why it could not be scored, such as `empty`; None where it was."""

    @property
    def step_rewards(self) -> tuple[float, ...]:
        """Credits as rewards to be summed: 0 but at the last step of each segment."""
        pairs = zip(self.credits, self.ends_segment, strict=True)
        return tuple(credit if ends else 0.0 for credit, ends in pairs)


class RewardClient:
    """Asks a reward server. Safe to use from several threads."""

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 120.0) -> None:
        """Connect at the first request. A server that is away or busy is asked again, 8 times.

        Args:
            url: url of the server, such as `http://127.0.0.1:8791`.
            token: that the server asks for.
            timeout_s: of one request.

        Raises:
            ValueError: the URL is none of HTTP.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url={url!r}: must begin with http:// or https://")
        self.url, self.token, self.timeout_s = url.rstrip("/"), token, timeout_s

    def score(self, items: Sequence[RewardItem]) -> list[StepRewards]:
        """Score completions, in order. Whole groups belong into one request.

        Raises:
            RewardError: the server cannot be reached, stays away or busy, or refuses the request.
        """
        content = {"items": [asdict(item) for item in items]}
        return self._asked("/score", content, lambda answer: _all_rewards(answer, len(items)))

    def health(self) -> dict[str, Any]:
        """Return what the server serves, and how much it has scored and refused.

        Raises:
            RewardError: the server cannot be reached, or refuses the request.
        """
        return self._asked("/health", None, dict)

    def _asked(self, path: str, content: Mapping[str, Any] | None, read: Callable[[Any], T]) -> T:
        """Return what the server answers, asked again while it is away, busy or answers with
        nonsense.
        """
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if content is None else json.dumps(content, default=_plain).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        wait_s, tries, num_bad = FIRST_WAIT_S, 0, 0
        while True:
            tries += 1
            try:
                return self._read(self._once(request), read)
            except _TryAgain as error:
                num_bad += isinstance(error, _BadAnswer)
                if tries == MAX_TRIES or num_bad == BAD_TRIES:
                    raise RewardError(f"{error}, after {tries} tries") from error
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, LAST_WAIT_S)

    def _read(self, answer: bytes, read: Callable[[Any], T]) -> T:
        remedy = "Give the URL of a server that `mclabel serve-rewards` started"
        try:
            content = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise _BadAnswer(f"{self.url}: does not answer with JSON. {remedy}") from error
        try:
            return read(content)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _BadAnswer(
                f"{self.url}: its answer holds no rewards ({type(error).__name__}: {error}). "
                f"{remedy}"
            ) from error

    def _once(self, request: urllib.request.Request) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            kind = _TryAgain if error.code in (429, 503) else RewardError
            raise kind(f"{self.url}: refused ({error.code}): {_said(error)}") from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            kind = _TryAgain if isinstance(reason, ConnectionRefusedError) else RewardError
            raise kind(f"{self.url}: cannot be reached ({reason})") from error


def _plain(value: Any) -> Any:
    """Return what JSON holds of an array or a number that it does not know."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(
        f"an answer is a {type(value).__name__}: must be a text, a number or a list of them"
    )


class _TryAgain(Exception):
    """The server is not there yet, has too much to do, or gave what cannot be read."""


class _BadAnswer(_TryAgain):
    """The server gave what cannot be read."""


def _said(error: urllib.error.HTTPError) -> str:
    """The server's own word of why it refuses."""
    try:
        text = error.read(MAX_SAID).decode(errors="replace")
    except (OSError, HTTPException):
        return str(error.reason)
    try:
        return str(json.loads(text)["error"]["message"])
    except (LookupError, TypeError, ValueError, RecursionError):
        return text


def _all_rewards(answer: Any, count: int) -> list[StepRewards]:
    found = [_rewards(one) for one in answer["items"]]
    if len(found) != count:
        raise ValueError(f"gave {len(found)} rewards for {count} completions")
    return found


def _rewards(content: Mapping[str, Any]) -> StepRewards:
    """One answer; fields of later versions are left out."""
    return StepRewards(
        reward=float(content["reward"]),
        masked=bool(content["masked"]),
        outcome=content["outcome"],
        ends=tuple(int(end) for end in content["ends"]),
        scores=tuple(float(score) for score in content["scores"]),
        credits=tuple(float(credit) for credit in content["credits"]),
        ends_segment=tuple(bool(ends) for ends in content["ends_segment"]),
        refused=content["refused"],
    )


def without_end_tokens(completion: str, end_tokens: Sequence[str] = END_TOKENS) -> str:
    """Remove end tokens, and the white space behind each, from the end of a completion."""
    while ends := [end for end in end_tokens if completion.rstrip().endswith(end)]:
        completion = completion.rstrip().removesuffix(max(ends, key=len))
    return completion


def token_ends(
    ids: Sequence[int], ends: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> list[int]:
    """Return where steps end in a trainer's tokens.

    A token belongs to the step in which its last character lies. Tokens behind the last step, such
    as the end token, belong to the last step.

    Args:
        ids: ids of the completion, in the trainer's tokens.
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
        num_tokens: number of tokens of the completion, 0 are put behind the last step.
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
        num_tokens: number of tokens of the completion.
    """
    tokens = [0.0] * num_tokens
    for credit, end in zip(credits, ends, strict=True):
        tokens[max(0, end - 1)] += float(credit)
    return tokens


# Texts that deserve no reward, whatever they end with. Needs nothing but Python.
#
# A policy in training finds what a reward does not look at: no text at all, or one step written
# again and again, which a mean of step scores likes (2410.15115).

_MIN_STEPS = 4
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
    if len(texts) >= _MIN_STEPS and len(texts) - len(set(texts)) > len(texts) / 2:
        return "repeated"
    return None
