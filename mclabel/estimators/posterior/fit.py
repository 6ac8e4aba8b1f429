"""Fits priors to evidence by expectation maximisation: no truth is needed, nor used.

What follows errors shows in values that fall and do not come back, so the chain's hidden states
can be learned from rollouts and outcomes alone (Baum and Welch). Counts are smoothed over
neighbouring values and numbers of steps to go, and shrunk towards those of all answer classes
together, which are shrunk towards the wide priors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from mclabel.estimators.posterior.chain import Evidence
from mclabel.estimators.posterior.evidence import stack_evidence
from mclabel.estimators.posterior.messages import pass_messages
from mclabel.estimators.posterior.priors import (
    GRID,
    NUM_TO_GO,
    POOLED,
    ClassPriors,
    Priors,
    wide_priors,
)

Floats = NDArray[np.float64]

ROUNDS = 8
MIN_SOLUTIONS = 40
"""Of an answer class, to have priors of its own."""
TO_WIDE, TO_POOLED = 3.0, 8.0
"""Weight in observations, a row, of what counts are shrunk towards."""
NEIGHBOUR = 0.25
"""Weight of the counts at one step to go more or less."""
CHUNK = 256

_BLUR = 0.6 * np.eye(len(GRID)) + 0.2 * (np.eye(len(GRID), k=1) + np.eye(len(GRID), k=-1))
_BLUR /= _BLUR.sum(1, keepdims=True)


def fit_priors(
    evidence: Mapping[str, Sequence[Evidence]],
    once: Mapping[str, Sequence[Evidence]] | None = None,
    *,
    rounds: int = ROUNDS,
) -> Priors:
    """Priors that make the evidence likely.

    Args:
        evidence: of finished problems, by answer class. How rollouts were chosen and stopped does
            not matter, since it was chosen by what is in the evidence.
        once: the same with every outcome counted once, where `evidence` counts some twice.
        rounds: of expectation maximisation.
    """
    if once:
        values = fit_priors(once, rounds=rounds).classes
        return replace(fit_priors(evidence, rounds=rounds), values=values)
    wide = wide_priors().of(POOLED)
    stacked = {name: stack_evidence(parts) for name, parts in evidence.items() if parts}
    sizes = {name: len(one.num_steps) for name, one in stacked.items()}
    if not sum(sizes.values()):
        return wide_priors()
    own = [name for name in sorted(stacked) if sizes[name] >= MIN_SOLUTIONS]
    current = {POOLED: wide, **dict.fromkeys(own, wide)}
    for _ in range(rounds):
        found = {
            name: _expect(one, current.get(name, current[POOLED])) for name, one in stacked.items()
        }
        everything = _sum(list(found.values()))
        pooled = _maximise(everything, wide, TO_WIDE)
        current = {POOLED: pooled} | {
            name: _maximise(found[name], pooled, TO_POOLED) for name in own
        }
    return Priors(classes=current, num_solutions=sum(sizes.values()))


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
    names = ("num_steps", "right", "wrong", "same", "others", "outcome")
    return replace(evidence, **{name: getattr(evidence, name)[part] for name in names})


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
        evidence: of a batch.
        weight: [3, batch, R + 1], chance of each kind of step.
    """
    r = np.arange(evidence.right.shape[1])
    there = (evidence.others > 0) & (r <= evidence.num_steps[:, None]) & (r >= 1)
    return {
        "same": evidence.same[there],
        "others": evidence.others[there],
        "weight": weight[:, there],
    }


def _maximise(found: _Expected, towards: ClassPriors, strength: float) -> ClassPriors:
    moves = np.concatenate([_smooth(found.sound), _smooth(found.wrong)], axis=-1)
    target = np.concatenate([towards.sound, towards.wrong], axis=-1)
    moves = _shrunk(moves, target, strength)
    size = len(GRID)
    ends = np.moveaxis(found.leaf[:2], 0, 1).reshape(size, 4)
    ends = _shrunk(ends, np.moveaxis(towards.leaf[:2], 0, 1).reshape(size, 4), strength)
    leaf = np.concatenate(
        [
            np.moveaxis(ends.reshape(size, 2, 2), 1, 0),
            _shrunk(found.leaf[2:], towards.leaf[2:], strength),
        ]
    )
    return ClassPriors(
        root=_shrunk(_smooth(found.root[:, None])[:, 0], towards.root, strength),
        sound=moves[..., :size],
        wrong=moves[..., size:],
        unsound=_shrunk(_smooth(found.unsound), towards.unsound, strength),
        leaf=leaf,
        agreement=np.array(
            [
                _fit_share(found.same, found.others, weight, towards.agreement[kind], strength)
                for kind, weight in enumerate(found.weight)
            ]
        ),
    )


def _smooth(counts: Floats) -> Floats:
    """Blurred over the later value and over neighbouring numbers of steps to go."""
    blurred = counts @ _BLUR
    near = np.zeros_like(blurred)
    near[1:] += blurred[:-1]
    near[:-1] += blurred[1:]
    return np.asarray(blurred + NEIGHBOUR * near)


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
