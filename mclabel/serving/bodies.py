"""Bodies of requests, which come from anybody; refusals, and answers that nobody may wait for any
more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from mclabel.core.errors import MclabelError

T = TypeVar("T")

MAX_DROPPED = 64 * 2**20
"""Bytes of a request that is too large that are read and dropped, so that the client reads why."""
BODY_S = 30.0
"""Seconds in which a client must have sent its request."""


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """The body of a request, which must be JSON by its type.

    Raises:
        Refused: it is of another type, too large, or does not come.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(415, "content-type: must be application/json")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MAX_DROPPED:
                    break
                if size <= max_bytes:
                    parts.append(part)
    except TimeoutError:
        raise Refused(408, f"the request did not come within {BODY_S:.0f} s") from None
    except ClientDisconnect:
        raise Refused(400, "the client is gone") from None
    if size > max_bytes:
        raise Refused(413, f"the request is larger than {max_bytes:,} bytes")
    return b"".join(parts)


def parsed(body: bytes) -> dict[str, Any]:
    """The object that a body holds.

    Raises:
        Refused: it is no JSON, or no object.
    """

    def no_number(name: str) -> NoReturn:
        raise ValueError(f"{name} is not valid JSON")

    try:
        content = json.loads(body.decode("utf-8"), parse_constant=no_number)
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise Refused(400, f"the body is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise Refused(400, f"the body must be an object, is a {type(content).__name__}")
    return content


async def answered(
    work: asyncio.Task[T], request: Request, respond: Callable[[T], Response]
) -> Response:
    """The response to a request, whose work ends when its client goes away."""
    gone = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return respond(work.result())
        return Response(status_code=499)  # which nobody reads
    finally:
        work.cancel()
        gone.cancel()


async def disconnected(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def json_response(
    content: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Content as a response."""
    return Response(to_json(content), status, headers, media_type="application/json")


_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


class Refused(MclabelError):
    """A request that is not served."""

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
        """The error as the client reads it, in the form of the OpenAI interface."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        error = {"message": str(self), "type": kind, "param": self.param, "code": None}
        return {"error": error}


def to_json(content: Any) -> bytes:
    """Content as it is sent. What is no valid Unicode is replaced."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")
