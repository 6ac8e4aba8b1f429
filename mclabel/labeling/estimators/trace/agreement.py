"""What is seen of a step itself: the way the solution takes, and whether others take it, too.

A solution that corrects itself goes over its steps again. So a step takes one of four ways: it is
the first of its content; it goes over *again* what followed the step before it earlier; it goes
*otherwise* than then, which is how a repair looks, and a slip in a check; or it goes *back* to
something said earlier. Steps are told by their content (`mclabel.answers.step_keys`). One with
fewer than two numbers derives nothing: it is not compared, and neither is an answer on the way.

Samples are the other solutions of the problem. A step that goes wrong is one that few of them take,
at a point to which many come; a repair leaves a way that few take for one that many do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Outcome
from mclabel.labeling.estimators.paths import SolutionPath

Floats = NDArray[np.float64]

FIRST, AGAIN, OTHERWISE, BACK = range(4)
SOURCES = {
    # Of each kind of move: carried, recovered, error, sound.
    "way": (
        (0.46, 0.23, 0.16, 0.15),
        (0.1, 0.25, 0.58, 0.07),
        (0.67, 0.04, 0.26, 0.03),
        (0.47, 0.35, 0.09, 0.09),
    ),
    "held by right": ((0.25, 0.75), (0.85, 0.15), (0.4, 0.6), (0.95, 0.05)),
    "held by wrong": ((0.2, 0.8), (0.6, 0.4), (0.4, 0.6), (0.85, 0.15)),
    "follows": ((0.5, 0.5), (0.5, 0.5), (0.4, 0.6), (0.95, 0.05)),
    "turns to": ((0.5, 0.5), (0.8, 0.2), (0.2, 0.8), (0.9, 0.1)),
    "turns from": ((0.4, 0.6), (0.3, 0.7), (0.85, 0.15), (0.9, 0.1)),
    "rollouts": ((0.4, 0.6), (0.4, 0.6), (0.15, 0.85), (0.7, 0.3)),
}
"""Sources, and the shares of what they show, before anything is fitted.

way: as above. held by right, held by wrong: solutions of this end that hold the step anywhere, and
those that do not, where it is the first of its content. follows: of those that come to the step
before it, how many take it next, where it is the first. turns to: the same where it goes
otherwise; turns from: how many take what it took before. rollouts: of those that come to the step
before it, how many take it next.
"""


def of_solutions(
    paths: Sequence[SolutionPath], chain_of: Sequence[int], samples: Sequence[SolutionPath]
) -> dict[str, Floats]:
    """What solutions show of one another.

    Args:
        paths: one of each chain.
        chain_of: of each sample, its chain.
        samples: all solutions of the problem.

    Returns:
        By source, [T, kind, chain]; nothing yet from rollouts.
    """
    width = max((path.num_steps for path in paths), default=1)
    found = {what: np.zeros((width, len(one[0]), len(paths))) for what, one in SOURCES.items()}
    ways = [_Way(sample) for sample in samples]
    for chain, path in enumerate(paths):
        own = chain_of.index(chain)
        others = [way for n, way in enumerate(ways) if n != own and samples[n].sampled]
        for step, what, kind in _seen(path, others):
            found[what][step, kind, chain] += 1
    return found


def leaves_its_way(before: Sequence[str], keys: Sequence[str]) -> bool:
    """Whether a completion goes otherwise than what it continues went.

    Args:
        before: content of the steps that it continues, of those that can be compared.
        keys: content of its own.
    """
    after = dict(pairwise(before))
    told = [key for key in keys if _derives(key)]
    return any(after.get(last, key) != key and key != before[0] for last, key in pairwise(told))


class _Way:
    """What a solution holds, and what follows what in it."""

    def __init__(self, path: SolutionPath) -> None:
        self.held_by = {Outcome.RIGHT: "held by right", Outcome.WRONG: "held by wrong"}.get(
            path.outcome
        )
        self.keys: set[str] = set()
        self.after: dict[str | None, set[str]] = {}
        last: str | None = None
        for _, key in comparable(path):
            self.keys.add(key)
            self.after.setdefault(last, set()).add(key)
            last = key


def _seen(path: SolutionPath, others: Sequence[_Way]) -> Iterator[tuple[int, str, int]]:
    """Each thing that is seen: the step, the source, and what it shows."""
    held: set[str] = set()
    after: dict[str | None, str] = {}
    last: str | None = None
    begin: str | None = None
    for step, key in comparable(path):
        begin = begin or key
        taken = after.get(last)
        if key in held and (taken is None or key == begin):
            way = BACK
        elif taken is None:
            way = FIRST
        else:
            way = AGAIN if taken == key else OTHERWISE
        yield step, "way", way
        here = [other.after[last] for other in others if last in other.after]
        if key not in held:
            yield from ((step, o.held_by, int(key not in o.keys)) for o in others if o.held_by)
        if way == FIRST and last is not None:
            yield from ((step, "follows", int(key not in one)) for one in here)
        if way == OTHERWISE:
            yield from ((step, "turns to", int(key not in one)) for one in here)
            yield from ((step, "turns from", int(taken not in one)) for one in here)
        held.add(key)
        after[last] = key
        last = key


def comparable(path: SolutionPath) -> Iterator[tuple[int, str]]:
    """Steps whose content can be compared; the last one is known by its outcome."""
    for step, key in enumerate(path.step_keys[:-1]):
        is_answer = bool(path.commitments) and path.commitments[step] is not None
        if not is_answer and _derives(key):
            yield step, key


def _derives(key: str) -> bool:
    """Whether a step of this content has two numbers or more."""
    return key.startswith("numbers ") and key.count(" ") > 1


def add_rollout(
    found: Mapping[str, Floats], path: SolutionPath, chain: int, begin: int, keys: Sequence[str]
) -> None:
    """Add what a rollout shows of a solution's steps, up to the one where it leaves the solution.

    Args:
        found: of `of_solutions`, which grows.
        path: the solution.
        chain: its chain.
        begin: number of steps of the prefix that was rolled out.
        keys: content of the rollout's steps.
    """
    for step, (ours, taken) in enumerate(
        zip(path.step_keys[begin:-1], keys, strict=False), start=begin
    ):
        found["rollouts"][step, int(ours != taken), chain] += 1
        if ours != taken:
            return
