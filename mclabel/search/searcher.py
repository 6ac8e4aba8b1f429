"""Parses the requests of the search server, and runs their searches on one engine and one scorer.

Requests are not trusted. They can name only built-in methods, and their sampled tokens are limited.
Parameters that the server would ignore are refused.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, ValidationError

from mclabel.checkers import make_checker
from mclabel.core.records import LabeledSolution, Problem
from mclabel.core.seeds import content_id
from mclabel.core.settings import MAX_TOKENS, Seed, Settings, describe_faults
from mclabel.engines import Policy
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.trees import StoredCost
from mclabel.search import SEARCHES
from mclabel.search.config import Choice, PolicySearchSettings
from mclabel.search.problem import SearchContext, SearchResult, search_problem
from mclabel.search.scorers import make_scorer
from mclabel.search.task import grade_search_result
from mclabel.serving.requests import Refused, RequestLimits, RequestQueue, parse_body


class Searcher:
    """Runs concurrent searches on one engine and one scorer."""

    def __init__(
        self, policy: Policy, settings: PolicySearchSettings, *, name: str, limits: RequestLimits
    ) -> None:
        """Prepare to search without loading anything.

        Args:
            policy: the policy, not started yet.
            settings: settings of the server. All requests use the scorer and the checker in them.
            name: name of the model in responses.
            limits: maximum numbers of requests that are processed and that wait.
        """
        self._policy, self._name = policy, name
        self._scorer = make_scorer(settings.scorer)
        self._checker = make_checker(settings.checker)
        self._executor = CpuExecutor()
        self._order = itertools.count()
        self.requests = RequestQueue(limits)

    async def start(self) -> None:
        """Load the policy, then the scorer."""
        await self._policy.start()
        await self._scorer.start()

    def start_search(self, request: SearchRequest) -> asyncio.Task[SearchResponse]:
        """Start a search and return its task. Cancelling the task ends the search.

        Raises:
            Refused: there are too many requests, or the server is shutting down. The returned task
                raises `Refused` if the search fails.
        """
        return self.requests.begin(lambda: self._search_and_respond(request))

    async def close(self) -> None:
        """Cancel all searches, and release policy and scorer."""
        await self.requests.close()
        self._executor.close()
        await self._scorer.close()
        await self._policy.close()

    async def _search_and_respond(self, request: SearchRequest) -> SearchResponse:
        settings = request.settings
        problem = Problem(
            id=content_id("problem", request.problem), text=request.problem, answer=""
        )
        shared = SearchContext(
            policy=self._policy,
            scorer=self._scorer,
            settings=settings,
            end_texts=tuple(settings.policy.stop),
            max_tokens=settings.policy.max_tokens,
        )
        search_result = await search_problem(problem, shared, priority=next(self._order))
        prompt = self._policy.prompt_ids(request.problem)
        searched = await grade_search_result(
            problem, prompt, search_result, settings, self._checker, self._executor
        )
        tree = searched.tree
        assert tree is not None
        return SearchResponse(
            model=self._name,
            method=settings.search.kind,
            solutions=_list_distinct_solutions(searched.labeled, request.n)
            or (_choose_longest_prefix(search_result),),
            num_finished=len(searched.labeled),
            scores=next((node.scores for node in tree.nodes if node.id == tree.chosen), ()),
            is_spent=search_result.is_spent,
            cost=tree.cost,
        )


def _list_distinct_solutions(
    rows: tuple[LabeledSolution, ...], count: int
) -> tuple[SearchedSolution, ...]:
    """Return the first `count` solutions whose texts differ."""
    by_text = {row.solution.text: row.solution for row in reversed(rows)}
    first = [row.solution for row in rows if by_text[row.solution.text] is row.solution]
    return tuple(
        SearchedSolution(steps=tuple(step.text for step in solution.steps), is_finished=True)
        for solution in first[:count]
    )


def _choose_longest_prefix(search_result: SearchResult) -> SearchedSolution:
    """Return the longest prefix of a search in which token limits ended all solutions."""
    tree = search_result.tree
    longest = max(tree.nodes.values(), key=lambda entry: (entry.node.num_tokens, entry.node.id))
    steps = tree.steps(longest.node.id)
    return SearchedSolution(steps=tuple(step.text for step in steps), is_finished=False)


@dataclass(frozen=True, kw_only=True)
class SearchedSolution:
    """Solution in a response of the server."""

    steps: tuple[str, ...]
    """Texts of the steps; joined, they are the solution's text."""
    is_finished: bool
    """True if the policy ended the solution; False if a token limit ended it."""

    @property
    def text(self) -> str:
        """Text of the solution."""
        return "".join(self.steps)

    @property
    def finish_reason(self) -> str:
        """Value of `finish_reason` in the OpenAI API."""
        return "stop" if self.is_finished else "length"


@dataclass(frozen=True, kw_only=True)
class SearchResponse:
    """Response of the server to a request for a search."""

    model: str
    """Name of the model."""
    method: str
    """Name of the search method."""
    solutions: tuple[SearchedSolution, ...]
    """Finished solutions, the chosen one first; or one unfinished solution if none is finished."""
    num_finished: int
    """Number of finished solutions, which may exceed the number in `solutions`."""
    scores: tuple[float, ...]
    """Scores of the chosen solution's steps; empty if the solution is unfinished."""
    is_spent: bool
    """True if the token limit ended the search."""
    cost: StoredCost

    def to_completion_object(self) -> dict[str, Any]:
        """Return the response as a `chat.completion` object of the OpenAI API."""
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": solution.text},
                "finish_reason": solution.finish_reason,
                "logprobs": None,
            }
            for index, solution in enumerate(self.solutions)
        ]
        head = self._make_common_response_fields("chat.completion")
        return {
            **head,
            "choices": choices,
            "usage": self.usage_fields,
            "search": self.search_fields,
        }

    def iter_chunk_objects(self, *, include_usage: bool) -> Iterator[dict[str, Any]]:
        """Yield the response as `chat.completion.chunk` objects of the OpenAI API, one per step.

        Args:
            include_usage: True to add a last chunk with the numbers of tokens.
        """
        head = self._make_common_response_fields("chat.completion.chunk")

        def make_chunk(
            index: int, delta: dict[str, str], finish_reason: str | None = None
        ) -> dict[str, Any]:
            choice = {
                "index": index,
                "delta": delta,
                "finish_reason": finish_reason,
                "logprobs": None,
            }
            return {**head, "choices": [choice]}

        for index, solution in enumerate(self.solutions):
            yield make_chunk(index, {"role": "assistant", "content": ""})
            for step in solution.steps:
                yield make_chunk(index, {"content": step})
            last = make_chunk(index, {}, solution.finish_reason)
            yield (
                last if index + 1 < len(self.solutions) else {**last, "search": self.search_fields}
            )
        if include_usage:
            yield {**head, "choices": [], "usage": self.usage_fields}

    @property
    def usage_fields(self) -> dict[str, int]:
        """Numbers of tokens for the field `usage`.

        The tokens of the completion are all sampled tokens, including discarded ones.
        """
        prompt, sampled = self.cost.num_prompt, self.cost.num_sampled
        return {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
        }

    @property
    def search_fields(self) -> dict[str, Any]:
        """Figures of the search for the field `search`, which is not in the OpenAI API."""
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

    def _make_common_response_fields(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self.model,
        }


MAX_CHARACTERS = 32_768
"""Maximum characters of a message."""
MAX_PARTS = 64
"""Maximum number of parts in a message, and of messages in a request."""
MAX_CHOICES = 128
"""Maximum number of solutions that a request may ask for."""
MAX_SOLUTIONS = 256
"""If the setting `tokens` is null, a request may sample as many tokens as this number of solutions
of maximum length."""

_Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]


class _TextPart(Settings):
    type: Literal["text"]
    text: _Text


class _ChatMessage(Settings):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: _Text | Annotated[list[_TextPart], Field(max_length=MAX_PARTS)]
    name: str | None = None

    @property
    def text(self) -> str:
        parts = self.content
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)


class _StreamOptions(Settings):
    include_usage: bool = False
    include_obfuscation: bool = False


class _RequestBody(Settings):
    """Fields of a request's body that a request may set freely."""

    model: str
    messages: Annotated[list[_ChatMessage], Field(max_length=MAX_PARTS)]
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    seed: Seed | None = None
    user: str | None = None
    search: dict[str, Any] | str | None = None
    tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    choose: Choice | None = None


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """Parsed request: a problem and the settings of its search."""

    problem: str
    """Text of the problem."""
    settings: PolicySearchSettings
    """Settings of the server with the changes of the request."""
    n: int = 1
    """Maximum number of solutions in the response."""
    is_streamed: bool = False
    """True to send the response as server-sent events."""
    include_usage: bool = False
    """True to end a streamed response with the numbers of tokens."""


class RequestReader:
    """Parser of requests."""

    def __init__(self, settings: PolicySearchSettings, *, name: str) -> None:
        """Make a parser.

        Args:
            settings: settings of the server, which a request may change in part.
            name: name of the served model.
        """
        self._settings, self.name = settings, name
        self._fixed = {
            "temperature": settings.policy.temperature,
            "top_p": settings.policy.top_p,
            "top_k": settings.policy.top_k,
            "stop": settings.policy.stop,
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "logprobs": False,
            "logit_bias": {},
            "response_format": {"type": "text"},
            "tools": [],
        }
        self.max_problem_tokens = settings.tokens or min(
            MAX_TOKENS, MAX_SOLUTIONS * settings.policy.max_tokens
        )

    def read(self, body: bytes) -> SearchRequest:
        """Parse a request.

        Raises:
            Refused: the server cannot serve the request; the message lists all faults.
        """
        content = parse_body(body)
        faults = list(self._describe_ignored_parameters(content))
        own = {key: value for key, value in content.items() if key not in self._fixed}
        try:
            request = _RequestBody.model_validate(own)
        except ValidationError as error:
            _refuse_request("; ".join([*faults, describe_faults(_RequestBody, error, "request")]))
        if faults:
            _refuse_request("; ".join(faults))
        if request.model != self.name:
            raise Refused(
                404,
                f"model={request.model[:80]!r}: this model is not served. Use model={self.name!r}",
                param="model",
            )
        options = request.stream_options
        return SearchRequest(
            problem=self._read_problem(request.messages),
            settings=self._build_requested_settings(request),
            n=request.n or 1,
            is_streamed=bool(request.stream),
            include_usage=options is not None and options.include_usage,
        )

    def _describe_ignored_parameters(self, content: Mapping[str, Any]) -> list[str]:
        """Return a message for each parameter whose value differs from the server's fixed value."""
        faults = []
        for key, used in self._fixed.items():
            requested = content.get(key)
            if key == "stop" and isinstance(requested, str):
                requested = [requested]
            is_same = requested == used and isinstance(requested, bool) == isinstance(used, bool)
            if requested is not None and not is_same:
                faults.append(
                    f"{key}={json.dumps(requested)[:80]}: the server uses {json.dumps(used)} for "
                    f"every request. Leave out {key}"
                )
        return faults

    def _read_problem(self, messages: list[_ChatMessage]) -> str:
        """Return the problem, which must be the only user message."""
        system = [message.text for message in messages if message.role in ("system", "developer")]
        others = [message for message in messages if message.role not in ("system", "developer")]
        if len(others) != 1 or others[0].role != "user":
            _refuse_request(
                "messages: must contain exactly one user message, which is the problem. The "
                "server's prompt has no place for earlier turns",
                "messages",
            )
        if system and (len(system) > 1 or system[0] != (self._settings.policy.system or "")):
            used = self._settings.policy.system
            shown = "no system message" if used is None else f"the system message {used[:200]!r}"
            _refuse_request(
                f"messages: the server uses {shown} for every request. Leave out the system "
                "message",
                "messages",
            )
        if not (text := others[0].text).strip():
            _refuse_request("messages: the user message is empty", "messages")
        return text

    def _build_requested_settings(self, request: _RequestBody) -> PolicySearchSettings:
        """Return the settings of the server with the changes of the request."""
        settings = self._settings
        lengths = (request.max_tokens, request.max_completion_tokens, settings.policy.max_tokens)
        length = min(limit for limit in lengths if limit is not None)
        if (request.tokens or 0) > self.max_problem_tokens:
            _refuse_request(
                f"tokens={request.tokens}: must be at most {self.max_problem_tokens}, which is the "
                "server's limit for a problem",
                "tokens",
            )
        changes: dict[str, Any] = {
            "policy": settings.policy.model_copy(update={"max_tokens": length}),
            "tokens": request.tokens or self.max_problem_tokens,
        }
        if request.search is not None:
            changes["search"] = self._build_method_settings(request.search)
        for key in ("seed", "choose"):
            if (given := getattr(request, key)) is not None:
                changes[key] = given
        try:
            return settings.with_changes(**changes)
        except ValidationError as error:
            _refuse_request(describe_faults(type(settings), error, "request"))

    def _build_method_settings(self, given: dict[str, Any] | str) -> dict[str, Any]:
        """Return the settings of the requested method.

        If the server uses the same method, its settings are the defaults.

        Args:
            given: name or settings of the method in the request.
        """
        own = self._settings.search
        content = {"kind": given} if isinstance(given, str) else given
        if "kind" not in content:
            return {**dict(own), **content}
        kind = content["kind"]
        if not isinstance(kind, str) or kind not in SEARCHES:
            _refuse_request(
                f"search.kind={json.dumps(kind)[:80]}: must be one of {', '.join(SEARCHES)}. "
                "Requests can name only built-in methods",
                "search",
            )
        return {**(dict(own) if kind == own.kind else {}), **content}


def _refuse_request(message: str, param: str | None = None) -> NoReturn:
    raise Refused(400, message, param=param)
