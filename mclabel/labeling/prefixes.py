"""The distinct prefixes of a problem's solutions, and how rollouts run through them.

Index 0 is the bare problem. A prefix is known by its token ids; a rollout that starts with the
ids that lead from one prefix to another has gone through both, and is a free rollout of the
second. An estimator that searches rollouts has them added step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from mclabel.data.steps import StepSplitter
from mclabel.estimators import ROOT, RecordedRollout, SolutionPath
from mclabel.records import Counts, Problem, Rollout, Solution, Step
from mclabel.seeds import prefix_id
from mclabel.step_keys import step_key

Decode = Callable[[Sequence[int]], str]


@dataclass
class Prefix:
    """One distinct prefix and what was rolled out from it."""

    id: str
    ids: tuple[int, ...]
    text: str
    counts: Counts = field(default_factory=Counts)
    num_asked: int = 0
    children: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Index of the prefix that a step leads to, by the step's ids."""


class PrefixTable:
    """Prefixes by index, and the ways through them."""

    def __init__(
        self,
        problem: Problem,
        solutions: Sequence[Solution],
        *,
        free_outcomes: bool,
        splitter: StepSplitter | None = None,
        thinks: bool = False,
    ) -> None:
        """Begin with the prefixes of a problem's solutions.

        Args:
            problem: that the prefixes begin with.
            solutions: with at least one step each.
            free_outcomes: whether sampled solutions were not chosen by their outcomes.
            splitter: of rollouts, where they are followed.
            thinks: whether the prompt ends where the policy's thinking begins.
        """
        self._problem_id, self._splitter = problem.id, splitter or StepSplitter()
        self._thinks, self._free_outcomes = thinks, free_outcomes
        self.prefixes = [Prefix(id=prefix_id(problem.id, ()), ids=(), text="")]
        self._by_id = {self.prefixes[ROOT].id: ROOT}
        self.paths = [self._path(solution) for solution in solutions]

    def received(self, number: int, rollout: Rollout) -> RecordedRollout:
        """What an estimator receives of a rollout from prefix `number` whose way is on record."""
        ends = (0, *(rollout.step_ends or ()))
        return RecordedRollout(
            prefix=number,
            outcome=rollout.outcome,
            num_tokens=rollout.num_tokens,
            path=tuple(self._by_id[identity] for identity in rollout.through or ()),
            step_keys=tuple(step_key(rollout.text[a:b]) for a, b in pairwise(ends)),
        )

    def followed(
        self, number: int, rollout: Rollout, ids: Sequence[int], decode: Decode
    ) -> Rollout:
        """The rollout, with its steps and the prefixes of the table that it went through."""
        steps = self._split(number, rollout, ids, decode)
        return replace(
            rollout,
            step_ends=tuple(accumulate(len(step.text) for step in steps)),
            through=tuple(self.prefixes[known].id for known in self._known(number, tuple(ids))),
        )

    def grown(
        self, number: int, rollout: Rollout, ids: tuple[int, ...], decode: Decode
    ) -> RecordedRollout:
        """What an estimator that follows all receives; the table grows by the rollout's steps."""
        steps = self._split(number, rollout, ids, decode)
        path, at, begin = [], number, 0
        for step in steps[:-1]:
            at = self._step(at, ids[begin : step.end], step.text)
            path.append(at)
            begin = step.end
        begins = (0, *(step.end for step in steps[:-1]))
        return RecordedRollout(
            prefix=number,
            outcome=rollout.outcome,
            num_tokens=rollout.num_tokens,
            path=tuple(path),
            step_keys=tuple(step_key(step.text) for step in steps),
            step_tokens=tuple(s.end - a for s, a in zip(steps, begins, strict=True)),
        )

    def _split(
        self, number: int, rollout: Rollout, ids: Sequence[int], decode: Decode
    ) -> tuple[Step, ...]:
        opened = self._splitter.thinks_after(self.prefixes[number].text, opened=self._thinks)
        return self._splitter.split(ids, rollout.text, decode, opened=opened)

    def _path(self, solution: Solution) -> SolutionPath:
        path, at, begin = [], ROOT, 0
        for step in solution.steps[:-1]:
            at = self._step(at, solution.ids[begin : step.end], step.text)
            path.append(at)
            begin = step.end
        starts = (0, *(step.end for step in solution.steps[:-1]))
        return SolutionPath(
            prefixes=tuple(path),
            outcome=solution.outcome,
            sampled=solution.origin == "sampled" and self._free_outcomes,
            step_tokens=tuple(s.end - a for s, a in zip(solution.steps, starts, strict=True)),
            step_keys=tuple(step_key(s.text) for s in solution.steps),
        )

    def _step(self, at: int, ids: tuple[int, ...], text: str) -> int:
        """The prefix one step on, added if it is new."""
        here = self.prefixes[at]
        if ids not in here.children:
            whole = here.ids + ids
            identity = prefix_id(self._problem_id, whole)
            if identity not in self._by_id:  # or two solutions split the same ids otherwise
                self._by_id[identity] = len(self.prefixes)
                self.prefixes.append(Prefix(id=identity, ids=whole, text=here.text + text))
            here.children[ids] = self._by_id[identity]
        return here.children[ids]

    def _known(self, number: int, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Prefixes of the table that these ids run through."""
        path: list[int] = []
        at, begin = number, 0
        while True:
            ways = self.prefixes[at].children.items()
            step = next((s for s, _ in ways if ids[begin : begin + len(s)] == s), None)
            if step is None:
                return tuple(path)
            at = self.prefixes[at].children[step]
            begin += len(step)
            path.append(at)
