"""Fits priors to evidence by expectation maximisation: no truth is needed, nor used.

What follows errors shows in values that fall and do not come back, so the chain's hidden states
can be learned from rollouts and outcomes alone (Baum and Welch). Counts are smoothed over
neighbouring values and numbers of steps to go, and shrunk towards those of all answer classes
together, which are shrunk towards the priors that a run starts from.

Where several completers roll out, the author's chains are fitted on their own at first, and the
others' on what the author's say of errors: its solutions' ends tell luck from blindness, which the
others cannot. All together from the beginning, one completer that always fails can have it that
every solution is wrong from its first step, and the author lucky.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from mclabel.core.records import AUTHOR
from mclabel.labeling.estimators.paths import chance_of
from mclabel.labeling.estimators.posterior.chain import Evidence, error_chances, pass_messages
from mclabel.labeling.estimators.posterior.evidence import bare_errors, elsewhere, stack_evidence
from mclabel.labeling.estimators.posterior.priors import (
    GRID,
    NUM_TO_GO,
    POOLED,
    ClassPriors,
    Priors,
    Rates,
    guessing,
    priors_of,
    starting_priors,
    wide_priors,
)

Floats = NDArray[np.float64]

ROUNDS = 8
MIN_SOLUTIONS = 40
"""Minimum number of solutions for which an answer class gets its own priors."""
TO_START, TO_WIDE, TO_POOLED = 150.0, 3.0, 150.0
"""Weights of the starting priors, of the wide ones and of the pooled ones, in observations per
row. The starting priors know where errors lie from judged solutions, which a run's own evidence
cannot tell where nothing is ever solved: with weights of 10 and 8 a run on such problems unlearns
it."""
NEIGHBOUR = 0.25
"""Weight of the counts at one more or one fewer step to go."""
CHUNK = 256

_BLUR = 0.6 * np.eye(len(GRID)) + 0.2 * (np.eye(len(GRID), k=1) + np.eye(len(GRID), k=-1))
_BLUR /= _BLUR.sum(1, keepdims=True)


ByCompleter = Mapping[str, Evidence]
"""Evidence on the same solutions from each completer, the author first."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Evidence on a problem's solutions, as it is read in several ways."""

    outcomes: ByCompleter
    """Outcomes of rollouts and samples alone, some of them counted at two prefixes."""
    once: ByCompleter
    """The same counted once: for values."""
    agreement: ByCompleter | None = None
    """With the agreement of other samples; None where that is not used."""


def fit_readings(
    problems: Mapping[str, Iterable[Readings]],
    *,
    start: Priors | None = None,
    strength: float = TO_START,
) -> Priors:
    """Fit priors to the evidence of finished problems, by answer class; see `fit_priors`."""

    def read(name: str) -> dict[str, list[ByCompleter]]:
        of_class = {
            kind: [getattr(reading, name) for reading in own] for kind, own in problems.items()
        }
        return {kind: own for kind, all_ in of_class.items() if (own := [o for o in all_ if o])}

    return fit_priors(
        read("outcomes"), read("once"), read("agreement"), start=start, strength=strength
    )


def fit_priors(
    evidence: Mapping[str, Sequence[ByCompleter]],
    once: Mapping[str, Sequence[ByCompleter]] | None = None,
    agreement: Mapping[str, Sequence[ByCompleter]] | None = None,
    *,
    start: Priors | None = None,
    strength: float = TO_START,
    rounds: int = ROUNDS,
) -> Priors:
    """Fit priors that make the evidence likely.

    Args:
        evidence: evidence of finished problems, by answer class. How rollouts were chosen and
            stopped does not matter, since it was chosen by what is in the evidence. What is
            elsewhere for one completer is computed from the others'.
        once: the same with every outcome counted once, where `evidence` counts some twice.
        agreement: the same with the agreement of samples, where that is used; it counts every
            outcome once.
        start: priors to begin with, towards which the fitted ones are shrunk; None takes
            `starting_priors`.
        strength: weight of `start` in observations per row, where the author rolls out alone.
        rounds: rounds of expectation maximisation; as many before them, led by the author, where
            others roll out, too.
    """
    start = start or starting_priors()
    if agreement:
        own_start = start.agreement or start
        found = fit_priors(agreement, start=own_start, strength=strength, rounds=rounds)
        outcomes = fit_priors(evidence, once, start=start, strength=strength, rounds=rounds)
        return replace(outcomes, agreement=found, rates=found.rates)
    if once:
        values = start if start.values is None else replace(start, classes=start.values)
        return _with_values(
            fit_priors(evidence, start=start, strength=strength, rounds=rounds),
            fit_priors(once, start=values, strength=strength, rounds=rounds),
        )
    stacked = {
        name: {who: stack_evidence([part[who] for part in parts]) for who in parts[0]}
        for name, parts in evidence.items()
        if parts
    }
    sizes = {name: len(by[AUTHOR].num_steps) for name, by in stacked.items()}
    num_solutions = sum(sizes.values())
    if not num_solutions:
        return start
    own = [name for name in sorted(stacked) if sizes[name] >= MIN_SOLUTIONS]
    everyone = list(next(iter(stacked.values())))
    alone = len(everyone) == 1
    # The starting priors were fitted to a policy that rolls out alone.
    first = (start if alone else wide_priors()).of(POOLED)
    strength = strength if alone else TO_WIDE
    begun = {POOLED: first, **{name: guessing(first, chance_of(name)) for name in own}}
    current: _Current = dict.fromkeys(everyone, begun)
    for number in range(rounds if alone else 2 * rounds):
        crossed = _crossed(stacked, current, led=number < rounds)
        current = {
            who: _improved(
                {name: by[who] for name, by in crossed.items()},
                current[who],
                own,
                first,
                strength,
                smooth=alone,
            )
            for who in everyone
        }
    rates = {} if alone else _rates(_crossed(stacked, current), current)
    priors = {
        who: Priors(classes=found, num_solutions=num_solutions) for who, found in current.items()
    }
    return replace(priors.pop(AUTHOR), completers=priors, rates=rates)


def _with_values(priors: Priors, once: Priors) -> Priors:
    completers = {
        name: replace(completer_priors, values=once.completers[name].classes)
        for name, completer_priors in priors.completers.items()
    }
    return replace(priors, values=once.classes, completers=completers, rates=once.rates)


_Current = Mapping[str, Mapping[str, ClassPriors]]
"""Priors by completer and answer class."""


def _crossed(
    stacked: Mapping[str, ByCompleter], current: _Current, *, led: bool = False
) -> Mapping[str, Mapping[str, Evidence]]:
    """The evidence, with what each completer's chains show the others'.

    Args:
        stacked: evidence by answer class.
        current: priors.
        led: let all hear of the author alone, and the author of nobody.
    """
    if len(current) == 1:
        return stacked
    crossed = {}
    for name, by in stacked.items():
        priors = {who: priors_of(classes, name) for who, classes in current.items()}
        bare = [
            bare_errors(evidence_of.num_steps, priors[who], evidence_of.right.shape[1])
            for who, evidence_of in by.items()
            if who != AUTHOR
        ]
        if led:
            own_chances = [error_chances(by[AUTHOR], priors[AUTHOR]), *bare]
        else:
            own_chances = [
                error_chances(evidence_of, priors[who]) for who, evidence_of in by.items()
            ]
        crossed[name] = {
            who: replace(evidence_of, elsewhere=others)
            for (who, evidence_of), others in zip(
                by.items(), elsewhere(own_chances, bare), strict=True
            )
        }
    return crossed


def _improved(
    evidence: Mapping[str, Evidence],
    current: Mapping[str, ClassPriors],
    own: Sequence[str],
    first: ClassPriors,
    strength: float,
    *,
    smooth: bool,
) -> dict[str, ClassPriors]:
    """One round, of one completer.

    Blurring helps where the policy rolls out alone. Where a prefix has a rollout or two by each of
    several, repeated rounds of it would wash out what they show.
    """
    expected = {
        name: _expect(own_evidence, priors_of(current, name))
        for name, own_evidence in evidence.items()
    }
    unguessed = [own_evidence for name, own_evidence in expected.items() if not chance_of(name)]
    pooled = _maximise(_sum(unguessed), first, strength, smooth=smooth) if unguessed else first
    return {POOLED: pooled} | {
        name: _maximise(expected[name], guessing(pooled, chance_of(name)), TO_POOLED, smooth=smooth)
        for name in own
    }


def _rates(crossed: Mapping[str, Mapping[str, Evidence]], current: _Current) -> dict[str, Rates]:
    """Return what each completer's rollouts show of its rates, at prefixes that end with a step.

    None of a completer that rolled nothing out.

    The chains' own expected values would be drawn to the starting priors where there are few
    rollouts. So the shares are fitted anew, prefixes weighted by the chance that they are sound,
    or are not.
    """
    rates = {}
    for who, classes in current.items():
        seen = []
        for name, by in crossed.items():
            evidence, priors = by[who], priors_of(classes, name)
            for start in range(0, len(evidence.num_steps), CHUNK):
                seen.append(_soundness(_rows(evidence, slice(start, start + CHUNK)), priors))
        right, trials, sound = np.concatenate(seen, axis=1)
        if not len(trials):
            continue  # an author that rolls nothing out
        rates[who] = Rates(
            blindness=1 - _fit_mean(right, trials, sound),
            luck=_fit_mean(right, trials, 1 - sound),
        )
    return rates


def _soundness(evidence: Evidence, priors: ClassPriors) -> Floats:
    """Right rollouts, all, and the chance of being sound, of every inner prefix with rollouts."""
    messages = pass_messages(evidence, priors)
    sound, unsound = ((before * after).sum(-1) for before, after in messages.pairs)
    right, wrong = evidence.right.T, evidence.wrong.T
    there = np.arange(len(right))[:, None] < evidence.num_steps  # all but the bare problem
    there &= right + wrong > 0
    shares = sound[there] / (sound + unsound)[there]
    return np.stack([right[there], (right + wrong)[there], shares])


def _fit_mean(right: Floats, trials: Floats, weight: Floats) -> float:
    """Mean of beta-binomial shares, which vary from prefix to prefix, by weighted likelihood.

    It does not matter that rollouts stop by their outcomes.
    """
    pairs, where = np.unique(np.stack([right, trials]), axis=1, return_inverse=True)
    weights = np.bincount(where.reshape(-1), weights=weight, minlength=pairs.shape[1])
    size, mean = np.meshgrid(_SIZES, np.linspace(0.0025, 0.9975, 200))
    a, b = (mean * size).reshape(-1, 1), ((1 - mean) * size).reshape(-1, 1)
    m, n = pairs
    likely = (betaln(m + a, n - m + b) - betaln(a, b)) @ weights
    return float(mean.reshape(-1)[int(np.argmax(likely))])


@dataclass(frozen=True, kw_only=True)
class _Expected:
    """Expected counts of every move, shaped like the priors."""

    root: Floats
    sound: Floats
    wrong: Floats
    unsound: Floats
    leaf: Floats
    same: Floats
    """[n]: agreement seen at each step of each solution."""
    others: Floats
    weight: Floats
    """[3, n]: chance of each kind of step there."""


def _sum(parts: Sequence[_Expected]) -> _Expected:
    def total(name: str) -> Floats:
        return np.asarray(sum(getattr(part, name) for part in parts))

    def joined(name: str) -> Floats:
        return np.concatenate([getattr(part, name) for part in parts], axis=-1)

    return _Expected(
        **{name: total(name) for name in ("root", "sound", "wrong", "unsound", "leaf")},
        **{name: joined(name) for name in ("same", "others", "weight")},
    )


def _expect(evidence: Evidence, priors: ClassPriors) -> _Expected:
    count = len(evidence.num_steps)
    rows = [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
    return _sum([_expect_chunk(_rows(evidence, part), priors) for part in rows])


def _rows(evidence: Evidence, part: slice) -> Evidence:
    return Evidence(**{f.name: getattr(evidence, f.name)[part] for f in fields(Evidence)})


def _expect_chunk(evidence: Evidence, priors: ClassPriors) -> _Expected:
    messages = pass_messages(evidence, priors)
    (forward, fallen), (back, lost) = messages.forward, messages.back
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
        emission = messages.emission[r - 1]
        right, first, later = messages.agree[r].T[..., None]
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
    agree = messages.agree[1].T
    leaf = priors.leaf * np.einsum("sbg,bo,sb->sgo", states, evidence.outcome, agree)
    kinds[1] = np.einsum("sbg,bo,sb,sgo->sb", states, evidence.outcome, agree, priors.leaf)
    return _Expected(
        root=root,
        sound=sound,
        wrong=wrong,
        unsound=unsound,
        leaf=leaf,
        **_agreement(evidence, kinds.transpose(1, 2, 0)),
    )


def _agreement(evidence: Evidence, weight: Floats) -> dict[str, Floats]:
    """Agreement where there were other samples.

    Args:
        evidence: evidence of a batch.
        weight: [3, batch, R + 1], chance of each kind of step.
    """
    r = np.arange(evidence.right.shape[1])
    there = (evidence.others > 0) & (r <= evidence.num_steps[:, None]) & (r >= 1)
    return {
        "same": evidence.same[there],
        "others": evidence.others[there],
        "weight": weight[:, there],
    }


def _maximise(
    expected: _Expected, towards: ClassPriors, strength: float, *, smooth: bool
) -> ClassPriors:
    def smoothed(counts: Floats) -> Floats:
        return _near(counts @ _BLUR if smooth else counts)

    moves = np.concatenate([smoothed(expected.sound), smoothed(expected.wrong)], axis=-1)
    target = np.concatenate([towards.sound, towards.wrong], axis=-1)
    moves = _shrunk(moves, target, strength)
    size = len(GRID)
    ends = np.moveaxis(expected.leaf[:2], 0, 1).reshape(size, 4)
    ends = _shrunk(ends, np.moveaxis(towards.leaf[:2], 0, 1).reshape(size, 4), strength)
    leaf = np.concatenate(
        [
            np.moveaxis(ends.reshape(size, 2, 2), 1, 0),
            _shrunk(expected.leaf[2:], towards.leaf[2:], strength),
        ]
    )
    return ClassPriors(
        root=_shrunk(smoothed(expected.root[:, None])[:, 0], towards.root, strength),
        sound=moves[..., :size],
        wrong=moves[..., size:],
        unsound=_shrunk(smoothed(expected.unsound), towards.unsound, strength),
        leaf=leaf,
        agreement=np.array(
            [
                _fit_share(
                    expected.same, expected.others, weight, towards.agreement[kind], strength
                )
                for kind, weight in enumerate(expected.weight)
            ]
        ),
    )


def _near(counts: Floats) -> Floats:
    """With a share of the counts at neighbouring numbers of steps to go."""
    near = np.zeros_like(counts)
    near[1:] += counts[:-1]
    near[:-1] += counts[1:]
    return np.asarray(counts + NEIGHBOUR * near)


def _shrunk(counts: Floats, towards: Floats, strength: float) -> Floats:
    rows = counts + strength * towards / towards.sum(-1, keepdims=True)
    return np.asarray(rows / rows.sum(-1, keepdims=True))


_MEANS = np.concatenate([np.linspace(0.01, 0.97, 33), [0.985, 0.995]])
_SIZES = np.array([0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0, 8.0, 16.0])


def _fit_share(
    same: Floats, others: Floats, weight: Floats, towards: Floats, strength: float
) -> Floats:
    """Beta-binomial parameters by weighted likelihood over a grid of means and sizes."""
    pairs, where = np.unique(np.stack([same, others]), axis=1, return_inverse=True)
    weights = np.bincount(where.reshape(-1), weights=weight, minlength=pairs.shape[1])
    a = (_MEANS[:, None] * _SIZES).reshape(-1, 1)
    b = ((1 - _MEANS[:, None]) * _SIZES).reshape(-1, 1)
    m, n = pairs
    likely = (betaln(m + a, n - m + b) - betaln(a, b)) @ weights
    # As if `strength` pairs of samples had been seen that behave as in `towards`.
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
