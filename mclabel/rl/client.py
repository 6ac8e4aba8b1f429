"""A client of the reward server (`mclabel serve-rewards`). Needs nothing but Python.

Example:
client = RewardClient("http://127.0.0.1:8791", token=os.environ.get("REWARDS_TOKEN"))
(rewards,) = client.score([RewardItem(problem="2 + 2 = ?", completion="4.", answer="4")])
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


class RewardError(RuntimeError):
    """The server cannot be reached, or refuses the request as a whole."""


@dataclass(frozen=True)
class RewardItem:
    """A completion to score."""

    problem: str
    completion: str
    answer: str | None = None
    """The gold answer; needed where the server checks answers."""
    group: str | None = None
    """Completions of one group are compared with each other; None groups by problem."""


@dataclass(frozen=True)
class StepRewards:
    """What the server says of one completion."""

    reward: float
    """One number for the completion, in [0, 1]; 0 where it was refused."""
    outcome: str | None = None
    """`right`, `wrong` or `ungraded`; None where the server checks no answers."""
    ends: tuple[int, ...] = ()
    """Characters of the completion where its steps end."""
    scores: tuple[float, ...] = ()
    """Of a PRM, one a step; empty where the server has none."""
    credits: tuple[float, ...] = ()
    """Advantage of each step, by the credit that the server was started with."""
    ends_segment: tuple[bool, ...] = ()
    """Whether each step is the last of its segment, where a reward is placed."""
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
        """Connect at the first request.

        Args:
            url: of the server, such as `http://127.0.0.1:8791`.
            token: that the server asks for.
            timeout_s: of one request.
        """
        self.url, self.token, self.timeout_s = url.rstrip("/"), token, timeout_s

    def score(self, items: Sequence[RewardItem]) -> list[StepRewards]:
        """Score completions, in order. Whole groups belong into one request.

        Raises:
            RewardError: the server cannot be reached, or refuses the request.
        """
        body = json.dumps({"items": [asdict(item) for item in items]}).encode()
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(f"{self.url}/score", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                found = json.loads(response.read())["items"]
            return [StepRewards(**{k: _frozen(v) for k, v in row.items()}) for row in found]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RewardError(f"reward server {self.url}: {error}. Is it running?") from error


def _frozen(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value
