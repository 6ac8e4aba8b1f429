r"""Estimators that decide in batches, and that learn over a run.

    PYTHONPATH=examples python -m tests.benchmarks.simulate learning_estimator:Batched \
        learning_estimator:Rationed tokens_per_solution=300 --problems 50 --profile sharp

This command compares them on simulated problems. Both change the built-in `fixed`. `Batched` makes
its first decision together with the estimators of other problems. `Rationed` lowers the number of
rollouts until it meets a budget of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from pydantic import Field

from mclabel.labeling.estimators import Knowledge, ProblemPaths, RunLearner
from mclabel.labeling.estimators.fixed import FixedEstimator


class Batched(FixedEstimator):
    """`fixed`, whose first decision is made with those of other problems."""

    class Settings(FixedEstimator.Settings):
        """Those of `fixed`."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        super().__init__(settings, problem)
        self._undecided = True

    @property
    def is_due(self) -> bool:
        """Whether it waits for `decide_together`."""
        return self._undecided

    @classmethod
    def decide_together(cls, estimators: Sequence[Batched]) -> None:
        """Decide for all of them; here one array operation would stand."""
        for one in estimators:
            one._undecided = False

    def wanted(self) -> list[int]:
        """What it would have requested alone."""
        if self._undecided:
            self.decide_together([self])
        return super().wanted()


class Ration(Knowledge):
    """Number of rollouts from each prefix of the next problem."""

    def __init__(self, rollouts: int) -> None:
        """Begin with a number."""
        self.rollouts = rollouts

    def to_json(self) -> str:
        """As `priors/ID.json` holds it."""
        return json.dumps({"rollouts": self.rollouts})


class Budget(RunLearner):
    """Adjusts the number of rollouts to what problems have cost so far."""

    def __init__(self, settings: Rationed.Settings) -> None:
        """Begin with a run."""
        self._settings, self._rollouts = settings, settings.rollouts
        self._num_solutions = self._num_tokens = 0

    @property
    def knowledge(self) -> Ration:
        """What the next problems begin with."""
        return Ration(self._rollouts)

    def record(self, problem: ProblemPaths, estimator: Rationed, *, num_tokens: int) -> None:
        """Take a finished problem."""
        self._num_solutions += len(problem.paths)
        self._num_tokens += num_tokens
        over = self._num_tokens > self._num_solutions * self._settings.tokens_per_solution
        change = -1 if over else 1
        self._rollouts = min(self._settings.rollouts, max(1, self._rollouts + change))

    def fit(self) -> None:
        """Do nothing: `record` has learned already, as it is fast."""
        return None

    def adopt(self, content: str) -> None:
        """Do nothing: every engine keeps a budget of its own."""
        return None


class Rationed(FixedEstimator):
    """`fixed` within a budget of tokens."""

    class Settings(FixedEstimator.Settings):
        """Those of `fixed`, and a budget."""

        tokens_per_solution: float = Field(200, gt=0)
        """Tokens of rollouts that a solution may cost on average."""

    @classmethod
    def learner(cls, settings: Settings, read: Callable[[str], str]) -> Budget:
        """What sees every finished problem of an engine."""
        return Budget(settings)

    @classmethod
    def begin(
        cls,
        settings: Settings,
        problem: ProblemPaths,
        *,
        knowledge: Ration | None = None,
        min_gain: float | None = None,
    ) -> Rationed:
        """Begin with a problem, with what was learned from others."""
        if knowledge is not None:
            settings = settings.changed(rollouts=knowledge.rollouts)
        return cls(settings, problem)

    @classmethod
    def read_knowledge(cls, content: str) -> Ration:
        """What `to_json` wrote."""
        return Ration(**json.loads(content))
