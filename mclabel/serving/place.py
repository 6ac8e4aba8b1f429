"""Where a server listens, and to whom."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass

from mclabel.core.errors import ConfigError

HOST = "127.0.0.1"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a server listens, and to whom."""

    host: str = HOST
    port: int
    """0 for any free one."""
    token: str | None = None
    """What clients must know; None lets in this machine alone."""


def token_of(variable: str | None) -> str | None:
    """The token in a variable of the environment; None where none is named.

    Raises:
        ConfigError: the variable is not set.
    """
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token:
        raise ConfigError(
            f"--token-env {variable}: the variable is not set. Export it with the token that "
            "clients must send as their API key"
        )
    return token


def host_name(header: str) -> str:
    """The name in a Host header, without its port; empty if it is none."""
    found = _HOST.fullmatch(header)
    return "" if found is None else found[1]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, as seen from itself alone."""
    name = host.strip("[]")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def listen(place: Place) -> socket.socket:
    """A socket that listens.

    Raises:
        ConfigError: the place cannot be listened on, or is one that others reach, and has no token.
    """
    if place.token is None and not is_loopback(place.host):
        raise ConfigError(
            f"--host {place.host}: others can reach it, so clients need a token. Put one into an "
            "environment variable and pass its name as --token-env, or leave --host out"
        )
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        # the protocol is named, for only then does asyncio send small answers at once
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"--host {place.host}: is not an address of this machine ({error}). Give one, such as "
            f"{HOST}"
        ) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"--host {place.host} --port {place.port}: cannot be listened on ({error.strerror}). "
            "Give another port, or an address of this machine"
        ) from error
    return listening
