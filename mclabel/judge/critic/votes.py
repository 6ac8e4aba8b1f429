"""How many votes to ask a critic for: few where they agree, more where they do not.

A pure state machine. Votes are asked for in rounds, and a decision is made only when all votes of a
round have arrived, so that their order within it does not matter. A round asks for the fewest votes
after which a decision is possible, so that each of them matters. Unknown ones are therefore asked
for once more in a round of their own, with twice the budget of tokens, before any others.

Asking eight times always is the majority vote of ProcessBench (arXiv 2412.06559); this one stops
where the majority is certain, or likely enough because the first votes agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from mclabel.judge.critic.parse import Vote

RETRY_BUDGET = 2
"""Factor on the budget of tokens when an unknown vote is asked for once more."""


@dataclass(frozen=True)
class Result:
    """What a critic's votes say together."""

    counts: Mapping[int | None, int]
    """Known votes by their first error from 0; None stands for no error, and comes first."""
    num_unknown: int
    """Votes that stayed unknown when they were asked for once more."""
    is_decided: bool
    """Whether the voting has ended with one location ahead, of `least` known votes or more."""
    first_error: int | None
    """Where most votes see the first error. None: no error if decided, else nothing."""


class Votes:
    """The votes on one solution.

    They are decided when `least` known votes or more all agree, or when nobody can catch up with
    the leader of `least` known votes or more. When `most` are asked for without that, a single
    leader of `least` known votes or more decides, too.
    """

    def __init__(self, least: int = 3, most: int = 8) -> None:
        """Args:
        least: known votes without which nothing is decided, at least 1.
        most: votes to ask for at most, those asked for once more not counted again; at least
            `least`.

        Raises:
            ValueError: the numbers are out of range.
        """
        if not 1 <= least <= most:
            raise ValueError(f"least={least}, most={most}: must be 1 <= least <= most")
        self._least, self._most = least, most
        self._counts: Counter[int | None] = Counter()
        self._num_asked = 0
        self._num_unknown = 0
        self._num_to_retry = 0
        self._is_retry = False
        self._due = 0
        self._begin_round()

    @property
    def retry(self) -> bool:
        """Whether this round asks once more for unknown votes, with twice the token budget."""
        return self._is_retry

    def wanted(self) -> int:
        """Number of votes that are still to be asked for in this round; 0 once all is done."""
        return self._due

    def record(self, vote: Vote) -> None:
        """Count a vote of this round, in whatever order they arrive.

        Raises:
            ValueError: none was asked for.
        """
        if self._due == 0:
            raise ValueError("no vote was asked for: wanted() is 0")
        if vote.is_known:
            self._counts[vote.first_error] += 1
        elif self._is_retry:
            self._num_unknown += 1
        else:
            self._num_to_retry += 1
        self._due -= 1
        if self._due == 0:
            self._begin_round()

    def result(self) -> Result:
        """What the votes of all rounds so far say."""
        leader, lead = self._leader()
        is_decided = self._due == 0 and lead > 0 and self._num_known >= self._least
        return Result(
            counts=dict(sorted(self._counts.items(), key=_no_error_first)),
            num_unknown=self._num_unknown,
            is_decided=is_decided,
            first_error=leader if is_decided else None,
        )

    @property
    def _num_known(self) -> int:
        return self._counts.total()

    def _begin_round(self) -> None:
        """Ask for unknown votes once more, or for new ones, or for nothing."""
        self._is_retry = self._num_to_retry > 0
        if self._is_retry:
            self._due, self._num_to_retry = self._num_to_retry, 0
        else:
            self._due = 0 if self._is_certain() else self._fewest_to_decide()
            self._num_asked += self._due

    def _is_certain(self) -> bool:
        """Whether no vote to come is needed, or could change who leads."""
        if self._num_known < self._least:
            return False
        return len(self._counts) == 1 or self._leader()[1] > self._num_left()

    def _num_left(self) -> int:
        """New votes that may still be asked for."""
        return self._most - self._num_asked

    def _fewest_to_decide(self) -> int:
        """The fewest new votes after which a decision is possible, 0 if none are left."""
        left = self._num_left()
        missing = max(self._least - self._num_known, 1)
        if len(self._counts) <= 1:
            return min(missing, left)
        to_lead = (left - self._leader()[1]) // 2 + 1
        return min(max(missing, to_lead), left)

    def _leader(self) -> tuple[int | None, int]:
        """The location with most votes, and by how many it leads; 0 in a tie or without votes."""
        ranked = self._counts.most_common(2)
        if not ranked:
            return None, 0
        second = ranked[1][1] if len(ranked) > 1 else 0
        return ranked[0][0], ranked[0][1] - second


def _no_error_first(entry: tuple[int | None, int]) -> int:
    return -1 if entry[0] is None else entry[0]
