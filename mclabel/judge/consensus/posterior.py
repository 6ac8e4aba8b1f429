"""Computes the posterior of the first error from rollouts and judges, and learns the judges' error
rates.

For each first error e of a solution, the rollouts give a probability. The posterior estimator
computes it, with priors fitted to the whole run (`mclabel.labeling.estimators.posterior`). Each
judge's opinion multiplies the probability of e by the opinion's likelihood under e. The likelihood
follows from the judge's error rates. Expectation maximisation learns these rates from the run
itself, without true labels. One round fits each judge's rates to the current probabilities of first
errors, and then updates the probabilities with the new likelihoods (Dawid and Skene 1979; arXiv
2512.03244 takes votes of judges for step labels instead). An uninformative judge gets the same
rates for every e, so its opinions have no effect.

Multiplying likelihoods is valid only for independent sources. Judges that repeat errors of each
other, or of the rollouts, are therefore found first, and only what they add to the other source
counts.

Two constants keep one source from overruling all others. Rollouts of one model make correlated
errors, so their likelihood is raised to the power `_ROLLOUT_WEIGHT`. And every source is doubted:
with the probability `DOUBT` its opinion on a solution is unrelated to the solution's first error.
A step from which rollouts recover by luck can thus still be labelled wrong if a judge is confident.
Both constants were chosen on arith's validation problems. There they made labels 2 points more
accurate on solutions with an error, and found a quarter more of the right answers that were reached
through wrong steps.

Two judges may agree more often than the first error explains, such as one PRM at two thresholds, or
a critic that is asked twice. Such dependence is learned on the run itself, pair by pair. Each pair
is fitted with two models, both of which include the evidence of rollouts. In the first model the
two opinions are independent given the first error. In the second model the second judge's opinion
on a step also depends on the first judge's opinion on this step. If the second model raises the
log-likelihood by more than `LEAST_GAIN` per solution, the two judges are put into one group. A
judge can depend on the rollouts in the same way.

In a group, the opinions of the judge that finds most faults count in full. The opinions of each
further judge are modelled given the opinions of the earlier judges on the same step, with separate
probabilities for sound steps, the first wrong step, and later steps. (Trees of dependent features
do the same, Friedman, Geiger and Goldszmidt 1997. Here a summary of all earlier judges replaces the
single parent.) An exact copy of a judge therefore has no effect, and a second threshold of the same
PRM has a small one.

Arrays have one row per solution, and T is the number of steps of the longest solution. In arrays
with T + 1 columns, column t means that the first error is at the 0-based step t, and the column at
a solution's number of steps means that there is no error. Later columns are padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mclabel.judge.consensus.models import (
    JudgeModel,
    SourceOpinions,
    StepCategories,
    compute_step_log_likelihood,
    estimate_opinion_probabilities,
)
from mclabel.labeling.estimators.posterior.arithmetic import exp, log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDS = 10
"""Number of rounds of expectation maximisation over all judges."""
_ROLLOUT_WEIGHT = 0.5
"""Exponent of the likelihood of the rollouts: 1 trusts them fully, 0 ignores them."""


@dataclass(frozen=True, kw_only=True)
class FusedPosterior:
    """Posterior first errors of a run's solutions, and what was learned about the judges."""

    chances: Floats
    """Posterior probabilities of first errors, [solution, T + 1]. Index t < T is the first error at
    step t. The index equal to a solution's number of steps means no error; beyond it entries are
    zero."""
    models: Mapping[str, JudgeModel]
    """Models of the judges, with their fitted rates."""
    groups: Sequence[Sequence[str]]
    """Groups of two or more sources that repeat each other's errors, by name."""


def fuse_judges_with_rollouts(
    rollout_chances: Floats,
    num_steps: Ints,
    models: Mapping[str, JudgeModel],
    *,
    labels: Ints | None = None,
) -> FusedPosterior:
    """Learn the error rates of judges, and combine their opinions with the rollouts.

    Args:
        rollout_chances: probabilities of first errors according to the rollouts, [solution, T +
            1], laid out as `FusedPosterior.chances`.
        num_steps: numbers of steps, [solution].
        models: models of the judges, by name.
        labels: 0-based first errors in the run's own labels, [solution]: the number of steps means
            no error, -1 means undecided. They are used to find judges that repeat the labels. None
            if there are no labels.
    """
    evidence = RolloutEvidence(chances=rollout_chances, num_steps=num_steps)
    apart = model_dependent_sources(evidence, models, labels)
    learned = fit_independent_posterior(evidence, apart.models)
    return FusedPosterior(chances=learned.chances, models=learned.models, groups=apart.groups)


def fit_independent_posterior(
    evidence: RolloutEvidence, models: Mapping[str, JudgeModel]
) -> LearnedRates:
    """Return the posterior under the assumption that the models are independent of each other.

    Args:
        evidence: first errors according to the rollouts.
        models: models of the judges, by name.
    """
    # Learn rates from rollouts that are weakened towards the mean of the run. Rollouts that are
    # weakened towards equal probabilities would show errors everywhere.
    learned = fit_rates_and_posterior(
        evidence.shrink_to_length_mean(_ROLLOUT_WEIGHT), evidence.num_steps, models, rounds=_ROUNDS
    )
    # The final posterior weakens rollouts towards equal probabilities. So the likeliest first error
    # of a solution on which judges have no opinion is still the one by rollouts.
    weakened = exp(
        _ROLLOUT_WEIGHT * log(np.where(evidence.is_possible, evidence.floored_chances, 1.0))
    )
    own = mix_with_expected_probabilities(
        np.where(evidence.is_possible, weakened, 0.0), evidence.average_by_solution_length()
    )
    fitted = list(learned.models.values())
    chances, _ = compute_posterior_and_log_likelihood(
        own, learned.chances, evidence.num_steps, fitted
    )
    return replace(learned, chances=chances)


DOUBT = 0.02
"""Probability that a source's opinion on a solution is unrelated to its first error."""
LEAST = 1e-9
"""Lower bound of the probability of a first error according to the rollouts."""


@dataclass(frozen=True, kw_only=True)
class LearnedRates:
    """Result of expectation maximisation: first-error probabilities and fitted models of judges."""

    chances: Floats
    """Probabilities of first errors, [solution, T + 1], laid out as `FusedPosterior.chances`."""
    models: Mapping[str, JudgeModel]
    """Models of the judges, with their fitted rates."""
    log_likelihood: float
    """Log-likelihood of all opinions, given the rollouts."""


@dataclass(frozen=True, kw_only=True)
class RolloutEvidence:
    """Probabilities of first errors according to the rollouts alone."""

    chances: Floats
    """Probabilities of first errors, [solution, T + 1], laid out as `FusedPosterior.chances`."""
    num_steps: Ints
    """Numbers of steps, [solution]."""

    @property
    def is_possible(self) -> NDArray[np.bool_]:
        """Mask of the columns that are not padding, [solution, T + 1]."""
        return np.asarray(np.arange(self.chances.shape[1]) <= self.num_steps[:, None])

    @property
    def floored_chances(self) -> Floats:
        """Probabilities raised to at least `LEAST`, and zero in the padding, [solution, T + 1]."""
        return np.where(self.is_possible, np.maximum(self.chances, LEAST), 0.0)

    def average_by_solution_length(self) -> Floats:
        """Return for each solution the mean over solutions of its length, [solution, T + 1]."""
        return average_chances_by_length(
            self.floored_chances / self.floored_chances.sum(1, keepdims=True), self.num_steps
        )

    def shrink_to_length_mean(self, power: float) -> Floats:
        """Return the probabilities moved towards the mean of solutions of the same length.

        The ratio to this mean is raised to a power. The result is then mixed with the mean, since
        any source is unrelated to the first error with the probability `DOUBT`.

        Args:
            power: exponent of the ratio: 1 keeps the probabilities, 0 replaces them by the mean.
        """
        expected = self.average_by_solution_length()
        ratio = log(np.where(self.is_possible, self.floored_chances, 1.0)) - log(
            np.where(self.is_possible, expected, 1.0)
        )
        return mix_with_expected_probabilities(
            np.where(self.is_possible, expected * exp(power * ratio), 0.0), expected
        )


def fit_rates_and_posterior(
    rollout_chances: Floats, num_steps: Ints, models: Mapping[str, JudgeModel], *, rounds: int
) -> LearnedRates:
    """Fit rates to first-error probabilities, then the probabilities to the rates, repeatedly.

    Args:
        rollout_chances: probabilities of first errors according to the rollouts, [solution, T + 1].
        num_steps: numbers of steps, [solution].
        models: models of the judges, by name.
        rounds: number of rounds, at least 1.
    """
    chances, current, likelihood = rollout_chances, dict(models), 0.0
    for _ in range(rounds):
        current = {name: model.fit(chances) for name, model in current.items()}
        chances, likelihood = compute_posterior_and_log_likelihood(
            rollout_chances, chances, num_steps, list(current.values())
        )
    return LearnedRates(chances=chances, models=current, log_likelihood=likelihood)


def compute_posterior_and_log_likelihood(
    rollout_chances: Floats,
    previous_posterior: Floats,
    num_steps: Ints,
    models: Sequence[JudgeModel],
) -> tuple[Floats, float]:
    """Multiply the rollouts' probabilities of first errors by the likelihoods of all opinions.

    Args:
        rollout_chances: probabilities of first errors according to the rollouts, [solution, T + 1].
        previous_posterior: posterior probabilities of the previous round, [solution, T + 1], which
            `DOUBT` needs.
        num_steps: numbers of steps, [solution].
        models: models of the judges.

    Returns:
        Posterior probabilities, [solution, T + 1], and the log-likelihood of all opinions.
    """
    there = np.arange(rollout_chances.shape[1]) <= num_steps[:, None]
    expected, product, likelihood = (
        average_chances_by_length(previous_posterior, num_steps),
        rollout_chances,
        0.0,
    )
    for model in models:
        likely = model.log_likelihood()
        most = np.where(there, likely, -np.inf).max(1, keepdims=True)
        opinion = np.where(there, exp(likely - most), 0.0)
        anyhow = (expected * opinion).sum(1, keepdims=True)
        product = product * ((1 - DOUBT) * opinion + DOUBT * anyhow)
        likelihood += float(most.sum())
    whole = product.sum(1, keepdims=True)
    return np.asarray(product / whole), likelihood + float(log(whole).sum())


def mix_with_expected_probabilities(likelihoods: Floats, expected_probabilities: Floats) -> Floats:
    """Return a mixture of normalised likelihoods and of expected probabilities.

    Args:
        likelihoods: likelihoods of first errors, [solution, T + 1], with the weight 1 - `DOUBT`.
        expected_probabilities: expected probabilities, [solution, T + 1], with the weight `DOUBT`.
    """
    return np.asarray(
        (1 - DOUBT) * likelihoods / likelihoods.sum(1, keepdims=True)
        + DOUBT * expected_probabilities
    )


def average_chances_by_length(chances: Floats, num_steps: Ints) -> Floats:
    """Return for each solution the mean over solutions of its length, [solution, T + 1]."""
    means = np.zeros_like(chances)
    for steps in np.unique(num_steps):
        same = num_steps == steps
        means[same] = chances[same].mean(0)
    return means


ROLLOUTS = "rollouts"
"""Name of the run's own labels, which are treated as a source like a judge."""
LEAST_GAIN = 0.02
"""Gain in log-likelihood, per solution on which both judges have an opinion, above which two judges
are treated as dependent. In simulated runs of 2,000 solutions the gain was at most .013 for
independent judges, at least .08 for two thresholds of one PRM, and .22 for copies."""
LEAST_GAIN_OF_ROLLOUTS = 0.08
"""Gain in log-likelihood above which a judge is treated as dependent on the rollouts. It is higher
than `LEAST_GAIN`, since probabilities by rollouts are less well calibrated. In simulated runs the
gain was at most .067 for independent judges, .096 for a judge that repeats nine in ten of the
rollouts' labels, and .13 for copies."""
CHANCE = 5.0
"""Gain in log-likelihood of a whole run that may arise by chance. It is subtracted before the gain
is divided by the number of solutions."""
_PAIR_ROUNDS = 5
"""Number of rounds of expectation maximisation over a pair of sources."""
MOST_COUNTED = 3
"""Maximum number of judges that is counted as finding a fault at the same step; more count as
this."""


@dataclass(frozen=True, kw_only=True)
class SourceModels:
    """Statistical models of all judges, and the groups of judges that repeat each other."""

    models: Mapping[str, JudgeModel]
    """Models by name of the judge. The model of a judge in a group depends on the opinions of the
    earlier members of the group."""
    groups: Sequence[Sequence[str]]
    """Names of the sources that depend on each other, in groups of two or more. The first name of a
    group is `ROLLOUTS` or the judge whose opinions count in full."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatingJudgeModel:
    """Model of a judge whose errors may repeat errors of other sources; implements `JudgeModel`."""

    judge_alone: JudgeModel
    """Model of the judge alone, which holds its error rates."""
    earlier_opinions: StepCategories
    """Combined opinions of the earlier sources of the group at each step."""
    opinion_probabilities: Floats | None = None
    """Probabilities of the judge's opinion at a step, given the combined opinion of the other
    sources, [kind, others' opinion, own opinion]. The kinds are a sound step, the first wrong step,
    and a later step. None means equal probabilities."""

    def log_likelihood(self) -> Floats:
        """Return the log-likelihood of the opinions given each first error, [solution, T + 1]."""
        return compute_step_log_likelihood(
            self.opinion_probabilities, self.earlier_opinions.values, self._own_opinions.values
        )

    def fit(self, first_error_chances: Floats) -> Self:
        """Return the model with rates fitted to first-error probabilities, [solution, T + 1]."""
        own = self._own_opinions
        shape = (self.earlier_opinions.num_categories, own.num_categories)
        return replace(
            self,
            judge_alone=self.judge_alone.fit(first_error_chances),
            opinion_probabilities=estimate_opinion_probabilities(
                first_error_chances,
                self.earlier_opinions.values,
                own.values,
                shape,
                self._compute_prior_counts(own),
            ),
        )

    def error_rates(self) -> Mapping[str, float]:
        """Return the error rates of the judge alone."""
        return self.judge_alone.error_rates()

    def step_opinions(self) -> SourceOpinions:
        """Return the judge's opinions as one category per step."""
        return self.judge_alone.step_opinions()

    @property
    def _own_opinions(self) -> StepCategories:
        return self.judge_alone.step_opinions().opinions_on_read_steps

    def _compute_prior_counts(self, steps: StepCategories) -> Floats:
        """Return the prior counts of the judge's opinions, which sum to half an observation."""
        counts = np.bincount(steps.values[steps.values >= 0], minlength=steps.num_categories) + 1.0
        return np.asarray(0.5 * counts / counts.sum())


def model_dependent_sources(
    evidence: RolloutEvidence, models: Mapping[str, JudgeModel], labels: Ints | None = None
) -> SourceModels:
    """Find the sources that depend on each other, and model their dependence.

    Args:
        evidence: first errors according to the rollouts.
        models: models of the judges, by name.
        labels: 0-based first errors in the run's own labels, [solution]: the number of steps means
            no error, -1 means undecided. None if there are no labels.
    """
    if not models:
        return SourceModels(models=models, groups=())
    pairs = _DependenceGains(evidence, models)
    own, gains = _choose_run_opinions_and_gains(pairs, evidence, labels)
    gains += [
        SourceLink(pairs.compute_repetition_gain(a, b), a, b) for a, b in combinations(models, 2)
    ]
    links = [
        link
        for link in gains
        if link.gain > (LEAST_GAIN_OF_ROLLOUTS if link.source == ROLLOUTS else LEAST_GAIN)
    ]
    repeating, groups, seen = dict(models), [], set[str]()
    opinions = {ROLLOUTS: own, **{name: model.step_opinions() for name, model in models.items()}}
    for name in (
        ROLLOUTS,
        *sorted(models, key=lambda name: (_make_evidence_sort_key(opinions[name]), name)),
    ):
        if name not in seen:
            group = _find_linked_sources(name, links)
            seen.update(group)
            if len(group) > 1:
                groups.append(group)
            for place, member in enumerate(group[1:], 1):
                repeating[member] = RepeatingJudgeModel(
                    judge_alone=models[member],
                    earlier_opinions=_summarise_opinions_by_step(
                        [opinions[earlier] for earlier in group[:place]]
                    ),
                )
    return SourceModels(models=repeating, groups=groups)


def _make_evidence_sort_key(source: SourceOpinions) -> tuple[bool, int]:
    """Return a sort key: scorers come first, then judges by falling number of faults found."""
    return source.names_step, -int((source.opinions_on_read_steps.values == 1).sum())


class SourceLink(NamedTuple):
    """A judge that repeats the opinions of another source, and the strength of this dependence."""

    gain: float
    """Rise of the log-likelihood per solution if the sources are modelled as dependent."""
    source: str
    """Name of the source whose opinions are repeated: `ROLLOUTS` or a judge."""
    repeating_judge: str
    """Name of the judge that repeats them."""


@dataclass
class _DependenceGains:
    """Computes how much the log-likelihood rises if two sources are modelled as dependent."""

    evidence: RolloutEvidence
    models: Mapping[str, JudgeModel]
    rollout_chances: Floats = field(init=False)
    """Probabilities of first errors according to the rollouts, not weakened, [solution, T + 1]."""
    log_likelihood_alone: dict[str, float] = field(init=False)
    """Log-likelihood of each judge's opinions when only rollouts and this judge are modelled."""

    def __post_init__(self) -> None:
        # Use rollouts at their full weight. With weakened rollouts, independent accurate judges
        # would seem to agree more often than the first error explains.
        self.rollout_chances = self.evidence.shrink_to_length_mean(1.0)
        self.log_likelihood_alone = {
            name: self._fit_log_likelihood({name: model}) for name, model in self.models.items()
        }

    def compute_repetition_gain(self, repeated_judge: str, repeating_judge: str) -> float:
        """Return how much the log-likelihood rises if the second judge is modelled as repeating
        the first, divided by the number of solutions on which both have an opinion.

        The rise that may happen by chance (`CHANCE`) is subtracted.
        """
        model, other = self.models[repeated_judge], self.models[repeating_judge]
        free = self._fit_log_likelihood({repeated_judge: model, repeating_judge: other})
        given = RepeatingJudgeModel(
            judge_alone=other, earlier_opinions=model.step_opinions().conditioning_categories
        )
        return self._compute_gain_per_solution(
            self._fit_log_likelihood({repeated_judge: model, repeating_judge: given}) - free,
            model.step_opinions(),
            other,
        )

    def compute_run_repetition_gain(self, run_opinions: SourceOpinions, judge_name: str) -> float:
        """Return the gain per solution if a judge is modelled as repeating the run's own labels."""
        model = self.models[judge_name]
        given = RepeatingJudgeModel(
            judge_alone=model, earlier_opinions=run_opinions.conditioning_categories
        )
        gain = self._fit_log_likelihood({judge_name: given}) - self.log_likelihood_alone[judge_name]
        return self._compute_gain_per_solution(gain, run_opinions, model)

    def _compute_gain_per_solution(
        self, gain: float, opinions: SourceOpinions, other: JudgeModel
    ) -> float:
        both = int((opinions.is_known & other.step_opinions().is_known).sum())
        return (gain - CHANCE) / both if both else 0.0

    def _fit_log_likelihood(self, models: Mapping[str, JudgeModel]) -> float:
        return fit_rates_and_posterior(
            self.rollout_chances, self.evidence.num_steps, models, rounds=_PAIR_ROUNDS
        ).log_likelihood


def _choose_run_opinions_and_gains(
    dependence_gains: _DependenceGains, evidence: RolloutEvidence, labels: Ints | None
) -> tuple[SourceOpinions, list[SourceLink]]:
    """Return the run's own opinions (`ROLLOUTS`), and how strongly each judge repeats them.

    Two versions of the run's opinions are tried: the likeliest first errors according to the
    rollouts, and the run's labels. The version that some judge repeats most is returned, with a
    link from `ROLLOUTS` to each judge.
    """
    likeliest = evidence.chances.argmax(1).astype(np.int64)
    candidates = [SourceOpinions.from_first_errors(likeliest, evidence.num_steps)]
    if labels is not None:
        candidates.append(SourceOpinions.from_first_errors(labels, evidence.num_steps))
    gains = [
        (
            candidate,
            [
                SourceLink(
                    dependence_gains.compute_run_repetition_gain(candidate, name), ROLLOUTS, name
                )
                for name in dependence_gains.models
            ],
        )
        for candidate in candidates
    ]
    return max(gains, key=lambda entry: max(entry[1]))


def _find_linked_sources(name: str, links: Sequence[SourceLink]) -> list[str]:
    """Return a source and all sources that are linked to it directly or through others.

    The source with the strongest link to those already listed comes next.

    Args:
        name: source that comes first.
        links: links between dependent sources.
    """
    group = [name]
    while True:
        near = [
            (link.gain, link.repeating_judge if link.source in group else link.source)
            for link in links
            if (link.source in group) != (link.repeating_judge in group)
        ]
        if not near:
            return group
        group.append(max(near)[1])


def _summarise_opinions_by_step(sources: Sequence[SourceOpinions]) -> StepCategories:
    """Return one category per step that summarises the opinions of several sources.

    For sources that name a first error, the category encodes how many name this step, and whether
    none, some or all of them name an earlier step. For scorers, it encodes the level of the last
    scorer alone, since scorers in one group are nearly copies of each other.
    """
    naming = [source.conditioning_categories.values for source in sources if source.names_step]
    scoring = [source.conditioning_categories for source in sources if not source.names_step]
    values, count = np.zeros_like(sources[0].conditioning_categories.values), 1
    if naming:
        contexts = np.stack(naming)
        here, before = (
            (contexts == SourceOpinions.AT_NAMED_STEP).sum(0),
            (contexts == SourceOpinions.AFTER_NAMED_STEP).sum(0),
        )
        num_known = (contexts != SourceOpinions.NO_OPINION).sum(0)
        share = np.where(before == 0, 0, np.where(before == num_known, 2, 1))
        values = np.minimum(here, MOST_COUNTED) + (MOST_COUNTED + 1) * share
        count = 3 * (MOST_COUNTED + 1)
    if scoring:
        last = scoring[-1]
        values, count = values * last.num_categories + last.values, count * last.num_categories
    return StepCategories(values=values, num_categories=count)
