"""What a killed search leaves: every completion that was sampled, by its place in the tree."""

from __future__ import annotations

from functools import partial

from mclabel.core.records import Completion
from mclabel.run.shards.journal import BlockJournal, JournalEntry, Line

Place = tuple[str, str, int, int]
"""Problem, node that was continued, which of its continuations, and which part of that one."""


class SearchJournal:
    """The journal of a block of problems."""

    def __init__(self, journal: BlockJournal) -> None:
        """Read and write completions in a journal.

        Args:
            journal: of an attempt at the block.
        """
        self._journal = journal

    def take(self, place: Place) -> Completion | None:
        """A completion that an earlier attempt has sampled."""
        return self._journal.take(place)

    def add(self, place: Place, completion: Completion) -> None:
        """Record a completion that this attempt has sampled."""
        self._journal.add(partial(_line, place, completion))


def _line(place: Place, completion: Completion) -> Line:
    return {
        "place": list(place),
        "ids": list(completion.ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "at_stop": completion.at_stop,
    }


def read_entry(line: Line) -> JournalEntry:
    """The completion that a line holds."""
    problem, parent, number, part = line["place"]
    completion = Completion(
        ids=tuple(line["ids"]),
        text=line["text"],
        finish_reason=line["finish_reason"],
        at_stop=line["at_stop"],
    )
    return JournalEntry(
        key=(problem, parent, number, part), content=completion, num_tokens=len(completion.ids)
    )
