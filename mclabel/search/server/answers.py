"""What the server sends: completions and chunks in the forms of the OpenAI interface."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mclabel.run.shards.trees import StoredCost


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
