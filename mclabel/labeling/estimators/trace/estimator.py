"""Labels solutions that correct themselves, by evidence that costs no rollouts.

The chains of the problem's solutions are inferred once (`mclabel.labeling.estimators.trace.chain`)
from the solutions' outcomes, the answers that they state before their ends, the steps that several
of them take (agreement), and recorded rollouts. The estimator asks for no rollouts, because they
did not improve labels in the domain for which it was developed (docs/traces.md).

If solutions were compared with each other, probabilities of first errors are raised to the power
0.5 and normalised (a coarsened posterior, arXiv 1506.06101). The same few solutions are compared at
every step, and counting each comparison in full makes probabilities far too confident. On
validation problems of arith:reflective, the most likely first error had a mean probability of .84
and was right for .63 of solutions; without comparisons the numbers were .41 and .39.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field

from mclabel.core.records import Counts, LabelSource, Outcome, StepState
from mclabel.core.settings import at_most
from mclabel.core.stats.values import TruncatedPolicy, estimate_anytime
from mclabel.labeling.estimators.base import (
    Estimator,
    EstimatorSettings,
    Follow,
    Judgement,
    outcome_estimate,
    outcome_label,
)
from mclabel.labeling.estimators.fitting import FittingLearner
from mclabel.labeling.estimators.paths import (
    ROOT,
    Probe,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
    find_strongest_completer_index,
)
from mclabel.labeling.estimators.trace.agreement import (
    STEP_CLASS,
    count_rollout_agreement,
    count_step_agreement,
    iter_comparable_steps,
    repeats_then_departs,
)
from mclabel.labeling.estimators.trace.chain import (
    CARRIED,
    ERROR,
    KEPT,
    RECOVERED,
    REPAIRED,
    RIGHT,
    WRONG,
    ClassRates,
    Floats,
    TraceBeliefs,
    TraceEvidence,
    bin_steps_to_go,
    infer_beliefs,
)
from mclabel.labeling.estimators.trace.fit import ObservedProblem, fit_rates
from mclabel.labeling.estimators.trace.rates import TraceRates, make_uninformed_rates

_STATE_NAMES: dict[int, StepState] = {
    CARRIED: "carried",
    RECOVERED: "recovered",
    ERROR: "error",
    KEPT: "sound",
}
MAX_RECORDED_ROLLOUTS = 1_024
"""Maximum number of recorded rollouts of a prefix for which intervals of values are valid, even if
the run that sampled them stopped depending on their outcomes."""


class TraceEstimator(Estimator):
    """Labels the states of steps from evidence that costs no rollouts."""

    class Settings(EstimatorSettings):
        """Labels errors, the steps that depend on them, and repairs in long solutions that correct
        themselves. It uses outcomes, answers stated before the end, steps that several solutions
        take, and recorded rollouts.
        """

        min_belief: float = Field(0.5, ge=0, le=1)
        """Minimum probability of the most likely first error; below it the solution is
        undecided."""
        pilot: Annotated[int, at_most(1_000_000, "evidence on them is held in memory")] = Field(
            100, ge=1
        )
        """Number of solutions that each engine labels before it first fits rates to the run."""

    follow: ClassVar[Follow] = "known"
    joint: ClassVar[bool] = True
    takes_all: ClassVar[bool] = True
    settings: Settings

    def __init__(
        self,
        settings: Settings,
        problem: ProblemPaths,
        *,
        rates: TraceRates | None = None,
    ) -> None:
        """Initialise the estimator of a problem.

        Args:
            settings: settings of the estimator.
            problem: problem with the paths of its solutions.
            rates: rates fitted to the run; None uses the default rates, `make_uninformed_rates`.
        """
        self._settings, self._problem = settings, problem
        run_rates = rates or make_uninformed_rates(problem.completers)
        self._rates = run_rates.for_class(problem.answer_class, problem.completers)
        self._table = _TraceEvidenceTable(problem, settings.truncated)

    @classmethod
    def begin(
        cls,
        settings: Settings,
        problem: ProblemPaths,
        *,
        knowledge: TraceRates | None = None,
        min_gain: float | None = None,
    ) -> Self:
        """Make the estimator of a problem, with `knowledge` as its rates; `min_gain` is not
        used.
        """
        return cls(settings, problem, rates=knowledge)

    @classmethod
    def learner(cls, settings: Settings, read: Callable[[str], str]) -> TraceLearner:
        """Make the learner of a run's rates."""
        return TraceLearner(make_uninformed_rates(()), pilot=settings.pilot, fit=fit_rates)

    @classmethod
    def read_knowledge(cls, content: str) -> TraceRates:
        """Parse rates from the JSON text of a run's file."""
        return TraceRates.from_json(content)

    def wanted(self) -> Sequence[int | Probe]:
        """Return no requests: the estimator uses only recorded rollouts."""
        return ()

    def record(self, rollout: RecordedRollout) -> None:
        """Record the outcome of a rollout as evidence."""
        self._table.record(rollout)

    def evidence(self) -> ObservedProblem:
        """Return the evidence recorded so far, in the form to which rates are fitted."""
        return ObservedProblem(
            evidence=self._table.evidence(), completers=tuple(self._problem.completers)
        )

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label every solution as `judge_completers` does, from the rollouts of one completer."""
        return self.judge_completers([counts])

    def judge_completers(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Label every solution with its most probable first error, and every step with its most
        probable state given that error.

        A label with a probability below the setting `min_belief` becomes None. Values of steps are
        those of the strongest completer (the model that samples rollouts and has the highest cost).
        """
        if not self._problem.paths:
            return []
        number = find_strongest_completer_index(self._problem.completers)
        beliefs = infer_beliefs(self._table.evidence(), self._rates)
        return [
            self._judge_solution(path, counts[number], beliefs, chain)
            for path, chain in zip(self._problem.paths, self._table.chain_index, strict=True)
        ]

    def _judge_solution(
        self, path: SolutionPath, counts: Sequence[Counts], beliefs: TraceBeliefs, chain: int
    ) -> Judgement:
        settings, steps = self._settings, path.num_steps
        moves = beliefs.moves[:steps, :, chain]
        posterior = np.append(beliefs.first_error[:steps, chain], beliefs.first_error[-1, chain])
        if self._table.has_compared_steps(chain):
            posterior = np.sqrt(posterior)
        posterior /= posterior.sum()
        mode = int(posterior.argmax())
        error = mode if mode < steps else None
        hard: list[bool | None] = [error is None or t < error for t in range(steps - 1)]
        states: list[StepState | None] = [
            _STATE_NAMES[kind] if moves[t, kind] >= settings.min_belief else None
            for t, kind in enumerate(find_likeliest_moves(moves, error))
        ]
        if posterior[mode] < settings.min_belief:
            sound = 1 - np.cumsum(posterior)
            hard = [True if sound[t] >= settings.min_belief else None for t in range(steps - 1)]
            error = None
        sources: list[LabelSource] = ["trace"] * (steps - 1)
        mean_values = self._table.compute_mean_values(
            beliefs, self._rates, chain, find_strongest_completer_index(self._problem.completers)
        )
        estimates = [
            estimate_anytime(
                counts[prefix],
                horizon=MAX_RECORDED_ROLLOUTS,
                truncated=settings.truncated,
                mean=float(mean_values[t]),
            )
            for t, prefix in enumerate(path.prefixes)
        ]
        return Judgement(
            hard=(*hard, outcome_label(path.outcome)),
            sources=(*sources, "outcome"),
            first_error=error,
            estimates=(*estimates, outcome_estimate(path.outcome)),
            posterior=tuple(posterior.tolist()),
            states=tuple(states),
        )


class TraceLearner(FittingLearner[TraceRates, ObservedProblem]):
    """A `FittingLearner` that fits the rates of a run."""

    def lag(self, number: int) -> int:
        """Return 1: each problem waits for the previous one, which takes little time, since no
        rollouts are sampled.
        """
        return 1


def find_likeliest_moves(moves: Floats, error: int | None) -> list[int]:
    """Return the sequence of moves with the highest sum of marginal probabilities.

    Args:
        moves: [steps, 4], marginal probability of each move.
        error: index (from 0) of the solution's first error, which must be the first `ERROR` in the
            result; None if no step is wrong.
    """
    steps = len(moves)
    if error is None:
        return [KEPT] * steps
    best = np.zeros((steps + 1, 2))  # highest sum from a step on, per state before the step
    for t in range(steps - 1, error, -1):
        best[t] = (moves[t].reshape(2, 2) + best[t + 1]).max(1)
    path, state = [KEPT] * error + [ERROR], 0
    for t in range(error + 1, steps):
        after = int((moves[t].reshape(2, 2)[state] + best[t + 1]).argmax())
        path.append(2 * state + after)
        state = after
    return path


class _TraceEvidenceTable:
    """The evidence on one problem's solutions, to which every recorded rollout is added.

    Solutions with the same prefixes and the same outcome share one chain.
    """

    def __init__(self, problem: ProblemPaths, truncated: TruncatedPolicy) -> None:
        self._completers = [completer.name for completer in problem.completers]
        self._truncated = truncated
        names = [(path.prefixes, path.outcome) for path in problem.paths]
        chains = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self.chain_index = [chains[name] for name in names]
        first = dict(zip(reversed(names), reversed(problem.paths), strict=True))
        self.paths = [first[name] for name in chains]
        self.num_steps = np.array([path.num_steps for path in self.paths], dtype=np.int64)
        self.holders: dict[int, list[tuple[int, int]]] = {
            ROOT: [(chain, -1) for chain in range(len(self.paths))]
        }
        """For each prefix index, pairs of the index of a chain that contains the prefix and the
        index of the prefix's last step in it; -1 if the prefix has no steps."""
        for chain, path in enumerate(self.paths):
            for step, prefix in enumerate(path.prefixes):
                self.holders.setdefault(prefix, []).append((chain, step))
        self._counts: dict[tuple[int, int], Floats] = {}
        """For each pair of a prefix index and a completer index, [3]: number of completions by
        result."""
        self._steps = count_step_agreement(self.paths, problem.paths)

    def record(self, rollout: RecordedRollout) -> None:
        kind = self._classify_rollout(rollout)
        if kind is not None:
            counts = self._counts.setdefault((rollout.prefix, rollout.completer), np.zeros(3))
            counts[kind] += 1
        for chain, step in self.holders[rollout.prefix]:
            count_rollout_agreement(
                self._steps, self.paths[chain], chain, step + 1, rollout.step_keys
            )

    def _classify_rollout(self, rollout: RecordedRollout) -> int | None:
        if rollout.outcome is Outcome.RIGHT:
            return REPAIRED if rollout.repairs or self._departs_from_prefix(rollout) else RIGHT
        cut = rollout.outcome is Outcome.TRUNCATED and self._truncated == "wrong"
        return WRONG if cut or rollout.outcome is Outcome.WRONG else None

    def _departs_from_prefix(self, rollout: RecordedRollout) -> bool:
        """Return whether a rollout repeats a step of its prefix and then continues differently."""
        chain, step = self.holders[rollout.prefix][0]
        before = [key for at, key in iter_comparable_steps(self.paths[chain]) if at <= step]
        return bool(before) and repeats_then_departs(before, rollout.step_keys)

    def evidence(self) -> TraceEvidence:
        """Return all evidence as arrays."""
        count = len(self.paths)
        width = int(self.num_steps.max(initial=1))
        counts = {name: np.zeros((width, 3, count)) for name in self._completers}
        root = {name: np.zeros(3) for name in self._completers}
        for (prefix, number), outcome_counts in self._counts.items():
            name = self._completers[number]
            if prefix == ROOT:
                root[name] = outcome_counts
                continue
            for chain, step in self.holders[prefix]:
                counts[name][step, :, chain] = outcome_counts
        stated = np.zeros((width, 2, count))
        end = np.ones((2, count))
        for chain, path in enumerate(self.paths):
            end[:, chain] = path.outcome is not Outcome.WRONG, path.outcome is not Outcome.RIGHT
            # The last step is left out, since its answer is the outcome.
            for step, answer in enumerate(path.commitments[:-1]):
                stated[step, :, chain] = answer is Outcome.RIGHT, answer is Outcome.WRONG
        return TraceEvidence(
            num_steps=self.num_steps,
            completion_counts=counts,
            root_counts=root,
            commitments=stated,
            step_counts={source: table.copy() for source, table in self._steps.items()},
            outcome=end,
        )

    def has_compared_steps(self, chain: int) -> bool:
        """Return whether solutions or rollouts were compared with any step of the chain."""
        return any(
            seen[..., chain].any() for source, seen in self._steps.items() if source != STEP_CLASS
        )

    def compute_mean_values(
        self, beliefs: TraceBeliefs, rates: ClassRates, chain: int, completer_index: int
    ) -> Floats:
        """Return the expected share of right completions after each step, for one completer."""
        bins = bin_steps_to_go(self.num_steps, len(beliefs.states))[:, chain]
        shares = np.moveaxis(rates.shares[self._completers[completer_index]][:, :, bins], 2, 0)
        right = shares[..., RIGHT] + shares[..., REPAIRED]
        return np.asarray((beliefs.states[..., chain] * right).sum((1, 2)))
