"""Collects the evidence of samples on a problem's solutions: outcomes and agreement, by prefix.

Two kinds of samples are evidence on a solution: the problem's other solutions, which start at the
problem without steps, and rollouts, which start at some prefix. A sample's outcome counts at the
prefix from which it started, for every solution that contains this prefix. The use of a sample's
steps depends on the setting `agreement`.

With agreement, two prefixes are equal if all their steps have the same content
(`mclabel.labeling.prefixes`), so this works on free text. The step at which a sample departs from a
solution shows on which of the solution's steps the sample agrees.

Without agreement, two prefixes are equal if their tokens are equal. Then a sample's outcome also
counts at the last prefix that the sample shares with a solution. And a right rollout from a prefix
that only other solutions contain counts at the prefix where those solutions branch off, because
that prefix can still lead to a right answer. In both cases an outcome counts twice, at two
prefixes. Fitted priors compensate for this, and labels of the same accuracy cost about half the
tokens. With agreement, counting outcomes twice makes labels worse, so it is not done.

If several models (completers) sampled rollouts, each has a hidden Markov chain of its own for every
solution, because each has its own success rates at the prefixes. The chains treat the rollouts of
different models as independent given the first error e, which is common to all chains; e is counted
in steps to go (`mclabel.labeling.estimators.posterior.chain`). So the posterior over e is
proportional to the product of one prior and the likelihoods of e from all chains. The prior is that
of the chain of the author, who wrote the solutions and so made the error. The likelihood from
another chain is its posterior of e divided by its own prior of e.

The other completers' chains also do not distinguish an error in the last step from no error.
Nothing is rolled out after the last step, so these chains could tell the two cases apart only by
how often their own model errs, and it did not write the solution. So both cases get the same
likelihood, computed from the sum of their probabilities.

A step that states no new number, or that repeats the problem, is seldom the first wrong one. So the
author's prior of e is multiplied by the step's factor (`SolutionPath.step_factors`).

Each chain receives the likelihood of e from all other chains as `Evidence.external_likelihood`. If
only the author samples rollouts, this likelihood is 1, and the posterior is that of the author's
chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Outcome
from mclabel.core.stats.values import TruncatedPolicy
from mclabel.labeling.estimators.paths import ROOT, RecordedRollout, SolutionPath
from mclabel.labeling.estimators.posterior.chain import Evidence, infer_beliefs
from mclabel.labeling.estimators.posterior.priors import ClassPriors

Floats = NDArray[np.float64]


class EvidenceTable:
    """Evidence on one problem's solutions, to which every recorded rollout is added.

    Solutions with the same prefixes and the same outcome have the same evidence, so they share one
    hidden Markov chain, here called a chain. R is the number of steps of the longest solution.
    """

    def __init__(
        self,
        paths: Sequence[SolutionPath],
        *,
        agreement: bool,
        truncated: TruncatedPolicy,
        is_author: bool = True,
    ) -> None:
        """Initialise the table with the evidence of the solutions themselves, before any rollout.

        Each sampled solution is evidence on the problem's other solutions.

        Args:
            paths: paths of the problem's solutions.
            agreement: True if the content of steps is compared, as the module's docstring explains.
            truncated: effect of a truncated rollout.
            is_author: True if the completer whose rollouts are recorded wrote the solutions. If
                not, the solutions are not its samples, and the table ignores their outcomes and
                the steps that they share.
        """
        self._agreement, self._truncated = agreement, truncated
        names = [(*self._make_prefix_keys(path), path.outcome, path.sampled) for path in paths]
        chains = {name: chain for chain, name in enumerate(dict.fromkeys(names))}
        self.chain_index = np.array([chains[name] for name in names], dtype=np.intp)
        """[solution]: index of the solution's chain."""
        self.copies = np.bincount(self.chain_index, minlength=len(chains))
        """[chain]: number of solutions that share the chain."""
        self.paths = [paths[names.index(name)] for name in chains]
        """[chain]: the first solution of the chain."""
        self.num_steps = np.array([path.num_steps for path in self.paths])
        """[chain]: number of steps."""
        width = int(self.num_steps.max(initial=1)) + 1
        self.counts = np.zeros((4, len(chains), width))
        """[4, chain, R + 1]: the fields `right`, `wrong`, `num_taking_same_step` and
        `num_reaching_prefix` of `Evidence`, by number of steps to go."""
        self._right, self._wrong, self._same, self._others = self.counts
        # Parts of right and wrong: outcomes that also count at the prefix where they started.
        self._repeated_outcomes = np.zeros((2, len(chains), width))
        ends = [_get_outcome_likelihoods(path.outcome) for path in self.paths]
        self.outcome = np.array(ends, dtype=np.float64).reshape(-1, 2)
        """[chain, 2]: likelihood of the solution's observed outcome, as in `Evidence.outcome`."""
        self.step_odds = np.ones((len(chains), width))
        """[chain, R + 1]: factor of the prior probability of each first error e, from what its step
        states."""
        if is_author:
            for chain, path in enumerate(self.paths):
                for step, factor in enumerate(path.step_factors[:-1]):
                    self.step_odds[chain, path.num_steps - step] = factor
        else:
            self.outcome[:] = 1.0
        self.holders: dict[int, list[tuple[int, int]]] = {}
        """For each prefix index, pairs of the index of a chain that contains the prefix and the
        number of steps of the prefix in this chain."""
        self._branching_chains: dict[int, list[tuple[int, int]]] = {}
        """For each prefix index, the result of `_find_branching_chains`; empty with agreement."""
        self._index_chains_by_prefix(paths)
        for index, (name, path) in enumerate(zip(names, paths, strict=True)):
            if path.sampled and is_author:
                # The first solution of a chain does not count as a sample for the chain itself.
                own = chains[name] if names.index(name) == index else None
                others = [(chain, 0) for chain in range(len(chains)) if chain != own]
                self._count_rollout(others, path.prefixes, path.step_keys, path.outcome)

    def record(self, rollout: RecordedRollout) -> set[int]:
        """Add a rollout from one of the prefixes; return the indices of the chains whose evidence
        changed.
        """
        holders = self.holders[rollout.prefix]
        self._count_rollout(holders, rollout.path, rollout.step_keys, rollout.outcome)
        changed = {chain for chain, _ in holders}
        if rollout.outcome is Outcome.RIGHT:
            for chain, depth in self._branching_chains.get(rollout.prefix, ()):
                to_go = self.num_steps[chain] - depth
                self._right[chain, to_go] += 1
                self._repeated_outcomes[0, chain, to_go] += 1
                changed.add(chain)
        return changed

    def evidence(self, counts: Floats, external_likelihood: Floats) -> Evidence:
        """Return the evidence as a batch with one row per solution.

        Args:
            counts: [4, chain, R + 1], the attribute `counts` or the result of
                `count_outcomes_once`.
            external_likelihood: [chain, R + 1], as in `Evidence.external_likelihood`.
        """
        right, wrong, same, others = counts[:, self.chain_index]
        return Evidence(
            num_steps=self.num_steps[self.chain_index],
            right=right,
            wrong=wrong,
            num_taking_same_step=same,
            num_reaching_prefix=others,
            outcome=self.outcome[self.chain_index],
            external_likelihood=(self.step_odds * external_likelihood)[self.chain_index],
        )

    def count_outcomes_once(self) -> Floats:
        """Return a copy of `counts` in which each outcome counts only where its sample started.

        Expected values are computed from these counts, because outcomes that count twice would bias
        them.
        """
        counts = self.counts.copy()
        counts[:2] -= self._repeated_outcomes
        return counts

    def _make_prefix_keys(self, path: SolutionPath) -> tuple[object, ...]:
        """Return a key for each prefix of a solution, by which prefixes are compared.

        With agreement, a key of the complete solution follows.
        """
        if self._agreement and path.step_keys:
            return (*(path.step_keys[:depth] for depth in range(path.num_steps)), path.step_keys)
        return (ROOT, *path.prefixes)

    def _index_chains_by_prefix(self, paths: Sequence[SolutionPath]) -> None:
        holders: dict[object, dict[tuple[int, int], None]] = {}
        prefixes: dict[int, object] = {}
        for chain, path in zip(self.chain_index.tolist(), paths, strict=True):
            for depth, (prefix, state) in enumerate(
                zip((ROOT, *path.prefixes), self._make_prefix_keys(path), strict=False)
            ):
                holders.setdefault(state, {})[chain, depth] = None
                prefixes.setdefault(prefix, state)
        self.holders = {prefix: list(holders[state]) for prefix, state in prefixes.items()}
        if not self._agreement:
            for prefix, held in self.holders.items():
                self._branching_chains[prefix] = self._find_branching_chains(
                    *held[0], {chain for chain, _ in held}
                )

    def _find_branching_chains(
        self, chain: int, depth: int, containing_chains: set[int]
    ) -> list[tuple[int, int]]:
        """Return the chains that share some but not all steps of a prefix.

        Args:
            chain: index of a chain that contains the prefix.
            depth: number of steps of the prefix.
            containing_chains: indices of all chains that contain the prefix.

        Returns:
            Pairs of a chain and the number of steps that it shares with the prefix, at least 1.
        """
        way = self.paths[chain].prefixes[:depth]
        parts = [
            (other, _count_common_beginning(way, path.prefixes))
            for other, path in enumerate(self.paths)
            if other not in containing_chains
        ]
        return [(other, shared) for other, shared in parts if shared]

    def _count_rollout(
        self,
        chain_positions: Iterable[tuple[int, int]],
        prefixes: Sequence[int],
        step_keys: Sequence[str],
        outcome: Outcome,
    ) -> None:
        """Count a completion as evidence on each chain that contains its prefix.

        Args:
            chain_positions: pairs of the index of a chain and the number of its steps before the
                completion.
            prefixes: indices of the prefixes that the completion passes through.
            step_keys: keys of the completion's steps.
            outcome: outcome of the completion.
        """
        right = outcome is Outcome.RIGHT
        wrong = outcome is Outcome.WRONG or (
            outcome is Outcome.TRUNCATED and self._truncated == "wrong"
        )
        for chain, begin in chain_positions:
            path = self.paths[chain]
            to_go = path.num_steps - begin
            self._right[chain, to_go] += right
            self._wrong[chain, to_go] += wrong
            if not self._agreement:
                shared = _count_common_beginning(path.prefixes[begin:], prefixes)
                if shared:
                    self._right[chain, to_go - shared] += right
                    self._wrong[chain, to_go - shared] += wrong
                    self._repeated_outcomes[:, chain, to_go - shared] += right, wrong
            elif path.step_keys:
                shared = _count_common_beginning(path.step_keys[begin:], step_keys)
                parted = shared < min(to_go, len(step_keys))
                self._others[chain, to_go - shared + 1 - parted : to_go + 1] += 1
                self._same[chain, to_go - shared + 1 : to_go + 1] += 1


def _count_common_beginning(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the length of the longest common beginning of two sequences."""
    parts = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(parts, min(len(first), len(second)))


def _get_outcome_likelihoods(outcome: Outcome) -> tuple[float, float]:
    """Return an outcome's likelihoods as in `Evidence.outcome`.

    A solution that was truncated or not graded is no evidence on its steps.
    """
    if outcome is Outcome.RIGHT:
        return 0.0, 1.0
    return 1.0, float(outcome is not Outcome.WRONG)


def stack_evidence(parts: Sequence[Evidence]) -> Evidence:
    """Concatenate several batches into one, padded to the longest solution."""
    width = max(part.right.shape[1] for part in parts)

    def stack_padded(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        arrays = [getattr(part, name) for part in parts]
        return np.concatenate([np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in arrays])

    return Evidence(
        num_steps=np.concatenate([part.num_steps for part in parts]),
        right=stack_padded("right"),
        wrong=stack_padded("wrong"),
        num_taking_same_step=stack_padded("num_taking_same_step"),
        num_reaching_prefix=stack_padded("num_reaching_prefix"),
        external_likelihood=stack_padded("external_likelihood"),
        outcome=np.concatenate([part.outcome for part in parts]),
    )


MIN_LIKELIHOOD = 1e-9
"""Smallest likelihood that a first error can get from other completers, relative to the largest, so
that they alone cannot rule out a first error."""


def compute_external_likelihoods(
    posteriors: Sequence[Floats], priors: Sequence[Floats]
) -> list[Floats]:
    """Return, for each completer, the likelihood of each first error from all other completers.

    Args:
        posteriors: for each completer, the author first, the probabilities [chain, R + 1] of each
            first error e given the evidence of this completer alone.
        priors: for each completer except the author, the probabilities before any evidence.

    Returns:
        For each completer, [chain, R + 1], scaled so that the largest likelihood of a chain is 1.
    """
    shown = [
        posteriors[0],
        *(
            _compute_other_completer_likelihood(a, b)
            for a, b in zip(posteriors[1:], priors, strict=True)
        ),
    ]
    by_completer = []
    for number in range(len(posteriors)):
        likely = np.ones_like(posteriors[0])
        for other, chances in enumerate(shown):
            if other != number:
                likely = _divide_by_largest(likely * chances)
        if number > 0:
            begun = priors[number - 1].copy()
            begun[:, :2] = _divide_or_zero(posteriors[number][:, :2], shown[number][:, :2])
            likely = _divide_or_zero(likely, begun)
        by_completer.append(_divide_by_largest(likely))
    return by_completer


def divide_posterior_by_prior(posterior: Floats, prior: Floats) -> Floats:
    """Return the likelihood of the evidence under each first error.

    Args:
        posterior: [chain, R + 1], probabilities of each first error given the evidence.
        prior: [chain, R + 1], the same probabilities before any evidence.

    Returns:
        The likelihoods, [chain, R + 1], scaled so that the largest one of each chain is 1.
    """
    return _divide_by_largest(_divide_or_zero(posterior, prior))


def _compute_other_completer_likelihood(posterior: Floats, prior: Floats) -> Floats:
    """Return the likelihood of each first error, given only the rollouts of one completer that is
    not the author.

    An error in the last step (e = 1) and no error (e = 0) get the same likelihood, for the reason
    in the module's docstring.

    Args:
        posterior: [chain, R + 1], probabilities of each first error given this completer's
            evidence.
        prior: [chain, R + 1], the same probabilities before any evidence.
    """
    ratio = _divide_or_zero(posterior, prior)
    ratio[:, :2] = ((posterior[:, 0] + posterior[:, 1]) / (prior[:, 0] + prior[:, 1]))[:, None]
    return ratio


def _divide_or_zero(dividend: Floats, divisor: Floats) -> Floats:
    """Divide two arrays element by element. The result is 0 where the divisor is 0.

    The divisor is 0 in the padding after a short chain, and where a probability has underflowed.
    """
    return np.asarray(np.where(divisor > 0, dividend / np.where(divisor > 0, divisor, 1.0), 0.0))


def _divide_by_largest(likely: Floats) -> Floats:
    return np.asarray(np.maximum(likely / likely.max(-1, keepdims=True), MIN_LIKELIHOOD))


def compute_prior_first_error_chances(
    num_steps: NDArray[np.int64], priors: ClassPriors, width: int
) -> Floats:
    """Return the probability of each first error before any evidence.

    Args:
        num_steps: number of steps of each chain, [chain].
        priors: priors of the chains.
        width: length of the second axis, R + 1.

    Returns:
        The probabilities, [chain, R + 1]. They are 0 in the padding after a short chain.
    """
    chances = np.zeros((len(num_steps), width))
    for steps in np.unique(num_steps).tolist():
        chances[num_steps == steps, : steps + 1] = _compute_prior_first_error(steps, priors)
    return chances


@lru_cache(maxsize=4096)
def _compute_prior_first_error(steps: int, priors: ClassPriors) -> Floats:
    return infer_beliefs(make_empty_evidence(np.array([steps])), priors).first_error[:, 0].copy()


def make_empty_evidence(num_steps: NDArray[np.int64]) -> Evidence:
    """Return evidence without any observation on a batch of solutions.

    Args:
        num_steps: [batch], number of steps of each solution.
    """
    shape = (len(num_steps), int(num_steps.max()) + 1)
    right, wrong, same, others = np.zeros((4, *shape))
    return Evidence(
        num_steps=num_steps,
        right=right,
        wrong=wrong,
        num_taking_same_step=same,
        num_reaching_prefix=others,
        outcome=np.ones((len(num_steps), 2)),
        external_likelihood=np.ones(shape),
    )
