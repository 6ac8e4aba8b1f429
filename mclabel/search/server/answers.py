"""What the server sends: completions, chunks and errors in the forms of the OpenAI interface."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mclabel.data.shards.trees import StoredCost
from mclabel.errors import MclabelError

_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


class Refused(MclabelError):
    """A request that is not answered with a solution."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Say why.

        Args:
            status: of HTTP.
            message: for the client.
            param: the field of the request that is wrong, if it is one.
            headers: of the response.
        """
        super().__init__(message)
        self.status, self.param, self.headers = status, param, dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The error as the client reads it."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        error = {"message": str(self), "type": kind, "param": self.param, "code": None}
        return {"error": error}


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


def to_json(content: Any) -> bytes:
    """Content as it is sent. What is no valid Unicode is replaced."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
