"""Reads, limits and answers the requests of the HTTP servers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from mclabel.core.errors import DataError, EngineDied, EngineError, MclabelError

T = TypeVar("T")

logger = logging.getLogger(__name__)

RETRY_S = 5
"""Seconds after which a client that was refused because of overload may retry."""
SHUTDOWN = "the server is shutting down"
"""Message to clients whose requests end because the server ends."""


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    """Limits on concurrent requests."""

    max_live: int = 8
    """Maximum number of requests that are processed at the same time."""
    max_waiting: int = 64
    """Maximum number of requests that wait to be processed."""


class RequestQueue:
    """Running and waiting requests of a server, within the limits on their numbers."""

    def __init__(self, limits: RequestLimits) -> None:
        """Start without requests.

        Args:
            limits: limits on concurrent requests.
        """
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.max_live)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending: Refused | None = None
        self.died: EngineDied | None = None
        """Error that ended the engine, so no request can be answered; None while it runs."""

    def __len__(self) -> int:
        """Return the number of running and waiting requests."""
        return len(self._tasks)

    def begin(self, work: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """Process a request as soon as the limits allow it, and return its task.

        Cancelling the task ends the request.

        Args:
            work: function that processes the request and returns the answer.

        Raises:
            Refused: there are too many requests, or the server is shutting down. The returned task
                raises `Refused` if the request fails.
        """
        if self._ending is not None:
            raise self._ending
        if len(self) >= self._limits.max_live + self._limits.max_waiting:
            raise Refused(
                429,
                f"{len(self)} requests are already running or waiting. Try again in {RETRY_S} "
                "seconds",
                headers={"retry-after": str(RETRY_S)},
            )
        task = asyncio.create_task(self._process_request(work))
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def end(self, reason: str) -> None:
        """End all requests, and refuse new requests.

        Args:
            reason: reason, as a message to the clients.
        """
        if self._ending is None:
            self._ending = Refused(503, reason)
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End all requests and wait until they have ended."""
        self.end(SHUTDOWN)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Otherwise asyncio would log the error of a request whose client has disconnected.
            task.exception()

    async def _process_request(self, work: Callable[[], Awaitable[T]]) -> T:
        """Wait for a slot and process a request. Raise `Refused` for any failure."""
        try:
            async with self._slots:
                return await work()
        except asyncio.CancelledError:
            if self._ending is None:
                raise
            raise self._ending from None
        except Refused:
            raise
        except DataError as error:
            raise Refused(400, str(error)) from error
        except EngineDied as error:
            self.died = self.died or error
            self.end(str(error))
            raise Refused(503, str(error)) from error
        except EngineError as error:
            raise Refused(503, str(error)) from error
        except MclabelError as error:
            raise Refused(500, str(error)) from error
        except Exception as error:
            logger.exception("a request has failed")
            raise Refused(
                500, "the request failed because of an error in the server; see the server's log"
            ) from error


MAX_DISCARDED_BYTES = 64 * 2**20
"""Maximum bytes of a too large request that are read and discarded before the error is sent. This
is needed because a client that is still sending does not read the error."""
BODY_TIMEOUT_S = 30.0
"""Maximum seconds for a client to send the body of its request."""


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """Read the body of a request, whose content type must be JSON.

    Args:
        request: the request.
        max_bytes: maximum bytes of the body.

    Raises:
        Refused: the body has another type, is too large, or does not arrive in time.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(415, "content-type: must be application/json")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_DISCARDED_BYTES:
                    break
                if size <= max_bytes:
                    chunks.append(chunk)
    except TimeoutError:
        raise Refused(408, f"the request did not arrive within {BODY_TIMEOUT_S:.0f} s") from None
    except ClientDisconnect:
        raise Refused(400, "the client has disconnected") from None
    if size > max_bytes:
        raise Refused(413, f"the request is larger than {max_bytes:,} bytes")
    return b"".join(chunks)


def parse_body(body: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object.

    Raises:
        Refused: the body is not JSON, or not an object.
    """

    def refuse_non_json_number(name: str) -> NoReturn:
        raise ValueError(f"{name} is not valid JSON")

    try:
        content = json.loads(body.decode("utf-8"), parse_constant=refuse_non_json_number)
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise Refused(400, f"the body is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise Refused(400, f"the body must be a JSON object, but is a {type(content).__name__}")
    return content


async def respond_when_done(
    work: asyncio.Task[T], request: Request, respond: Callable[[T], Response]
) -> Response:
    """Wait for the task of a request and return the response to the client.

    If the client disconnects, the task is cancelled.

    Args:
        work: task that computes the result.
        request: the request.
        respond: function that turns the task's result into a response.
    """
    disconnected = asyncio.create_task(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait({work, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return respond(work.result())
        return Response(status_code=499)  # nobody receives this: the client has disconnected
    finally:
        work.cancel()
        disconnected.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def make_json_response(
    content: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return content as a JSON response."""
    return Response(encode_json(content), status, headers, media_type="application/json")


_ERROR_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
"""Maps HTTP statuses of errors to the error types of the OpenAI API."""


class Refused(MclabelError):
    """Error that is sent to the client as the response to its request."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Make an error.

        Args:
            status: HTTP status of the response.
            message: message to the client.
            param: wrong field of the request; None if no single field is wrong.
            headers: additional headers of the response.
        """
        super().__init__(message)
        self.status, self.param, self.headers = status, param, dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """Body of the response, in the format of the OpenAI API."""
        return {
            "error": {
                "message": str(self),
                "type": _ERROR_TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": None,
            }
        }


def encode_json(content: Any) -> bytes:
    """Return content as UTF-8 JSON; characters that UTF-8 lacks become question marks."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
