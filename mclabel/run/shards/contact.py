"""The first contact of a process with a bucket: short, so that a wrong name costs seconds.

Requests to a store that has answered once are tried again for minutes, as it will work again. One
that has never answered may not be there at all: a misspelt endpoint, no network, no credentials.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, GenericError
from obstore.store import from_url

from mclabel.core.errors import ShardError

FIRST_S = 5
"""Seconds for which the first request to a bucket is tried again."""
_RETRIES: Any = {
    "max_retries": 20,
    "retry_timeout": timedelta(seconds=FIRST_S),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(milliseconds=500),
        "base": 2,
    },
}
_TIMEOUTS: Any = {"timeout": timedelta(seconds=FIRST_S), "connect_timeout": timedelta(seconds=3)}
MAX_REASON = 500
"""Characters of a store's own message."""


@dataclass(frozen=True, kw_only=True)
class _Service:
    """Environment variables that set a kind of store's address and credentials."""

    endpoint: tuple[str, ...]
    """Environment variables that name its address."""
    default: str
    """Its address if none of them is set."""
    credentials: str


_S3 = _Service(
    endpoint=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    default="Amazon's own address",
    credentials="AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION",
)
_AZURE = _Service(
    endpoint=("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    default="Azure's own address",
    credentials="AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
)
_SERVICES: Mapping[str, _Service] = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _Service(
        endpoint=(), default="Google's own address", credentials="GOOGLE_APPLICATION_CREDENTIALS"
    ),
    **dict.fromkeys(("az", "adl", "azure", "abfs", "abfss"), _AZURE),
}
_answered: set[tuple[str, str, str]] = set()
"""Buckets that have answered this process, each with the address it had."""


def check_contact(location: str, client: Mapping[str, Any]) -> None:
    """Check that a bucket answers, unless it has answered this process before.

    Args:
        location: URL in the bucket; other locations are not checked.
        client: options of the client, without its timeouts.

    Raises:
        ShardError: it has given no answer within some seconds.
    """
    url = urlsplit(location)
    service = _SERVICES.get(url.scheme)
    if service is None:
        return
    address = _address(service)
    bucket = (url.scheme, url.netloc, address)
    if bucket in _answered:
        return
    options: Any = {**client, **_TIMEOUTS}
    store = from_url(location, config=None, retry_config=_RETRIES, client_options=options)
    try:
        obstore.head(store, "run.json")
    except GenericError as error:
        raise ShardError(
            f"{location}: the store cannot be reached, or accepts no request, at {address} "
            f"({reason_of(error)}). Nothing was written. Check the network, the name of the "
            f"bucket, the address ({' or '.join(service.endpoint) or 'which is fixed'}) and the "
            f"credentials ({service.credentials}) in the environment"
        ) from error
    except (BaseError, FileNotFoundError):
        pass  # an answer, if only that there is no such file or that it may not be read
    _answered.add(bucket)


def reason_of(error: Exception) -> str:
    """What a store's error says, on one line and without the inside of its client."""
    return " ".join(str(error).partition("Debug source")[0].split())[:MAX_REASON]


def _address(service: _Service) -> str:
    named = (os.environ.get(name) for name in service.endpoint)
    return next(filter(None, named), service.default)
