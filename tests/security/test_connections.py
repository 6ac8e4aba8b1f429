"""Silent connections, host names that resemble this machine's, and protocol upgrades."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mclabel.serving import run as crowd_module
from mclabel.serving.access import make_api_app
from mclabel.serving.requests import make_json_response
from mclabel.serving.run import (
    ServerAddress,
    is_loopback,
    make_server,
    open_listening_socket,
    parse_host_name,
)

WAIT_S = 60.0
HALF = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n"


@contextmanager
def run_server(token: str | None, max_connections: int) -> Iterator[int]:
    """Yield the port of a server with a limited number of connections."""

    async def say_hello(request: Request) -> Response:
        return make_json_response({"said": "hello"})

    with open_listening_socket(ServerAddress(port=0, token=token)) as listening:
        server = make_server(
            make_api_app([Route("/", say_hello)], token), max_connections=max_connections
        )
        run: Callable[[], Any] = lambda: asyncio.run(server.serve(sockets=[listening]))  # noqa: E731
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(WAIT_S)
            assert not thread.is_alive()


def open_connection(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
    connection.sendall(sent)
    return connection


def get_answer(client: http.client.HTTPConnection, **headers: str) -> tuple[int, bytes]:
    client.request(
        "GET", "/", headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = client.getresponse()
    return answer.status, answer.read()


def test_who_shows_no_token_holds_at_most_half_of_the_places() -> None:
    with run_server("secret", max_connections=16) as port, ExitStack() as open_ones:
        key = {"authorization": "Bearer secret"}
        friends = [http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S) for _ in range(4)]
        for friend in friends:
            assert get_answer(friend, **key)[0] == 200
        sockets = [friend.sock for friend in friends]
        silent = open_ones.enter_context(open_connection(port))
        for _ in range(50):
            open_ones.enter_context(open_connection(port, HALF))
        late = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        assert get_answer(late, **key) == (200, b'{"said":"hello"}')
        for friend in friends:
            assert get_answer(friend, **key)[0] == 200
        assert [friend.sock for friend in friends] == sockets, "none of them was ended"
        answer = silent.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 503") and b"with the server's token" in answer
        for friend in [*friends, late]:
            friend.close()


def test_all_places_may_be_those_of_friends() -> None:
    with run_server(None, max_connections=6) as port:
        friends = [http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S) for _ in range(6)]
        assert [get_answer(friend)[0] for friend in friends] == [200] * 6
        assert open_connection(port).makefile("rb").read().startswith(b"HTTP/1.1 503")
        assert [get_answer(friend)[0] for friend in friends] == [200] * 6
        friends.pop().close()
        for friend in friends:
            friend.close()


@pytest.mark.parametrize("sent", [b"", HALF])
def test_a_header_has_its_time(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(crowd_module, "HEADER_TIMEOUT_S", 0.1)
    with run_server(None, max_connections=16) as port, open_connection(port, sent) as silent:
        answer = silent.makefile("rb").read()  # until the server closes the connection
        assert answer.startswith(b"HTTP/1.1 408") and b"did not arrive within" in answer
        monkeypatch.undo()  # a busy machine may need longer for a valid header
        assert get_answer(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S))[0] == 200


def test_a_connection_that_asks_again_is_no_late_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd_module, "HEADER_TIMEOUT_S", 1.0)
    with run_server(None, max_connections=16) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        assert get_answer(client)[0] == 200
        first = client.sock
        threading.Event().wait(1.5)
        assert get_answer(client)[0] == 200 and client.sock is first
        client.close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with run_server(None, max_connections=16) as server_port:
        yield server_port


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
def test_an_upgrade_is_refused_in_words(upgrade: str) -> None:
    headers = {"connection": "Upgrade", "upgrade": upgrade, "sec_websocket_version": "13"}
    headers["sec_websocket_key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    with run_server(None, max_connections=16) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        status, body = get_answer(client, **headers)
        assert status == 400 and b"supports only plain HTTP" in body
        client.close()
    with run_server("secret", max_connections=16) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        assert get_answer(client, **headers)[0] == 401
        client.close()


@pytest.mark.parametrize(
    ("header", "is_ours"),
    [
        *(
            (host, True)
            for host in ("127.0.0.1", "127.0.0.1:80", "localhost:1", "[::1]", "[::1]:80")
        ),
        *((host, False) for host in ("[::1]evil.com", "[::1]evil.com:80", "evil.com[::1]")),
        *((host, False) for host in ("[::1].evil.com", "127.0.0.1.evil.com", "localhost:evil")),
        *(
            (host, False)
            for host in ("localhost:80:80", "localhost@evil.com", "::1", "", "[]", ":1")
        ),
        *((host, False) for host in ("127.0.0.1:evil.com", "[::1]:80x", "[[::1]]", "localhost:")),
    ],
)
def test_a_host_is_this_machine_or_it_is_not(port: int, header: str, is_ours: bool) -> None:
    assert is_loopback(parse_host_name(header)) is is_ours
    with open_connection(port) as client:
        client.sendall(f"GET / HTTP/1.1\r\nhost: {header}\r\nconnection: close\r\n\r\n".encode())
        assert (
            client.makefile("rb").read().startswith(b"HTTP/1.1 200" if is_ours else b"HTTP/1.1 421")
        )
