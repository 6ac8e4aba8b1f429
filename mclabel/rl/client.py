"""A client of the reward server (`mclabel serve-rewards`). It needs only Python.

client = RewardClient("http://127.0.0.1:8791", token=os.environ.get("REWARDS_TOKEN"))
(rewards,) = client.score([RewardItem(problem="2 + 2 = ?", completion="4.", answer="4")])

`token_ends`, `spread` and `at_ends` turn one number per step into one per token, for trainers.
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
"""Texts of the tokens that end a turn, which trainers leave in completions."""
MAX_TRIES = 8
"""Maximum number of requests for one call while the server is unreachable or busy."""
BAD_TRIES = 3
"""Maximum number of unreadable answers for one call."""
FIRST_WAIT_S, LAST_WAIT_S = 0.25, 10.0
"""Seconds before the second request, doubled before each later one, and their maximum."""
MAX_REFUSAL_BYTES = 4_096
"""Maximum number of bytes of a refusal that are read."""


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
    """Rewards and credits of one completion, as the server returns them."""

    reward: float
    """Reward of the completion, in [0, 1]; 0 where it was refused. A masked completion has the mean
    reward of the others of its group, which changes no baseline and gives it no advantage of its
    own."""
    masked: bool = False
    """True if the completion could not be graded or read, so that its reward is unknown. Leave it
    out of rewards, baselines and the loss. Its credits are 0."""
    outcome: str | None = None
    """`right`, `wrong`, `truncated` or `ungraded`; None where the server checks no answers."""
    ends: tuple[int, ...] = ()
    """Exclusive end position of each step in the completion, in characters."""
    scores: tuple[float, ...] = ()
    """PRM score of each step; empty where the server has no PRM."""
    credits: tuple[float, ...] = ()
    """Advantage of each step, computed by the credit that the server was started with."""
    ends_segment: tuple[bool, ...] = ()
    """True for each step that is the last of its segment, where a reward is placed."""
    refused: str | None = None
    """Reason why the completion was not scored, such as `empty`; None if it was scored."""

    @property
    def step_rewards(self) -> tuple[float, ...]:
        """Return credits as rewards to be summed: 0 except at the last step of each segment."""
        pairs = zip(self.credits, self.ends_segment, strict=True)
        return tuple(credit if ends else 0.0 for credit, ends in pairs)


class RewardClient:
    """A client of a reward server. It is safe to use from several threads."""

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 120.0) -> None:
        """Prepare a client, which connects at the first request and tries up to 8 times while the
        server is unreachable or busy.

        Args:
            url: URL of the server, such as `http://127.0.0.1:8791`.
            token: token that the server requires; None sends none.
            timeout_s: maximum seconds per request.

        Raises:
            ValueError: the URL does not begin with http:// or https://.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url={url!r}: must begin with http:// or https://")
        self.url, self.token, self.timeout_s = url.rstrip("/"), token, timeout_s

    def score(self, items: Sequence[RewardItem]) -> list[StepRewards]:
        """Score completions, in order. Send each group as a whole in one request.

        Raises:
            RewardError: the server stays unreachable or busy, or refuses the request.
        """
        content = {"items": [asdict(item) for item in items]}
        read = partial(_all_rewards, count=len(items))
        return self._send_with_retries("/score", content, read)

    def health(self) -> dict[str, Any]:
        """Return the server's settings, and the numbers of completions that it has scored and
        refused.

        Raises:
            RewardError: the server cannot be reached, or refuses the request.
        """
        return self._send_with_retries("/health", None, dict)

    def _send_with_retries(
        self, path: str, content: Mapping[str, Any] | None, read: Callable[[Any], T]
    ) -> T:
        """Send a request and return the parsed answer. Repeat it while the server is unreachable,
        busy or gives an unreadable answer.
        """
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if content is None else json.dumps(content, default=_json_form).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        wait_s, tries, num_bad = FIRST_WAIT_S, 0, 0
        while True:
            tries += 1
            try:
                return self._parse_answer(self._send(request), read)
            except _TryAgain as error:
                num_bad += isinstance(error, _BadAnswer)
                if tries == MAX_TRIES or num_bad == BAD_TRIES:
                    raise RewardError(f"{error}, after {tries} tries") from error
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, LAST_WAIT_S)

    def _parse_answer(self, answer: bytes, read: Callable[[Any], T]) -> T:
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

    def _send(self, request: urllib.request.Request) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            kind = _TryAgain if error.code in (429, 503) else RewardError
            raise kind(f"{self.url}: refused ({error.code}): {_refusal_message(error)}") from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            kind = _TryAgain if isinstance(reason, ConnectionRefusedError) else RewardError
            raise kind(f"{self.url}: cannot be reached ({reason})") from error


def _json_form(value: Any) -> Any:
    """Return the JSON form of an array or a number that JSON does not support."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(
        f"an answer is a {type(value).__name__}: must be a text, a number or a list of them"
    )


class _TryAgain(Exception):
    """The server is unreachable, is busy, or gave an unreadable answer."""


class _BadAnswer(_TryAgain):
    """The server gave an unreadable answer."""


def _refusal_message(error: urllib.error.HTTPError) -> str:
    """Return the reason that the server gives for a refusal."""
    try:
        text = error.read(MAX_REFUSAL_BYTES).decode(errors="replace")
    except (OSError, HTTPException):
        return str(error.reason)
    try:
        return str(json.loads(text)["error"]["message"])
    except (LookupError, TypeError, ValueError, RecursionError):
        return text


def _all_rewards(answer: Any, count: int) -> list[StepRewards]:
    rewards = [_step_rewards(content) for content in answer["items"]]
    if len(rewards) != count:
        raise ValueError(f"gave {len(rewards)} rewards for {count} completions")
    return rewards


def _step_rewards(content: Mapping[str, Any]) -> StepRewards:
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


def without_end_tokens(completion: str, end_tokens: Sequence[str] = END_TOKENS) -> str:
    """Remove end tokens, and the white space behind each, from the end of a completion."""
    while ends := [end for end in end_tokens if completion.rstrip().endswith(end)]:
        completion = completion.rstrip().removesuffix(max(ends, key=len))
    return completion


def token_ends(
    ids: Sequence[int], ends: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> list[int]:
    """Return where steps end in a trainer's tokens.

    A token belongs to the step that contains its last character. Tokens after the last step, such
    as the end token, belong to the last step.

    Args:
        ids: ids of the completion, in the trainer's tokens.
        ends: exclusive end position of each step in the text, in characters, increasing.
        decode: function that returns the text of ids without special tokens.

    Returns:
        One exclusive position for each step, increasing. The last is `len(ids)`.
    """
    if not ends:
        return []
    token_positions: list[int] = []
    low = 0
    for end in ends[:-1]:
        high = len(ids)
        while low < high:  # the first position whose text is as long as the step's end
            middle = (low + high) // 2
            if len(decode(ids[:middle])) < end:
                low = middle + 1
            else:
                high = middle
        token_positions.append(low)
    return [*token_positions, len(ids)]


def spread(credits: Sequence[float], ends: Sequence[int], num_tokens: int) -> list[float]:
    """Return advantages: each token has the credit of its step.

    Args:
        credits: credit of each step.
        ends: exclusive end position of each step in tokens, increasing.
        num_tokens: number of tokens of the completion. Those after the last step have 0.
    """
    tokens: list[float] = []
    for credit, end in zip(credits, ends, strict=True):
        tokens += [float(credit)] * (end - len(tokens))
    return tokens + [0.0] * (num_tokens - len(tokens))


def at_ends(credits: Sequence[float], ends: Sequence[int], num_tokens: int) -> list[float]:
    """Return rewards: each step's credit is at its last token. Credits at the same token are
    summed.

    Args:
        credits: credit of each step.
        ends: exclusive end position of each step in tokens, increasing.
        num_tokens: number of tokens of the completion.
    """
    tokens = [0.0] * num_tokens
    for credit, end in zip(credits, ends, strict=True):
        tokens[max(0, end - 1)] += float(credit)
    return tokens


# Texts that have no reward, whatever they end with. This part needs only Python.
#
# A policy in training finds gaps in its reward: an empty text, or one step that is repeated, which
# can have a high mean of step scores (2410.15115).

_MIN_STEPS = 4
"""Minimum number of steps of a solution that can count as repeated."""


def zero_reward_reason(steps: Sequence[str]) -> str | None:
    """Return why a solution has the reward 0, `empty` or `repeated`; None if nothing is wrong.

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
