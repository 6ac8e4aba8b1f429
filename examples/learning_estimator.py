r"""An estimator that decides in batches, and an estimator that learns over a run.

    PYTHONPATH=examples python -m tests.benchmarks.simulate learning_estimator:Batched \
        learning_estimator:Rationed tokens_per_solution=300 --problems 50 --profile sharp

This command compares both estimators on simulated problems. Both derive from the built-in `fixed`.
`Batched` makes its first decision together with the estimators of other problems. `Rationed`
adjusts the number of rollouts to a token budget.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from pydantic import Field

from mclabel.labeling.estimators import Knowledge, ProblemPaths, RunLearner
from mclabel.labeling.estimators.fixed import FixedEstimator


class Batched(FixedEstimator):
    """The estimator `fixed`, with a first decision that is batched over problems."""

    class Settings(FixedEstimator.Settings):
        """Settings of `fixed`."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        super().__init__(settings, problem)
        self._undecided = True

    @property
    def is_due(self) -> bool:
        """True until `decide_together` has been called."""
        return self._undecided

    @classmethod
    def decide_together(cls, estimators: Sequence[Batched]) -> None:
        """Decide for all estimators. A real estimator would compute one array operation here."""
        for one in estimators:
            one._undecided = False

    def wanted(self) -> list[int]:
        """Return the prefixes from which rollouts are needed, as `fixed` does."""
        if self._undecided:
            self.decide_together([self])
        return super().wanted()


class Ration(Knowledge):
    """Number of rollouts from each prefix of the next problem."""

    def __init__(self, rollouts: int) -> None:
        """Store the number of rollouts."""
        self.rollouts = rollouts

    def to_json(self) -> str:
        """Return the JSON content of the file `priors/ID.json`."""
        return json.dumps({"rollouts": self.rollouts})


class Budget(RunLearner):
    """Learner that adjusts the number of rollouts to the tokens spent so far."""

    def __init__(self, settings: Rationed.Settings) -> None:
        """Begin with the number of rollouts from the settings."""
        self._settings, self._rollouts = settings, settings.rollouts
        self._num_solutions = self._num_tokens = 0

    @property
    def knowledge(self) -> Ration:
        """Number of rollouts with which the next problems begin."""
        return Ration(self._rollouts)

    def record(self, problem: ProblemPaths, estimator: Rationed, *, num_tokens: int) -> None:
        """Record the cost of a finished problem, and adjust the number of rollouts."""
        self._num_solutions += len(problem.paths)
        self._num_tokens += num_tokens
        over = self._num_tokens > self._num_solutions * self._settings.tokens_per_solution
        change = -1 if over else 1
        self._rollouts = min(self._settings.rollouts, max(1, self._rollouts + change))

    def fit(self) -> None:
        """Do nothing, because `record` is fast and learns at once."""
        return None

    def adopt(self, content: str) -> None:
        """Do nothing, because every engine has its own budget."""
        return None


class Rationed(FixedEstimator):
    """The estimator `fixed` with a token budget."""

    class Settings(FixedEstimator.Settings):
        """Settings of `fixed`, and a budget."""

        tokens_per_solution: float = Field(200, gt=0)
        """Maximum mean number of rollout tokens per solution."""

    @classmethod
    def learner(cls, settings: Settings, read: Callable[[str], str]) -> Budget:
        """Make the learner that records all finished problems of an engine."""
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
        """Begin with a problem, using the knowledge from earlier problems."""
        if knowledge is not None:
            settings = settings.with_changes(rollouts=knowledge.rollouts)
        return cls(settings, problem)

    @classmethod
    def read_knowledge(cls, content: str) -> Ration:
        """Parse the text that `to_json` returned."""
        return Ration(**json.loads(content))
