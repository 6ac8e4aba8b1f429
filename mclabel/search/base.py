"""The protocol of search methods: pure state machines that decide which prefixes to continue.

One method serves one problem. `mclabel.search.problem` samples and scores the nodes that the method
requests, and limits their cost. A method uses no engine, scorer, thread or clock, and draws random
numbers only from its seed, so the same nodes always give the same search.
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
"""Largest number of concurrent solutions of a problem."""
ROOT = ""
"""Id of the root node, which is the problem without any step."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """Prefix of a solution, or a finished solution. The same tokens are the same node."""

    id: str
    """Hash of its token ids and its end; `ROOT` for the root node."""
    parent: str | None
    """Id of the node that it continues; None for the root node."""
    depth: int
    """Number of steps from the beginning of the solution."""
    num_tokens: int
    """Number of tokens from the beginning of the solution."""
    is_finished: bool = False
    """True if the policy ended the solution here, so that there is nothing to continue."""
    is_cut: bool = False
    """True if the token limit is reached before the policy ended the solution: a dead end, never a
    result."""
    scores: tuple[float, ...] = ()
    """Score in [0, 1] of every step from the first; empty without a scorer."""

    @property
    def is_open(self) -> bool:
        """True if the node can be continued."""
        return not (self.is_finished or self.is_cut)


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """Request of a method to sample continuations of a node."""

    node: str
    """Id of the node to continue."""
    count: Annotated[int, Field(ge=1, le=MAX_WIDTH)] = 1
    """Number of continuations, each sampled independently."""
    steps: Annotated[int, Field(ge=1)] | None = 1
    """Maximum number of steps of each; None samples to the end of the solution."""


class MethodSettings(ComponentSettings):
    """Settings of every search method."""

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
    """Method that decides which prefixes to continue. Derive from it for the defaults.

    `Settings` is the class of its settings; a configuration that names the method by `kind` holds
    the others beside it. docs/search.md writes one from the first line.
    """

    Settings: ClassVar[type[MethodSettings]] = MethodSettings
    settings: Any
    """An instance of `Settings`."""

    def __init__(self, settings: Any, root: Node, *, seed: int) -> None:
        """Start the search of a problem.

        Args:
            settings: an instance of `Settings`.
            root: root node of the problem, without scores.
            seed: seed of all random numbers of the method.
        """
        self.settings, self.root, self.seed = settings, root, seed
        self.nodes: dict[str, Node] = {root.id: root}
        """All nodes that arrived, by id."""
        self.finished: Counter[str] = Counter()
        """Number of samples of each finished solution, by id."""

    @abstractmethod
    def wanted(self) -> Sequence[Expansion]:
        """Return the expansions to sample now, each requested once.

        The list is empty while the method waits for nodes, and permanently when it is done.
        """

    def record(self, parent: str, node: Node) -> None:
        """Record a continuation that the method requested.

        Args:
            parent: id of the node that was continued.
            node: the scored continuation. The same node may arrive several times.
        """
        self.nodes.setdefault(node.id, node)
        if node.is_finished:
            self.finished[node.id] += 1

    def result(self) -> Mapping[str, Annotated[FiniteFloat, Field(ge=0)]]:
        """Return the finished solutions by id with their weights in a vote. It may be called at any
        time.

        The default weight is the number of times that the solution was sampled.
        """
        return dict(self.finished)

    def value(self, node: Node) -> float:
        """Return the aggregate of the scores of a node's steps; 0 without scores.

        A score of NaN counts as 0.
        """
        if not node.scores:
            return 0.0
        scores = [0.0 if math.isnan(score) else score for score in node.scores]
        return AGGREGATIONS[self.settings.aggregate](scores)
