"""From a critic's answers to votes on where the first error is, and how many votes to ask for.

A vote is known only if the answer gives a verdict in the asked form. Everything else is unknown
with a reason, never "no error": an outage or a cut must not look like a sound solution.

Thoughts between `<think>` tags are no verdict. The one exception is `step_verdicts`, whose models
are trained to write the verdicts into the thought: if those outside are not enough, a closed
thought is read, too.

An answer that was truncated counts only if its verdict is complete already, outside of thoughts:
a box after which no more words came; a conclusion Incorrect, or Correct after an analysis of the
last step; a first step found incorrect after verdicts on all steps before it, or verdicts on all
steps.

`Votes` asks for few votes where they agree and for more where they do not. It is a pure state
machine. Votes are asked for in rounds, and a decision is made only when all votes of a round have
arrived, so that their order within it does not matter. A round asks for the fewest votes after
which a decision is possible, so that each of them matters. Unknown ones are therefore asked for
once more in a round of their own, with twice the budget of tokens, before any others.

Asking eight times always is the majority vote of ProcessBench (arXiv 2412.06559); this one stops
where the majority is certain, or likely enough because the first votes agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mclabel.core.errors import ConfigError
from mclabel.judge.critic.answer_text import (
    MAX_CONTENT,
    boxes,
    is_refusal,
    plain,
    says_correct,
    split_thoughts,
)
from mclabel.judge.critic.verdicts import Fault, read_verdicts

MAX_CHARACTERS = 1_000_000
"""In an answer; a longer one is unknown."""
FIRST_INDEX: Mapping[str, int] = {"processbench": 0, "lessons": 1, "step_verdicts": 1}
"""The index of the first step in prompts and answers, by parser."""
_MAX_REASON = 40
"""Characters of an answer that a reason repeats."""


@dataclass(frozen=True)
class Vote:
    """One answer of a critic about a solution."""

    first_error: int | None
    """Index of the first wrong step from 0. None: no error if the vote is known, else nothing."""
    is_known: bool
    """True if the answer gives a verdict."""
    reason: str = ""
    """Why a vote is unknown; empty if it is known."""
    is_final: bool = False
    """True if an unknown vote stays unknown: its answer failed, which more tokens do not mend."""


def parse_output(text: str, parser: str, num_steps: int, truncated: bool) -> Vote:
    """Read a critic's answer.

    Args:
        text: text of the answer, thoughts included.
        parser: name of the form that was asked for, one of `FIRST_INDEX`.
        num_steps: number of steps of the solution, at least 1.
        truncated: the answer was cut by its length.

    Raises:
        ConfigError: there is no such parser.
    """
    check_parser(parser)
    if len(text) > MAX_CHARACTERS:
        return _unknown(f"longer than {MAX_CHARACTERS:,} characters")
    outside, inside, is_open = split_thoughts(text)
    if truncated and is_open:
        return _unknown("truncated")
    read, nothing = _PARSERS[parser]
    vote = read(outside, num_steps, truncated)
    may_think = parser == "step_verdicts" and inside and not is_open and not truncated
    if may_think and (vote is None or not vote.is_known):
        whole = read(f"{inside}\n{outside}", num_steps, truncated)
        vote = whole if vote is None or (whole is not None and whole.is_known) else vote
    if vote is not None:
        return vote
    if truncated:
        return _unknown("truncated")
    if is_open:
        return _unknown("unclosed think block")
    if not outside.strip():
        return _unknown("nothing after the think block" if inside.strip() else "empty")
    return _unknown("refusal" if is_refusal(outside) else nothing)


def check_parser(name: str) -> None:
    """Refuse a name that no parser has.

    Raises:
        ConfigError: with the names of all.
    """
    if name not in FIRST_INDEX:
        raise ConfigError(
            f"parser={name!r}: there is no such parser. Take one of {', '.join(FIRST_INDEX)}"
        )


def _unknown(reason: str) -> Vote:
    return Vote(None, is_known=False, reason=reason)


_NO_ERROR = Vote(None, is_known=True)


def _located(index: int, parser: str, num_steps: int) -> Vote:
    """Return a vote for a step. Only this function turns indices of answers into indices from 0."""
    first_error = index - FIRST_INDEX[parser]
    if not 0 <= first_error < num_steps:
        return _unknown(f"index {index} of {num_steps} steps")
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
"""Words that some critics write into the box in place of -1."""


def _parse_index(text: str, num_steps: int, truncated: bool) -> Vote | None:
    """Return the index in the last box, as earlier boxes may quote the solution; None if no box."""
    answer_boxes = boxes(text)
    if not answer_boxes:
        return None
    last = answer_boxes[-1]
    if truncated and any(character.isalnum() for character in text[last.end :]):
        return _unknown("truncated")
    if last.content in _NONE and not last.is_negated:
        return _NO_ERROR
    match = _INDEX.fullmatch(last.content)
    if match is None:
        kind = "several indices" if _SEVERAL.match(last.content) else "not an index"
        return _unknown(f"{kind}: {last.content[:_MAX_REASON]}")
    index = int(match[1].replace(" ", ""))
    index = -index if last.is_negated else index
    return _NO_ERROR if index == -1 else _located(index, "processbench", num_steps)


_LESSON_TAG = re.compile(
    r"<\s{0,3}(/?)\s{0,3}(?:analysis[_\s]{0,3}(\d{1,9})|(conclusion))\s{0,3}>", re.IGNORECASE
)
_NEXT_TAG = re.compile(r"</?\s{0,3}[A-Za-z]")


def _parse_lessons(text: str, num_steps: int, truncated: bool) -> Vote | None:
    """Parse the conclusion and, if it is Incorrect, the last analysis that opens before it.

    Closing tags of analyses are not read: the published example has a wrong one itself. A critic
    that concludes after each analysis means its first Incorrect, or its last Correct; one that
    begins anew is read from there. None: there is no conclusion.
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
        says, fault = _conclusion(text, match.end(), truncated)
        if verdict is False and says:
            return _unknown("contradictory conclusions")
        verdict = verdict if says is None else says
    if fault and not (truncated and verdict is not None):
        return _unknown(fault)
    first = FIRST_INDEX["lessons"]
    if verdict is None:
        return None
    if verdict:
        is_complete = not truncated or analyses[-1:] == [first + num_steps - 1]
        return _NO_ERROR if is_complete else _unknown("truncated")
    if not analyses:
        return _unknown("incorrect, but no analysis names the step")
    if analyses[0] < first:
        return _unknown(f"analyses count from {analyses[0]}, not from {first}")
    return _located(analyses[-1], "lessons", num_steps)


def _conclusion(text: str, start: int, truncated: bool) -> tuple[bool | None, str]:
    """Return the result of the conclusion that opens at `start`, or its fault.

    An empty one is neither: it is a closing tag that lacks its slash.
    """
    window = text[start : start + MAX_CONTENT]
    closing = _NEXT_TAG.search(window)
    if closing is None and truncated:
        return None, "truncated"
    content = plain(window[: closing.start()] if closing else window)
    if not content:
        return None, ""
    says = says_correct(content)
    return says, "" if says is not None else f"conclusion: {content[:_MAX_REASON]}"


def _parse_verdicts(text: str, num_steps: int, truncated: bool) -> Vote | None:
    """Return the first step with the verdict incorrect, if all earlier steps have a verdict.

    None: there are no verdicts.
    """
    chain = read_verdicts(text, num_steps)
    if chain is None:
        return None
    if chain.fault is Fault.MISSING and truncated:
        return _unknown("truncated")
    if chain.fault is not None:
        return _unknown(chain.reason)
    return Vote(chain.first_error, is_known=True)


_Reader = Callable[[str, int, bool], Vote | None]
_PARSERS: Mapping[str, tuple[_Reader, str]] = {
    "processbench": (_parse_index, "no box"),
    "lessons": (_parse_lessons, "no conclusion"),
    "step_verdicts": (_parse_verdicts, "no verdicts"),
}
"""Each parser, and the reason if it finds no verdict at all."""


RETRY_BUDGET = 2
"""Factor on the budget of tokens when an unknown vote is asked for once more."""


@dataclass(frozen=True)
class Result:
    """Common result of a critic's votes."""

    counts: Mapping[int | None, int]
    """Known votes by their first error from 0; None stands for no error, and comes first."""
    num_unknown: int
    """Votes that stayed unknown when they were asked for once more."""
    is_decided: bool
    """True if the voting has ended with one location ahead, of `least` known votes or more."""
    first_error: int | None
    """Step that most votes name. None: no error if decided, else nothing."""


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
        """Return whether this round asks once more for unknown votes, with twice the token
        budget.
        """
        return self._is_retry

    def wanted(self) -> int:
        """Return the number of votes that this round still requests; 0 after the voting."""
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
        elif self._is_retry or vote.is_final:
            self._num_unknown += 1
        else:
            self._num_to_retry += 1
        self._due -= 1
        if self._due == 0:
            self._begin_round()

    def result(self) -> Result:
        """Return what the votes of all rounds so far say."""
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
        """Start the next round: retry votes without a verdict, request new votes, or end."""
        self._is_retry = self._num_to_retry > 0
        if self._is_retry:
            self._due, self._num_to_retry = self._num_to_retry, 0
        else:
            self._due = 0 if self._is_certain() else self._fewest_to_decide()
            self._num_asked += self._due

    def _is_certain(self) -> bool:
        """Return whether enough votes are known and no remaining vote could change the leader."""
        if self._num_known < self._least:
            return False
        return len(self._counts) == 1 or self._leader()[1] > self._num_left()

    def _num_left(self) -> int:
        """Return the number of new votes that may still be requested."""
        return self._most - self._num_asked

    def _fewest_to_decide(self) -> int:
        """Return the fewest new votes after which a decision is possible; 0 if none are left."""
        num_left = self._num_left()
        missing = max(self._least - self._num_known, 1)
        if len(self._counts) <= 1:
            return min(missing, num_left)
        to_lead = (num_left - self._leader()[1]) // 2 + 1
        return min(max(missing, to_lead), num_left)

    def _leader(self) -> tuple[int | None, int]:
        """Return the location with the most votes and its lead; 0 in a tie or without votes."""
        ranked = self._counts.most_common(2)
        if not ranked:
            return None, 0
        second = ranked[1][1] if len(ranked) > 1 else 0
        return ranked[0][0], ranked[0][1] - second


def _no_error_first(entry: tuple[int | None, int]) -> int:
    return -1 if entry[0] is None else entry[0]
