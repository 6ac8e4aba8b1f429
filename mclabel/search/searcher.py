"""Searches for those who ask, many at a time, on one engine and one scorer.

Requests come from anybody. So a method is named by its built-in name alone, the tokens that a
request may have sampled are bounded, and a parameter that the server would not heed is refused.
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
from mclabel.core.settings import MAX_TOKENS, Seed, Settings, joined_faults
from mclabel.engines import Policy, PolicySettings
from mclabel.run.desk import Desk
from mclabel.run.shards.trees import StoredCost, StoredTree
from mclabel.search import SEARCHES
from mclabel.search.config import Choice, PolicySearchSettings
from mclabel.search.problem import Found, Searching, search_problem
from mclabel.search.scorers import make_scorer
from mclabel.search.task import graded_search
from mclabel.serving.requests import Asked, Limits, Refused, parsed


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
    """True if the policy has ended it; else its length did."""

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
    """True if the limit of tokens ended the search."""
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


MAX_CHARACTERS = 32_768
"""Of a message."""
MAX_PARTS = 64
"""Of a message, and messages of a request."""
MAX_CHOICES = 128
"""Solutions that a request may ask for."""
MAX_SOLUTIONS = 256
"""As many whole solutions' tokens may be sampled for a request where `tokens` sets no limit."""

_Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]


class _Part(Settings):
    type: Literal["text"]
    text: _Text


class _Message(Settings):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: _Text | Annotated[list[_Part], Field(max_length=MAX_PARTS)]
    name: str | None = None

    @property
    def text(self) -> str:
        parts = self.content
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)


class _StreamOptions(Settings):
    include_usage: bool = False
    include_obfuscation: bool = False


class _Request(Settings):
    """A body, without the parameters that a request cannot change."""

    model: str
    messages: Annotated[list[_Message], Field(max_length=MAX_PARTS)]
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
class Ask:
    """A problem, and how it is to be searched."""

    problem: str
    settings: PolicySearchSettings
    """Those of the server, with what the request changes."""
    n: int = 1
    """Solutions that are sent, at most."""
    is_streamed: bool = False
    include_usage: bool = False


class Reader:
    """Reads requests."""

    def __init__(self, settings: PolicySearchSettings, *, name: str) -> None:
        """Know what the server serves.

        Args:
            settings: of a request that changes nothing.
            name: of the model that requests name.
        """
        self._settings, self.name = settings, name
        self._fixed = _fixed(settings.policy)
        whole = min(MAX_TOKENS, MAX_SOLUTIONS * settings.policy.max_tokens)
        self.most_tokens = settings.tokens or whole

    def read(self, body: bytes) -> Ask:
        """What a request asks for.

        Raises:
            Refused: it is no request that the server can serve; names all that is wrong.
        """
        content = parsed(body)
        faults = list(self._unheeded(content))
        own = {key: value for key, value in content.items() if key not in self._fixed}
        try:
            request = _Request.model_validate(own)
        except ValidationError as error:
            _refuse("; ".join([*faults, joined_faults(_Request, error, "request")]))
        if faults:
            _refuse("; ".join(faults))
        if request.model != self.name:
            message = f"model={request.model[:80]!r}: is not served. Ask for {self.name!r}"
            raise Refused(404, message, param="model")
        options = request.stream_options
        return Ask(
            problem=self._problem(request.messages),
            settings=self._searched(request),
            n=request.n or 1,
            is_streamed=bool(request.stream),
            include_usage=options is not None and options.include_usage,
        )

    def _unheeded(self, content: Mapping[str, Any]) -> list[str]:
        """Parameters of sampling that are not those of the server's policy."""
        faults = []
        for key, used in self._fixed.items():
            given = content.get(key)
            if key == "stop" and isinstance(given, str):
                given = [given]
            is_same = given == used and isinstance(given, bool) == isinstance(used, bool)
            if given is not None and not is_same:
                faults.append(
                    f"{key}={json.dumps(given)[:80]}: the server uses {json.dumps(used)} for every "
                    "request. Leave it out"
                )
        return faults

    def _problem(self, messages: list[_Message]) -> str:
        """The one text that the prompt of the policy holds."""
        system = [one.text for one in messages if one.role in ("system", "developer")]
        others = [one for one in messages if one.role not in ("system", "developer")]
        if len(others) != 1 or others[0].role != "user":
            _refuse(
                "messages: must be one user message, which is the problem: the server's prompt has "
                "no place for earlier turns",
                "messages",
            )
        if system and (len(system) > 1 or system[0] != (self._settings.policy.system or "")):
            used = self._settings.policy.system
            shown = "sends none" if used is None else f"sends {used[:200]!r}"
            _refuse(
                f"messages: the system message is the server's own, which {shown}. Leave it out",
                "messages",
            )
        if not (text := others[0].text).strip():
            _refuse("messages: the user message is empty", "messages")
        return text

    def _searched(self, request: _Request) -> PolicySearchSettings:
        """The settings of the server with what the request changes."""
        settings = self._settings
        lengths = (request.max_tokens, request.max_completion_tokens, settings.policy.max_tokens)
        length = min(one for one in lengths if one is not None)
        if (request.tokens or 0) > self.most_tokens:
            _refuse(
                f"tokens={request.tokens}: must be at most {self.most_tokens}, which is the "
                "server's limit for a problem",
                "tokens",
            )
        changes: dict[str, Any] = {
            "policy": settings.policy.model_copy(update={"max_tokens": length}),
            "tokens": request.tokens or self.most_tokens,
        }
        if settings.step_tokens is not None:
            changes["step_tokens"] = min(settings.step_tokens, length)
        if request.search is not None:
            changes["search"] = self._method(request.search)
        for key in ("seed", "choose"):
            if (given := getattr(request, key)) is not None:
                changes[key] = given
        try:
            return settings.changed(**changes)
        except ValidationError as error:
            _refuse(joined_faults(type(settings), error, "request"))

    def _method(self, given: dict[str, Any] | str) -> dict[str, Any]:
        """The keys of a method; those of the server's own where its name is the same."""
        own = self._settings.search
        content = {"kind": given} if isinstance(given, str) else given
        if "kind" not in content:
            return {**dict(own), **content}
        kind = content["kind"]
        if not isinstance(kind, str) or kind not in SEARCHES:
            _refuse(
                f"search.kind={json.dumps(kind)[:80]}: must be one of {', '.join(SEARCHES)}. A "
                "request cannot name other code",
                "search",
            )
        return {**(dict(own) if kind == own.kind else {}), **content}


def _fixed(policy: PolicySettings) -> dict[str, Any]:
    """Parameters that are the same for every request, with their values."""
    return {
        "temperature": policy.temperature,
        "top_p": policy.top_p,
        "top_k": policy.top_k,
        "stop": policy.stop,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "logprobs": False,
        "logit_bias": {},
        "response_format": {"type": "text"},
        "tools": [],
    }


def _refuse(message: str, param: str | None = None) -> NoReturn:
    raise Refused(400, message, param=param)
