"""Where methods and scorers come in: what they give is checked in this one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from mclabel.boundary import Boundary, shown
from mclabel.components import derived_class
from mclabel.search.base import MAX_WIDTH, Expansion, MethodSettings, Node, SearchMethod
from mclabel.search.scorers.base import Beginning, Scored, StepScorer, StepScorerSettings

PAGE = "docs/search.md"


class CheckedMethod:
    """A method whose wishes are checked."""

    def __init__(self, settings: MethodSettings, root: Node, *, seed: int) -> None:
        """Begin with a problem; see `SearchMethod`.

        Raises:
            ComponentError: the method cannot be made.
        """
        target = method_class(settings)
        self._boundary = Boundary.around("searches", target)
        with self._boundary.calling("__init__"):
            self._method = target(settings, root, seed=seed)
        self._open = {root.id}

    def wanted(self) -> list[Expansion]:
        """What to sample now; see `SearchMethod.wanted`.

        Raises:
            ComponentError: it names a node that cannot be continued.
        """
        with self._boundary.calling("wanted"):
            found = self._method.wanted()
        if not isinstance(found, Sequence):
            raise self._boundary.broken("wanted", f"gave {shown(found)}, must give a sequence")
        for one in found:
            if not isinstance(one, Expansion):
                raise self._boundary.broken("wanted", f"gave {shown(one)}, must give Expansions")
            if one.node not in self._open:
                raise self._boundary.broken(
                    "wanted",
                    f"wants to continue {shown(one.node)}, must name a node that was recorded and "
                    "is open",
                )
            if type(one.count) is not int or not 1 <= one.count <= MAX_WIDTH:
                raise self._boundary.broken(
                    "wanted", f"gave count={shown(one.count)}, must give 1 to {MAX_WIDTH:,}"
                )
            if one.steps is not None and (type(one.steps) is not int or one.steps < 1):
                raise self._boundary.broken(
                    "wanted", f"gave steps={shown(one.steps)}, must give 1 or more, or None"
                )
        return list(found)

    def record(self, parent: str, node: Node) -> None:
        """Tell the method of a continuation."""
        if node.is_open:
            self._open.add(node.id)
        with self._boundary.calling("record"):
            self._method.record(parent, node)

    def result(self, finished: Mapping[str, Node]) -> dict[str, float]:
        """The finished solutions by id, and how much each counts.

        Args:
            finished: those that there are, by id.

        Raises:
            ComponentError: it gives others, or a weight that is none.
        """
        with self._boundary.calling("result"):
            found = self._method.result()
        if not isinstance(found, Mapping):
            raise self._boundary.broken("result", f"gave {shown(found)}, must give a mapping")
        for name, weight in found.items():
            if name not in finished:
                raise self._boundary.broken(
                    "result", f"gave {shown(name)}, must give ids of finished solutions alone"
                )
            if not (isinstance(weight, int | float) and isfinite(weight) and weight >= 0):
                raise self._boundary.broken(
                    "result", f"gave the weight {shown(weight)}, must give a number of 0 or more"
                )
        return {name: float(weight) for name, weight in found.items()}

    def value(self, node: Node) -> float:
        """The scores of a node joined to one number."""
        return self._method.value(node)


class CheckedScorer:
    """A scorer whose scores are checked."""

    def __init__(self, settings: StepScorerSettings) -> None:
        """Make the scorer that settings name, without loading anything.

        Raises:
            ConfigError: they name no scorer.
            ComponentError: it cannot be made.
        """
        target = scorer_class(settings)
        self.boundary = Boundary.around("scorers", target)
        with self.boundary.calling("__init__", may_take_long=True):
            self.scorer = target(settings)

    def check(self) -> None:
        """See that the scorer has what it needs; see `StepScorer.check`."""
        with self.boundary.calling("check", may_take_long=True):
            self.scorer.check()

    async def start(self) -> None:
        """Load what it needs."""
        await self.boundary.awaited(self.scorer, "start", may_take_long=True)

    async def score(self, beginning: Beginning) -> Scored:
        """Score a beginning; see `StepScorer.score`.

        Raises:
            ComponentError: it gives something else than scores.
        """
        found = await self.boundary.awaited(self.scorer, "score", beginning)
        if not isinstance(found, Scored):
            raise self.boundary.broken("score", f"gave {shown(found)}, must give Scored")
        if len(found.scores) != len(beginning.steps):
            raise self.boundary.broken(
                "score",
                f"gave {len(found.scores)} scores for {len(beginning.steps)} steps, must give one "
                "per step",
            )
        if not all(isinstance(one, int | float) and 0 <= one <= 1 for one in found.scores):
            raise self.boundary.broken(
                "score", f"gave scores={shown(found.scores)}, must give numbers in [0, 1]"
            )
        return found

    async def close(self) -> None:
        """Free what it has loaded."""
        await self.boundary.awaited(self.scorer, "close", may_take_long=True)


def method_class(settings: MethodSettings) -> type[SearchMethod]:
    """The class that settings name.

    Raises:
        ConfigError: it is no method.
    """
    found: type[SearchMethod] = derived_class(settings, SearchMethod, key="search.kind", page=PAGE)
    return found


def scorer_class(settings: StepScorerSettings) -> type[StepScorer]:
    """The class that settings name.

    Raises:
        ConfigError: it is no scorer of steps.
    """
    found: type[StepScorer] = derived_class(settings, StepScorer, key="scorer.kind", page=PAGE)
    return found
