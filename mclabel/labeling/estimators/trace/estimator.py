"""Labels solutions that correct themselves by completions, and answers on the way.

After each batch the chains of the problem's solutions are inferred again
(`mclabel.labeling.estimators.trace.chain`). What the next completion of a prefix would show of a
solution's states is its mutual information with the state there, since it depends on nothing else;
per token, this is the gain of each prefix and completer. The highest is asked for, until none
reaches `min_gain_per_token`. A source that shows nothing is not asked.

Where solutions were compared, chances of first errors are raised to the power 0.5, as of a
coarsened posterior (arXiv 1506.06101): the same few solutions are asked again at each step whether
they take it, and in full the chances are far too sure (on validation problems of arith:reflective
.84 on average, where .63 was right; without comparing .41 and .39).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field

from mclabel.core.records import Counts, LabelSource, Outcome, StepState
from mclabel.core.settings import MAX_AMOUNT, MAX_COUNT, at_most
from mclabel.core.stats.values import TruncatedPolicy, estimate_anytime
from mclabel.labeling.estimators.base import (
    EXACT,
    Estimator,
    Follow,
    Judgement,
    RolloutSettings,
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
    strongest,
)
from mclabel.labeling.estimators.posterior.arithmetic import log, total
from mclabel.labeling.estimators.posterior.views import UNKNOWN_STEP_TOKENS
from mclabel.labeling.estimators.trace.agreement import (
    WAY,
    add_rollout,
    comparable,
    compare_solutions,
    leaves_its_way,
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
    infer,
    to_go_bins,
)
from mclabel.labeling.estimators.trace.fit import Observed, fit_rates
from mclabel.labeling.estimators.trace.rates import TraceRates, wide_rates

_NAMES: dict[int, StepState] = {
    CARRIED: "carried",
    RECOVERED: "recovered",
    ERROR: "error",
    KEPT: "sound",
}
_TINY = 1e-12


class TraceEstimator(Estimator):
    """Asks for the completion that shows most of a solution's states, per token."""

    class Settings(RolloutSettings):
        """For long solutions that correct themselves: labels errors, what rests on them, and
        repairs, from rollouts and answers on the way.
        """

        rollouts: Annotated[int, at_most(1_024, EXACT)] = Field(16, ge=1)
        batch: int = Field(4, ge=1, le=MAX_COUNT)
        """Most completions started together from a prefix before the next decision."""
        min_gain_per_token: float = Field(5e-4, gt=0, le=MAX_AMOUNT)
        """Completions of a problem stop when a token promises less information than this, in nats,
        on which steps are sound. A lower value costs more tokens and labels better."""
        min_belief: float = Field(0.5, ge=0, le=1)
        """Minimum probability of the most likely first error. Below it a solution has no first
        error, and only steps that are sound with this probability have hard labels."""
        pilot: Annotated[int, at_most(1_000_000, "what they show is held in memory")] = Field(
            100, ge=1
        )
        """Solutions that each engine labels before it fits rates to the run."""

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
        min_gain_per_token: float | None = None,
    ) -> None:
        """Begin with a problem.

        Args:
            settings: of the estimator.
            problem: with the paths of its solutions.
            rates: of the run; None takes wide ones.
            min_gain_per_token: in place of the settings'.
        """
        self._settings, self._problem = settings, problem
        self._min_gain = min_gain_per_token or settings.min_gain_per_token
        known = rates or wide_rates(problem.completers)
        self._rates = known.of(problem.answer_class, problem.completers)
        self._table = _Table(problem, settings.truncated)
        self._num_asked: dict[Probe, int] = {}
        self._num_due, self._done = 0, not problem.paths
        self._beliefs: TraceBeliefs | None = None

    @classmethod
    def begin(
        cls,
        settings: Settings,
        problem: ProblemPaths,
        *,
        knowledge: TraceRates | None = None,
        min_gain_per_token: float | None = None,
    ) -> Self:
        """Make the estimator of a problem, with the rates of the run; see `Estimator`."""
        return cls(settings, problem, rates=knowledge, min_gain_per_token=min_gain_per_token)

    @classmethod
    def learner(cls, settings: Settings, read: Callable[[str], str]) -> TraceLearner:
        """Make the learner of a run's rates; see `Estimator`."""
        return TraceLearner(
            wide_rates(()), min_gain_per_token=settings.min_gain_per_token, pilot=settings.pilot
        )

    @classmethod
    def read_knowledge(cls, content: str) -> TraceRates:
        """Read the rates in a file of a run; see `Estimator`."""
        return TraceRates.from_json(content)

    def wanted(self) -> Sequence[int | Probe]:
        """The most telling batch of each solution, once all before it are recorded."""
        if self._done or self._num_due:
            return []
        probes = self._best()
        self._done = not probes
        self._num_due = len(probes)
        return probes if len(self._problem.completers) > 1 else [one.prefix for one in probes]

    def record(self, rollout: RecordedRollout) -> None:
        """Take its outcome as evidence."""
        self._table.record(rollout)
        self._beliefs = None
        if rollout.asked:
            self._num_due -= 1
        else:
            probe = Probe(rollout.prefix, rollout.completer)
            self._num_asked[probe] = self._num_asked.get(probe, 0) + 1

    def evidence(self) -> Observed:
        """The evidence so far, for fitting rates."""
        return Observed(evidence=self._table.evidence(), completers=tuple(self._problem.completers))

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label every solution by what is likeliest."""
        return self.judge_completers([counts])

    def judge_completers(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Label every solution by what is likeliest; values are the strongest completer's."""
        if not self._problem.paths:
            return []
        number = strongest(self._problem.completers)
        beliefs = self._inferred()
        return [
            self._judge(path, counts[number], beliefs, chain)
            for path, chain in zip(self._problem.paths, self._table.chain_of, strict=True)
        ]

    def _judge(
        self, path: SolutionPath, counts: Sequence[Counts], beliefs: TraceBeliefs, chain: int
    ) -> Judgement:
        settings, steps = self._settings, path.num_steps
        moves = beliefs.moves[:steps, :, chain]
        posterior = np.append(beliefs.first_error[:steps, chain], beliefs.first_error[-1, chain])
        if self._table.is_compared(chain):
            posterior = np.sqrt(posterior)
        posterior /= posterior.sum()
        mode = int(posterior.argmax())
        error = mode if mode < steps else None
        hard: list[bool | None] = [error is None or t < error for t in range(steps - 1)]
        states: list[StepState | None] = [
            _NAMES[kind] if moves[t, kind] >= settings.min_belief else None
            for t, kind in enumerate(likeliest_moves(moves, error))
        ]
        if posterior[mode] < settings.min_belief:
            sound = 1 - np.cumsum(posterior)
            hard = [True if sound[t] >= settings.min_belief else None for t in range(steps - 1)]
            error = None
        sources: list[LabelSource] = ["trace"] * (steps - 1)
        means = self._table.means(beliefs, self._rates, chain, strongest(self._problem.completers))
        estimates = [
            estimate_anytime(
                counts[prefix],
                horizon=settings.rollouts,
                truncated=settings.truncated,
                mean=float(means[t]),
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

    def _inferred(self) -> TraceBeliefs:
        if self._beliefs is None:
            self._beliefs = infer(self._table.evidence(), self._rates)
        return self._beliefs

    def _best(self) -> list[Probe]:
        """Batches of the best prefix of each solution that is worth its tokens."""
        options: list[tuple[float, Probe]] = []
        for number, completer in enumerate(self._problem.completers):
            gains = self._table.gains(self._inferred(), self._rates, number)
            for prefix, gain in gains.items():
                cost = self._table.tokens(prefix) * completer.cost
                probe = Probe(prefix, number)
                if self._num_asked.get(probe, 0) < self._settings.rollouts:
                    options.append((round(gain / cost, 12), probe))
        options.sort(key=lambda one: (-one[0], one[1]))
        free = set(range(len(self._table.paths)))
        found: list[Probe] = []
        for rate, probe in options:
            if not free or rate < self._min_gain:
                break
            chains = {chain for chain, _ in self._table.holders[probe.prefix]}
            if not chains <= free:
                continue
            free -= chains
            asked = self._num_asked.get(probe, 0)
            # The first completions show most: begin with one, and double.
            size = min(self._settings.batch, max(1, asked), self._settings.rollouts - asked)
            self._num_asked[probe] = asked + size
            found += [probe] * size
        return found


class TraceLearner(FittingLearner[TraceRates, Observed]):
    """Learns the rates of a run; see `FittingLearner`."""

    pilot_discount = 1.0  # what costs nothing shows enough for a first fit

    def read(self, content: str) -> TraceRates:
        """Read what `TraceRates.to_json` wrote."""
        return TraceRates.from_json(content)

    def size(self, evidence: Observed) -> int:
        """Number of its solutions."""
        return evidence.num_solutions

    def fitted(self, evidence: Mapping[str, Sequence[Observed]]) -> TraceRates:
        """Fit rates to all that was recorded."""
        return fit_rates(evidence).as_written


def likeliest_moves(moves: Floats, error: int | None) -> list[int]:
    """The way through a solution whose moves have most chance in all, given its first error.

    Args:
        moves: [steps, 4], chances of each move.
        error: first error; None for none.
    """
    steps = len(moves)
    if error is None:
        return [KEPT] * steps
    best = np.zeros((steps + 1, 2))  # of the moves from a step on, by the state before it
    for t in range(steps - 1, error, -1):
        best[t] = (moves[t].reshape(2, 2) + best[t + 1]).max(1)
    found, state = [KEPT] * error + [ERROR], 0
    for t in range(error + 1, steps):
        after = int((moves[t].reshape(2, 2)[state] + best[t + 1]).argmax())
        found.append(2 * state + after)
        state = after
    return found


class _Table:
    """The evidence on one problem's solutions, growing with every completion.

    Solutions with the same steps and the same outcome are one chain.
    """

    def __init__(self, problem: ProblemPaths, truncated: TruncatedPolicy) -> None:
        self._completers = [one.name for one in problem.completers]
        self._truncated = truncated
        names = [(path.prefixes, path.outcome) for path in problem.paths]
        chains = {name: number for number, name in enumerate(dict.fromkeys(names))}
        self.chain_of = [chains[name] for name in names]
        first = dict(zip(reversed(names), reversed(problem.paths), strict=True))
        self.paths = [first[name] for name in chains]
        self.num_steps = np.array([path.num_steps for path in self.paths], dtype=np.int64)
        self.holders: dict[int, list[tuple[int, int]]] = {
            ROOT: [(chain, -1) for chain in range(len(self.paths))]
        }
        """By prefix: each chain that holds it, and the step that it ends with."""
        for chain, path in enumerate(self.paths):
            for step, prefix in enumerate(path.prefixes):
                self.holders.setdefault(prefix, []).append((chain, step))
        self._counts: dict[tuple[int, int], Floats] = {}
        """By prefix and completer, [3]."""
        self._left = [_left(path) for path in self.paths]
        self._steps = compare_solutions(self.paths, problem.paths)

    def record(self, rollout: RecordedRollout) -> None:
        kind = self._kind(rollout)
        if kind is not None:
            counts = self._counts.setdefault((rollout.prefix, rollout.completer), np.zeros(3))
            counts[kind] += 1
        for chain, step in self.holders[rollout.prefix]:
            add_rollout(self._steps, self.paths[chain], chain, step + 1, rollout.step_keys)

    def _kind(self, rollout: RecordedRollout) -> int | None:
        if rollout.outcome is Outcome.RIGHT:
            return REPAIRED if rollout.repairs or self._leaves(rollout) else RIGHT
        cut = rollout.outcome is Outcome.TRUNCATED and self._truncated == "wrong"
        return WRONG if cut or rollout.outcome is Outcome.WRONG else None

    def _leaves(self, rollout: RecordedRollout) -> bool:
        """Whether a rollout leaves the way that its prefix went before."""
        chain, step = self.holders[rollout.prefix][0]
        path = self.paths[chain]
        before = [key for at, key in comparable(path) if at <= step]
        return bool(before) and leaves_its_way(before, rollout.step_keys)

    def tokens(self, prefix: int) -> float:
        """Expected tokens of a completion."""
        held = self.holders[prefix]
        return max(1.0, sum(float(self._left[c][t + 1]) for c, t in held) / len(held))

    def evidence(self) -> TraceEvidence:
        """All of it, as arrays."""
        count = len(self.paths)
        width = int(self.num_steps.max(initial=1))
        counts = {name: np.zeros((width, 3, count)) for name in self._completers}
        root = {name: np.zeros(3) for name in self._completers}
        for (prefix, number), found in self._counts.items():
            name = self._completers[number]
            if prefix == ROOT:
                root[name] = found
                continue
            for chain, step in self.holders[prefix]:
                counts[name][step, :, chain] = found
        stated = np.zeros((width, 2, count))
        end = np.ones((2, count))
        for chain, path in enumerate(self.paths):
            end[:, chain] = path.outcome is not Outcome.WRONG, path.outcome is not Outcome.RIGHT
            # The last step's answer is the outcome.
            for step, answer in enumerate(path.commitments[:-1]):
                stated[step, :, chain] = answer is Outcome.RIGHT, answer is Outcome.WRONG
        return TraceEvidence(
            num_steps=self.num_steps,
            counts=counts,
            root=root,
            commitments=stated,
            steps={what: one.copy() for what, one in self._steps.items()},
            end=end,
        )

    def is_compared(self, chain: int) -> bool:
        """Whether other samples were compared with any of its steps."""
        return any(seen[..., chain].any() for what, seen in self._steps.items() if what != WAY)

    def gains(self, beliefs: TraceBeliefs, rates: ClassRates, number: int) -> dict[int, float]:
        """By prefix: information, in nats, that one more completion has on the states there."""
        name = self._completers[number]
        width, count = len(beliefs.states), len(self.paths)
        seen = np.zeros((width, 3, count))
        for (prefix, who), found in self._counts.items():
            if who == number and prefix != ROOT:
                for chain, step in self.holders[prefix]:
                    seen[step, :, chain] = found
        bins = to_go_bins(self.num_steps, width)
        # [T, level, state, 3, chain]: what the next one shows, after those that are there.
        shares = np.ascontiguousarray(rates.shares[name][:, :, bins].transpose(2, 0, 1, 4, 3))
        spread = rates.spread[name]
        predicted = (spread * shares + seen[:, None, None]) / (
            spread + total(seen, axis=1)[:, None, None, None]
        )
        joint = beliefs.states
        chance = total(joint, axis=1)  # [T, state, chain]
        each = total(joint[:, :, :, None] * predicted, axis=1)  # [T, state, 3, chain]
        known = each / np.maximum(chance, _TINY)[:, :, None]
        mixed = total(each, axis=1)
        gain = _entropy(mixed) - total(chance * _entropy(known, axis=2), axis=1)
        gains_of: dict[int, float] = {}
        for prefix, held in self.holders.items():
            if prefix != ROOT:
                gains_of[prefix] = sum(float(gain[step, chain]) for chain, step in held)
        return gains_of

    def means(self, beliefs: TraceBeliefs, rates: ClassRates, chain: int, number: int) -> Floats:
        """Expected share of right completions after each step, of one completer."""
        width = len(beliefs.states)
        bins = to_go_bins(self.num_steps, width)[:, chain]
        shares = np.moveaxis(rates.shares[self._completers[number]][:, :, bins], 2, 0)
        right = shares[..., RIGHT] + shares[..., REPAIRED]
        joint = beliefs.states[..., chain]
        return np.asarray((joint * right).sum((1, 2)))


def _left(path: SolutionPath) -> Floats:
    """Tokens of a solution from each step on."""
    tokens = path.step_tokens or (UNKNOWN_STEP_TOKENS,) * path.num_steps
    return np.cumsum(tokens[::-1])[::-1].astype(np.float64)


def _entropy(shares: Floats, axis: int = 1) -> Floats:
    """In nats, over an axis."""
    safe = np.maximum(shares, _TINY)
    return np.asarray(-total(safe * log(safe), axis=axis))
