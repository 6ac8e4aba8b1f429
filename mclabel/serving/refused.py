"""Requests that are refused, and JSON as it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mclabel.core.errors import MclabelError

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
