"""Fits priors to evidence (rollouts, outcomes, shared steps) by expectation maximisation,
unsupervised.

The model's success rates (values) fall at an error and do not rise again. So the hidden states of
the Markov chains along solutions can be learned from rollouts and outcomes alone (the Baum-Welch
algorithm). Expected counts are smoothed over neighbouring values and numbers of steps to go. The
priors of an answer class (kind of gold answer) are shrunk towards pooled priors of all classes, and
these towards the priors that a run starts from.

If several models (completers) sample rollouts, the first rounds fit the author's chains alone, and
fit the chains of the other completers to the first errors that the author's chains indicate. Only
the outcomes of the author's own solutions distinguish luck (right answers after an error) from
blindness (wrong answers without one). If all chains were fitted jointly from the first round, a
completer that always fails could lead to the fit that every solution is wrong from its first step
and the author is merely lucky.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from mclabel.core.records import AUTHOR
from mclabel.labeling.estimators.paths import get_guess_probability
from mclabel.labeling.estimators.posterior.chain import (
    Evidence,
    compute_first_error_chances,
    compute_messages,
)
from mclabel.labeling.estimators.posterior.evidence import (
    compute_external_likelihoods,
    compute_prior_first_error_chances,
    stack_evidence,
)
from mclabel.labeling.estimators.posterior.priors import (
    GRID,
    NUM_TO_GO,
    POOLED,
    ClassPriors,
    Priors,
    make_priors_with_guesses,
    make_starting_priors,
    make_uninformed_priors,
    select_class_priors,
)

Floats = NDArray[np.float64]

ROUNDS = 8
"""Number of rounds of expectation maximisation."""
MIN_SOLUTIONS = 40
"""Minimum number of solutions for which an answer class gets its own priors."""
TO_START, TO_WIDE, TO_POOLED = 150.0, 3.0, 150.0
"""Weights with which a fit is shrunk towards the starting priors, towards wide priors, and towards
the pooled priors, in observations per row of a matrix.

The starting priors were fitted with the help of solutions whose first errors are known. The
evidence of a run cannot show where errors lie in problems that are never solved: with weights of
only 10 and 8 for the starting and the pooled priors, a run on such problems loses what the starting
priors know about this."""
NEIGHBOUR_WEIGHT = 0.25
"""Weight of the counts at one more and at one fewer step to go, when counts are smoothed."""
CHUNK = 256
"""Number of chains that are processed together, which bounds memory."""

_BLUR = 0.6 * np.eye(len(GRID)) + 0.2 * (np.eye(len(GRID), k=1) + np.eye(len(GRID), k=-1))
_BLUR /= _BLUR.sum(1, keepdims=True)


EvidenceByCompleter = Mapping[str, Evidence]
"""Evidence on the same solutions from each completer, by completer name, the author first."""


@dataclass(frozen=True, kw_only=True)
class EvidenceReadings:
    """Evidence on a problem's solutions in several readings. A reading is a rule for counting
    samples.

    `mclabel.labeling.estimators.posterior.evidence` explains the rules.
    """

    outcomes: EvidenceByCompleter
    """Evidence without agreement (the content of steps is not compared). An outcome counts at up to
    two prefixes: where its sample started, and at the last prefix that the sample shares with a
    solution."""
    counted_once: EvidenceByCompleter
    """Evidence without agreement, in which every outcome counts once, where its sample started;
    used for expected values."""
    agreement: EvidenceByCompleter | None = None
    """Evidence that also counts which other samples take the same steps; None if this is not
    used."""

    @property
    def num_solutions(self) -> int:
        """The number of solutions in the evidence."""
        return len(self.outcomes[AUTHOR].num_steps)


def fit_priors_to_readings(
    problems: Mapping[str, Iterable[EvidenceReadings]],
    *,
    start: Priors | None = None,
    strength: float = TO_START,
) -> Priors:
    """Fit priors to the readings of finished problems.

    Args:
        problems: readings of finished problems, by answer class.
        start: priors to begin with, towards which the fitted priors are shrunk; None uses
            `make_starting_priors`.
        strength: weight of `start` in observations per row, if only the author samples rollouts.
    """

    def collect_reading(name: str) -> dict[str, list[EvidenceByCompleter]]:
        of_class = {
            kind: [getattr(reading, name) for reading in own] for kind, own in problems.items()
        }
        return {kind: own for kind, all_ in of_class.items() if (own := [o for o in all_ if o])}

    return fit_priors(
        collect_reading("outcomes"),
        collect_reading("counted_once"),
        collect_reading("agreement"),
        start=start,
        strength=strength,
    )


def fit_priors(
    evidence: Mapping[str, Sequence[EvidenceByCompleter]],
    counted_once: Mapping[str, Sequence[EvidenceByCompleter]] | None = None,
    agreement: Mapping[str, Sequence[EvidenceByCompleter]] | None = None,
    *,
    start: Priors | None = None,
    strength: float = TO_START,
    rounds: int = ROUNDS,
) -> Priors:
    """Fit priors by maximising the likelihood of the evidence, with shrinkage.

    Args:
        evidence: evidence on finished problems, by answer class. The choice of rollouts does not
            bias the fit, since it depended only on earlier evidence. The field
            `external_likelihood` is computed here from the other completers' evidence.
        counted_once: the same evidence with every outcome counted once, if `evidence` counts some
            twice.
        agreement: the same evidence with the agreement of samples, if it is used; every outcome
            counts once.
        start: priors to begin with, towards which the fitted priors are shrunk; None uses
            `make_starting_priors`.
        strength: weight of `start` in observations per row, if only the author samples rollouts.
        rounds: number of rounds of expectation maximisation. With several completers, the same
            number of rounds led by the author's evidence comes before them.
    """
    start = start or make_starting_priors()
    if agreement:
        own_start = start.agreement or start
        found = fit_priors(agreement, start=own_start, strength=strength, rounds=rounds)
        outcomes = fit_priors(evidence, counted_once, start=start, strength=strength, rounds=rounds)
        return replace(outcomes, agreement=found)
    if counted_once:
        values = start if start.values is None else replace(start, classes=start.values)
        return _add_value_priors(
            fit_priors(evidence, start=start, strength=strength, rounds=rounds),
            fit_priors(counted_once, start=values, strength=strength, rounds=rounds),
        )
    stacked = {
        name: {
            completer: stack_evidence([part[completer] for part in parts]) for completer in parts[0]
        }
        for name, parts in evidence.items()
        if parts
    }
    sizes = {name: len(by_completer[AUTHOR].num_steps) for name, by_completer in stacked.items()}
    num_solutions = sum(sizes.values())
    if not num_solutions:
        return start
    own = [name for name in sorted(stacked) if sizes[name] >= MIN_SOLUTIONS]
    everyone = list(next(iter(stacked.values())))
    alone = len(everyone) == 1
    # The starting priors were fitted to policies that alone rolled out their solutions.
    first = (start if alone else make_uninformed_priors()).for_class(POOLED)
    strength = strength if alone else TO_WIDE
    begun = {
        POOLED: first,
        **{name: make_priors_with_guesses(first, get_guess_probability(name)) for name in own},
    }
    current: _CurrentPriors = dict.fromkeys(everyone, begun)
    for number in range(rounds if alone else 2 * rounds):
        updated = _add_external_likelihoods(stacked, current, author_leads=number < rounds)
        current = {
            completer: _update_priors(
                {name: by_completer[completer] for name, by_completer in updated.items()},
                current[completer],
                own,
                first,
                strength,
                smooth=alone,
            )
            for completer in everyone
        }
    priors = {
        completer: Priors(classes=by_class, num_solutions=num_solutions)
        for completer, by_class in current.items()
    }
    return replace(priors.pop(AUTHOR), completers=priors)


def _add_value_priors(priors: Priors, value_priors: Priors) -> Priors:
    completers = {
        name: replace(completer_priors, values=value_priors.completers[name].classes)
        for name, completer_priors in priors.completers.items()
    }
    return replace(priors, values=value_priors.classes, completers=completers)


_CurrentPriors = Mapping[str, Mapping[str, ClassPriors]]
"""Priors by completer and answer class."""


def _add_external_likelihoods(
    stacked: Mapping[str, EvidenceByCompleter],
    current: _CurrentPriors,
    *,
    author_leads: bool = False,
) -> Mapping[str, Mapping[str, Evidence]]:
    """Return each completer's evidence with `external_likelihood` from the other completers.

    Args:
        stacked: evidence by answer class.
        current: priors with which `external_likelihood` is computed.
        author_leads: True computes `external_likelihood` of the other completers from the author's
            evidence alone, and makes it uninformative (constant) for the author.
    """
    if len(current) == 1:
        return stacked
    updated = {}
    for name, by_completer in stacked.items():
        priors = {
            completer: select_class_priors(classes, name) for completer, classes in current.items()
        }
        prior_chances = [
            compute_prior_first_error_chances(
                evidence_of.num_steps, priors[completer], evidence_of.right.shape[1]
            )
            for completer, evidence_of in by_completer.items()
            if completer != AUTHOR
        ]
        if author_leads:
            own_chances = [
                compute_first_error_chances(by_completer[AUTHOR], priors[AUTHOR]),
                *prior_chances,
            ]
        else:
            own_chances = [
                compute_first_error_chances(evidence_of, priors[completer])
                for completer, evidence_of in by_completer.items()
            ]
        updated[name] = {
            completer: replace(evidence_of, external_likelihood=others)
            for (completer, evidence_of), others in zip(
                by_completer.items(),
                compute_external_likelihoods(own_chances, prior_chances),
                strict=True,
            )
        }
    return updated


def _update_priors(
    evidence: Mapping[str, Evidence],
    current: Mapping[str, ClassPriors],
    own_classes: Sequence[str],
    target: ClassPriors,
    strength: float,
    *,
    smooth: bool,
) -> dict[str, ClassPriors]:
    """Return the priors of one completer after one more round of expectation maximisation.

    Args:
        evidence: the completer's evidence, by answer class.
        current: priors before the round, by answer class.
        own_classes: answer classes that get priors of their own.
        target: priors towards which the pooled priors are shrunk.
        strength: weight of `target`, in observations per row.
        smooth: True blurs expected counts over neighbouring values. This helps if only the author
            samples rollouts. If each of several completers sampled one or two rollouts from a
            prefix, repeated blurring would erase their information.
    """
    expected = {
        name: _compute_expected_counts(own_evidence, select_class_priors(current, name))
        for name, own_evidence in evidence.items()
    }
    unguessed = [
        own_evidence for name, own_evidence in expected.items() if not get_guess_probability(name)
    ]
    pooled = (
        _estimate_priors_from_counts(
            _sum_expected_counts(unguessed), target, strength, smooth=smooth
        )
        if unguessed
        else target
    )
    return {POOLED: pooled} | {
        name: _estimate_priors_from_counts(
            expected[name],
            make_priors_with_guesses(pooled, get_guess_probability(name)),
            TO_POOLED,
            smooth=smooth,
        )
        for name in own_classes
    }


@dataclass(frozen=True, kw_only=True)
class _ExpectedCounts:
    """Expected counts of every transition, shaped like the fields of `ClassPriors`.

    n is the number of steps that other samples could have taken as well, because these samples
    reached the prefix before the step.
    """

    root: Floats
    sound: Floats
    wrong: Floats
    unsound: Floats
    leaf: Floats
    num_taking_same_step: Floats
    """[n]: for each of these steps, number of other samples that took it."""
    num_reaching_prefix: Floats
    """[n]: for each of these steps, number of other samples that reached the prefix before it."""
    weight: Floats
    """[3, n]: probability that the step is right, that it is the first wrong step, and that it
    follows an error."""


def _sum_expected_counts(parts: Sequence[_ExpectedCounts]) -> _ExpectedCounts:
    return _ExpectedCounts(
        **{
            name: np.asarray(sum(getattr(part, name) for part in parts))
            for name in ("root", "sound", "wrong", "unsound", "leaf")
        },
        **{
            name: np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in ("num_taking_same_step", "num_reaching_prefix", "weight")
        },
    )


def _compute_expected_counts(evidence: Evidence, priors: ClassPriors) -> _ExpectedCounts:
    rows = [slice(start, start + CHUNK) for start in range(0, len(evidence.num_steps), CHUNK)]
    return _sum_expected_counts(
        [_compute_chunk_counts(_slice_evidence(evidence, part), priors) for part in rows]
    )


def _slice_evidence(evidence: Evidence, part: slice) -> Evidence:
    return Evidence(**{f.name: getattr(evidence, f.name)[part] for f in fields(Evidence)})


def _compute_chunk_counts(evidence: Evidence, priors: ClassPriors) -> _ExpectedCounts:
    messages = compute_messages(evidence, priors)
    forward, fallen = messages.forward_sound, messages.forward_unsound
    back, lost = messages.backward_sound, messages.backward_unsound
    width = evidence.right.shape[1]
    batch, starts = np.arange(len(evidence.num_steps)), evidence.num_steps
    begin = forward[starts, batch] * back[starts, batch]
    mass = begin.sum(-1)
    size = len(GRID)
    root = np.zeros((NUM_TO_GO, size))
    np.add.at(root, np.minimum(starts, NUM_TO_GO) - 1, begin / mass[:, None])
    forward, fallen = forward / mass[:, None], fallen / mass[:, None]
    sound, wrong, unsound = np.zeros((3, NUM_TO_GO, size, size))
    kinds = np.zeros((width, 3, len(batch)))
    for r in range(2, width):
        i = min(r, NUM_TO_GO) - 1
        emission = messages.rollouts[r - 1]
        right, first, later = messages.agreement[r].T[..., None]
        after, after_lost = back[r - 1] * emission, lost[r - 1] * emission
        moved = (
            (sound, priors.sound, forward, after * right),
            (wrong, priors.wrong, forward, after_lost * first),
            (unsound, priors.unsound, fallen, after_lost * later),
        )
        for kind, (total, move, before, behind) in enumerate(moved):
            total[i] += move[i] * (before[r].T @ behind)
            kinds[r, kind] = ((before[r] @ move[i]) * behind).sum(-1)
    states = np.stack([forward[1], forward[1], fallen[1]])
    agree = messages.agreement[1].T
    leaf = priors.leaf * np.einsum("sbg,bo,sb->sgo", states, evidence.outcome, agree)
    kinds[1] = np.einsum("sbg,bo,sb,sgo->sb", states, evidence.outcome, agree, priors.leaf)
    return _ExpectedCounts(
        root=root,
        sound=sound,
        wrong=wrong,
        unsound=unsound,
        leaf=leaf,
        **_select_agreement_counts(evidence, kinds.transpose(1, 2, 0)),
    )


def _select_agreement_counts(evidence: Evidence, weight: Floats) -> dict[str, Floats]:
    """Return `num_taking_same_step`, `num_reaching_prefix` and `weight` of `_ExpectedCounts`.

    Steps before which there were no other samples are left out.

    Args:
        evidence: evidence of a batch.
        weight: [3, batch, R + 1], probability that a step is right, that it is the first wrong
            step, and that it follows an error.
    """
    r = np.arange(evidence.right.shape[1])
    there = (evidence.num_reaching_prefix > 0) & (r <= evidence.num_steps[:, None]) & (r >= 1)
    return {
        "num_taking_same_step": evidence.num_taking_same_step[there],
        "num_reaching_prefix": evidence.num_reaching_prefix[there],
        "weight": weight[:, there],
    }


def _estimate_priors_from_counts(
    expected: _ExpectedCounts, towards: ClassPriors, strength: float, *, smooth: bool
) -> ClassPriors:
    def smooth_counts(counts: Floats) -> Floats:
        return _add_neighbour_counts(counts @ _BLUR if smooth else counts)

    moves = np.concatenate([smooth_counts(expected.sound), smooth_counts(expected.wrong)], axis=-1)
    target = np.concatenate([towards.sound, towards.wrong], axis=-1)
    moves = _shrink_towards(moves, target, strength)
    size = len(GRID)
    ends = np.moveaxis(expected.leaf[:2], 0, 1).reshape(size, 4)
    ends = _shrink_towards(ends, np.moveaxis(towards.leaf[:2], 0, 1).reshape(size, 4), strength)
    leaf = np.concatenate(
        [
            np.moveaxis(ends.reshape(size, 2, 2), 1, 0),
            _shrink_towards(expected.leaf[2:], towards.leaf[2:], strength),
        ]
    )
    return ClassPriors(
        root=_shrink_towards(smooth_counts(expected.root[:, None])[:, 0], towards.root, strength),
        sound=moves[..., :size],
        wrong=moves[..., size:],
        unsound=_shrink_towards(smooth_counts(expected.unsound), towards.unsound, strength),
        leaf=leaf,
        agreement=np.array(
            [
                _fit_beta_binomial(
                    expected.num_taking_same_step,
                    expected.num_reaching_prefix,
                    weight,
                    towards.agreement[kind],
                    strength,
                )
                for kind, weight in enumerate(expected.weight)
            ]
        ),
    )


def _add_neighbour_counts(counts: Floats) -> Floats:
    """Add `NEIGHBOUR_WEIGHT` times the neighbouring rows to each row.

    A row holds the counts at one number of steps to go.
    """
    near = np.zeros_like(counts)
    near[1:] += counts[:-1]
    near[:-1] += counts[1:]
    return np.asarray(counts + NEIGHBOUR_WEIGHT * near)


def _shrink_towards(counts: Floats, towards: Floats, strength: float) -> Floats:
    rows = counts + strength * towards / towards.sum(-1, keepdims=True)
    return np.asarray(rows / rows.sum(-1, keepdims=True))


_MEANS = np.concatenate([np.linspace(0.01, 0.97, 33), [0.985, 0.995]])
_SIZES = np.array([0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0, 8.0, 16.0])


def _fit_beta_binomial(
    num_taking_same_step: Floats,
    num_reaching_prefix: Floats,
    weight: Floats,
    towards: Floats,
    strength: float,
) -> Floats:
    """Return the two parameters of a beta-binomial distribution by weighted maximum likelihood over
    a grid.

    The grid consists of means and sizes; the size is the sum of the two parameters.

    Args:
        num_taking_same_step: [n], as in `_ExpectedCounts`.
        num_reaching_prefix: [n], as in `_ExpectedCounts`.
        weight: [n], probability that the step is of the kind whose distribution is fitted.
        towards: the two parameters of a distribution, towards whose mean the result is shrunk.
        strength: weight of `towards`, in pairs of samples.
    """
    pairs, where = np.unique(
        np.stack([num_taking_same_step, num_reaching_prefix]), axis=1, return_inverse=True
    )
    weights = np.bincount(where.reshape(-1), weights=weight, minlength=pairs.shape[1])
    a = (_MEANS[:, None] * _SIZES).reshape(-1, 1)
    b = ((1 - _MEANS[:, None]) * _SIZES).reshape(-1, 1)
    m, n = pairs
    likely = (betaln(m + a, n - m + b) - betaln(a, b)) @ weights
    # Adds the log likelihood of `strength` more pairs of samples that agree as in `towards`.
    share = towards[0] / towards.sum()
    likely += (
        strength
        * (
            share * (betaln(1 + a, b) - betaln(a, b))
            + (1 - share) * (betaln(a, 1 + b) - betaln(a, b))
        )[:, 0]
    )
    best = int(np.argmax(likely))
    return np.array([a[best, 0], b[best, 0]])
