"""Reads a critic's answers as votes on the first error, and decides how many votes to request.

A vote is known only if the answer gives a verdict in the requested format. Any other answer is an
unknown vote with a reason, never "no error", so that an outage or a truncated answer is not read as
a verdict on the solution.

Text between `<think>` tags (a thought) is not searched for a verdict. The one exception is the
parser `step_verdicts`, whose models are trained to write verdicts into the thought. If the text
outside of thoughts has no complete verdict, this parser also reads a closed thought.

A truncated answer counts only if its verdict, outside of thoughts, is already complete. A verdict
is complete if it is a box without further words after it, a conclusion Incorrect, a conclusion
Correct after an analysis of the last step, a step called incorrect after verdicts on all earlier
steps, or a verdict on every step.

`VoteCounter` requests few votes if they agree and more if they disagree. Votes are requested in
rounds, and a decision is made only after all votes of a round have arrived. So the order within a
round has no effect. A round requests the fewest votes after which a decision is possible. Unknown
votes are requested once more, with twice the token budget, in a round of their own before any new
votes.

ProcessBench (arXiv 2412.06559) always takes the majority of eight votes. `VoteCounter` stops
earlier, if the majority is certain, or likely because the first votes agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mclabel.core.errors import ConfigError
from mclabel.judge.critic.answer_text import (
    MAX_CONTENT,
    find_boxes,
    is_refusal,
    means_correct,
    normalize_box_content,
    split_thoughts,
)
from mclabel.judge.critic.verdicts import VerdictFault, read_verdicts

MAX_CHARACTERS = 1_000_000
"""Maximum number of characters in an answer; the vote of a longer answer is unknown."""
FIRST_INDEX: Mapping[str, int] = {"processbench": 0, "lessons": 1, "step_verdicts": 1}
"""Maps each parser to the number of the first step in prompts and answers, 0 or 1."""
_MAX_REASON = 40
"""Maximum number of characters of an answer that `Vote.reason` quotes."""


@dataclass(frozen=True)
class Vote:
    """First error of a solution according to one answer of a critic."""

    first_error: int | None
    """Index of the first wrong step, from 0. None means no error if the vote is known."""
    is_known: bool
    """True if the answer gives a verdict."""
    reason: str = ""
    """Reason why the vote is unknown; empty if it is known."""
    is_never_retried: bool = False
    """True if an unknown vote is not requested again, since its request failed and more tokens
    would not help."""


def parse_output(text: str, parser: str, num_steps: int, truncated: bool) -> Vote:
    """Read a critic's answer as a vote on the first error.

    Args:
        text: text of the answer, thoughts included.
        parser: name of the requested answer format, one of `FIRST_INDEX`.
        num_steps: number of steps of the solution, at least 1.
        truncated: True if the answer was cut at its maximum number of tokens.

    Raises:
        ConfigError: there is no such parser.
    """
    check_parser(parser)
    if len(text) > MAX_CHARACTERS:
        return _make_unknown_vote(f"longer than {MAX_CHARACTERS:,} characters")
    outside, inside, is_open = split_thoughts(text)
    if truncated and is_open:
        return _make_unknown_vote("truncated")
    read, nothing = _PARSERS[parser]
    vote = read(outside, num_steps, truncated)
    may_think = parser == "step_verdicts" and inside and not is_open and not truncated
    if may_think and (vote is None or not vote.is_known):
        whole = read(f"{inside}\n{outside}", num_steps, truncated)
        vote = whole if vote is None or (whole is not None and whole.is_known) else vote
    if vote is not None:
        return vote
    if truncated:
        return _make_unknown_vote("truncated")
    if is_open:
        return _make_unknown_vote("unclosed think block")
    if not outside.strip():
        return _make_unknown_vote("nothing after the think block" if inside.strip() else "empty")
    return _make_unknown_vote("refusal" if is_refusal(outside) else nothing)


def check_parser(name: str) -> None:
    """Raise an error if there is no parser of this name.

    Raises:
        ConfigError: there is no such parser; the message lists all parsers.
    """
    if name not in FIRST_INDEX:
        raise ConfigError(
            f"parser={name!r}: there is no such parser. Take one of {', '.join(FIRST_INDEX)}"
        )


def _make_unknown_vote(reason: str) -> Vote:
    return Vote(None, is_known=False, reason=reason)


_NO_ERROR = Vote(None, is_known=True)


def _make_vote_for_step(step_number: int, parser: str, num_steps: int) -> Vote:
    """Return a vote for the step with a number that counts as the parser does, from 0 or 1."""
    first_error = step_number - FIRST_INDEX[parser]
    if not 0 <= first_error < num_steps:
        return _make_unknown_vote(f"index {step_number} of {num_steps} steps")
    return Vote(first_error, is_known=True)


_INDEX = re.compile(
    r"<?/?(?:(?:paragraph|index|段落)(?!-)[ _:=]{0,3})?([+-]? ?\d{1,9})(?:\.0{1,3})?>?"
)
_SEVERAL = re.compile(r"[^a-z]{0,3}(?:paragraph_?)?-?\d{1,9}(?:[\s,;&<>]|and|or|to|-)+.{0,3}\d")
_NONE = frozenset(
    (
        *("none", "no error", "no errors", "no error found", "no errors found", "not found"),
        *("无", "无错误", "没有错误"),
    )
)
"""Words that some critics write into the box instead of -1."""


def _parse_boxed_index(text: str, num_steps: int, truncated: bool) -> Vote | None:
    """Return the vote in the last box; None if there is no box.

    Earlier boxes may quote the solution, so they are ignored.
    """
    answer_boxes = find_boxes(text)
    if not answer_boxes:
        return None
    last = answer_boxes[-1]
    if truncated and any(character.isalnum() for character in text[last.end :]):
        return _make_unknown_vote("truncated")
    if last.content in _NONE and not last.is_negated:
        return _NO_ERROR
    match = _INDEX.fullmatch(last.content)
    if match is None:
        kind = "several indices" if _SEVERAL.match(last.content) else "not an index"
        return _make_unknown_vote(f"{kind}: {last.content[:_MAX_REASON]}")
    index = int(match[1].replace(" ", ""))
    index = -index if last.is_negated else index
    return _NO_ERROR if index == -1 else _make_vote_for_step(index, "processbench", num_steps)


_LESSON_TAG = re.compile(
    r"<\s{0,3}(/?)\s{0,3}(?:analysis[_\s]{0,3}(\d{1,9})|(conclusion))\s{0,3}>", re.IGNORECASE
)
_NEXT_TAG = re.compile(r"</?\s{0,3}[A-Za-z]")


def _parse_lessons_conclusion(text: str, num_steps: int, truncated: bool) -> Vote | None:
    """Return the vote of the conclusion; None if there is no conclusion.

    If the conclusion is Incorrect, the first error is the step of the last analysis that opens
    before it. Closing tags of analyses are ignored, since even the published example has a wrong
    one. If a critic writes a conclusion after each analysis, its first Incorrect counts, or else
    its last Correct. If a critic starts again from an earlier step, only the analyses from there on
    count.
    """
    analyses: list[int] = []
    verdict: bool | None = None
    fault = ""
    for match in _LESSON_TAG.finditer(text):
        if match[1]:
            continue
        if match[2]:
            if verdict is not None and analyses and int(match[2]) <= analyses[-1]:
                analyses, verdict = [], None
            verdict = None if verdict else verdict
            if verdict is not False and (not analyses or int(match[2]) > analyses[-1]):
                analyses.append(int(match[2]))
            continue
        says, fault = _read_conclusion_and_fault(text, match.end(), truncated)
        if verdict is False and says:
            return _make_unknown_vote("contradictory conclusions")
        verdict = verdict if says is None else says
    if fault and not (truncated and verdict is not None):
        return _make_unknown_vote(fault)
    first = FIRST_INDEX["lessons"]
    if verdict is None:
        return None
    if verdict:
        is_complete = not truncated or analyses[-1:] == [first + num_steps - 1]
        return _NO_ERROR if is_complete else _make_unknown_vote("truncated")
    if not analyses:
        return _make_unknown_vote("incorrect, but no analysis names the step")
    if analyses[0] < first:
        return _make_unknown_vote(f"analyses count from {analyses[0]}, not from {first}")
    return _make_vote_for_step(analyses[-1], "lessons", num_steps)


def _read_conclusion_and_fault(text: str, start: int, truncated: bool) -> tuple[bool | None, str]:
    """Return the verdict of the conclusion that opens at the character `start`, and its fault.

    The verdict is True for Correct, and None if there is a fault. An empty conclusion has neither a
    verdict nor a fault, since it is a closing tag that lacks its slash.
    """
    window = text[start : start + MAX_CONTENT]
    closing = _NEXT_TAG.search(window)
    if closing is None and truncated:
        return None, "truncated"
    content = normalize_box_content(window[: closing.start()] if closing else window)
    if not content:
        return None, ""
    says = means_correct(content)
    return says, "" if says is not None else f"conclusion: {content[:_MAX_REASON]}"


def _parse_step_verdicts(text: str, num_steps: int, truncated: bool) -> Vote | None:
    """Return the vote for the first incorrect step; None if there are no verdicts.

    The vote is unknown if an earlier step has no verdict.
    """
    chain = read_verdicts(text, num_steps)
    if chain is None:
        return None
    if chain.fault is VerdictFault.MISSING and truncated:
        return _make_unknown_vote("truncated")
    if chain.fault is not None:
        return _make_unknown_vote(chain.reason)
    return Vote(chain.first_error, is_known=True)


_Reader = Callable[[str, int, bool], Vote | None]
_PARSERS: Mapping[str, tuple[_Reader, str]] = {
    "processbench": (_parse_boxed_index, "no box"),
    "lessons": (_parse_lessons_conclusion, "no conclusion"),
    "step_verdicts": (_parse_step_verdicts, "no verdicts"),
}
"""Maps each parser to its function, and to the vote's reason if the function finds no verdict."""


RETRY_BUDGET = 2
"""Factor of the token budget when an unknown vote is requested once more."""


@dataclass(frozen=True)
class VoteResult:
    """Result of the votes on a solution."""

    counts: Mapping[int | None, int]
    """Maps each 0-based first error to its number of known votes. The key None means no error and
    comes first."""
    num_unknown: int
    """Number of votes that are unknown and are not requested again."""
    is_decided: bool
    """True if voting has ended, enough votes are known, and one first error has the most votes."""
    first_error: int | None
    """Index of the step that most votes name. None means no error if the votes are decided."""


class VoteCounter:
    """Counts the votes on one solution and decides how many more to request.

    A vote is known if the critic's answer gives a verdict. An unknown vote is requested once more,
    unless `Vote.is_never_retried` is set.

    With at least `min_votes` known votes, the solution is decided as soon as all known votes agree,
    or as soon as the remaining votes cannot change which first error leads. After `max_votes`
    requested votes, the leading first error also decides, unless there is a tie.
    """

    def __init__(self, min_votes: int = 3, max_votes: int = 8) -> None:
        """Begin the voting on a solution.

        Args:
            min_votes: minimum number of known votes for a decision, at least 1.
            max_votes: maximum number of requested votes, at least `min_votes`. The second request
                for an unknown vote does not count.
        """
        self._min_votes, self._max_votes = min_votes, max_votes
        self._counts: Counter[int | None] = Counter()
        self._num_asked = 0
        self._num_unknown = 0
        self._num_to_retry = 0
        self._is_retry = False
        self._due = 0
        self._begin_round()

    @property
    def is_retry_round(self) -> bool:
        """True if this round requests unknown votes once more, with twice the token budget."""
        return self._is_retry

    def count_votes_needed(self) -> int:
        """Return the number of votes that this round still needs; 0 once voting has ended."""
        return self._due

    def record(self, vote: Vote) -> None:
        """Count a vote of this round. The order of the votes has no effect.

        Raises:
            ValueError: no vote was requested.
        """
        if self._due == 0:
            raise ValueError("no vote was requested: count_votes_needed() is 0")
        if vote.is_known:
            self._counts[vote.first_error] += 1
        elif self._is_retry or vote.is_never_retried:
            self._num_unknown += 1
        else:
            self._num_to_retry += 1
        self._due -= 1
        if self._due == 0:
            self._begin_round()

    def result(self) -> VoteResult:
        """Return the result of the votes of all rounds so far."""
        leader, lead = self._find_leader_and_votes()
        is_decided = self._due == 0 and lead > 0 and self._num_known_votes >= self._min_votes
        return VoteResult(
            counts=dict(
                sorted(self._counts.items(), key=lambda entry: -1 if entry[0] is None else entry[0])
            ),
            num_unknown=self._num_unknown,
            is_decided=is_decided,
            first_error=leader if is_decided else None,
        )

    @property
    def _num_known_votes(self) -> int:
        return self._counts.total()

    def _begin_round(self) -> None:
        """Start the next round: retry votes without a verdict, request new votes, or end."""
        self._is_retry = self._num_to_retry > 0
        if self._is_retry:
            self._due, self._num_to_retry = self._num_to_retry, 0
        else:
            self._due = 0 if self._has_certain_leader() else self._count_votes_to_decide()
            self._num_asked += self._due

    def _has_certain_leader(self) -> bool:
        """Return whether enough votes are known and no remaining vote could change which leads."""
        if self._num_known_votes < self._min_votes:
            return False
        return (
            len(self._counts) == 1
            or self._find_leader_and_votes()[1] > self._count_remaining_votes()
        )

    def _count_remaining_votes(self) -> int:
        """Return the number of new votes that may still be requested."""
        return self._max_votes - self._num_asked

    def _count_votes_to_decide(self) -> int:
        """Return the fewest new votes after which a decision is possible; 0 if none are left."""
        num_left = self._count_remaining_votes()
        missing = max(self._min_votes - self._num_known_votes, 1)
        if len(self._counts) <= 1:
            return min(missing, num_left)
        to_lead = (num_left - self._find_leader_and_votes()[1]) // 2 + 1
        return min(max(missing, to_lead), num_left)

    def _find_leader_and_votes(self) -> tuple[int | None, int]:
        """Return the first error with the most votes, and its lead over the next one in votes.

        The lead is 0 in a tie or without votes.
        """
        ranked = self._counts.most_common(2)
        if not ranked:
            return None, 0
        second = ranked[1][1] if len(ranked) > 1 else 0
        return ranked[0][0], ranked[0][1] - second
