"""One posterior of the first error over rollouts and judges, whose error rates it learns.

What rollouts show of the first error e is what the posterior estimator makes of them, with priors
that are fitted to the whole run (`mclabel.labeling.estimators.posterior`). Each opinion multiplies
the chance of every e by how likely it is under e. How likely that is, the judge's own rates say,
which are learned by expectation maximisation on the run itself, without truth: a judge that knows
nothing gets the same rates for every e and weighs nothing (Dawid and Skene 1979; for step labels
arXiv 2512.03244 votes instead).

That multiplies independent witnesses only. Judges that repeat each other's errors, or those of the
rollouts, are found first, and count for what they add.

Two things keep one source from outvoting all others. Rollouts of one model go wrong together, so
what they show weighs `_ROLLOUT_WEIGHT` of what it would if they did not. And no source is trusted
without end: with the chance `DOUBT` what it says of a solution has nothing to do with it. So a
step from which rollouts recover by luck can still be wrong if a judge is sure of it. Both numbers
were chosen on arith's validation problems, where they made labels 2 points more accurate on
solutions with an error, and found a quarter more of the right answers through wrong steps.

Rates of judges and chances of first errors are learned from each other. One round fits every
judge's rates to how likely each first error is, and then multiplies what rollouts show by how
likely each opinion is (expectation maximisation; Dawid and Skene 1979).

Two judges that agree more than the first error explains are not two witnesses: one PRM at two
thresholds, a critic asked twice. Who repeats whom is learned on the run itself, pair by pair. A
pair is fitted twice, each time beside what rollouts show: as if their opinions did not depend on
each other once the first error is given, and as if what the second says of a step depended on what
the first says there, too. If the latter makes the opinions likelier by more than `LEAST_GAIN` for a
solution, the pair belongs to one group. Rollouts count as a source of a judge's errors likewise.

In a group the judge that finds most faults speaks for itself. What each other one says of a step is
learned given what those before it say there: apart for sound steps, the first wrong one and later
ones, as are a judge's other rates. (So do trees of features that depend on each other, Friedman,
Geiger and Goldszmidt 1997; here a count of all that came before stands in place of one parent.) An
exact copy, which says nothing new at any step, weighs nothing, and what a stricter threshold adds
weighs what it is worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mclabel.judge.consensus.models import (
    JudgeModel,
    SourceOpinions,
    Steps,
    fitted_table,
    step_likelihood,
)
from mclabel.labeling.estimators.posterior.arithmetic import exp, log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS = 10
"""Rounds of expectation maximisation over all judges."""
_ROLLOUT_WEIGHT = 0.5
"""Weight of what rollouts show, as a power of its likelihood."""


@dataclass(frozen=True, kw_only=True)
class Fused:
    """The posterior of a run's solutions."""

    chances: Floats
    """[solution, T + 1]: of each first error, last of none; zero beyond a solution's length."""
    models: Mapping[str, JudgeModel]
    """Models of the judges, with their fitted rates."""
    groups: Sequence[Sequence[str]]
    """Names of the sources that repeat each other's errors, each group of two or more."""


def fuse(
    rollouts: Floats,
    num_steps: Ints,
    models: Mapping[str, JudgeModel],
    *,
    labels: Ints | None = None,
) -> Fused:
    """Learn the rates of judges, and combine their opinions with what rollouts show.

    Args:
        rollouts: [solution, T + 1], chances of each first error by rollouts, that of none at the
            index of a solution's number of steps; zero beyond it.
        num_steps: [solution]
        models: models of the judges, by name.
        labels: [solution], first errors that the run's own labels name, the number of steps for
            none, -1 where they do not say; a judge may repeat them.
    """
    shown = RolloutEvidence(chances=rollouts, num_steps=num_steps)
    apart = find_repeating_sources(shown, models, labels)
    learned = multiplied(shown, apart.models)
    return Fused(chances=learned.chances, models=learned.models, groups=apart.groups)


def multiplied(shown: RolloutEvidence, models: Mapping[str, JudgeModel]) -> LearnedRates:
    """The posterior as it is if no two of these models depend on each other.

    Args:
        shown: what rollouts show.
        models: models of the judges, by name.
    """
    # Rates are learned against what is usual, as weakened beliefs would find errors everywhere.
    learned = learn(shown.weighted(_ROLLOUT_WEIGHT), shown.num_steps, models, rounds=_ROUNDS)
    # Where judges say nothing, the likeliest first error is that of the rollouts.
    weakened = exp(_ROLLOUT_WEIGHT * log(np.where(shown.there, shown.least, 1.0)))
    own = doubted(np.where(shown.there, weakened, 0.0), shown.by_length())
    fitted = list(learned.models.values())
    chances, _ = combined(own, learned.chances, shown.num_steps, fitted)
    return replace(learned, chances=chances)


DOUBT = 0.02
"""Chance that what a source says of a solution has nothing to do with it."""
LEAST = 1e-9
"""Chance of a first error by rollouts, at the least."""


@dataclass(frozen=True, kw_only=True)
class LearnedRates:
    """Result of some rounds of learning."""

    chances: Floats
    """[solution, T + 1]: of each first error, last of none."""
    models: Mapping[str, JudgeModel]
    """Models of the judges, with their fitted rates."""
    log_likelihood: float
    """Log-likelihood of all opinions, given the rollouts."""


@dataclass(frozen=True, kw_only=True)
class RolloutEvidence:
    """Evidence of rollouts on first errors."""

    chances: Floats
    """[solution, T + 1]: of each first error, last of none; zero beyond a solution's length."""
    num_steps: Ints
    """[solution]"""

    @property
    def there(self) -> NDArray[np.bool_]:
        """[solution, T + 1]: whether a solution can have this first error."""
        return np.asarray(np.arange(self.chances.shape[1]) <= self.num_steps[:, None])

    @property
    def least(self) -> Floats:
        """The chances, none of them zero within a solution's length."""
        return np.where(self.there, np.maximum(self.chances, LEAST), 0.0)

    def by_length(self) -> Floats:
        """Their usual value in solutions of the same length, [solution, T + 1]."""
        return mean_by_length(self.least / self.least.sum(1, keepdims=True), self.num_steps)

    def weighted(self, power: float) -> Floats:
        """With their likelihood raised to a power, against what is usual; see `doubted`."""
        expected = self.by_length()
        ratio = log(np.where(self.there, self.least, 1.0)) - log(
            np.where(self.there, expected, 1.0)
        )
        return doubted(np.where(self.there, expected * exp(power * ratio), 0.0), expected)


def learn(
    begun: Floats, num_steps: Ints, models: Mapping[str, JudgeModel], *, rounds: int
) -> LearnedRates:
    """Fit rates to chances and chances to rates, by turns.

    Args:
        begun: [solution, T + 1], chances of each first error by rollouts.
        num_steps: [solution]
        models: models of the judges, by name.
        rounds: at least one.
    """
    chances, current, likelihood = begun, dict(models), 0.0
    for _ in range(rounds):
        current = {name: model.fitted(chances) for name, model in current.items()}
        chances, likelihood = combined(begun, chances, num_steps, list(current.values()))
    return LearnedRates(chances=chances, models=current, log_likelihood=likelihood)


def combined(
    begun: Floats, chances: Floats, num_steps: Ints, models: Sequence[JudgeModel]
) -> tuple[Floats, float]:
    """Multiply what rollouts show by how likely each opinion is.

    Args:
        begun: [solution, T + 1], by rollouts.
        chances: [solution, T + 1], by everything, as it was a round before.
        num_steps: [solution]
        models: models of the judges.

    Returns:
        Chances by everything; the logarithm of how likely all opinions are.
    """
    there = np.arange(begun.shape[1]) <= num_steps[:, None]
    expected, product, likelihood = mean_by_length(chances, num_steps), begun, 0.0
    for model in models:
        likely = model.log_likelihood()
        most = np.where(there, likely, -np.inf).max(1, keepdims=True)
        opinion = np.where(there, exp(likely - most), 0.0)
        anyhow = (expected * opinion).sum(1, keepdims=True)
        product = product * ((1 - DOUBT) * opinion + DOUBT * anyhow)
        likelihood += float(most.sum())
    whole = product.sum(1, keepdims=True)
    return np.asarray(product / whole), likelihood + float(log(whole).sum())


def doubted(likely: Floats, expected: Floats) -> Floats:
    """Chances in proportion to these, and with some chance what is usual."""
    return np.asarray((1 - DOUBT) * likely / likely.sum(1, keepdims=True) + DOUBT * expected)


def mean_by_length(chances: Floats, num_steps: Ints) -> Floats:
    """[solution, T + 1]: the mean over the solutions of the same length."""
    means = np.zeros_like(chances)
    for steps in np.unique(num_steps):
        same = num_steps == steps
        means[same] = chances[same].mean(0)
    return means


ROLLOUTS = "rollouts"
"""Name of what the run itself says."""
LEAST_GAIN = 0.02
"""Rise of the log-likelihood, for a solution on which both have an opinion, from which on a pair of
judges is taken to depend on each other. In simulated runs of 2,000 solutions pairs of independent
judges had at most .013, thresholds of one PRM at least .08, and copies .22."""
LEAST_GAIN_OF_ROLLOUTS = 0.08
"""The same of a judge and the rollouts, whose beliefs are less well calibrated: independent judges
had at most .067, one that repeats nine in ten of the rollouts' labels .096, and copies .13."""
CHANCE = 5.0
"""Gain of a whole run that may arise by chance; its solutions share it."""
_PAIR_ROUNDS = 5
"""Rounds of expectation maximisation over a pair."""
MOST_COUNTED = 3
"""Judges who find fault with the same step are counted up to here."""


@dataclass(frozen=True, kw_only=True)
class Apart:
    """The models of all judges, those in a group given the ones before them."""

    models: Mapping[str, JudgeModel]
    groups: Sequence[Sequence[str]]
    """Names of sources that depend on each other, `ROLLOUTS` or the first judge first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeating:
    """Model of a judge whose errors may repeat those of other sources. A `JudgeModel`."""

    alone: JudgeModel
    """Model of the judge alone, which has its rates."""
    others: Steps
    """Opinions of the other sources at each step."""
    table: Floats | None = None
    """[kind, what others say, what it says]: chances at a sound step, at the first wrong one and at
    a later one; None is even."""

    def log_likelihood(self) -> Floats:
        """See `JudgeModel`."""
        return step_likelihood(self.table, self.others.values, self._own.values)

    def fitted(self, chances: Floats) -> Self:
        """See `JudgeModel`."""
        own = self._own
        shape = (self.others.count, own.count)
        table = fitted_table(chances, self.others.values, own.values, shape, self._usual(own))
        return replace(self, alone=self.alone.fitted(chances), table=table)

    def rates(self) -> Mapping[str, float]:
        """See `JudgeModel`."""
        return self.alone.rates()

    def said(self) -> SourceOpinions:
        """See `JudgeModel`."""
        return self.alone.said()

    @property
    def _own(self) -> Steps:
        return self.alone.said().seen

    def _usual(self, own: Steps) -> Floats:
        """Half an observation of each kind, which a combination that was never seen gets."""
        counts = np.bincount(own.values[own.values >= 0], minlength=own.count) + 1.0
        return np.asarray(0.5 * counts / counts.sum())


def find_repeating_sources(
    shown: RolloutEvidence, models: Mapping[str, JudgeModel], labels: Ints | None = None
) -> Apart:
    """Find the sources that depend on each other.

    Args:
        shown: what rollouts show.
        models: models of the judges, by name.
        labels: first errors by the run's own labels; see `fuse`.
    """
    if not models:
        return Apart(models=models, groups=())
    pairs = _Pairs(shown, models)
    own, gains = _own_words(pairs, shown, labels)
    gains += [(pairs.gain(a, b), a, b) for a, b in combinations(models, 2)]
    links = [
        (gain, a, b)
        for gain, a, b in gains
        if gain > (LEAST_GAIN_OF_ROLLOUTS if a == ROLLOUTS else LEAST_GAIN)
    ]
    repeating, groups, seen = dict(models), [], set[str]()
    opinions = {ROLLOUTS: own, **{name: model.said() for name, model in models.items()}}
    for name in (ROLLOUTS, *sorted(models, key=lambda name: (_reach(opinions[name]), name))):
        if name not in seen:
            group = _group(name, links)
            seen.update(group)
            if len(group) > 1:
                groups.append(group)
            for place, member in enumerate(group[1:], 1):
                others = _combined_steps([opinions[earlier] for earlier in group[:place]])
                repeating[member] = Repeating(alone=models[member], others=others)
    return Apart(models=repeating, groups=groups)


def _reach(source: SourceOpinions) -> tuple[bool, int]:
    """Sorts judges by how much there is to learn from them alone: first those that score steps,
    then those that find most faults.
    """
    return source.names, -int((source.seen.values == 1).sum())


@dataclass
class _Pairs:
    """Gains in likelihood of the opinions if two sources depend on each other."""

    shown: RolloutEvidence
    models: Mapping[str, JudgeModel]
    begun: Floats = field(init=False)
    alone: dict[str, float] = field(init=False)
    """Log-likelihood of each judge's opinions beside the rollouts alone."""

    def __post_init__(self) -> None:
        # By the rollouts at their full weight: weakened ones would let judges that are merely good
        # seem to agree beyond what the first error explains.
        self.begun = self.shown.weighted(1.0)
        self.alone = {name: self._likelihood({name: model}) for name, model in self.models.items()}

    def gain(self, first: str, second: str) -> float:
        """For a solution on which both have an opinion, less what chance may bring."""
        model, other = self.models[first], self.models[second]
        free = self._likelihood({first: model, second: other})
        given = Repeating(alone=other, others=model.said().heard)
        return self._shared(
            self._likelihood({first: model, second: given}) - free, model.said(), other
        )

    def gain_of(self, source: SourceOpinions, name: str) -> float:
        """Likewise, of a judge that repeats what rollouts say."""
        model = self.models[name]
        given = Repeating(alone=model, others=source.heard)
        gain = self._likelihood({name: given}) - self.alone[name]
        return self._shared(gain, source, model)

    def _shared(self, gain: float, opinions: SourceOpinions, other: JudgeModel) -> float:
        both = int((opinions.is_known & other.said().is_known).sum())
        return (gain - CHANCE) / both if both else 0.0

    def _likelihood(self, models: Mapping[str, JudgeModel]) -> float:
        return learn(self.begun, self.shown.num_steps, models, rounds=_PAIR_ROUNDS).log_likelihood


def _own_words(
    pairs: _Pairs, shown: RolloutEvidence, labels: Ints | None
) -> tuple[SourceOpinions, list[tuple[float, str, str]]]:
    """Return what judges may repeat of the run, its labels or what is likeliest, and who does how
    much.
    """
    likeliest = shown.chances.argmax(1).astype(np.int64)
    candidates = [SourceOpinions.of_named(likeliest, shown.num_steps)]
    if labels is not None:
        candidates.append(SourceOpinions.of_named(labels, shown.num_steps))
    gains = [
        (candidate, [(pairs.gain_of(candidate, name), ROLLOUTS, name) for name in pairs.models])
        for candidate in candidates
    ]
    return max(gains, key=lambda entry: max(entry[1]))


def _group(name: str, links: Sequence[tuple[float, str, str]]) -> list[str]:
    """A source and all that depend on it, each after the one that it depends on most."""
    group = [name]
    while True:
        near = [
            (gain, b if a in group else a) for gain, a, b in links if (a in group) != (b in group)
        ]
        if not near:
            return group
        group.append(max(near)[1])


def _combined_steps(sources: Sequence[SourceOpinions]) -> Steps:
    """Return what several sources say at each step.

    Of those that name a step: how many name this one, and whether none, some or all have named one
    before. Of scorers: the level by the last one, of which the others are nearly copies.
    """
    naming = [source.heard.values for source in sources if source.names]
    scoring = [source.heard for source in sources if not source.names]
    values, count = np.zeros_like(sources[0].heard.values), 1
    if naming:
        heard = np.stack(naming)
        here, before = (
            (heard == SourceOpinions.HERE).sum(0),
            (heard == SourceOpinions.BEFORE).sum(0),
        )
        num_known = (heard != SourceOpinions.UNKNOWN).sum(0)
        share = np.where(before == 0, 0, np.where(before == num_known, 2, 1))
        values = np.minimum(here, MOST_COUNTED) + (MOST_COUNTED + 1) * share
        count = 3 * (MOST_COUNTED + 1)
    if scoring:
        last = scoring[-1]
        values, count = values * last.count + last.values, count * last.count
    return Steps(values=values, count=count)
