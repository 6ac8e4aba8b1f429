"""Chooses the next probes of a problem by the evidence from each of its completers.

A completer is a model that samples rollouts; a probe is a number of rollouts from one prefix. A
view is the evidence on a problem as one completer's rollouts show it, with a plan of probes.
Candidates are the prefixes that a completer can roll out. A candidate's rate is the gain of its
best probe per expected token, divided by the completer's cost. The candidates with the highest
rates are rolled out until no rate exceeds the run's minimum gain. A chain is the hidden Markov
chain of a distinct solution, with at most R steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mclabel.core.stats.values import TruncatedPolicy
from mclabel.labeling.estimators.paths import (
    UNKNOWN_STEP_TOKENS,
    Completer,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
)
from mclabel.labeling.estimators.posterior.chain import Evidence, average_first_error_posterior
from mclabel.labeling.estimators.posterior.evidence import (
    EvidenceTable,
    compute_external_likelihoods,
    compute_prior_first_error_chances,
    divide_posterior_by_prior,
)
from mclabel.labeling.estimators.posterior.fit import EvidenceByCompleter
from mclabel.labeling.estimators.posterior.plan import (
    DRAWS,
    ChainEvidence,
    ProbePlan,
    infer_first_errors,
    make_plans,
)
from mclabel.labeling.estimators.posterior.priors import ClassPriors, Priors

Floats = NDArray[np.float64]

FIRST_ROLLOUTS = 2
"""Number of rollouts in the first batch from a prefix."""


class CompleterView:
    """Evidence from one completer on a problem's chains, likelihoods from other views, and a plan.

    All views of a problem have the same chains. The author has a view even if it samples no
    rollouts, because its solutions are evidence on one another.
    """

    def __init__(
        self,
        completer: Completer,
        paths: Sequence[SolutionPath],
        *,
        completer_index: int | None,
        priors: ClassPriors,
        value_priors: ClassPriors,
        agreement: bool,
        truncated: TruncatedPolicy,
    ) -> None:
        """Initialise the view with the evidence that each solution gives on the others.

        Args:
            completer: completer to which the view belongs.
            paths: paths of the problem's solutions.
            completer_index: index of the completer in `ProblemPaths.completers`; None for an author
                that samples no rollouts.
            priors: priors of the completer's chains.
            value_priors: priors from which expected values of steps are computed.
            agreement: True if the content of steps is compared.
            truncated: effect of a truncated rollout.
        """
        self.completer, self.completer_index = completer, completer_index
        self.priors, self._value_priors = priors, value_priors
        self.table = EvidenceTable(
            paths, agreement=agreement, truncated=truncated, is_author=completer.is_author
        )
        self.candidates = find_probe_candidates(self.table, completer)
        self.num_asked: dict[int, int] = {}
        """Number of requested and recorded rollouts, by prefix index."""
        self.full_candidates: set[int] = set()
        """Indices of candidates from which no more rollouts may be requested."""
        everything = range(len(self.table.num_steps))
        self.changed_chains = set(everything)
        """Indices of the chains whose evidence, in this view or another, has changed since the plan
        was made."""
        self.unshared_chains = set(everything)
        """Indices of the chains whose evidence in this view has not been passed to the other views
        yet."""
        self.external_likelihood = np.ones(self.table.counts.shape[1:])
        """[chain, R + 1]: likelihood from the other views, as in `Evidence.external_likelihood`."""
        self.agreement_likelihood = np.ones_like(self.external_likelihood)
        """[chain, R + 1]: likelihood of each first error from the content of steps that samples
        share. It is used in plans, but not in labels."""
        self.beliefs = np.ones_like(self.external_likelihood)
        """[chain, R + 1]: probability of each first error; updated only by
        `share_agreement_likelihoods`, in views that compare the content of steps."""
        self.own_beliefs: Floats | None = None
        """[chain, R + 1]: probability of each first error given this view's evidence alone."""
        self.plan: ProbePlan | None = None
        """Latest plan; None before the first."""
        self.rates: Floats | None = None
        """[candidate]: gain per token of each candidate under the latest plan."""

    @property
    def can_roll_out(self) -> bool:
        """Return whether the completer can be asked for rollouts."""
        return self.completer_index is not None

    def record(self, rollout: RecordedRollout) -> None:
        """Add a rollout's outcome to the evidence."""
        changed = self.table.record(rollout)
        self.changed_chains |= changed
        self.unshared_chains |= changed

    def evidence(self) -> Evidence:
        """Return the evidence recorded from this view's completer, to which priors are fitted."""
        return self.table.evidence(self.table.counts, np.ones_like(self.external_likelihood))

    def evidence_counted_once(self) -> Evidence:
        """Return the evidence recorded from this view's completer, in which every outcome counts
        only at the prefix from which its sample started, not again at later prefixes.
        """
        return self.table.evidence(
            self.table.count_outcomes_once(), np.ones_like(self.external_likelihood)
        )

    def prior_first_error_chances(self) -> Floats:
        """Return the probability of each first error before any evidence, [chain, R + 1].

        A chain is a distinct solution. Column e > 0 is an error in the step with e steps to go,
        column 0 is no error.
        """
        odds = self.table.step_odds
        return odds * compute_prior_first_error_chances(
            self.table.num_steps, self.priors, odds.shape[1]
        )

    def set_external_likelihood(self, likelihood: Floats) -> None:
        """Store the likelihood of each first error from the other views, [chain, R + 1]."""
        moved = np.flatnonzero((likelihood != self.external_likelihood).any(-1))
        self.changed_chains |= set(moved.tolist())
        self.external_likelihood = likelihood

    def set_agreement_likelihood(self, agreement_likelihood: Floats) -> None:
        """Store the likelihood of each first error from agreement, [chain, R + 1]."""
        moved = np.flatnonzero((agreement_likelihood != self.agreement_likelihood).any(-1))
        self.changed_chains |= set(moved.tolist())
        self.agreement_likelihood = agreement_likelihood

    def evidence_for_plan(self) -> ChainEvidence:
        """Return the evidence from which the next plan, the gain of each probe, is computed."""
        return ChainEvidence(
            num_steps=self.table.num_steps,
            counts=self.table.counts,
            outcome=self.table.outcome,
            external_likelihood=(
                self.table.step_odds * self.external_likelihood * self.agreement_likelihood
            ),
            priors=self.priors,
            previous_plan=self.plan,
            changed_chains=sorted(self.changed_chains),
        )

    def evidence_for_labels(self) -> ChainEvidence:
        """Return the evidence from which labels are inferred. It covers all chains, and leaves out
        `agreement_likelihood`.
        """
        everything = range(len(self.table.num_steps))
        return replace(
            self.evidence_for_plan(),
            external_likelihood=self.table.step_odds * self.external_likelihood,
            previous_plan=None,
            changed_chains=everything,
        )

    def evidence_for_own_beliefs(self) -> ChainEvidence:
        """Return the evidence from which `own_beliefs` is updated.

        It covers only the chains in `unshared_chains`.
        """
        return replace(
            self.evidence_for_plan(),
            external_likelihood=self.table.step_odds,
            previous_plan=None,
            changed_chains=sorted(self.unshared_chains),
        )

    def evidence_for_values(self) -> ChainEvidence:
        """Return the evidence from which expected values of steps are computed. Each outcome counts
        once.
        """
        return replace(
            self.evidence_for_plan(),
            counts=self.table.count_outcomes_once(),
            priors=self._value_priors,
            previous_plan=None,
            changed_chains=range(len(self.table.num_steps)),
        )

    def mask_full_candidate_rates(self) -> Floats:
        """Return the rates of the candidates, with -1 for those in `full_candidates`."""
        assert self.rates is not None, "plan first"
        if not self.full_candidates:
            return self.rates
        rates = self.rates.copy()
        rates[list(self.full_candidates)] = -1.0
        return rates

    def register_rollouts(self, prefix: int, num_rollouts: int, max_rollouts: int) -> None:
        """Add rollouts of a prefix to `num_asked`, which limits later requests.

        The rollouts are requested now, or were recorded without a request.

        Args:
            prefix: index of the prefix.
            num_rollouts: number of rollouts.
            max_rollouts: maximum number of rollouts from a prefix.
        """
        self.num_asked[prefix] = self.num_asked.get(prefix, 0) + num_rollouts
        candidates = self.candidates.prefixes
        if self.num_asked[prefix] >= max_rollouts and prefix in candidates:
            self.full_candidates.add(candidates.index(prefix))


class CompleterViews:
    """Evidence and plans of probes of a problem's completers and author, under one reading.

    A reading is a rule for counting samples as evidence: one compares the content of steps
    (agreement), the other counts outcomes alone.
    """

    def __init__(
        self,
        problem: ProblemPaths,
        priors: Priors,
        *,
        agreement: bool,
        truncated: TruncatedPolicy,
    ) -> None:
        """Initialise the views with the evidence that each solution gives on the others.

        Args:
            problem: problem with the paths of its solutions.
            priors: priors of the run, for this reading.
            agreement: True if the content of steps is compared.
            truncated: effect of a truncated rollout.
        """
        completers = problem.completers
        numbers = {completer: number for number, completer in enumerate(completers)}
        author = next((other for other in completers if other.is_author), Completer())
        alone = len(completers) == 1 and completers[0].is_author
        self._luck_hypotheses = (
            priors.make_luck_hypotheses(problem.answer_class, rare_luck=agreement) if alone else []
        )
        self.views: list[CompleterView] = []
        """The views; the author's is the first."""
        for completer in (author, *(other for other in completers if not other.is_author)):
            own = priors.for_completer(completer.name)
            view = CompleterView(
                completer,
                problem.paths,
                completer_index=numbers.get(completer),
                priors=self._luck_hypotheses[0].priors
                if alone
                else own.for_class(problem.answer_class),
                value_priors=own.for_values(problem.answer_class),
                agreement=agreement,
                truncated=truncated,
            )
            self.views.append(view)
        self.requestable_views = sorted(
            (view for view in self.views if view.can_roll_out),
            key=lambda view: view.completer_index or 0,
        )
        """Views of the completers that can be asked for rollouts, in the order of their indices."""

    @property
    def is_changed(self) -> bool:
        """Return whether any view has new evidence since the latest plans were made."""
        return any(view.changed_chains for view in self.requestable_views)

    def plan_for_labels(self, completer_index: int) -> ProbePlan:
        """Return a plan of all chains, from which labels are made, by this reading alone.

        Args:
            completer_index: index of the completer whose values are estimated. First errors are
                inferred from the evidence of all completers.
        """
        if len(self.views) > 1:
            _share_likelihoods([self.views])
        return make_plans([self.requestable_views[completer_index].evidence_for_labels()])[0]

    def first_error_posterior(self, plan: ProbePlan, completer_index: int) -> Floats:
        """Return the probabilities of each first error, [solution, R + 1], indexed by steps to go.

        They are those of the plan, unless there are several hypotheses about luck (see
        `Priors.make_luck_hypotheses`), which plans ignore.
        """
        view = self.requestable_views[completer_index]
        if len(self._luck_hypotheses) > 1:
            return average_first_error_posterior(view.evidence(), self._luck_hypotheses)
        return plan.first_error[view.table.chain_index]

    def evidence(self) -> EvidenceByCompleter:
        """Return the evidence recorded so far, by completer name."""
        return {view.completer.name: view.evidence() for view in self.views}


def share_agreement_likelihoods(problems: Sequence[tuple[CompleterViews, CompleterViews]]) -> None:
    """Pass the likelihood of first errors from views with agreement to views without, for many
    problems.

    Both readings count the same outcomes, so the square root of the likelihood is used, which
    halves its weight.

    Args:
        problems: for each problem, the views without agreement and the views with it.
    """
    _share_likelihoods([agreeing.views for _, agreeing in problems if len(agreeing.views) > 1])
    views = [agreeing.requestable_views[0] for _, agreeing in problems]
    due = [view for view in views if view.changed_chains]
    for view, beliefs in zip(
        due, infer_first_errors([view.evidence_for_plan() for view in due]), strict=True
    ):
        view.beliefs[sorted(view.changed_chains)] = beliefs
        view.changed_chains.clear()
    for (outcomes, agreeing), view in zip(problems, views, strict=True):
        likely = divide_posterior_by_prior(
            view.beliefs, agreeing.views[0].prior_first_error_chances()
        )
        for own in outcomes.requestable_views:
            first = [own.table.chain_index.tolist().index(n) for n in range(len(own.table.paths))]
            own.set_agreement_likelihood(
                np.sqrt(likely[view.table.chain_index[first], : own.agreement_likelihood.shape[1]])
            )


def update_plans(problems: Sequence[Sequence[CompleterView]]) -> None:
    """Make the plans of many problems at once; each equals the plan that is made for its problem
    alone.

    Args:
        problems: for each problem, all its views, the author's first.
    """
    _share_likelihoods([views for views in problems if len(views) > 1])
    due = [
        view for views in problems for view in views if view.can_roll_out and view.changed_chains
    ]
    plans = make_plans([view.evidence_for_plan() for view in due])
    pairs = [(view.candidates, plan) for view, plan in zip(due, plans, strict=True)]
    for view, plan, rates in zip(due, plans, compute_gains_per_token(pairs), strict=True):
        view.plan, view.rates = plan, rates
        view.changed_chains.clear()


def _share_likelihoods(problems: Sequence[Sequence[CompleterView]]) -> None:
    """Pass the likelihood of first errors that each completer's rollouts give to the views of the
    problem's other completers.

    Args:
        problems: for each problem, the views of all its completers, the author's first.
    """
    due = [view for views in problems for view in views if view.unshared_chains]
    for view, beliefs in zip(
        due, infer_first_errors([view.evidence_for_own_beliefs() for view in due]), strict=True
    ):
        own = (
            np.zeros_like(view.external_likelihood)
            if view.own_beliefs is None
            else view.own_beliefs.copy()
        )
        own[sorted(view.unshared_chains)] = beliefs
        view.own_beliefs = own
        view.unshared_chains.clear()
    for views in problems:
        likely = [
            np.ones_like(view.external_likelihood) if view.own_beliefs is None else view.own_beliefs
            for view in views
        ]
        prior_chances = [view.prior_first_error_chances() for view in views[1:]]
        for view, others in zip(
            views, compute_external_likelihoods(likely, prior_chances), strict=True
        ):
            if view.can_roll_out:
                view.set_external_likelihood(others)


def choose_probes(
    views: Sequence[CompleterView],
    *,
    min_gain_per_token: float,
    batch: int,
    max_rollouts: int,
    tokens_left: float,
) -> list[tuple[CompleterView, int, int]]:
    """Choose prefixes and completers by highest rate, and the number of rollouts from each.

    Rollouts from a prefix are evidence on the solutions that contain it. So prefixes that have no
    solution in common are rolled out in the same round. This takes fewer rounds and about the same
    rollouts as one prefix at a time.

    Args:
        views: views of a problem whose completers can be asked, with plans.
        min_gain_per_token: minimum rate; a candidate must exceed it.
        batch: maximum number of rollouts from a prefix that are started together.
        max_rollouts: maximum number of rollouts from a prefix by one completer.
        tokens_left: number of tokens that may still be spent.

    Returns:
        Triples of a view, a prefix index, and the number of rollouts.
    """
    chosen: list[tuple[CompleterView, int, int]] = []
    options = [(view, number) for view in views for number in range(len(view.candidates.prefixes))]
    free = set().union(*(chains for view in views for chains in view.candidates.chains))
    rates = np.concatenate([view.mask_full_candidate_rates() for view in views])
    for option in np.argsort(-rates, kind="stable").tolist():
        if not free or rates[option] <= min_gain_per_token:
            break
        view, number = options[option]
        candidates = view.candidates
        if not free.issuperset(candidates.chains[number]):
            continue
        prefix = candidates.prefixes[number]
        asked = view.num_asked.get(prefix, 0)
        # The first rollouts carry the most evidence, so batches begin with two and double. A first
        # batch of one saves a few percent of the tokens, but takes more rounds with fewer
        # concurrent rollouts.
        size = min(batch, max(FIRST_ROLLOUTS, asked), max_rollouts - asked)
        tokens_left -= size * candidates.expected_tokens[number]
        if tokens_left < 0:
            break
        chosen.append((view, prefix, size))
        free -= candidates.chains[number]
    return chosen


Ints = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class ProbeCandidates:
    """Prefixes of a problem that can be rolled out, one for each set of prefixes with equal
    evidence.

    A chain is the hidden Markov chain of one distinct solution, with a position for each of the
    solution's prefixes. A prefix may occur in several chains. Each pair of a candidate and a chain
    that contains it is an occurrence; occurrences are sorted by candidate.
    """

    prefixes: tuple[int, ...]
    """[candidate]: index of the prefix."""
    expected_tokens: Floats
    """[candidate]: expected number of tokens of one rollout."""
    occurrences: tuple[Ints, Ints]
    """Two arrays [occurrence]: index of the chain, and number of steps to go from the prefix."""
    num_copies: Floats
    """[occurrence]: number of solutions that share the chain."""
    first_occurrences: Ints
    """[candidate]: index of the candidate's first occurrence."""
    chains: tuple[frozenset[int], ...]
    """[candidate]: indices of the chains that contain the prefix."""
    cost: float
    """Cost of a token of the completer, relative to a token of the cheapest completer."""


def find_probe_candidates(table: EvidenceTable, completer: Completer) -> ProbeCandidates:
    """Find the prefixes that can be rolled out; of prefixes in the same chains at the same depth,
    only one.

    Args:
        table: evidence of one completer.
        completer: completer that would roll the prefixes out; its cost is copied to the result.
    """
    prefixes: list[int] = []
    tokens: list[float] = []
    occurrences: list[tuple[int, int]] = []
    starts: list[int] = []
    held: list[frozenset[int]] = []
    seen: set[tuple[tuple[int, int], ...]] = set()
    for prefix, holders in sorted(table.holders.items()):
        if tuple(holders) in seen:
            continue  # the prefix has the same evidence as an earlier candidate
        seen.add(tuple(holders))
        starts.append(len(occurrences))
        held.append(frozenset(chain for chain, _ in holders))
        prefixes.append(prefix)
        tokens_to_go = 0.0
        for chain, depth in holders:
            to_go = table.paths[chain].num_steps - depth
            step_tokens = table.paths[chain].step_tokens
            tokens_to_go += sum(step_tokens[depth:]) if step_tokens else UNKNOWN_STEP_TOKENS * to_go
            occurrences.append((chain, to_go))
        tokens.append(max(1.0, tokens_to_go / len(holders)))
    chains, to_go_ = np.array(occurrences, dtype=np.intp).reshape(-1, 2).T
    return ProbeCandidates(
        prefixes=tuple(prefixes),
        expected_tokens=np.array(tokens),
        occurrences=(chains, to_go_),
        num_copies=table.copies[chains].astype(np.float64),
        first_occurrences=np.array(starts, dtype=np.intp),
        chains=tuple(held),
        cost=completer.cost,
    )


def compute_gains_per_token(problems: Sequence[tuple[ProbeCandidates, ProbePlan]]) -> list[Floats]:
    """Return the rate of each candidate, an array [candidate] for each of many problems.

    The rate is the gain of the candidate's best probe per expected token, divided by the
    completer's cost.
    """
    if not problems:
        return []
    parts = [candidates for candidates, _ in problems]
    tables = [plan.table[candidates.occurrences] for candidates, plan in problems]
    sizes = [len(p.num_copies) for p in parts]
    copies = np.concatenate([p.num_copies for p in parts])
    offsets = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(p.first_occurrences) for p in parts])
    starts = np.concatenate([p.first_occurrences for p in parts]) + offsets
    tokens = np.concatenate([p.expected_tokens * p.cost for p in parts])
    held = np.add.reduceat(np.concatenate(tables)[:, :-2] * copies[:, None], starts)
    worth, draws = held[:, : len(DRAWS)], held[:, len(DRAWS) :]
    # The expected number of rollouts is the mean over the solutions that contain the prefix.
    cost = draws * (tokens / np.add.reduceat(copies, starts))[:, None]
    # Rounding gives equal solutions equal rates, whatever the order of summation.
    best = np.round((worth / cost).max(1), 12)
    ends = np.cumsum([len(p.expected_tokens) for p in parts]).tolist()
    return [best[a:b] for a, b in zip([0, *ends], ends, strict=False)]
