"""Collects the evidence of samples on a problem's solutions: outcomes and agreement, by prefix.

Samples are the other solutions, from the bare problem, and rollouts, from where they started. A
sample's outcome is a rollout of the prefix it started from, for every solution that holds this
prefix. How the way that it took is used depends on the setting `agreement`.

With agreement, prefixes are the same when all their steps have the same content
(`mclabel.labeling.prefixes`), so that it works on free text, and the step at which a sample parts
from a solution shows how many agree on each of the solution's steps.

Without it prefixes are the same when their tokens are. Then a sample is a rollout of the last
prefix that it shares with a solution, too; and a right one from further on a branch of its own
counts as one of the prefix where the branch begins, which still leads to right answers. Both count
an outcome twice, at two prefixes: fitted priors make up for that, and labels of the same accuracy
cost about half. On top of agreement, which is better evidence of the same, both do harm.

Where several completers rolled out, there is one posterior over all of them: what one completer's
chain shows of an error goes to the chains of the others. Given the first error, what one model's
rollouts show does not depend on what another's do, as far as the chains know: each model has its
own values at the prefixes. So each has a chain of its own, and what they have in common is the
first error e: the posterior is the product of what every chain says of e. The author's chain alone
has a say before there is any evidence, since it is the author that errs: from the others' the
chance of e that they began with is divided out.

Nor do the others say whether the last step is wrong or none is: nothing is rolled out after it, so
all that they have on it is that who is often right is taken to be seldom wrong, and the solution is
not theirs. Of the two they give the chance of both together.

To each chain all the others are one more likelihood of e, `Evidence.elsewhere`. Where the author
rolls out alone there is nothing elsewhere, and the posterior is that of its chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Outcome
from mclabel.core.stats.values import TruncatedPolicy
from mclabel.labeling.estimators.paths import ROOT, RecordedRollout, SolutionPath
from mclabel.labeling.estimators.posterior.chain import Evidence, infer
from mclabel.labeling.estimators.posterior.priors import ClassPriors

Floats = NDArray[np.float64]


class EvidenceTable:
    """Evidence of one problem's solutions, growing with every rollout.

    Solutions with the same content and the same outcome are one chain: they have the same evidence.
    """

    def __init__(
        self,
        paths: Sequence[SolutionPath],
        *,
        agreement: bool,
        truncated: TruncatedPolicy,
        is_author: bool = True,
    ) -> None:
        """Begin with the evidence of the solutions on one another.

        Args:
            paths: paths of the problem's solutions.
            agreement: whether steps are compared.
            truncated: how a truncated rollout counts.
            is_author: whether what rolls out wrote the solutions. Else their ends show nothing of
                its chance, and neither do the steps that they share.
        """
        self._agreement, self._truncated = agreement, truncated
        names = [(*self._states(path), path.outcome, path.sampled) for path in paths]
        chains = {name: chain for chain, name in enumerate(dict.fromkeys(names))}
        self.chain_of = np.array([chains[name] for name in names], dtype=np.intp)
        """[solution]: index of its chain."""
        self.copies = np.bincount(self.chain_of, minlength=len(chains))
        """[chain]: number of solutions that are it."""
        self.paths = [paths[names.index(name)] for name in chains]
        """[chain]: one of its solutions."""
        self.num_steps = np.array([path.num_steps for path in self.paths])
        """[chain]: number of steps."""
        width = int(self.num_steps.max(initial=1)) + 1
        self.counts = np.zeros((4, len(chains), width))
        """[4, chain, R + 1]: `right`, `wrong`, `same` and `others` of `Evidence`."""
        self._right, self._wrong, self._same, self._others = self.counts
        # Of right and wrong: outcomes that are counted at another prefix, too.
        self._again = np.zeros((2, len(chains), width))
        ends = [_end(path.outcome) for path in self.paths]
        self.outcome = np.array(ends, dtype=np.float64).reshape(-1, 2)
        """[chain, 2]: likelihood of the solution's own end, as in `Evidence.outcome`."""
        if not is_author:
            self.outcome[:] = 1.0
        self.holders: dict[int, list[tuple[int, int]]] = {}
        """For each prefix, each chain that holds it, and after how many steps."""
        self._reached: dict[int, list[tuple[int, int]]] = {}
        self._hold(paths)
        for index, (name, path) in enumerate(zip(names, paths, strict=True)):
            if path.sampled and is_author:
                # A chain counts its copies but one as samples: a solution is no sample of itself.
                own = chains[name] if names.index(name) == index else None
                others = [(chain, 0) for chain in range(len(chains)) if chain != own]
                self._add(others, path.prefixes, path.step_keys, path.outcome)

    def record(self, rollout: RecordedRollout) -> set[int]:
        """Add a rollout from one of the prefixes; returns the chains whose evidence it changes."""
        holders = self.holders[rollout.prefix]
        self._add(holders, rollout.path, rollout.step_keys, rollout.outcome)
        changed = {chain for chain, _ in holders}
        if rollout.outcome is Outcome.RIGHT:
            for chain, depth in self._reached.get(rollout.prefix, ()):
                to_go = self.num_steps[chain] - depth
                self._right[chain, to_go] += 1
                self._again[0, chain, to_go] += 1
                changed.add(chain)
        return changed

    def evidence(self, counts: Floats, elsewhere: Floats) -> Evidence:
        """The evidence as a batch, a row per solution.

        Args:
            counts: this table's, or those of `once`.
            elsewhere: [chain, R + 1], as in `Evidence.elsewhere`.
        """
        right, wrong, same, others = counts[:, self.chain_of]
        return Evidence(
            num_steps=self.num_steps[self.chain_of],
            right=right,
            wrong=wrong,
            same=same,
            others=others,
            outcome=self.outcome[self.chain_of],
            elsewhere=elsewhere[self.chain_of],
        )

    def once(self) -> Floats:
        """Copy `counts` with outcomes only where their samples started: more would bias values."""
        counts = self.counts.copy()
        counts[:2] -= self._again
        return counts

    def _states(self, path: SolutionPath) -> tuple[object, ...]:
        """Identities of each prefix of a solution, and of the whole, by which they are compared."""
        if self._agreement and path.step_keys:
            return (*(path.step_keys[:depth] for depth in range(path.num_steps)), path.step_keys)
        return (ROOT, *path.prefixes)

    def _hold(self, paths: Sequence[SolutionPath]) -> None:
        holders: dict[object, dict[tuple[int, int], None]] = {}
        prefixes: dict[int, object] = {}
        for chain, path in zip(self.chain_of.tolist(), paths, strict=True):
            for depth, (prefix, state) in enumerate(
                zip((ROOT, *path.prefixes), self._states(path), strict=False)
            ):
                holders.setdefault(state, {})[chain, depth] = None
                prefixes.setdefault(prefix, state)
        self.holders = {prefix: list(holders[state]) for prefix, state in prefixes.items()}
        if not self._agreement:
            for prefix, held in self.holders.items():
                self._reached[prefix] = self._branches(*held[0], {chain for chain, _ in held})

    def _branches(self, chain: int, depth: int, held: set[int]) -> list[tuple[int, int]]:
        """List the chains that leave this one before a prefix, and after how many steps (>= 1).

        Args:
            chain: holds the prefix.
            depth: depth of the prefix.
            held: all chains that hold it.
        """
        way = self.paths[chain].prefixes[:depth]
        parts = [
            (other, _num_shared(way, path.prefixes))
            for other, path in enumerate(self.paths)
            if other not in held
        ]
        return [(other, shared) for other, shared in parts if shared]

    def _add(
        self,
        holders: Iterable[tuple[int, int]],
        prefixes: Sequence[int],
        keys: Sequence[str],
        outcome: Outcome,
    ) -> None:
        right = outcome is Outcome.RIGHT
        wrong = outcome is Outcome.WRONG or (
            outcome is Outcome.TRUNCATED and self._truncated == "wrong"
        )
        for chain, begin in holders:
            path = self.paths[chain]
            to_go = path.num_steps - begin
            self._right[chain, to_go] += right
            self._wrong[chain, to_go] += wrong
            if not self._agreement:
                shared = _num_shared(path.prefixes[begin:], prefixes)
                if shared:
                    self._right[chain, to_go - shared] += right
                    self._wrong[chain, to_go - shared] += wrong
                    self._again[:, chain, to_go - shared] += right, wrong
            elif path.step_keys:
                shared = _num_shared(path.step_keys[begin:], keys)
                parted = shared < min(to_go, len(keys))
                self._others[chain, to_go - shared + 1 - parted : to_go + 1] += 1
                self._same[chain, to_go - shared + 1 : to_go + 1] += 1


def _num_shared(ours: Sequence[object], theirs: Sequence[object]) -> int:
    """The length of the longest common beginning."""
    parts = (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    return next(parts, min(len(ours), len(theirs)))


def _end(outcome: Outcome) -> tuple[float, float]:
    """Likelihoods of an end; one that was cut shows nothing of the steps before it."""
    if outcome is Outcome.RIGHT:
        return 0.0, 1.0
    return 1.0, float(outcome is not Outcome.WRONG)


def stack_evidence(parts: Sequence[Evidence]) -> Evidence:
    """Join several batches into one, padded to the longest solution."""
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
        elsewhere=padded("elsewhere"),
        outcome=np.concatenate([part.outcome for part in parts]),
    )


LEAST = 1e-9
"""Least likelihood, of the largest, that others give a first error: none is ruled out by them."""


def elsewhere(own: Sequence[Floats], bare: Sequence[Floats]) -> list[Floats]:
    """Return what is known of each first error outside each chain.

    Args:
        own: for each completer, the author first, chances [chain, R + 1] of each first error, from
            what its own chain has seen.
        bare: the same chances for each completer but the author, if it has seen nothing.

    Returns:
        Of each completer, [chain, R + 1], the largest of a chain being 1.
    """
    shown = [own[0], *(_shown(a, b) for a, b in zip(own[1:], bare, strict=True))]
    by_completer = []
    for number in range(len(own)):
        likely = np.ones_like(own[0])
        for other, chances in enumerate(shown):
            if other != number:
                likely = _scaled(likely * chances)
        if number > 0:
            begun = bare[number - 1].copy()
            begun[:, :2] = _ratio(own[number][:, :2], shown[number][:, :2])
            likely = _ratio(likely, begun)
        by_completer.append(_scaled(likely))
    return by_completer


def likelihoods(own: Floats, bare: Floats) -> Floats:
    """Return what evidence shows of each first error, [chain, R + 1], the largest of a chain being
    1.

    Args:
        own: chances of each first error.
        bare: the same before there was any evidence.
    """
    return _scaled(_ratio(own, bare))


def _shown(own: Floats, bare: Floats) -> Floats:
    """Return what the chains of who is not the author say of each first error."""
    ratio = _ratio(own, bare)
    ratio[:, :2] = ((own[:, 0] + own[:, 1]) / (bare[:, 0] + bare[:, 1]))[:, None]
    return ratio


def _ratio(above: Floats, below: Floats) -> Floats:
    """Zero where the lower is: beyond a chain's length, and where a chance has become too small."""
    return np.asarray(np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0))


def _scaled(likely: Floats) -> Floats:
    return np.asarray(np.maximum(likely / likely.max(-1, keepdims=True), LEAST))


def bare_errors(num_steps: NDArray[np.int64], priors: ClassPriors, width: int) -> Floats:
    """Chances of each first error before anything was seen.

    Args:
        num_steps: [chain]
        priors: priors of the chains.
        width: R + 1.

    Returns:
        [chain, R + 1], zero beyond a chain's length.
    """
    chances = np.zeros((len(num_steps), width))
    for steps in np.unique(num_steps).tolist():
        chances[num_steps == steps, : steps + 1] = _bare(steps, priors)
    return chances


@lru_cache(maxsize=4096)
def _bare(steps: int, priors: ClassPriors) -> Floats:
    return infer(nothing_seen(np.array([steps])), priors).first_error[:, 0].copy()


def nothing_seen(num_steps: NDArray[np.int64]) -> Evidence:
    """The evidence on solutions of which nothing is known but their lengths, [batch]."""
    shape = (len(num_steps), int(num_steps.max()) + 1)
    right, wrong, same, others = np.zeros((4, *shape))
    return Evidence(
        num_steps=num_steps,
        right=right,
        wrong=wrong,
        same=same,
        others=others,
        outcome=np.ones((len(num_steps), 2)),
        elsewhere=np.ones(shape),
    )
