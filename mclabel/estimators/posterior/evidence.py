"""Collects what samples say of a problem's solutions: outcomes and agreement, prefix by prefix.

Samples are the other solutions, from the bare problem, and rollouts, from where they started. A
sample's outcome is a rollout of the prefix it started from, for every solution that holds this
prefix. (Not of deeper prefixes that it went through: those that part earlier would have to be left
out of the first prefix's, and that selects by outcome.) Where samples part from a solution tells
how many agree on each of its steps. Without agreement prefixes are the same when their tokens are;
with it, when all their steps say the same (`mclabel.agreement`), so that it works on free text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mclabel.estimators.base import ROOT, SolutionPath, Told
from mclabel.estimators.posterior.chain import Evidence
from mclabel.records import Outcome
from mclabel.values import TruncatedPolicy

State = Sequence[int] | tuple[str, ...]


class EvidenceTable:
    """Evidence of one problem's solutions, growing with every rollout."""

    def __init__(
        self, paths: Sequence[SolutionPath], *, agreement: bool, truncated: TruncatedPolicy
    ) -> None:
        self._paths, self._agreement, self._truncated = paths, agreement, truncated
        self.num_steps = np.array([path.num_steps for path in paths])
        width = int(self.num_steps.max(initial=1)) + 1
        self.counts = np.zeros((4, len(paths), width))
        """`right`, `wrong`, `same` and `others` of `Evidence`."""
        self._right, self._wrong, self._same, self._others = self.counts
        ends = [_end(path.outcome, truncated) for path in paths]
        self.outcome = np.array(ends, dtype=np.float64).reshape(-1, 2)
        self.holders: dict[int, list[tuple[int, int]]] = {}
        """By prefix: the solutions that hold it, and after how many steps."""
        self._hold()
        for index, path in enumerate(paths):
            if path.sampled:
                others = [(b, 0) for b in range(len(paths)) if b != index]
                self._add(others, path.prefixes, path.step_keys, path.outcome)

    def tell(self, rollout: Told) -> None:
        """Take a rollout from one of the prefixes."""
        holders = self.holders[rollout.prefix]
        self._add(holders, rollout.path, rollout.step_keys, rollout.outcome)

    def evidence(self) -> Evidence:
        """All of it, as it is now."""
        return Evidence(
            num_steps=self.num_steps,
            right=self._right,
            wrong=self._wrong,
            same=self._same,
            others=self._others,
            outcome=self.outcome,
        )

    def _hold(self) -> None:
        states: dict[object, list[tuple[int, int]]] = {}
        prefixes: dict[int, object] = {}
        for b, path in enumerate(self._paths):
            for depth, prefix in enumerate((ROOT, *path.prefixes)):
                keyed = self._agreement and path.step_keys
                state = path.step_keys[:depth] if keyed else prefix
                states.setdefault(state, []).append((b, depth))
                prefixes.setdefault(prefix, state)
        self.holders = {prefix: states[state] for prefix, state in prefixes.items()}

    def _add(
        self,
        holders: Iterable[tuple[int, int]],
        prefixes: Sequence[int],
        keys: Sequence[str],
        outcome: Outcome,
    ) -> None:
        for b, begin in holders:
            path = self._paths[b]
            steps = path.num_steps
            ours, theirs = (
                (path.step_keys, keys) if self._agreement and path.step_keys else ((), ())
            )
            for to_go, own, other in zip(
                range(steps - begin, 0, -1), ours[begin:], theirs, strict=False
            ):
                self._others[b, to_go] += 1
                if own != other:
                    break
                self._same[b, to_go] += 1
            if outcome is Outcome.RIGHT:
                self._right[b, steps - begin] += 1
            elif outcome is Outcome.WRONG or (
                outcome is Outcome.TRUNCATED and self._truncated == "wrong"
            ):
                self._wrong[b, steps - begin] += 1


def _end(outcome: Outcome, truncated: TruncatedPolicy) -> tuple[float, float]:
    if outcome is Outcome.RIGHT:
        return 0.0, 1.0
    if outcome is Outcome.WRONG or (outcome is Outcome.TRUNCATED and truncated == "wrong"):
        return 1.0, 0.0
    return 1.0, 1.0


def stack_evidence(parts: Sequence[Evidence]) -> Evidence:
    """One batch of several, padded to the longest solution."""
    width = max(part.right.shape[1] for part in parts)

    def padded(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        arrays = [getattr(part, name) for part in parts]
        return np.concatenate([np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in arrays])

    return Evidence(
        num_steps=np.concatenate([part.num_steps for part in parts]),
        right=padded("right"),
        wrong=padded("wrong"),
        same=padded("same"),
        others=padded("others"),
        outcome=np.concatenate([part.outcome for part in parts]),
    )
