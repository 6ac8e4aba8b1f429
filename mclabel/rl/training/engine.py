"""The engine of the policy in training, on an event loop of its own beside the trainer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mclabel.checkers import make_checker
from mclabel.core.records import Problem
from mclabel.engines import Engine
from mclabel.labeling.settings import LabelSettings
from mclabel.rl.groups import Group, LivePolicy
from mclabel.rl.training.settings import RLSettings
from mclabel.rl.values import GroupValues, LiveValues
from mclabel.run.desk import Desk

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class LiveEngine:
    """Samples and values with the present weights. Its methods wait for what they ask for.

    A context: the engine is loaded when it is entered, and freed when it is left.
    """

    def __init__(
        self, engine: Engine, settings: RLSettings, *, prover: Engine | None = None
    ) -> None:
        """Load nothing yet.

        Args:
            engine: of the policy, not started.
            settings: of the training.
            prover: of another policy whose values are asked for, not started.
        """
        self._engine, self._settings, self._prover = engine, settings, prover
        self._desk = Desk()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rl-engine", daemon=True
        )
        self.live = LivePolicy(
            engine, make_checker(settings.checker), self._desk, splitter=settings.split
        )

    def __enter__(self) -> LiveEngine:
        self._thread.start()
        self._wait(self._engine.start())
        if self._prover is not None:
            self._wait(self._prover.start())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait(self._engine.close())
            if self._prover is not None:
                self._wait(self._prover.close())
        finally:
            self._desk.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def groups(
        self, problems: Sequence[Problem], *, seed: int, size: int | None = None
    ) -> list[Group]:
        """Sample a group of each problem.

        Args:
            problems: sampled side by side.
            seed: of the draws.
            size: solutions of a group; None is that of the settings.

        Raises:
            EngineError: the engine died.
        """
        size = size or self._settings.group_size
        return self._wait(self.live.groups(problems, size, seed=seed))

    def values(
        self, groups: Sequence[Group], *, seed: int, outcomes: bool = False
    ) -> list[GroupValues]:
        """Estimate the values of groups that the present weights have sampled; see `LiveValues`.

        Raises:
            EngineError: the engine died.
        """
        settings = LabelSettings(
            split=self._settings.split,
            checker=self._settings.checker,
            estimator=self._settings.estimator,
        )
        values = LiveValues(
            self.live,
            settings,
            free_rollouts=self._settings.free_rollouts,
            outcomes=outcomes,
            prover=self._prover,
        )
        return self._wait(values.of(groups, seed=seed))

    def update(self, weights: Mapping[str, Tensor]) -> None:
        """Give the engine new weights.

        Raises:
            EngineError: it cannot take them.
        """
        self._wait(self._engine.update_weights(weights))

    def _wait(self, asked: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()
