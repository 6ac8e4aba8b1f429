"""Sends requests to one or more servers of the same model, and retries failed requests.

An *endpoint* is one server. An endpoint that returns 408, 425, 429 or 5xx, or not at all, gets no
requests for a while: for the seconds in its `Retry-After` header, or else for a pause that doubles
with each failure. Meanwhile the other endpoints serve its requests. All requests of one problem go
to the same endpoint while it works, so that its prefix cache can serve them.
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

from mclabel.core.errors import EngineError, RequestFailed, UnusableResponse

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Seconds for which an endpoint gets no requests: after its first failure, and after many."""
LONGEST_RETRY_AFTER_S = 300.0
"""Maximum pause in seconds that a server can request by `Retry-After`."""
_NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""OpenAI's error codes for an account without credit. The first one comes with HTTP status 429,
like the errors of rate limits."""
_NOT_PROCESSED = frozenset({"rate_limit_exceeded", "rate_limit_error"})
"""Error codes of requests that the server did not process, so they can be sent again."""
MAX_SHOWN = 300
"""Maximum number of characters of a server's response that an error message quotes."""

BAD_TRIES = 3
"""Maximum number of attempts at a request if each response is unusable."""
MAX_BAD = 16
"""Number of consecutive requests without a usable response after which the engine gives up."""

Request = Callable[["AsyncOpenAI"], Awaitable[Any]]
"""Function that sends one request with a client and returns the server's response."""


class BusyError(Exception):
    """A server gave no complete response because it was busy, so the request is sent again."""


class ErrorResponse(Exception):
    """An error that a server sent with the HTTP status of a success, as OpenRouter does."""

    def __init__(self, error: Any) -> None:
        """Take the status from the error's code if that is a number, else use 200.

        Args:
            error: the object or text of the error in the response.
        """
        self.status_code, self.body = _read_status(error), error
        super().__init__(read_error_message(error))


def read_error_message(error: Any) -> str:
    """Return the message of a server's error, or the whole error as JSON if it has no message."""
    if isinstance(error, dict) and "error" in error:
        error = error["error"]
    message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str) or not message:
        return json.dumps(error)
    code = error.get("code") if isinstance(error, dict) else None
    return message if code is None else f"{message} ({code})"


def _read_status(error: Any) -> int:
    """Return the HTTP status in the code of an error, or else 200.

    Codes that say that the request was not processed, such as `rate_limit_error`, count as 429.
    """
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code.lower() in _NOT_PROCESSED:
        return 429
    if isinstance(code, str) and code.isascii() and code.isdecimal():
        code = int(code)
    return code if type(code) is int and 400 <= code < 600 else 200


def compute_backoff_s(num_failures: int) -> float:
    """Return how many seconds to pause an endpoint after `num_failures` consecutive failures."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(num_failures - 1, 20))


def parse_retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in the header `Retry-After`; None without the header or for a date."""
    try:
        asked = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return None if math.isnan(asked) else min(max(asked, 0.0), LONGEST_RETRY_AFTER_S)


def is_temporary(status: int, error: Any) -> bool:
    """Return whether an error is temporary: the server may accept the same request later.

    Args:
        status: HTTP status of the response, at least 400.
        error: the object `error` in the response; None if the response has no such object.
    """
    return (status in (408, 425, 429) or status >= 500) and not _is_out_of_credit(status, error)


def _is_out_of_credit(status: int, error: Any) -> bool:
    codes = (error.get("code"), error.get("type")) if isinstance(error, dict) else ()
    return status == 402 or bool(_NO_CREDIT & {code for code in codes if isinstance(code, str)})


def describe_missing_api_key(api_key_env: str | None) -> str | None:
    """Return an error message if the environment variable of the API key is not set, else None.

    Args:
        api_key_env: name of the environment variable; None if the server needs no key.
    """
    if api_key_env is None or os.environ.get(api_key_env):
        return None
    return f"policy.engine.api_key_env={api_key_env}: the variable is not set"


class _Endpoint:
    def __init__(self, url: str, client: AsyncOpenAI) -> None:
        self.url, self.client = url, client
        self.num_failures = 0
        self.closed_until = 0.0  # time.monotonic()
        self.responded_at = 0.0
        self.failure: Exception | None = None  # the most recent failure

    def pause(self, requested_pause_s: float | None, failure: Exception) -> None:
        now = time.monotonic()
        self.failure = failure
        if now < self.closed_until:
            return  # another request has paused the endpoint already, for the same reason
        self.num_failures += 1
        logger.info("%s is paused after failure %d in a row", self.url, self.num_failures)
        self.closed_until = now + (
            compute_backoff_s(self.num_failures) if requested_pause_s is None else requested_pause_s
        )


class Endpoints:
    """Clients of all servers of one model. An endpoint is one server."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        api_key_env: str | None,
        timeout_s: float,
        rate_limit_retry_s: float,
    ) -> None:
        """Make a client of each server.

        Args:
            urls: base URLs of the servers.
            api_key_env: name of the environment variable that holds the API key; None sends no
                key.
            timeout_s: maximum seconds per request.
            rate_limit_retry_s: minimum seconds for which a request is retried if a server limits
                the rate of requests, even if `retry_s` is less.

        Raises:
            EngineError: the environment variable of the key is not set.
        """
        from openai import AsyncOpenAI

        if (fault := describe_missing_api_key(api_key_env)) is not None:
            raise EngineError(
                f"{fault} where the engine runs. Export it on every node that runs an engine"
            )
        key = None if api_key_env is None else os.environ[api_key_env]
        self._key, self._key_env = key, api_key_env
        self._rate_limit_retry_s = rate_limit_retry_s
        self._num_bad = 0
        """Number of failed requests since the last usable response."""
        self._endpoints = [
            _Endpoint(
                url,
                # If api_key is not given, the client takes a key from the environment.
                AsyncOpenAI(base_url=url, api_key=key or "none", timeout=timeout_s, max_retries=0),
            )
            for url in urls
        ]

    async def send_request(self, request: Request, *, affinity_key: int, retry_s: float) -> Any:
        """Send a request and return the response; retry while servers are busy or unreachable.

        Args:
            request: function that sends the request.
            affinity_key: any number. Requests with the same number go to the same endpoint while it
                works, so that its prefix cache can serve them.
            retry_s: maximum seconds for which the request is retried.

        Raises:
            UnusableResponse: all attempts at this request had unusable responses.
            EngineError: no server responded within `retry_s`, a server refused the request, or
                `MAX_BAD` requests in a row had no usable response.
        """
        for num_left in reversed(range(BAD_TRIES)):
            try:
                response = await self._retry_until_response(
                    self._endpoints, request, affinity_key, retry_s
                )
            except UnusableResponse as error:
                if not num_left:
                    raise self._make_bad_response_error(error) from error
                affinity_key += 1  # try the next server, if there are several
                await asyncio.sleep(compute_backoff_s(1))
            else:
                self._num_bad = 0
                return response
        raise AssertionError("unreachable")

    def _make_bad_response_error(self, error: UnusableResponse) -> EngineError:
        """Return the error for a request without a usable response.

        After `MAX_BAD` such requests in a row, the error stops the whole engine.
        """
        self._num_bad += 1
        words = self.redact_message(str(error))
        if self._num_bad < MAX_BAD:
            return UnusableResponse(words)
        return EngineError(f"{words}. The last {self._num_bad} requests failed the same way")

    async def _retry_until_response(
        self, endpoints: Sequence[_Endpoint], request: Request, affinity_key: int, retry_s: float
    ) -> Any:
        from openai import APIConnectionError, APIStatusError

        failing_since: float | None = None
        while True:
            endpoint = _find_unpaused_endpoint(endpoints, affinity_key)
            if endpoint is None:
                closed = min(endpoints, key=lambda endpoint: endpoint.closed_until)
                now = time.monotonic()
                failing_since = failing_since or now
                left_s = retry_s - (now - max(failing_since, closed.responded_at))
                if left_s <= 0 and closed.failure is not None:
                    raise self._make_unreachable_error(
                        closed, closed.failure, retry_s
                    ) from closed.failure
                # Requests wait for random times, so that a server that comes back is not
                # overloaded at once.
                pause = (
                    closed.closed_until
                    - now
                    + random.uniform(0, compute_backoff_s(closed.num_failures))
                )
                await asyncio.sleep(max(0.0, min(pause, left_s)))
                continue
            try:
                response = await request(endpoint.client)
            except (APIConnectionError, APIStatusError, BusyError, ErrorResponse) as error:
                asked = None
                if isinstance(error, APIStatusError):
                    asked = parse_retry_after_s(error.response.headers)
                if isinstance(error, APIStatusError | ErrorResponse):
                    status, body = error.status_code, error.body
                    if not is_temporary(status, body):
                        words = error.response.text if isinstance(error, APIStatusError) else None
                        words = words or str(error)
                        raise self.make_refusal_error(endpoint.url, status, body, words) from error
                endpoint.pause(asked, error)
                failing_since = failing_since or time.monotonic()
                # A server that limits the rate but accepts other requests will also accept this
                # request in the end.
                limits = getattr(error, "status_code", None) == 429
                retry_s = max(retry_s, self._rate_limit_retry_s) if limits else retry_s
                since = max(failing_since, endpoint.responded_at if limits else 0.0)
                if time.monotonic() - since >= retry_s:
                    raise self._make_unreachable_error(endpoint, error, retry_s) from error
            else:
                endpoint.num_failures, endpoint.responded_at = 0, time.monotonic()
                return response

    async def send_to_each(self, request: Request, *, retry_s: float) -> dict[str, Any]:
        """Send a request to every endpoint; return the responses of the reachable ones by URL.

        Args:
            request: function that sends the request.
            retry_s: maximum seconds for which the request to one endpoint is retried.

        Raises:
            EngineError: no endpoint is reachable, or an endpoint refused the request.
        """
        asked = [
            self._retry_until_response([endpoint], request, 0, retry_s)
            for endpoint in self._endpoints
        ]
        results = await asyncio.gather(*asked, return_exceptions=True)
        responses: dict[str, Any] = {}
        for endpoint, result in zip(self._endpoints, results, strict=True):
            if not isinstance(result, BaseException):
                responses[endpoint.url] = result
            elif not isinstance(result, _UnreachableError):
                raise result
        if not responses:
            raise next(result for result in results if isinstance(result, _UnreachableError))
        for url in {endpoint.url for endpoint in self._endpoints} - set(responses):
            logger.warning("policy.engine: %s does not respond. Later requests try it again", url)
        return responses

    async def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints:
            await endpoint.client.close()

    def redact_message(self, message: str) -> str:
        """Return a server's message for an error message: shortened, without the API key."""
        if self._key:
            message = message.replace(self._key, "***")
        message = "".join(c if c.isprintable() else " " for c in message)
        return message if len(message) <= MAX_SHOWN else message[:MAX_SHOWN] + "…"

    def make_refusal_error(self, url: str, status: int, error: Any, response: str) -> EngineError:
        """Return the error for a request that a server rejects, however often it is sent.

        It is a `RefusedError` if only this request would be refused again. It is a plain
        `EngineError` if all requests would be refused.

        Args:
            url: URL of the server.
            status: HTTP status of the response.
            error: the object `error` in the response; None if the response has no such object.
            response: text of the whole response.
        """
        kind: type[EngineError] = RefusedError
        match status:
            case _ if _is_out_of_credit(status, error):
                kind = EngineError
                why = (
                    f"says that the account has no credit left: {self.redact_message(response)}. "
                    "Add credit or raise the account's limit, and run the command again"
                )
            case 401 | 403 if self._key_env is None:
                why = (
                    "requires an API key. Set policy.engine.api_key_env to the name of the "
                    "environment variable that holds it"
                )
            case 401:
                kind = EngineError
                why = f"rejects the key in {self._key_env}. Put a valid key into that variable"
            case 403:
                why = (
                    f"rejects the key in {self._key_env}, or this use of the key. Put a valid key "
                    f"into that variable. The server's response: {self.redact_message(response)}"
                )
            case 404:
                why = (
                    "has no such address or model. Check policy.engine.endpoints (most URLs end in "
                    "/v1) and policy.engine.model. The server's response: "
                    f"{self.redact_message(response)}"
                )
            case _ if status < 400:
                return RefusedError(
                    f"policy.engine: {url} responds with an error: {self.redact_message(response)}"
                )
            case _:
                why = f"rejects the request: {self.redact_message(response)}"
        return kind(f"policy.engine: {url} {why} (HTTP {status})")

    def _make_unreachable_error(
        self, endpoint: _Endpoint, error: Exception, retry_s: float
    ) -> EngineError:
        cause = error.__cause__ or error
        reason = self.redact_message(str(cause) or type(cause).__name__)
        return _UnreachableError(
            f"policy.engine: {endpoint.url} gave no response within {retry_s:g} s: {reason}. "
            "Check that the address is right, that the server runs, and that the node of the "
            "engine can reach it"
        )


class RefusedError(RequestFailed):
    """A server refused a request, and would refuse the same request again."""


class _UnreachableError(RequestFailed):
    pass


def _find_unpaused_endpoint(endpoints: Sequence[_Endpoint], affinity_key: int) -> _Endpoint | None:
    """Return the first endpoint that is not paused; None if all are paused.

    The search starts at the index `affinity_key` (modulo the number of endpoints) and goes round.
    """
    count, now = len(endpoints), time.monotonic()
    ordered = (endpoints[(affinity_key + i) % count] for i in range(count))
    return next((endpoint for endpoint in ordered if endpoint.closed_until <= now), None)


class RequestSlots:
    """Limits the number of concurrent requests, each of which needs a slot.

    Waiting requests get a slot in the order of priority.
    """

    def __init__(self, count: int) -> None:
        """Create `count` free slots."""
        self._free = count
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait for a slot."""
        return len(self._waiting)

    @asynccontextmanager
    async def hold_slot(self, priority: int) -> AsyncIterator[None]:
        """Wait for a slot and hold it; requests with a lower `priority` number go first."""
        if self._free:
            self._free -= 1
        else:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (priority, next(self._order), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._hand_slot_to_next()  # this request had received a slot already
                raise
        try:
            yield
        finally:
            self._hand_slot_to_next()

    def _hand_slot_to_next(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
