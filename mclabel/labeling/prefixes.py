"""The distinct prefixes of a problem's solutions, and how rollouts run through them.

Index 0 is the bare problem. A prefix is known by its token ids; a rollout that starts with the
ids that lead from one prefix to another has gone through both, and is a free rollout of the
second. An estimator that searches rollouts has them added step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mclabel.agreement import step_key
from mclabel.data.steps import StepRules
from mclabel.estimators import ROOT, Follow, SolutionPath, Told
from mclabel.records import Completion, Counts, Outcome, Problem, Solution
from mclabel.seeds import prefix_id

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
        rules: StepRules,
        thinks: bool,
        free_outcomes: bool,
    ) -> None:
        """Args:
        problem: the prefixes begin with.
        solutions: with at least one step each.
        rules: how rollouts are split.
        thinks: the prompt ends where the policy's thinking begins.
        free_outcomes: sampled solutions were not chosen by their outcomes.
        """
        self._problem_id, self._rules = problem.id, rules
        self._thinks, self._free_outcomes = thinks, free_outcomes
        self.prefixes = [Prefix(id=prefix_id(problem.id, ()), ids=(), text="")]
        self.paths = [self._path(solution) for solution in solutions]

    def told(
        self, number: int, completion: Completion, outcome: Outcome, follow: Follow, decode: Decode
    ) -> Told:
        """What an estimator is to hear of a rollout from prefix `number`."""
        if follow == "nothing":
            return Told(prefix=number, outcome=outcome, num_tokens=len(completion.ids))
        prefix = self.prefixes[number].text
        opened = self._rules.thinks_after(prefix, opened=self._thinks)
        steps = self._rules.split(completion.ids, completion.text, decode, opened=opened)
        keys = tuple(step_key(step.text) for step in steps)
        if follow == "known":
            return Told(
                prefix=number,
                outcome=outcome,
                num_tokens=len(completion.ids),
                path=self._known(number, completion.ids),
                step_keys=keys,
            )
        path, at, begin = [], number, 0
        for step in steps[:-1]:
            at = self._step(at, completion.ids[begin : step.end], step.text)
            path.append(at)
            begin = step.end
        begins = (0, *(step.end for step in steps[:-1]))
        return Told(
            prefix=number,
            outcome=outcome,
            num_tokens=len(completion.ids),
            path=tuple(path),
            step_keys=keys,
            step_tokens=tuple(s.end - a for s, a in zip(steps, begins, strict=True)),
        )

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
            here.children[ids] = len(self.prefixes)
            whole = here.ids + ids
            self.prefixes.append(
                Prefix(id=prefix_id(self._problem_id, whole), ids=whole, text=here.text + text)
            )
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
