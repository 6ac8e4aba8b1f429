"""What a search method is: a pure state machine that decides which beginnings to continue.

One method serves one problem. It is told of every node that was sampled and scored, in whatever
order they arrive, and asks for more. It knows no engine, no scorer, no thread and no clock, and
draws random numbers from its seed alone, so the same nodes always lead to the same search. What it
may spend is bounded outside (`mclabel.search.problem`), which just stops to serve it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field, FiniteFloat

from mclabel.core.settings import MAX_COUNT, ComponentSettings, at_most
from mclabel.prm.scoring.aggregate import AGGREGATIONS, Aggregation

MAX_WIDTH = 4096
"""Largest number of solutions of a problem that are under way together."""
ROOT = ""
"""Id of the problem alone."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A beginning of a solution, or a finished one. The same tokens are the same node."""

    id: str
    """Hash of its token ids and of how it ended; `ROOT` of the problem alone."""
    parent: str | None
    """The node that it continues."""
    depth: int
    """Number of steps from the beginning of the solution."""
    num_tokens: int
    """Number of tokens from the beginning of the solution."""
    is_finished: bool = False
    """True if the policy ended the solution here: there is nothing to continue."""
    is_cut: bool = False
    """True if there is no room left for more tokens, though the policy did not end it: a dead end,
    never a result."""
    scores: tuple[float, ...] = ()
    """A score in [0, 1] for every step from the beginning; empty where nothing scores."""

    @property
    def is_open(self) -> bool:
        """Return whether it can be continued."""
        return not (self.is_finished or self.is_cut)


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """What a method wants to be sampled."""

    node: str
    """Id of the node to continue."""
    count: Annotated[int, Field(ge=1, le=MAX_WIDTH)] = 1
    """Number of continuations, each sampled independently."""
    steps: Annotated[int, Field(ge=1)] | None = 1
    """Number of steps of each, at most; None samples to the end of the solution."""


class MethodSettings(ComponentSettings):
    """Settings that every method has."""

    component_kind: ClassVar[str] = "searches"

    n: Annotated[int, at_most(MAX_WIDTH, "all of a problem's are held in memory together")] = Field(
        16, ge=1
    )
    """Solutions sampled side by side for each problem."""
    every: int = Field(1, ge=1, le=MAX_COUNT)
    """Steps sampled between two scorings (arXiv 2505.11730)."""
    aggregate: Aggregation = "last"
    """Aggregation of step scores: `last`, `min`, `product`, `mean`, `max` or `log_odds`."""

    @property
    def summary(self) -> str:
        """A short description, for display."""
        return f"{self.kind}, n={self.n}"


class SearchMethod(ABC):
    """Decides which beginnings of solutions to continue. Derive from it for the defaults.

    `Settings` is the class of its settings; a configuration that names the method by `kind` holds
    the others beside it. docs/search.md writes one from the first line.
    """

    Settings: ClassVar[type[MethodSettings]] = MethodSettings
    settings: Any
    """An instance of `Settings`."""

    def __init__(self, settings: Any, root: Node, *, seed: int) -> None:
        """Begin with a problem.

        Args:
            settings: an instance of `Settings`.
            root: the problem alone, without scores.
            seed: of all that the method draws.
        """
        self.settings, self.root, self.seed = settings, root, seed
        self.nodes: dict[str, Node] = {root.id: root}
        """All nodes that arrived, by id."""
        self.finished: Counter[str] = Counter()
        """Finished solutions, and how often each was sampled."""

    @abstractmethod
    def wanted(self) -> Sequence[Expansion]:
        """What to sample now, beside what is under way; each is asked for once.

        Empty while the method waits, and for good when it is done.
        """
        ...

    def record(self, parent: str, node: Node) -> None:
        """Take a continuation that was asked for.

        Args:
            parent: id of the node that was continued.
            node: what came of it, scored. The same node may come several times.
        """
        self.nodes.setdefault(node.id, node)
        if node.is_finished:
            self.finished[node.id] += 1

    def result(self) -> Mapping[str, Annotated[FiniteFloat, Field(ge=0)]]:
        """The finished solutions by id, and how much each counts in a vote; called at any time.

        By default every finished solution counts as often as it was sampled.
        """
        return dict(self.finished)

    def value(self, node: Node) -> float:
        """The scores of a node's steps joined to one number; 0 where there is none.

        A score that is no number counts as the least.
        """
        if not node.scores:
            return 0.0
        scores = [0.0 if math.isnan(score) else score for score in node.scores]
        return AGGREGATIONS[self.settings.aggregate](scores)
