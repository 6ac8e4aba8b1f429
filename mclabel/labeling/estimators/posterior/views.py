"""The evidence of one completer on a problem's solutions, and its possible next rollouts.

Candidates are the prefixes of a problem that a completer can roll out. A candidate's rate is the
worth of its best probe per expected token, at the completer's cost. The prefixes with the highest
rates are rolled out until no rate exceeds the run's minimum gain.
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
from mclabel.labeling.estimators.posterior.chain import Evidence
from mclabel.labeling.estimators.posterior.evidence import (
    EvidenceTable,
    bare_errors,
    elsewhere,
    likelihoods,
)
from mclabel.labeling.estimators.posterior.fit import ByCompleter
from mclabel.labeling.estimators.posterior.plan import (
    DRAWS,
    Plan,
    PlanRequest,
    error_beliefs,
    make_plans,
)
from mclabel.labeling.estimators.posterior.priors import ClassPriors, Priors

Floats = NDArray[np.float64]

FIRST_ROLLOUTS = 2
"""Rollouts that are started together from a prefix that has none."""


class CompleterView:
    """The chains of one completer: its evidence, what is known elsewhere, and its plan.

    All views of a problem have the same chains. The author has one even where it rolls nothing out:
    its solutions are evidence on one another.
    """

    def __init__(
        self,
        completer: Completer,
        paths: Sequence[SolutionPath],
        *,
        number: int | None,
        priors: ClassPriors,
        value_priors: ClassPriors,
        agreement: bool,
        truncated: TruncatedPolicy,
    ) -> None:
        """Begin with what the solutions show.

        Args:
            completer: whose view it is.
            paths: paths of the problem's solutions.
            number: index of the completer; None for an author that rolls out
                nothing.
            priors: priors of its chains.
            value_priors: the same for evidence in which every outcome counts once.
            agreement: whether steps are compared.
            truncated: how a truncated rollout counts.
        """
        self.completer, self.number = completer, number
        self.priors, self._value_priors = priors, value_priors
        self.table = EvidenceTable(
            paths, agreement=agreement, truncated=truncated, is_author=completer.is_author
        )
        self.candidates = find_candidates(self.table, completer)
        self.num_asked: dict[int, int] = {}
        self.full: set[int] = set()
        """Candidates that may not be asked for again."""
        everything = range(len(self.table.num_steps))
        self.changed = set(everything)
        """Chains with other evidence, here or elsewhere, than the plan was made with."""
        self.unheard = set(everything)
        """Chains whose own evidence the other views have not heard of."""
        self.elsewhere = np.ones(self.table.counts.shape[1:])
        """[chain, R + 1]: what the other views show, as in `Evidence.elsewhere`."""
        self.agreed = np.ones_like(self.elsewhere)
        """[chain, R + 1]: what agreement shows, in the same way; it counts for plans alone."""
        self.beliefs = np.ones_like(self.elsewhere)
        """[chain, R + 1]: chances of each first error, where no plan is made."""
        self.own: Floats | None = None
        """[chain, R + 1]: chances of each first error from this view alone."""
        self.plan: Plan | None = None
        self.rates: Floats | None = None

    @property
    def is_asked(self) -> bool:
        """Return whether the completer can be asked for rollouts."""
        return self.number is not None

    def record(self, rollout: RecordedRollout) -> None:
        """Take a rollout's outcome as evidence."""
        changed = self.table.record(rollout)
        self.changed |= changed
        self.unheard |= changed

    def evidence(self) -> Evidence:
        """Everything it has seen itself so far, for fitting priors."""
        return self.table.evidence(self.table.counts, np.ones_like(self.elsewhere))

    def evidence_once(self) -> Evidence:
        """The same with every outcome counted once."""
        return self.table.evidence(self.table.once(), np.ones_like(self.elsewhere))

    def bare(self) -> Floats:
        """Chances of each first error before anything was seen, [chain, R + 1]."""
        width = self.elsewhere.shape[1]
        return bare_errors(self.table.num_steps, self.priors, width)

    def receive_likelihood(self, likelihood: Floats) -> None:
        """Take over what the other views show."""
        moved = np.flatnonzero((likelihood != self.elsewhere).any(-1))
        self.changed |= set(moved.tolist())
        self.elsewhere = likelihood

    def receive_agreement(self, agreed: Floats) -> None:
        """Take over what agreement shows."""
        moved = np.flatnonzero((agreed != self.agreed).any(-1))
        self.changed |= set(moved.tolist())
        self.agreed = agreed

    def request(self) -> PlanRequest:
        """Return what the next plan is made from."""
        return PlanRequest(
            num_steps=self.table.num_steps,
            counts=self.table.counts,
            outcome=self.table.outcome,
            elsewhere=self.elsewhere * self.agreed,
            priors=self.priors,
            previous=self.plan,
            changed=sorted(self.changed),
        )

    def whole_request(self) -> PlanRequest:
        """Return what labels are inferred from: all chains, by this reading of the evidence
        alone.
        """
        everything = range(len(self.table.num_steps))
        return replace(self.request(), elsewhere=self.elsewhere, previous=None, changed=everything)

    def own_request(self) -> PlanRequest:
        """Return what this view alone shows is inferred from, of the chains where that is new."""
        return replace(
            self.request(),
            elsewhere=np.ones_like(self.elsewhere),
            previous=None,
            changed=sorted(self.unheard),
        )

    def values_request(self) -> PlanRequest:
        """Return what expected values are computed from where outcomes count more than once."""
        return replace(
            self.request(),
            counts=self.table.once(),
            priors=self._value_priors,
            previous=None,
            changed=range(len(self.table.num_steps)),
        )

    def open_rates(self) -> Floats:
        """Rates of the candidates; -1 of those that may not be asked for again."""
        assert self.rates is not None, "plan first"
        if not self.full:
            return self.rates
        rates = self.rates.copy()
        rates[list(self.full)] = -1.0
        return rates

    def ask(self, prefix: int, size: int, max_rollouts: int) -> None:
        """Count rollouts that are asked for, or on record."""
        self.num_asked[prefix] = self.num_asked.get(prefix, 0) + size
        candidates = self.candidates.prefixes
        if self.num_asked[prefix] >= max_rollouts and prefix in candidates:
            self.full.add(candidates.index(prefix))


class Family:
    """The views of all who can roll out, and of the author, under one reading of the evidence."""

    def __init__(
        self,
        problem: ProblemPaths,
        priors: Priors,
        *,
        agreement: bool,
        truncated: TruncatedPolicy,
    ) -> None:
        """Begin with what the solutions show.

        Args:
            problem: with the paths of its solutions.
            priors: priors of the run, for this reading.
            agreement: whether steps are compared.
            truncated: how a truncated rollout counts.
        """
        completers = problem.completers
        numbers = {completer: number for number, completer in enumerate(completers)}
        author = next((other for other in completers if other.is_author), Completer())
        # Others show what is luck: the fit needs no help where they roll out.
        alone = agreement and len(completers) == 1 and completers[0].is_author
        self.views: list[CompleterView] = []
        """The author's first."""
        for completer in (author, *(other for other in completers if not other.is_author)):
            own = priors.by(completer.name).of(problem.answer_class)
            view = CompleterView(
                completer,
                problem.paths,
                number=numbers.get(completer),
                priors=own.with_rare_luck if alone else own,
                value_priors=priors.by(completer.name).of_values(problem.answer_class),
                agreement=agreement,
                truncated=truncated,
            )
            self.views.append(view)
        self.asked = sorted(
            (view for view in self.views if view.is_asked), key=lambda view: view.number or 0
        )
        """Those that can be asked, by number."""

    @property
    def is_changed(self) -> bool:
        """Return whether there is evidence that no plan has seen."""
        return any(view.changed for view in self.asked)

    def judged(self, number: int) -> Plan:
        """Return what the evidence shows of every chain, by this reading alone.

        Args:
            number: index of the completer whose values are estimated; first errors rest
                on the evidence of all.
        """
        if len(self.views) > 1:
            _share_likelihoods([self.views])
        return make_plans([self.asked[number].whole_request()])[0]

    def first_errors(self, plan: Plan, number: int) -> Floats:
        """Chances of each first error, [solution, R + 1] by steps to go, from a plan."""
        return plan.first_error[self.asked[number].table.chain_of]

    def evidence(self) -> ByCompleter:
        """The evidence so far."""
        return {view.completer.name: view.evidence() for view in self.views}


def share_agreement(problems: Sequence[tuple[Family, Family]]) -> None:
    """Let plans by outcomes know what agreement shows, of many problems at once.

    Both readings rest on the same outcomes, so what agreement shows counts half: as the square
    root of its likelihood of each first error.

    Args:
        problems: for each problem, the reading of outcomes and the one with agreement.
    """
    _share_likelihoods([agreeing.views for _, agreeing in problems if len(agreeing.views) > 1])
    views = [agreeing.asked[0] for _, agreeing in problems]
    due = [view for view in views if view.changed]
    for view, beliefs in zip(due, error_beliefs([view.request() for view in due]), strict=True):
        view.beliefs[sorted(view.changed)] = beliefs
        view.changed.clear()
    for (outcomes, agreeing), view in zip(problems, views, strict=True):
        likely = likelihoods(view.beliefs, agreeing.views[0].bare())
        for own in outcomes.asked:
            first = [own.table.chain_of.tolist().index(n) for n in range(len(own.table.paths))]
            own.receive_agreement(
                np.sqrt(likely[view.table.chain_of[first], : own.agreed.shape[1]])
            )


def plan_together(problems: Sequence[Sequence[CompleterView]]) -> None:
    """Plan for many problems at once; each then wants what it would have wanted alone.

    Args:
        problems: for each problem, all views, the author's first.
    """
    _share_likelihoods([views for views in problems if len(views) > 1])
    due = [view for views in problems for view in views if view.is_asked and view.changed]
    plans = make_plans([view.request() for view in due])
    pairs = [(view.candidates, plan) for view, plan in zip(due, plans, strict=True)]
    for view, plan, rates in zip(due, plans, gain_rates(pairs), strict=True):
        view.plan, view.rates = plan, rates
        view.changed.clear()


def _share_likelihoods(problems: Sequence[Sequence[CompleterView]]) -> None:
    """Bring up to date what each view knows of the others'."""
    due = [view for views in problems for view in views if view.unheard]
    for view, beliefs in zip(due, error_beliefs([view.own_request() for view in due]), strict=True):
        own = np.zeros_like(view.elsewhere) if view.own is None else view.own.copy()
        own[sorted(view.unheard)] = beliefs
        view.own = own
        view.unheard.clear()
    for views in problems:
        likely = [np.ones_like(view.elsewhere) if view.own is None else view.own for view in views]
        bare = [view.bare() for view in views[1:]]
        for view, others in zip(views, elsewhere(likely, bare), strict=True):
            if view.is_asked:
                view.receive_likelihood(others)


def best_probes(
    views: Sequence[CompleterView],
    *,
    min_gain_per_token: float,
    batch: int,
    max_rollouts: int,
    tokens_left: float,
) -> list[tuple[CompleterView, int, int]]:
    """Choose the best prefix of each solution and who rolls it out, if it is worth its tokens.

    Rollouts of one solution's prefix are evidence on others only in what they share, so prefixes
    that no solution has both of are rolled out side by side: fewer rounds, the same rollouts.

    Args:
        views: views of a problem that can be asked, with plans.
        min_gain_per_token: rate below which nothing is rolled out.
        batch: maximum number of rollouts from a prefix that are started together.
        max_rollouts: maximum number of rollouts from a prefix by one completer.
        tokens_left: that may be spent.

    Returns:
        Views, prefixes, and how many rollouts of each.
    """
    chosen: list[tuple[CompleterView, int, int]] = []
    options = [(view, number) for view in views for number in range(len(view.candidates.prefixes))]
    free = set().union(*(chains for view in views for chains in view.candidates.chains))
    rates = np.concatenate([view.open_rates() for view in views])
    for option in np.argsort(-rates, kind="stable").tolist():
        if not free or rates[option] <= min_gain_per_token:
            break
        view, number = options[option]
        candidates = view.candidates
        if not free.issuperset(candidates.chains[number]):
            continue
        prefix = candidates.prefixes[number]
        asked = view.num_asked.get(prefix, 0)
        # The first rollouts carry the most evidence: begin with two, and double. Beginning with one
        # saves a few percent of the tokens, but takes more rounds, each with fewer live rollouts.
        size = min(batch, max(FIRST_ROLLOUTS, asked), max_rollouts - asked)
        tokens_left -= size * candidates.tokens[number]
        if tokens_left < 0:
            break
        chosen.append((view, prefix, size))
        free -= candidates.chains[number]
    return chosen


Ints = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """A problem's prefixes to choose from; of those with the same evidence there is only one.

    A place is where a candidate lies in a chain: the places of one candidate follow those of the
    one before.
    """

    prefixes: tuple[int, ...]
    """[candidate]"""
    tokens: Floats
    """[candidate]: expected tokens of one rollout."""
    places: tuple[Ints, Ints]
    """[place] each: the chain, and the steps to go there."""
    copies: Floats
    """[place]: number of solutions that are that chain."""
    starts: Ints
    """[candidate]: index of its first place."""
    chains: tuple[frozenset[int], ...]
    """[candidate]: the chains that it lies in."""
    cost: float
    """Cost of a token, relative to the cheapest completer's."""


def find_candidates(table: EvidenceTable, completer: Completer) -> Candidates:
    """List the prefixes of a problem that differ in evidence, and where each lies in the chains.

    Args:
        table: table of one completer.
        completer: that rolls out.
    """
    prefixes: list[int] = []
    tokens: list[float] = []
    places: list[tuple[int, int]] = []
    starts: list[int] = []
    held: list[frozenset[int]] = []
    seen: set[tuple[tuple[int, int], ...]] = set()
    for prefix, holders in sorted(table.holders.items()):
        if tuple(holders) in seen:
            continue  # has the same evidence as one that is there already
        seen.add(tuple(holders))
        starts.append(len(places))
        held.append(frozenset(chain for chain, _ in holders))
        prefixes.append(prefix)
        tokens_to_go = 0.0
        for chain, depth in holders:
            to_go = table.paths[chain].num_steps - depth
            step_tokens = table.paths[chain].step_tokens
            tokens_to_go += sum(step_tokens[depth:]) if step_tokens else UNKNOWN_STEP_TOKENS * to_go
            places.append((chain, to_go))
        tokens.append(max(1.0, tokens_to_go / len(holders)))
    chains, to_go_ = np.array(places, dtype=np.intp).reshape(-1, 2).T
    return Candidates(
        prefixes=tuple(prefixes),
        tokens=np.array(tokens),
        places=(chains, to_go_),
        copies=table.copies[chains].astype(np.float64),
        starts=np.array(starts, dtype=np.intp),
        chains=tuple(held),
        cost=completer.cost,
    )


def gain_rates(problems: Sequence[tuple[Candidates, Plan]]) -> list[Floats]:
    """Gain per token, at its cost, of the best probe of each candidate, many problems at once."""
    if not problems:
        return []
    parts = [candidates for candidates, _ in problems]
    tables = [plan.table[candidates.places] for candidates, plan in problems]
    sizes = [len(p.copies) for p in parts]
    copies = np.concatenate([p.copies for p in parts])
    offsets = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(p.starts) for p in parts])
    starts = np.concatenate([p.starts for p in parts]) + offsets
    tokens = np.concatenate([p.tokens * p.cost for p in parts])
    held = np.add.reduceat(np.concatenate(tables)[:, :-2] * copies[:, None], starts)
    worth, draws = held[:, : len(DRAWS)], held[:, len(DRAWS) :]
    # Expected draws are the mean over the solutions that hold the prefix.
    cost = draws * (tokens / np.add.reduceat(copies, starts))[:, None]
    # Rounding makes equal solutions equal, whatever the order of summation.
    best = np.round((worth / cost).max(1), 12)
    ends = np.cumsum([len(p.tokens) for p in parts]).tolist()
    return [best[a:b] for a, b in zip([0, *ends], ends, strict=False)]
