"""Where methods and scorers come in: what they give is checked in this one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from mclabel.boundary import Boundary, Guard, Rule, shown
from mclabel.components import derived_class
from mclabel.search.base import Expansion, MethodSettings, Node, SearchMethod
from mclabel.search.scorers.base import Beginning, Scored, StepScorer, StepScorerSettings

PAGE = "docs/search.md"


class CheckedMethod(Guard):
    """A method behind its boundary, which may continue what is open, and gives what is finished."""

    def __init__(self, settings: MethodSettings, root: Node, *, seed: int) -> None:
        """Begin with a problem; see `SearchMethod`.

        Raises:
            ComponentError: the method cannot be made.
        """
        target = method_class(settings)
        around = Boundary.around("searches", target)
        method = around.call("__init__", target, settings, root, seed=seed)
        rules: dict[str, Rule] = {"wanted": self._unwanted, "result": self._unfinished}
        super().__init__(method, SearchMethod, around, rules)
        self._nodes = {root.id: root}

    def record(self, parent: str, node: Node) -> None:
        """Tell the method of a continuation."""
        self._nodes[node.id] = node
        self.around.call("record", self.component.record, parent, node)

    def _unwanted(self, found: Sequence[Expansion]) -> str | None:
        for one in found:
            if one.node not in self._nodes or not self._nodes[one.node].is_open:
                rule = "must name a node that was recorded and is open"
                return f"wants to continue {shown(one.node)}, {rule}"
        return None

    def _unfinished(self, found: Mapping[str, float]) -> str | None:
        for name in found:
            if name not in self._nodes or not self._nodes[name].is_finished:
                return f"gave {shown(name)}, must give ids of finished solutions alone"
        return None


def make_scorer(settings: StepScorerSettings) -> StepScorer:
    """Make the scorer that settings name, behind its boundary, without loading anything.

    Raises:
        ConfigError: they name no scorer.
        ComponentError: it cannot be made.
    """
    target = scorer_class(settings)
    around = Boundary.around("scorers", target)
    scorer = around.call("__init__", target, settings, slow=True)
    return cast(StepScorer, Guard(scorer, StepScorer, around, {"score": _fault}))


def _fault(found: Scored, beginning: Beginning) -> str | None:
    if len(found.scores) == len(beginning.steps):
        return None
    num_scores, num_steps = len(found.scores), len(beginning.steps)
    return f"gave {num_scores} scores for {num_steps} steps, must give one per step"


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
