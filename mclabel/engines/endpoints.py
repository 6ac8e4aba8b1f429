"""Sends requests to several endpoints of one model, with retries, limits and clear refusals.

A server that answers 429 or 5xx, or not at all, is set aside for the time in `Retry-After`, or for
one that doubles; others take its requests. Requests of one problem go to one endpoint while it
lives, so that its prefix cache serves them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import logging
import math
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mclabel.core.errors import BadAnswer, EngineError, RequestFailed

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
LONGEST_RETRY_AFTER_S = 300.0
_NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""OpenAI's names of errors of an account that has spent its money: the first comes with status 429,
as a limit of the rate does."""
_NOT_PROCESSED = frozenset(
    {"batch_expired", "batch_cancelled", "rate_limit_exceeded", "rate_limit_error"}
)
"""Codes of errors that say that a request was not processed: it can be sent again."""
MAX_SHOWN = 300  # characters of a server's words in a message

BAD_TRIES = 3
"""Number of attempts at a request whose answers are unusable."""
MAX_BAD = 16
"""Requests without any good answer between them after which a server is taken to give none."""

Request = Callable[["AsyncOpenAI"], Awaitable[Any]]


class BusyError(Exception):
    """A server gave an answer that another try may better."""


class ErrorAnswer(Exception):
    """An error in place of an answer that has the status of a success, as OpenRouter sends it."""

    def __init__(self, error: Any) -> None:
        """Take the status from the code of the error, where it names one.

        Args:
            error: the object or text that the server sent.
        """
        self.status_code, self.body = error_status(error, 200), error
        super().__init__(error_words(error))


def error_words(error: Any) -> str:
    """Return the message in an error of a server, else the whole error as JSON."""
    if isinstance(error, dict) and "error" in error:
        error = error["error"]
    message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str) or not message:
        return json.dumps(error)
    code = error.get("code") if isinstance(error, dict) else None
    return message if code is None else f"{message} ({code})"


def error_status(error: Any, status: int) -> int:
    """Return the HTTP status that the code of an error stands for, or else the given status.

    Args:
        error: the object of the error.
        status: HTTP status of the response.
    """
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code.lower() in _NOT_PROCESSED:
        return 429
    if isinstance(code, str) and code.isascii() and code.isdecimal():
        code = int(code)
    return code if type(code) is int and 400 <= code < 600 else status


def pause_s(num_failures: int) -> float:
    """Return how many seconds to set an endpoint aside after its failures in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(num_failures - 1, 20))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the pause that a server asks for, in seconds; None without one, or for a date."""
    try:
        asked = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return None if math.isnan(asked) else min(max(asked, 0.0), LONGEST_RETRY_AFTER_S)


def is_passing(status: int, error: Any) -> bool:
    """Return whether a server with this response may accept the same request later.

    Args:
        status: HTTP status of the response, at least 400.
        error: the object `error` in the answer, if it has one.
    """
    return (status in (408, 425, 429) or status >= 500) and not _lacks_credit(status, error)


def _lacks_credit(status: int, error: Any) -> bool:
    codes = (error.get("code"), error.get("type")) if isinstance(error, dict) else ()
    return status == 402 or bool(_NO_CREDIT & {code for code in codes if isinstance(code, str)})


def missing_key(api_key_env: str | None) -> str | None:
    """Return the fault of a setting that names an environment variable which is not set."""
    if api_key_env is None or os.environ.get(api_key_env):
        return None
    return f"policy.engine.api_key_env={api_key_env}: the variable is not set"


class _Endpoint:
    def __init__(self, url: str, client: AsyncOpenAI) -> None:
        self.url, self.client = url, client
        self.num_failures = 0
        self.closed_until = 0.0  # time.monotonic()
        self.answered_at = 0.0
        self.failure: Exception | None = None  # the last one

    def set_aside(self, requested_pause_s: float | None, failure: Exception) -> None:
        now = time.monotonic()
        self.failure = failure
        if now < self.closed_until:
            return  # by another request, for the same reason
        self.num_failures += 1
        logger.info("%s is set aside (failure %d in a row)", self.url, self.num_failures)
        self.closed_until = now + (
            pause_s(self.num_failures) if requested_pause_s is None else requested_pause_s
        )


class Endpoints:
    """Servers of one model."""

    def __init__(
        self, urls: Sequence[str], *, api_key_env: str | None, timeout_s: float, limited_s: float
    ) -> None:
        """Make a client of each server.

        Args:
            urls: base URLs.
            api_key_env: name of the environment variable that holds the key, if one is needed.
            timeout_s: maximum seconds of one request.
            limited_s: seconds for which a server that limits the rate is asked again.

        Raises:
            EngineError: the environment holds no key.
        """
        from openai import AsyncOpenAI

        if (fault := missing_key(api_key_env)) is not None:
            raise EngineError(
                f"{fault} where the engine runs. Export it there, on every node that runs an engine"
            )
        key = None if api_key_env is None else os.environ[api_key_env]
        self._key, self._key_env = key, api_key_env
        self._limited_s = limited_s
        self._num_bad = 0
        """Requests since the last good answer that got none that can be used."""
        self._endpoints = [
            _Endpoint(
                url,
                # Without a key of its own the client would take one from the environment.
                AsyncOpenAI(base_url=url, api_key=key or "none", timeout=timeout_s, max_retries=0),
            )
            for url in urls
        ]

    async def ask(
        self, request: Request, *, home: int, retry_s: float, max_tries: int = BAD_TRIES
    ) -> Any:
        """Send a request and return the response; try again while servers are busy or away.

        Args:
            request: sends it.
            home: requests with one number go to one endpoint, while it lives.
            retry_s: seconds for which the request is tried again.
            max_tries: maximum attempts if the responses cannot be used.

        Raises:
            BadAnswer: servers answered several times, and never with what can be used.
            EngineError: no server answered in that time, one refused for good, or no answer of
                many can be used.
        """
        for num_left in reversed(range(max_tries)):
            try:
                answer = await self._ask(self._endpoints, request, home, retry_s)
            except BadAnswer as error:
                if not num_left:
                    raise self._bad(error) from error
                home += 1  # another server, if there is one
                await asyncio.sleep(pause_s(1))
            else:
                self._num_bad = 0
                return answer
        raise AssertionError("unreachable")

    def _bad(self, error: BadAnswer) -> EngineError:
        """Decide what to do about a request without a usable response."""
        self._num_bad += 1
        words = self.shown(str(error))
        if self._num_bad < MAX_BAD:
            return BadAnswer(words)
        return EngineError(f"{words}. The last {self._num_bad} requests failed the same way")

    async def _ask(
        self, endpoints: Sequence[_Endpoint], request: Request, home: int, retry_s: float
    ) -> Any:
        from openai import APIConnectionError, APIStatusError

        failing_since: float | None = None
        while True:
            endpoint = _open_one(endpoints, home)
            if endpoint is None:
                closed = min(endpoints, key=lambda endpoint: endpoint.closed_until)
                now = time.monotonic()
                failing_since = failing_since or now
                left_s = retry_s - (now - max(failing_since, closed.answered_at))
                if left_s <= 0 and closed.failure is not None:
                    raise self._gave_up(closed, closed.failure, retry_s) from closed.failure
                # Not all at once: a server that comes back would be thrown over again.
                pause = closed.closed_until - now + random.uniform(0, pause_s(closed.num_failures))
                await asyncio.sleep(max(0.0, min(pause, left_s)))
                continue
            try:
                answer = await request(endpoint.client)
            except (APIConnectionError, APIStatusError, BusyError, ErrorAnswer) as error:
                asked = None
                if isinstance(error, APIStatusError):
                    asked = retry_after_s(error.response.headers)
                if isinstance(error, APIStatusError | ErrorAnswer):
                    status, body = error.status_code, error.body
                    if not is_passing(status, body):
                        words = error.response.text if isinstance(error, APIStatusError) else None
                        words = words or str(error)
                        raise self.refusal(endpoint.url, status, body, words) from error
                endpoint.set_aside(asked, error)
                failing_since = failing_since or time.monotonic()
                # One that limits the rate, and answers others, will answer this request, too.
                limits = getattr(error, "status_code", None) == 429
                retry_s = max(retry_s, self._limited_s) if limits else retry_s
                since = max(failing_since, endpoint.answered_at if limits else 0.0)
                if time.monotonic() - since >= retry_s:
                    raise self._gave_up(endpoint, error, retry_s) from error
            else:
                endpoint.num_failures, endpoint.answered_at = 0, time.monotonic()
                return answer

    async def ask_each(self, request: Request, *, retry_s: float) -> dict[str, Any]:
        """Ask all endpoints; return the responses by URL, without unreachable ones.

        Raises:
            EngineError: none can, or one refused for good.
        """
        asked = [self._ask([endpoint], request, 0, retry_s) for endpoint in self._endpoints]
        results = await asyncio.gather(*asked, return_exceptions=True)
        answers: dict[str, Any] = {}
        for endpoint, result in zip(self._endpoints, results, strict=True):
            if not isinstance(result, BaseException):
                answers[endpoint.url] = result
            elif not isinstance(result, _UnreachableError):
                raise result
        if not answers:
            raise next(result for result in results if isinstance(result, _UnreachableError))
        for url in {endpoint.url for endpoint in self._endpoints} - set(answers):
            logger.warning("policy.engine: %s does not answer; it is tried again later", url)
        return answers

    async def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints:
            await endpoint.client.close()

    def shown(self, words: str) -> str:
        """Return a server's message for the user: without keys, and not long."""
        if self._key:
            words = words.replace(self._key, "***")
        words = "".join(c if c.isprintable() else " " for c in words)
        return words if len(words) <= MAX_SHOWN else words[:MAX_SHOWN] + "…"

    def refusal(self, url: str, status: int, error: Any, words: str) -> EngineError:
        """Return the error of a request that would be refused again, or of all requests.

        Args:
            url: URL of the server.
            status: HTTP status of the response.
            error: the error in the response; see `is_passing`.
            words: the whole answer.
        """
        kind: type[EngineError] = RefusedError
        match status:
            case _ if _lacks_credit(status, error):
                kind = EngineError
                why = (
                    f"says that the account has no credit left: {self.shown(words)}. Add some or "
                    "raise its limit, and run the command again"
                )
            case 401 | 403 if self._key_env is None:
                why = "wants a key. Set policy.engine.api_key_env to the variable that holds it"
            case 401:
                kind = EngineError
                why = f"refuses the key in {self._key_env}. Put a valid one into that variable"
            case 403:
                why = (
                    f"refuses the key in {self._key_env}, or what is asked with it. Put a valid "
                    f"one into that variable. Its answer: {self.shown(words)}"
                )
            case 404:
                why = (
                    "has no such address or model. Check policy.engine.endpoints (most end in /v1)"
                    f" and policy.engine.model. Its answer: {self.shown(words)}"
                )
            case _ if status < 400:
                return RefusedError(f"policy.engine: {url} answers an error: {self.shown(words)}")
            case _:
                why = f"refuses the request: {self.shown(words)}"
        return kind(f"policy.engine: {url} {why} (HTTP {status})")

    def _gave_up(self, endpoint: _Endpoint, error: Exception, retry_s: float) -> EngineError:
        cause = error.__cause__ or error
        reason = self.shown(str(cause) or type(cause).__name__)
        return _UnreachableError(
            f"policy.engine: {endpoint.url} gave no answer within {retry_s:g} s: {reason}. "
            "Check the address, that the server runs, and that the engine's node reaches it"
        )


class RefusedError(RequestFailed):
    """A server refused a request, and would again."""


class _UnreachableError(RequestFailed):
    pass


def _open_one(endpoints: Sequence[_Endpoint], home: int) -> _Endpoint | None:
    """Return the first endpoint from home on that is not set aside; None if all are."""
    count, now = len(endpoints), time.monotonic()
    ordered = (endpoints[(home + i) % count] for i in range(count))
    return next((endpoint for endpoint in ordered if endpoint.closed_until <= now), None)


class Slots:
    """So many requests at a time, the most urgent first."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @property
    def num_waiting(self) -> int:
        """The number of requests that wait for a slot."""
        return len(self._waiting)

    @asynccontextmanager
    async def taken(self, priority: int) -> AsyncIterator[None]:
        """Hold a slot; a lower priority waits less."""
        if self._free:
            self._free -= 1
        else:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (priority, next(self._order), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._hand_on()  # it had been given a slot already
                raise
        try:
            yield
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
