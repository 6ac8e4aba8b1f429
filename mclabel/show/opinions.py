"""What the sources of a consensus say of a solution, in words, and the places they point at.

Names and reasons are somebody else's text: they are bounded here, and made safe where they are
shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mclabel.core.records import Consensus, Flag, SourceOpinion, Step

MAX_OPINIONS = 20
"""Shown of a solution."""
MAX_PLACES = 20
"""Shown of a step."""
MAX_NAME = 60
"""Characters of a source, a rule or a quoted place."""
MAX_REASON = 300
"""Characters."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in a step that a source points at."""

    start: int
    """First character; places lie within their step, whatever was recorded."""
    end: int
    """Character behind it, `start` where it is between two characters."""
    words: str
    """Who points at what, and why."""


def opinion_words(opinion: SourceOpinion) -> str:
    """`step 3`, `at or before step 2`, `no error`, `nothing found` or `unknown`; 0-based."""
    if not opinion.is_known:
        return "unknown"
    silent_on_the_rest = opinion.claim == "at_or_before"
    if opinion.first_error is None:
        return "nothing found" if silent_on_the_rest else "no error"
    return f"{'at or before ' if silent_on_the_rest else ''}step {opinion.first_error}"


def opinions_words(consensus: Consensus) -> list[tuple[str, str]]:
    """Sources and what each says, in order, the last for those that are too many to show."""
    found = [
        (_line(one.source, MAX_NAME), opinion_words(one))
        for one in consensus.opinions[:MAX_OPINIONS]
    ]
    if (left := len(consensus.opinions) - MAX_OPINIONS) > 0:
        found.append(("others", f"{left:,} not shown"))
    return found


def rule_name(consensus: Consensus) -> str:
    """The rule of a consensus, bounded."""
    return _line(consensus.rule, MAX_NAME)


def kept_word(consensus: Consensus) -> str:
    """Whether the solution's labels are used."""
    return "kept" if consensus.kept else "not kept"


def places_by_step(
    consensus: Consensus | None, steps: Sequence[Step]
) -> Mapping[int, Sequence[Place]]:
    """Places by the index of their step, from left to right; of too many, the first and a count."""
    found: dict[int, list[Place]] = defaultdict(list)
    for opinion in () if consensus is None else consensus.opinions:
        for flag in opinion.flags:
            if 0 <= flag.step < len(steps):
                found[flag.step].append(_place(opinion.source, flag, steps[flag.step].text))
    return {
        step: _first(sorted(places, key=lambda place: (place.start, place.end)))
        for step, places in found.items()
    }


def pieces(text: str, places: Sequence[Place]) -> Iterator[tuple[str, list[Place]]]:
    """A text cut where places begin and end, each part with the places that cover it."""
    inside = {at for place in places for at in (place.start, place.end) if 0 < at < len(text)}
    for start, end in pairwise(sorted({0, len(text), *inside})):
        yield text[start:end], [p for p in places if p.start < end and p.end > start]


def _place(source: str, flag: Flag, text: str) -> Place:
    start = min(max(0, flag.start), len(text))
    end = min(max(start, flag.end), len(text))
    quote = " ".join(text[start:end][: MAX_NAME + 1].split())
    quoted = f", “{_line(quote, MAX_NAME)}”" if quote else ""
    words = f"{_line(source, MAX_NAME)}{quoted}: {_line(flag.reason, MAX_REASON)}"
    return Place(start=start, end=end, words=words)


def _first(places: list[Place]) -> list[Place]:
    """The first MAX_PLACES, and how many are left out."""
    left = len(places) - MAX_PLACES
    rest = [Place(start=0, end=0, words=f"{left:,} more not shown")] if left > 0 else []
    return places[:MAX_PLACES] + rest


def _line(text: str, limit: int) -> str:
    """A text in one line, bounded."""
    line = text[: limit + 1].replace("\n", " ")
    return line if len(text) <= limit else f"{line[: limit - 1]}…"
