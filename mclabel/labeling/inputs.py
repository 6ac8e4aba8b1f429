"""What a labelling job reads: problems as its items, given solutions, and what of them cannot be
used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Self

from mclabel.core.records import GivenSolution, Problem
from mclabel.core.seeds import canonical_json
from mclabel.data.readers.problems import ChosenProblems, Problems, ProblemStream, read_problems
from mclabel.data.readers.solutions import read_selected, read_solutions
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.given import SourceRun
from mclabel.run.forecast import Size
from mclabel.run.shards.rejects import Reject


def input_config(config: LabelConfig) -> dict[str, Any]:
    """Where problems and solutions come from: recorded, while the plan holds what they are."""
    return {
        "problems": config.problems.model_dump(),
        "solutions": {
            "path": config.solutions.path,
            "run": config.solutions.run,
            "select": config.solutions.select,
        },
        "block_problems": config.block_problems,
    }


@dataclass(frozen=True, kw_only=True)
class ProblemInputs:
    """Problems of a job, with solutions where they are given."""

    problems: Problems
    given: Mapping[str, tuple[GivenSolution, ...]] | None = None
    """Solutions by problem id; None lets the policy sample them."""
    size: Size
    """How much text all problems have."""
    rejects: Callable[[], Iterable[Reject]]
    """Gives what of the input cannot be used."""
    sampled_here: bool = True
    """Whether all tokens of the labels are this job's: no rollouts are taken over."""

    @classmethod
    def of(cls, stream: ProblemStream) -> Self:
        """Of problems that were read."""
        rejects: Callable[[], Iterable[Reject]] = stream.rejects if stream.num_rejected else tuple
        return cls(problems=stream, size=stream.size, rejects=rejects)

    @property
    def items(self) -> ProblemItems:
        """The problems with their solutions, as items of the job."""
        return ProblemItems(self.problems, self.given)


def load_inputs(config: LabelConfig, source: SourceRun | None = None) -> ProblemInputs:
    """Problems and solutions of a configuration.

    Args:
        config: of the job.
        source: the run whose solutions are labelled; its problems are those of the job.

    Raises:
        DataError: they cannot be read; if `strict`, a row of theirs cannot be used.
    """
    if source is not None:
        lengths = (len(problem.text) for problem in source)
        return ProblemInputs(
            problems=source,
            size=Size.of_lengths(lengths),
            rejects=tuple,
            sampled_here=False,
        )
    path = config.solutions.path
    stream = read_problems(
        config.problems, may_repeat=path == config.problems.source, strict=config.strict
    )
    read = ProblemInputs.of(stream)
    if path is None:
        return read
    problems, size = read.problems, read.size
    manifest = config.solutions.select
    selected = None if manifest is None else read_selected(manifest)
    found = read_solutions(path, problems, selected=selected, strict=config.strict)
    given = found.by_problem
    if len(given) < len(problems):
        problems = ChosenProblems(problems, given, count=len(given))
        size = Size.of_lengths(len(problem.text) for problem in problems)
    return ProblemInputs(
        problems=problems,
        given=given,
        size=size,
        rejects=lambda: chain(read.rejects(), found.rejects),
    )


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
