"""What a request asks for: its body checked, and put into the settings of a search.

Requests come from anybody. So a method is named by its built-in name alone, the tokens that a
request may have sampled are bounded, and a parameter that the server would not heed is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, ValidationError

from mclabel.core.settings import MAX_TOKENS, Seed, Settings, joined_faults
from mclabel.engines import PolicySettings
from mclabel.search import SEARCHES
from mclabel.search.config import Choice, PolicySearchSettings
from mclabel.serving.bodies import Refused, parsed

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
