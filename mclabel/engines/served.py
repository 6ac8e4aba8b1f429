"""Base of the engines that use servers: addresses, a key, retries, batches, counts."""

from __future__ import annotations

import logging
import operator
import re
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from mclabel.core.errors import ConfigError
from mclabel.core.records import Completion
from mclabel.core.settings import MAX_SECONDS, OPERATIONAL, SENSITIVE, Harmless, rule
from mclabel.engines.base import Engine, EngineStats
from mclabel.engines.endpoints import BAD_TRIES, BusyError, Endpoints, Slots, missing_key
from mclabel.engines.loading import current_keep
from mclabel.engines.openai_answer import ServerAnswer, post
from mclabel.engines.openai_batch import BatchApiSettings, Batches
from mclabel.engines.settings import PolicySettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

MAX_WORD = 40
"""Maximum number of characters of a finish_reason in a message."""
MAX_GAPS = 8
"""Maximum number of notices about what answers lack."""
_NO_SECRET = Harmless(operator.not_, "sends the content of an environment variable to a server")


class ServerSettings(BatchApiSettings):
    """Settings of engines that ask OpenAI-compatible servers of one model."""

    endpoints: Annotated[list[str], OPERATIONAL, SENSITIVE] = Field(min_length=1)
    """Base URLs of servers of the same model, such as http://10.0.0.7:8000/v1."""
    api_key_env: Annotated[str | None, OPERATIONAL, SENSITIVE, _NO_SECRET] = None
    """Environment variable that holds the API key (command line only)."""
    per_request_seeds: Annotated[bool, OPERATIONAL] = False
    """True if each completion has its own seed. `auto`: on a CPU only, because seeds slow a GPU
    down."""
    timeout_s: Annotated[float, OPERATIONAL] = Field(1800, gt=0, le=MAX_SECONDS)
    """Seconds to wait for an answer."""
    retry_s: Annotated[float, OPERATIONAL] = Field(600, ge=0, le=MAX_SECONDS)
    """Seconds during which a failed request is retried."""

    @rule
    def _endpoints_are_urls(self) -> str | None:
        for endpoint in self.endpoints:
            parts = urlsplit(endpoint)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                return "endpoints must be URLs such as http://HOST:8000/v1"
            if parts.username or parts.password or parts.query or parts.fragment:
                return (
                    "endpoints must not contain a user, password or query. Name the "
                    "environment variable of the key with api_key_env"
                )
        return None

    @rule
    def _one_server_has_the_batches(self) -> str | None:
        if self.batch and len(self.endpoints) > 1:
            return (
                f"batch=true: needs one endpoint, but endpoints has {len(self.endpoints)}. A "
                "batch belongs to the server that made it: give that one alone"
            )
        return None

    @rule
    def _no_key_is_written(self) -> str | None:
        name = self.api_key_env
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            return (
                "api_key_env must be the name of an environment variable in capitals, such as "
                "OPENAI_API_KEY, never a key itself"
            )
        return None


class ServedEngine(Engine):
    """Base of engines that ask servers. One says how it asks, and what it reads in an answer."""

    packages: ClassVar[tuple[str, ...]] = ("openai",)
    start_s: ClassVar[float] = 20.0
    """Seconds to wait at the start for servers that do not answer."""

    settings: ServerSettings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Keep what the engine is to run; see `Engine`."""
        super().__init__(policy, seed=seed)
        self._slots = Slots(self.settings.max_live)
        self._endpoints: Endpoints | None = None
        self._batches: Batches | None = None
        self._num_live = self._num_sampled = self._num_prompt = 0
        self._num_cached: int | None = None
        self._gaps: set[str] = set()

    @property
    @abstractmethod
    def api(self) -> str:
        """API to ask: `completions` or `chat`."""

    @abstractmethod
    async def look(self, endpoints: Endpoints) -> None:
        """See that the servers can do what is needed.

        Raises:
            EngineError: they cannot.
        """

    @property
    def place(self) -> str:
        """The servers' addresses."""
        return "at " + ", ".join(self.settings.endpoints)

    def check_environment(self) -> None:
        """See that the environment holds the key, if one is needed."""
        if (fault := missing_key(self.settings.api_key_env)) is not None:
            raise ConfigError(f"{fault}. Export it here, and on every node that runs an engine")

    async def start(self) -> None:
        """Connect, see what the servers can do, and read what was asked in batches."""
        settings = self.settings
        self._endpoints = Endpoints(
            settings.endpoints,
            api_key_env=settings.api_key_env,
            timeout_s=settings.timeout_s,
            limited_s=settings.retry_s,
        )
        try:
            await self.look(self._endpoints)
            if settings.batch:
                self._batches = Batches(self._endpoints, current_keep(), settings, api=self.api)
                await self._batches.start()
        except BaseException:
            await self.close()
            raise

    async def ask(
        self,
        body: dict[str, Any],
        read: Callable[[dict[str, Any]], Completion],
        *,
        home: int,
        priority: int,
        seed: int,
    ) -> Completion:
        """Send a request, directly or in a batch, and return the response.

        Args:
            body: body of the request.
            read: the completion in an answer.
            home: requests with one number go to one endpoint, while it lives.
            priority: lower is asked first.
            seed: makes a request differ in a batch from others with the same body.

        Raises:
            EngineError: there is no answer that can be used.
        """
        assert self._endpoints is not None, "start() first"
        batches = self._batches

        async def request(client: AsyncOpenAI) -> Completion:
            if batches is None:
                return read(await post(client, self.api, body))
            while True:
                try:
                    return read(await batches.answer(body, seed))
                except BusyError as error:
                    batches.forget(body, seed, str(error))

        # An answer in a batch is paid, and stays as it is.
        max_tries = BAD_TRIES if batches is None else 1
        async with nullcontext() if batches is not None else self._slots.taken(priority):
            self._num_live += 1
            try:
                return await self._endpoints.ask(  # type: ignore[no-any-return]
                    request, home=home, retry_s=self.settings.retry_s, max_tries=max_tries
                )
            finally:
                self._num_live -= 1

    def note_gaps(self, answer: ServerAnswer) -> None:
        """Say once what an answer leaves open, and how it is read."""
        gaps = []
        if answer.num_sampled is None and answer.ids is None:
            gaps.append("answers have no usage.completion_tokens: their tokens are unknown")
        if not answer.has_known_end:
            gaps.append(
                f"answers have finish_reason={str(answer.finish_reason)[:MAX_WORD]!r}, which is no "
                "known word: they count as whole unless they have all tokens that were allowed"
            )
        for gap in gaps:
            if gap not in self._gaps and len(self._gaps) < MAX_GAPS:
                self._gaps.add(gap)
                logger.warning("policy.engine: %s", gap)

    def count(self, answer: ServerAnswer, num_sampled: int | None) -> None:
        """Count the tokens of an answer, as far as they are known."""
        self._num_sampled += num_sampled or 0
        self._num_prompt += (answer.num_read or 0) - (answer.num_cached or 0)
        if answer.num_cached is not None:
            self._num_cached = (self._num_cached or 0) + answer.num_cached

    def stats(self) -> EngineStats:
        """Return a snapshot of the requests."""
        settings = self.settings
        return EngineStats(
            num_live=self._num_live,
            max_live=settings.batch_requests if settings.batch else settings.max_live,
            num_waiting=self._slots.num_waiting,
            num_sampled_tokens=self._num_sampled,
            num_prefill_tokens=self._num_prompt,
            num_cached_tokens=self._num_cached,
            num_signs=0 if self._batches is None else self._batches.num_signs,
            counts_as_sampled=False,
        )

    async def close(self) -> None:
        """Close the connections. Batches go on at the server."""
        if self._batches is not None:
            await self._batches.close()
            self._batches = None
        if self._endpoints is not None:
            await self._endpoints.close()
