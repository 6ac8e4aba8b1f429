"""Simulation of a labelling job's time on an engine with a fixed number of slots.

The engine is described by its slots and by the seconds of one decoding step, which grow linearly
with the number of live completions. Time is virtual: decisions take no time, and nothing is
sampled.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mclabel.labeling.estimators import Estimator, Probe, RecordedRollout, RunLearner
from tests.benchmarks.simulation.replay import Case, Game, Replay


@dataclass(frozen=True, kw_only=True)
class EngineSpeed:
    """Number of slots of an engine, and the seconds of its decoding steps."""

    slots: int
    step_s_alone: float
    """Seconds of a step with one live completion."""
    step_s_full: float
    """Seconds of a step with a completion in every slot."""

    def step_s(self, num_live: int) -> float:
        """Return the seconds of a step with `num_live` live completions."""
        share = (num_live - 1) / max(1, self.slots - 1)
        return self.step_s_alone + share * (self.step_s_full - self.step_s_alone)


@dataclass(kw_only=True)
class SimulatedJob:
    """Result of a simulated job."""

    seconds: float = 0.0
    tokens: int = 0
    replays: dict[int, Replay] = field(default_factory=dict)
    """Labels by index of the case."""
    spans: list[tuple[float, float, int]] = field(default_factory=list)
    """Beginning, length in seconds, and number of live completions of each span."""


def lengthen_case(case: Case, factor: int) -> Case:
    """Return a case whose steps and rollouts have `factor` times as many tokens."""

    def draw(probe: Probe, index: int) -> RecordedRollout:
        rollout = case.draw(probe, index)
        return replace(rollout, num_tokens=rollout.num_tokens * factor)

    paths = tuple(
        replace(path, step_tokens=tuple(tokens * factor for tokens in path.step_tokens))
        for path in case.paths
    )
    return replace(case, paths=paths, draw=draw)


class JobSimulation:
    """A scheduler of problems like that of a labelling job with one engine."""

    def __init__(
        self,
        cases: Sequence[Case],
        make: Callable[[Case], Estimator],
        speed: EngineSpeed,
        *,
        learner: RunLearner | None,
        seed: int = 0,
    ) -> None:
        """Prepare a job.

        Args:
            cases: problems with their solutions, in order.
            make: function that makes the estimator of a case.
            speed: speed of the engine.
            learner: learner whose lag says how many earlier problems must end before a problem
                begins; None if problems do not wait.
            seed: random seed of the completion lengths, which vary by a quarter around their mean.
        """
        self._cases, self._make, self._speed, self._learner = cases, make, speed, learner
        self._rng = np.random.default_rng(seed)
        self._waiting: deque[tuple[int, int, RecordedRollout | None]] = deque()
        """Problem, tokens and rollout of each request; a request without a rollout is for a
        solution.
        """
        self._live: list[tuple[int, int, int, RecordedRollout | None]] = []
        """Heap of live completions: last step, order, problem and rollout."""
        self._games: dict[int, Game] = {}
        self._due: dict[int, int] = {}
        """Number of unfinished requests of each problem."""
        self._drawn: dict[tuple[int, int], int] = defaultdict(int)
        self._num_begun = self._num_ended = self._num_requests = 0
        self._ended: set[int] = set()
        self._job = SimulatedJob()

    def run(self) -> SimulatedJob:
        """Run the job to its end."""
        step, job = 0, self._job
        self._begin_problems()
        while self._waiting or self._live:
            while self._waiting and len(self._live) < self._speed.slots:
                problem, tokens, rollout = self._waiting.popleft()
                self._num_requests += 1
                heapq.heappush(self._live, (step + tokens, self._num_requests, problem, rollout))
                job.tokens += tokens
            num_live, next_end = len(self._live), self._live[0][0]
            seconds = (next_end - step) * self._speed.step_s(num_live)
            job.spans.append((job.seconds, seconds, num_live))
            job.seconds, step = job.seconds + seconds, next_end
            answered = set()
            while self._live and self._live[0][0] == step:
                _, _, problem, rollout = heapq.heappop(self._live)
                self._due[problem] -= 1
                if rollout is not None:
                    self._games[problem].take(rollout)
                answered.add(problem)
            for problem in sorted(answered):
                self._request_next_rollouts(problem)
            self._begin_problems()
        return job

    def _begin_problems(self) -> None:
        """Begin problems until twice the engine's slots are in demand, as a job leases blocks."""
        while self._num_begun < len(self._cases):
            while self._num_ended in self._ended:
                self._num_ended += 1
            number = self._num_begun
            if self._learner is not None:
                needed = number + 1 - self._learner.lag(number)
                if self._num_ended < needed:
                    return
            if len(self._live) + len(self._waiting) >= 2 * self._speed.slots:
                return
            self._num_begun += 1
            case = self._cases[number]
            self._games[number] = Game(self._make(case), case)
            for path in case.paths:
                self._request(number, sum(path.step_tokens), None)

    def _request_next_rollouts(self, problem: int) -> None:
        game = self._games[problem]
        if self._due[problem] and not game.num_recorded:
            return  # solutions are still being sampled
        wanted = game.checked.wanted(game.case.num_prefixes)
        for probe in wanted:
            index = self._drawn[problem, probe.prefix]
            self._drawn[problem, probe.prefix] += 1
            rollout = game.case.draw(probe, index)
            self._request(problem, rollout.num_tokens, rollout)
        if not self._due[problem]:
            self._job.replays[problem] = game.end()
            self._ended.add(problem)
            del self._games[problem]

    def _request(self, problem: int, tokens: int, rollout: RecordedRollout | None) -> None:
        varied = max(1, round(tokens * self._rng.gamma(16) / 16))
        self._waiting.append((problem, varied, rollout))
        self._due[problem] = self._due.get(problem, 0) + 1
