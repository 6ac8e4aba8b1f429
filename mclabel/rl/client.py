"""A client of the reward server (`mclabel serve-rewards`), without dependencies on packages.

client = RewardClient("http://127.0.0.1:8791", token=os.environ.get("REWARDS_TOKEN"))
(rewards,) = client.score([RewardItem(problem="2 + 2 = ?", completion="4.", answer="4")])

The *credit* of a step is its advantage. `find_token_end_indices`, `spread_credits` and
`place_credits_at_ends` convert one credit per step to one number per token, which trainers need.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial
from http.client import HTTPException
from typing import Any, TypeVar

T = TypeVar("T")

END_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end_of_text|>"),
    *("<end_of_turn>", "<eos>", "<|end|>", "<|return|>"),
)
"""Texts of end tokens, which trainers leave at the end of completions."""
MAX_TRIES = 8
"""Maximum number of requests per call of the client while the server is unreachable or busy."""
MAX_BAD_RESPONSES = 3
"""Number of unreadable responses of the server after which a call of the client fails."""
FIRST_WAIT_S, LAST_WAIT_S = 0.25, 10.0
"""Seconds to wait before the second request, and maximum seconds before a later request. The wait
doubles with every request."""
MAX_REFUSAL_BYTES = 4_096
"""Maximum number of bytes that are read from the response to a refused request."""


class RewardError(RuntimeError):
    """Error if the server cannot be reached, refuses a request, or returns unusable rewards."""


@dataclass(frozen=True)
class RewardItem:
    """A completion to score."""

    problem: str
    completion: str
    answer: Any = None
    """Gold answer from the data set. It is a number, a string, or a list or array of acceptable
    answers. A text may be a whole solution that ends with `#### 72` or a box. It is required if the
    server checks answers."""
    group: str | None = None
    """Name of the completion's group. Completions of a group are compared with each other to
    compute advantages; None groups completions by problem."""
    truncated: bool = False
    """True if the completion was cut off at the token limit."""


@dataclass(frozen=True)
class StepRewards:
    """Reward, step scores and step credits of one completion, as the server returns them."""

    reward: float
    """Reward of the completion, in [0, 1]; 0 if it was refused. A masked completion has the mean
    reward of the others in its group, so that it does not change their baseline and has no
    advantage itself."""
    masked: bool = False
    """True if the reward is unknown, because the completion could not be graded or read. A trainer
    should exclude it from rewards, baselines and the loss. Its credits are 0."""
    outcome: str | None = None
    """Outcome of the completion: `right`, `wrong`, `truncated` or `ungraded`; None if the server
    does not check answers."""
    ends: tuple[int, ...] = ()
    """Exclusive end position of each step in the completion, in characters."""
    scores: tuple[float, ...] = ()
    """PRM score of each step; empty if the server has no PRM."""
    credits: tuple[float, ...] = ()
    """Advantage of each step, computed by the method that the server's setting `credit` names."""
    ends_segment: tuple[bool, ...] = ()
    """True for each step that is the last of its segment. A segment is one or more consecutive
    steps with the same credit."""
    refused: str | None = None
    """Reason why the completion was not scored, such as `empty`; None if it was scored."""

    @property
    def step_rewards(self) -> tuple[float, ...]:
        """Return the credits as rewards of steps, for a trainer that sums rewards.

        The last step of each segment has the segment's credit, and all other steps have 0.
        """
        return tuple(
            credit if is_segment_end else 0.0
            for credit, is_segment_end in zip(self.credits, self.ends_segment, strict=True)
        )


class RewardClient:
    """A client of a reward server. It is safe to use from several threads."""

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 120.0) -> None:
        """Prepare a client. It connects at the first request.

        A request is repeated up to 8 times while the server is unreachable or busy.

        Args:
            url: URL of the server, such as `http://127.0.0.1:8791`.
            token: token that the server requires; None sends none.
            timeout_s: maximum seconds per request.

        Raises:
            ValueError: the URL does not begin with http:// or https://.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                f"url={url!r}: must begin with http:// or https://, such as http://127.0.0.1:8791"
            )
        self.url, self.token, self.timeout_s = url.rstrip("/"), token, timeout_s

    def score(self, items: Sequence[RewardItem]) -> list[StepRewards]:
        """Return the rewards of completions, in order.

        All completions of a group must be in the same call, because they are compared with each
        other.

        Raises:
            RewardError: the server stays unreachable or busy, or refuses the request.
        """
        content = {"items": [asdict(item) for item in items]}
        return self._send_with_retries("/score", content, partial(_read_rewards, count=len(items)))

    def health(self) -> dict[str, Any]:
        """Return the server's settings and its numbers of scored and refused completions.

        Raises:
            RewardError: the server cannot be reached, or refuses the request.
        """
        return self._send_with_retries("/health", None, dict)

    def _send_with_retries(
        self, path: str, content: Mapping[str, Any] | None, read: Callable[[Any], T]
    ) -> T:
        """Send a request and return the parsed response.

        The request is repeated while the server is unreachable or busy, or its response is
        unreadable.
        """
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = (
            None if content is None else json.dumps(content, default=_convert_to_json_type).encode()
        )
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        wait_s, tries, num_bad_responses = FIRST_WAIT_S, 0, 0
        while True:
            tries += 1
            try:
                return self._parse_response(self._send_request(request), read)
            except _RetryableError as error:
                num_bad_responses += isinstance(error, _UnreadableResponse)
                if tries == MAX_TRIES or num_bad_responses == MAX_BAD_RESPONSES:
                    raise RewardError(f"{error} (after {tries} tries)") from error
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, LAST_WAIT_S)

    def _parse_response(self, response: bytes, read: Callable[[Any], T]) -> T:
        remedy = "Give the URL of a server that `mclabel serve-rewards` started"
        try:
            content = json.loads(response)
        except (ValueError, RecursionError) as error:
            raise _UnreadableResponse(
                f"{self.url}: does not respond with JSON. {remedy}"
            ) from error
        try:
            return read(content)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise _UnreadableResponse(
                f"{self.url}: its response holds no rewards ({type(error).__name__}: {error}). "
                f"{remedy}"
            ) from error

    def _send_request(self, request: urllib.request.Request) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            error_type = _RetryableError if error.code in (429, 503) else RewardError
            raise error_type(
                f"{self.url}: the server refused the request ({error.code}): "
                f"{_read_refusal_message(error)}"
            ) from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            error_type = (
                _RetryableError if isinstance(reason, ConnectionRefusedError) else RewardError
            )
            raise error_type(f"{self.url}: the server cannot be reached ({reason})") from error


def _convert_to_json_type(value: Any) -> Any:
    """Convert an array to a list, and a decimal number to text, since JSON lacks these types."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(
        f"an answer has the type {type(value).__name__}, but must be a string, a number, or a list "
        "of strings and numbers"
    )


class _RetryableError(Exception):
    """Error after which a request is repeated: no connection, a busy server, a bad response."""


class _UnreadableResponse(_RetryableError):
    """Error for a response of the server that cannot be parsed."""


def _read_refusal_message(error: urllib.error.HTTPError) -> str:
    """Return the server's reason for refusing a request."""
    try:
        text = error.read(MAX_REFUSAL_BYTES).decode(errors="replace")
    except (OSError, HTTPException):
        return str(error.reason)
    try:
        return str(json.loads(text)["error"]["message"])
    except (LookupError, TypeError, ValueError, RecursionError):
        return text


def _read_rewards(response: Any, count: int) -> list[StepRewards]:
    rewards = [_parse_step_rewards(content) for content in response["items"]]
    if len(rewards) != count:
        raise ValueError(f"gave {len(rewards)} rewards for {count} completions")
    return rewards


def _parse_step_rewards(content: Mapping[str, Any]) -> StepRewards:
    """Read the rewards of one completion; fields of later versions are ignored."""
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


def strip_end_tokens(completion: str, end_tokens: Sequence[str] = END_TOKENS) -> str:
    """Remove the end tokens at the end of a completion, and the white space after them."""
    while matching_tokens := [end for end in end_tokens if completion.rstrip().endswith(end)]:
        completion = completion.rstrip().removesuffix(max(matching_tokens, key=len))
    return completion


def find_token_end_indices(
    ids: Sequence[int], ends: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> list[int]:
    """Return the token index at which each step ends, exclusive, in a trainer's tokens.

    A token belongs to the step that contains its last character. Tokens after the last step, such
    as the end token, belong to the last step.

    Args:
        ids: token ids of the completion, from the trainer's tokenizer.
        ends: exclusive end position of each step in the text, in characters, increasing.
        decode: function that returns the text of ids without special tokens.

    Returns:
        One exclusive token index for each step. They do not decrease, and the last is `len(ids)`.
    """
    if not ends:
        return []
    token_positions: list[int] = []
    low = 0
    for end in ends[:-1]:
        high = len(ids)
        while low < high:  # find the fewest tokens whose text reaches the step's end
            middle = (low + high) // 2
            if len(decode(ids[:middle])) < end:
                low = middle + 1
            else:
                high = middle
        token_positions.append(low)
    return [*token_positions, len(ids)]


def spread_credits(credits: Sequence[float], ends: Sequence[int], num_tokens: int) -> list[float]:
    """Return one advantage per token: the credit (advantage) of the token's step.

    Args:
        credits: credit of each step.
        ends: exclusive end position of each step in tokens, increasing.
        num_tokens: number of tokens of the completion. Tokens after the last step have 0.
    """
    advantages: list[float] = []
    for credit, end in zip(credits, ends, strict=True):
        advantages += [float(credit)] * (end - len(advantages))
    return advantages + [0.0] * (num_tokens - len(advantages))


def place_credits_at_ends(
    credits: Sequence[float], ends: Sequence[int], num_tokens: int
) -> list[float]:
    """Return one reward per token: a step's credit at its last token, 0 at all other tokens.

    The credits of steps that end at the same token are summed.

    Args:
        credits: credit of each step.
        ends: exclusive end position of each step in tokens, increasing.
        num_tokens: number of tokens of the completion.
    """
    rewards = [0.0] * num_tokens
    for credit, end in zip(credits, ends, strict=True):
        rewards[max(0, end - 1)] += float(credit)
    return rewards


# Solutions that get the reward 0 even if their answer is right.
#
# A policy in training learns to exploit its reward. An empty solution, or one that repeats a single
# step, can have a high mean step score (2410.15115).

_MIN_STEPS = 4
"""Minimum number of steps of a solution that can count as repeated."""


def find_zero_reward_reason(steps: Sequence[str]) -> str | None:
    """Return why a solution gets the reward 0 whatever its answer: `empty` or `repeated`, or None.

    A solution is `repeated` if it has at least 4 steps that are not blank, and more than half of
    them repeat an earlier step word for word.

    Args:
        steps: texts of the steps.
    """
    texts = [text for step in steps if (text := step.strip())]
    if not texts:
        return "empty"
    if len(texts) >= _MIN_STEPS and len(texts) - len(set(texts)) > len(texts) / 2:
        return "repeated"
    return None
