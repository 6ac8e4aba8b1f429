"""The protocol of search methods: pure state machines that decide which prefixes to continue.

One method serves one problem. `mclabel.search.problem` samples and scores the nodes that the method
requests, and limits their cost. A method uses no engine, scorer, thread or clock, and draws random
numbers only from its seed, so identical nodes yield an identical search.
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
"""Maximum number of concurrent solutions of a problem."""
ROOT = ""
"""Id of the root node, which is the empty solution."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """Prefix of a solution, or a finished solution.

    Equal continuations of a node are one node, even if they were sampled several times.
    """

    id: str
    """Hash of the parent's id, the token ids after the parent, and `is_finished` and `is_cut`. The
    root node has the id `ROOT`."""
    parent: str | None
    """Id of the node that this node continues; None for the root node."""
    depth: int
    """Number of steps from the beginning of the solution."""
    num_tokens: int
    """Number of tokens from the beginning of the solution."""
    is_finished: bool = False
    """True if the policy ended the solution at this node, so it cannot be continued."""
    is_cut: bool = False
    """True if a token limit ended the solution before the policy did. Such a node can neither be
    continued nor chosen as a result."""
    scores: tuple[float, ...] = ()
    """Score in [0, 1] of every step from the beginning; empty if the node was not scored."""

    @property
    def is_open(self) -> bool:
        """True if the node can be continued."""
        return not (self.is_finished or self.is_cut)


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """Request of a search method to sample continuations of a node."""

    node: str
    """Id of the node to continue."""
    count: Annotated[int, Field(ge=1, le=MAX_WIDTH)] = 1
    """Number of continuations, each sampled independently."""
    steps: Annotated[int, Field(ge=1)] | None = 1
    """Maximum number of steps per continuation; None samples to the end of the solution."""


class MethodSettings(ComponentSettings):
    """Settings of every search method."""

    component_kind: ClassVar[str] = "searches"

    n: Annotated[
        int, at_most(MAX_WIDTH, "all solutions of a problem are held in memory together")
    ] = Field(16, ge=1)
    """Number of solutions that are sampled concurrently for each problem."""
    every: int = Field(1, ge=1, le=MAX_COUNT)
    """Number of steps sampled between two scorings (arXiv 2505.11730)."""
    aggregate: Aggregation = "last"
    """Aggregation of step scores: `last`, `min`, `product`, `mean`, `max` or `log_odds`."""

    @property
    def summary(self) -> str:
        """Name and main settings of the method, for display."""
        return f"{self.kind}, n={self.n}"


class SearchMethod(ABC):
    """Base class of search methods, which decide which prefixes to continue.

    `Settings` is the class of the method's settings. In a configuration these settings stand beside
    the key `kind`, which names the method. docs/search.md shows how to write a method.
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
        """Maps the ids of the root node and of all recorded nodes to the nodes."""
        self.finished: Counter[str] = Counter()
        """Maps the id of a finished solution to the number of times that it was sampled."""

    @abstractmethod
    def wanted(self) -> Sequence[Expansion]:
        """Return the expansions to sample now. Each expansion is returned only once.

        The list is empty while the method waits for requested nodes. It is also empty once the
        method is done.
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
        """Return the number of votes that each finished solution counts for, by its id.

        By default this is the number of times that the solution was sampled. This may be called at
        any time.
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
