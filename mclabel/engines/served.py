"""Base class of the engines backed by HTTP servers: addresses, API key, retries and counters."""

from __future__ import annotations

import logging
import operator
import re
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from mclabel.core.errors import ConfigError
from mclabel.core.records import Completion
from mclabel.core.settings import MAX_SECONDS, OPERATIONAL, SENSITIVE, Harmless, rule
from mclabel.engines.base import Engine, EngineStats
from mclabel.engines.endpoints import Endpoints, RequestSlots, describe_missing_api_key
from mclabel.engines.openai_response import ServerCompletion, post_completion_request
from mclabel.engines.settings import BoundedSettings, PolicySettings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

MAX_WORD = 40
"""Maximum number of characters of a server's finish_reason in a warning."""
MAX_GAPS = 8
"""Maximum number of warnings about fields that are missing in responses."""
_NO_SECRET = Harmless(operator.not_, "sends the content of an environment variable to a server")


class ServerSettings(BoundedSettings):
    """Settings of engines that send requests to OpenAI-compatible servers of one model."""

    endpoints: Annotated[list[str], OPERATIONAL, SENSITIVE] = Field(min_length=1)
    """Base URLs of servers of the same model, such as http://10.0.0.7:8000/v1."""
    api_key_env: Annotated[str | None, OPERATIONAL, SENSITIVE, _NO_SECRET] = None
    """Environment variable that holds the API key (command line only)."""
    per_request_seeds: Annotated[bool, OPERATIONAL] = False
    """True if each completion has its own seed. `auto` (vllm only) is true on a CPU, and false on
    GPUs, because seeds slow them down."""
    timeout_s: Annotated[float, OPERATIONAL] = Field(1800, gt=0, le=MAX_SECONDS)
    """Maximum seconds to wait for a response."""
    retry_s: Annotated[float, OPERATIONAL] = Field(600, ge=0, le=MAX_SECONDS)
    """Maximum seconds for which a failed request is retried."""

    @rule
    def _check_endpoint_urls(self) -> str | None:
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
    def _check_api_key_not_in_settings(self) -> str | None:
        name = self.api_key_env
        if name is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            return (
                "api_key_env must be the name of an environment variable in capitals, such as "
                "OPENAI_API_KEY, never a key itself"
            )
        return None


class ServedEngine(Engine):
    """Base class of engines that send requests to servers.

    A subclass defines the API, the checks at the start (`check_servers`), and `sample`, which calls
    `request_completion`.
    """

    packages: ClassVar[tuple[str, ...]] = ("openai",)
    start_s: ClassVar[float] = 20.0
    """Maximum seconds at the start to wait for servers that do not respond."""

    settings: ServerSettings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Store the policy without connecting."""
        super().__init__(policy, seed=seed)
        self._slots = RequestSlots(self.settings.max_live)
        self._endpoints: Endpoints | None = None
        self._num_live = self._num_sampled = self._num_prompt = 0
        self._num_cached: int | None = None
        self._gaps: set[str] = set()

    @property
    @abstractmethod
    def api(self) -> str:
        """Name of the API: `completions` or `chat`."""

    @abstractmethod
    async def check_servers(self, endpoints: Endpoints) -> None:
        """Check that the servers serve the model and support all needed features.

        Raises:
            EngineError: a server lacks the model or a needed feature, or no server is reachable.
        """

    @property
    def place(self) -> str:
        """Addresses of the servers, for the plan of a job."""
        return "at " + ", ".join(self.settings.endpoints)

    def check_environment(self) -> None:
        """Check that the environment variable of the API key is set, if a key is needed."""
        if (fault := describe_missing_api_key(self.settings.api_key_env)) is not None:
            raise ConfigError(
                f"{fault}. Export it on this machine, and on every node that runs an engine"
            )

    async def start(self) -> None:
        """Connect to the servers and check them."""
        settings = self.settings
        self._endpoints = Endpoints(
            settings.endpoints,
            api_key_env=settings.api_key_env,
            timeout_s=settings.timeout_s,
            rate_limit_retry_s=settings.retry_s,
        )
        try:
            await self.check_servers(self._endpoints)
        except BaseException:
            await self.close()
            raise

    async def request_completion(
        self,
        body: dict[str, Any],
        read: Callable[[dict[str, Any]], Completion],
        *,
        affinity_key: int,
        priority: int,
    ) -> Completion:
        """Send a request for one completion, and return the completion.

        Args:
            body: body of the request.
            read: function that reads the completion from the server's response.
            affinity_key: any number. Requests with the same number go to the same server while it
                works, so that its prefix cache can serve them.
            priority: priority of the request; requests with a lower number are sent first.

        Raises:
            EngineError: the servers gave no usable response.
        """
        assert self._endpoints is not None, "start() first"

        async def request(client: AsyncOpenAI) -> Completion:
            return read(await post_completion_request(client, self.api, body))

        async with self._slots.hold_slot(priority):
            self._num_live += 1
            try:
                return await self._endpoints.send_request(  # type: ignore[no-any-return]
                    request, affinity_key=affinity_key, retry_s=self.settings.retry_s
                )
            finally:
                self._num_live -= 1

    def warn_of_missing_fields(self, completion: ServerCompletion) -> None:
        """Log a warning if a response lacks fields; each warning appears once."""
        gaps = []
        if completion.num_sampled is None and completion.ids is None:
            gaps.append(
                "responses have no usage.completion_tokens, so the number of sampled tokens is "
                "unknown"
            )
        if not completion.has_known_finish_reason:
            gaps.append(
                f"responses have finish_reason={str(completion.finish_reason)[:MAX_WORD]!r}, "
                "which is not a known word. They count as complete unless they have the maximum "
                "number of tokens"
            )
        for gap in gaps:
            if gap not in self._gaps and len(self._gaps) < MAX_GAPS:
                self._gaps.add(gap)
                logger.warning("policy.engine: %s", gap)

    def add_token_counts(self, completion: ServerCompletion, num_sampled: int | None) -> None:
        """Add the tokens of a completion to the statistics.

        Args:
            completion: completion of a server.
            num_sampled: number of sampled tokens; None if it is unknown.
        """
        self._num_sampled += num_sampled or 0
        self._num_prompt += (completion.num_read or 0) - (completion.num_cached or 0)
        if completion.num_cached is not None:
            self._num_cached = (self._num_cached or 0) + completion.num_cached

    def stats(self) -> EngineStats:
        """Return the counters and the load at this moment; callable from any thread."""
        return EngineStats(
            num_live=self._num_live,
            max_live=self.settings.max_live,
            num_waiting=self._slots.num_waiting,
            num_sampled_tokens=self._num_sampled,
            num_prefill_tokens=self._num_prompt,
            num_cached_tokens=self._num_cached,
            counts_as_sampled=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._endpoints is not None:
            await self._endpoints.close()
