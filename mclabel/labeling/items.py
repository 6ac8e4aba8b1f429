"""Problems as the items of a labelling job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mclabel.core.records import GivenSolution, Problem
from mclabel.core.seeds import canonical_json
from mclabel.data.readers.problems import Problems


class ProblemItem(NamedTuple):
    """A problem to be labelled. A tuple, as jobs make and drop millions of them to plan."""

    problem: Problem
    given: tuple[GivenSolution, ...] = ()
    """Solutions to label; without any, the policy samples them."""

    @property
    def id(self) -> str:
        """The problem's."""
        return self.problem.id

    @property
    def num_chars(self) -> int:
        """Length of the problem's text."""
        return len(self.problem.text)

    def content(self) -> Sequence[str]:
        """Text, gold, and the given solutions with the ends of their steps."""
        texts = [self.problem.text, self.problem.answer]
        for solution in self.given:
            ends = None if solution.step_ends is None else list(solution.step_ends)
            texts += [solution.text, canonical_json(ends).decode()]
        return texts

    def extras(self) -> Sequence[str]:
        """Names and values of the problem's other columns."""
        return [text for pair in sorted(self.problem.meta.items()) for text in pair]


class ProblemItems:
    """Problems, with the solutions that are given for them, as items of a job."""

    def __init__(
        self, problems: Problems, given: Mapping[str, tuple[GivenSolution, ...]] | None = None
    ) -> None:
        """Pair problems with their solutions.

        Args:
            problems: with distinct ids.
            given: solutions to label, by problem id; None lets the policy sample them.
        """
        self._problems, self._given = problems, given or {}

    def __len__(self) -> int:
        return len(self._problems)

    def __iter__(self) -> Iterator[ProblemItem]:
        if not self._given:
            return map(ProblemItem, self._problems)
        return (ProblemItem(p, self._given.get(p.id, ())) for p in self._problems)
