"""Searches for those who ask, many at a time, on one engine and one scorer."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mclabel.checkers import make_checker
from mclabel.core.records import LabeledSolution, Problem
from mclabel.core.seeds import content_id
from mclabel.engines import Policy
from mclabel.run.desk import Desk
from mclabel.run.shards.trees import StoredCost, StoredTree
from mclabel.search.config import PolicySearchSettings
from mclabel.search.problem import Found, Searching, search_problem
from mclabel.search.scorers.base import make_scorer
from mclabel.search.server.asks import Ask
from mclabel.search.task import graded_search
from mclabel.serving.asked import Asked, Limits


class Searcher:
    """One engine and one scorer, and the searches on them."""

    def __init__(
        self, policy: Policy, settings: PolicySearchSettings, *, name: str, limits: Limits
    ) -> None:
        """Prepare to search; `start` loads policy and scorer.

        Args:
            policy: not started.
            settings: of the server, whose scorer and checker serve all requests.
            name: of the model in answers.
            limits: of what is done at a time.
        """
        self._policy, self._name = policy, name
        self._scorer = make_scorer(settings.scorer)
        self._checker = make_checker(settings.checker)
        self._desk = Desk()
        self._order = itertools.count()
        self.asked = Asked(limits)

    @property
    def num_searches(self) -> int:
        """Searches under way and waiting."""
        return len(self.asked)

    async def start(self) -> None:
        """Load the policy, then the scorer."""
        await self._policy.start()
        await self._scorer.start()

    def begin(self, ask: Ask) -> asyncio.Task[Answer]:
        """Search for an answer. Cancelling the task ends the search.

        Raises:
            Refused: there is too much to do already, or the server ends; so does the task where
                there is no answer.
        """
        return self.asked.begin(lambda: self._answer(ask))

    async def close(self) -> None:
        """Free policy and scorer."""
        await self.asked.close()
        self._desk.close()
        await self._scorer.close()
        await self._policy.close()

    async def _answer(self, ask: Ask) -> Answer:
        settings = ask.settings
        problem = Problem(id=content_id("problem", ask.problem), text=ask.problem, answer="")
        shared = Searching(
            policy=self._policy,
            scorer=self._scorer,
            settings=settings,
            ends=tuple(settings.policy.stop),
            max_tokens=settings.policy.max_tokens,
        )
        found = await search_problem(problem, shared, priority=next(self._order))
        prompt = self._policy.prompt_ids(ask.problem)
        searched = await graded_search(problem, prompt, found, settings, self._checker, self._desk)
        tree = searched.tree
        assert tree is not None
        return Answer(
            model=self._name,
            method=settings.search.kind,
            solutions=_different(searched.labeled, ask.n) or (_unfinished(found),),
            num_finished=len(searched.labeled),
            scores=_scores(tree),
            is_spent=found.is_spent,
            cost=tree.cost,
        )


def _different(rows: tuple[LabeledSolution, ...], count: int) -> tuple[Solved, ...]:
    """The first solutions that are not the same text."""
    by_text = {row.solution.text: row.solution for row in reversed(rows)}
    first = [row.solution for row in rows if by_text[row.solution.text] is row.solution]
    return tuple(
        Solved(steps=tuple(step.text for step in one.steps), is_finished=True)
        for one in first[:count]
    )


def _unfinished(found: Found) -> Solved:
    """The longest beginning, where the length of solutions has left none finished."""
    tree = found.tree
    longest = max(tree.nodes.values(), key=lambda entry: (entry.node.num_tokens, entry.node.id))
    steps = tree.steps(longest.node.id)
    return Solved(steps=tuple(step.text for step in steps), is_finished=False)


def _scores(tree: StoredTree) -> tuple[float, ...]:
    return next((tuple(node.scores) for node in tree.nodes if node.id == tree.chosen), ())


@dataclass(frozen=True, kw_only=True)
class Solved:
    """A solution that is sent."""

    steps: tuple[str, ...]
    """Their texts, which join to its text."""
    is_finished: bool
    """Whether the policy has ended it; else its length did."""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.steps)

    @property
    def finish_reason(self) -> str:
        """Why it ended, in the words of the interface."""
        return "stop" if self.is_finished else "length"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a search has found for a request."""

    model: str
    method: str
    solutions: tuple[Solved, ...]
    """The chosen one first. One that is not finished where none is."""
    num_finished: int
    """Finished solutions, which may be more than are sent."""
    scores: tuple[float, ...]
    """Of the steps of the chosen one; empty where it is not finished."""
    is_spent: bool
    """Whether the limit of tokens ended the search."""
    cost: StoredCost

    def completion(self) -> dict[str, Any]:
        """The whole answer as one object."""
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": one.text},
                "finish_reason": one.finish_reason,
                "logprobs": None,
            }
            for index, one in enumerate(self.solutions)
        ]
        head = self._head("chat.completion")
        return {**head, "choices": choices, "usage": self.usage, "search": self.search}

    def chunks(self, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        """The answer step by step.

        Args:
            include_usage: whether a last chunk says how many tokens there were.
        """
        head = self._head("chat.completion.chunk")

        def chunk(index: int, delta: dict[str, str], ended: str | None = None) -> dict[str, Any]:
            choice = {"index": index, "delta": delta, "finish_reason": ended, "logprobs": None}
            return {**head, "choices": [choice]}

        for index, one in enumerate(self.solutions):
            yield chunk(index, {"role": "assistant", "content": ""})
            for step in one.steps:
                yield chunk(index, {"content": step})
            last = chunk(index, {}, one.finish_reason)
            yield last if index + 1 < len(self.solutions) else {**last, "search": self.search}
        if include_usage:
            yield {**head, "choices": [], "usage": self.usage}

    @property
    def usage(self) -> dict[str, int]:
        """Tokens; those of completions are all that the search has sampled, pruned ones too."""
        prompt, sampled = self.cost.num_prompt, self.cost.num_sampled
        return {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
        }

    @property
    def search(self) -> dict[str, Any]:
        """What the interface has no words for."""
        return {
            "method": self.method,
            "num_finished": self.num_finished,
            "is_spent": self.is_spent,
            "tokens": {
                "sampled": self.cost.num_sampled,
                "pruned": self.cost.num_pruned,
                "scored": self.cost.num_scored,
            },
            "scores": list(self.scores),
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self.model,
        }
