"""A server of searched solutions from its configuration, until it is interrupted."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mclabel.config import ServeSearchConfig
from mclabel.errors import ConfigError
from mclabel.pipelines.policy import prepare_policy
from mclabel.search.checked import CheckedScorer, method_class, scorer_class
from mclabel.search.server.asks import Reader
from mclabel.search.server.searcher import Limits, Searcher

if TYPE_CHECKING:
    import uvicorn

HOST = "127.0.0.1"
PORT = 8790
MAX_CONNECTIONS = 1_024
LOOK_S = 0.1
"""Seconds between two looks whether the server is to end."""
END_S = 3
"""Seconds that responses under way have to end."""

Ready = Callable[[str, Callable[[], None]], None]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a server listens, and to whom."""

    host: str = HOST
    port: int = PORT
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
            "clients are to send as their key"
        )
    return token


def serve_search(
    config: ServeSearchConfig,
    *,
    place: Place,
    name: str | None = None,
    limits: Limits,
    on_ready: Ready,
) -> None:
    """Serve searched solutions until interrupted.

    Args:
        config: of policy, method and scorer.
        place: where to listen.
        name: of the model that clients ask for; None is `policy.model`.
        limits: of what is done at a time.
        on_ready: called with the base URL once it is served, and with a function that ends the
            server, from whatever thread.

    Raises:
        ConfigError: the port is in use, a host that others reach has no token, or the scorer knows
            the truth, which no request carries.
        EngineError: the engine cannot be loaded, or died.
    """
    from mclabel.search.server.app import is_loopback

    method_class(config.search)
    if scorer_class(config.scorer).is_truth:
        raise ConfigError(
            f"scorer.kind={config.scorer.kind}: knows the truth of problems of arith alone, and "
            "the problems of requests carry none. Set scorer=prm with scorer.prm=FOLDER"
        )
    if place.token is None and not is_loopback(place.host):
        raise ConfigError(
            f"--host {place.host}: others can reach it, so clients need a token. Put one into a "
            "variable of the environment and pass its name as --token-env, or leave --host out"
        )
    with _listen(place) as listening:
        policy = prepare_policy(config.policy)
        config = config.model_copy(update={"policy": policy.settings})
        policy.engine.check_model()
        checked = CheckedScorer(config.scorer)
        with checked.boundary.calling("check", may_take_long=True):
            checked.scorer.check()
        reader = Reader(config, name=name or config.policy.model)
        make = policy.maker(config.seed)
        try:
            asyncio.run(
                _run(
                    reader,
                    lambda: Searcher(make(), config, name=reader.name, limits=limits),
                    listening,
                    place,
                    on_ready,
                )
            )
        except KeyboardInterrupt:
            return


async def _run(
    reader: Reader,
    make_searcher: Callable[[], Searcher],
    listening: socket.socket,
    place: Place,
    on_ready: Ready,
) -> None:
    """Load, and serve until a signal, `stop` or the death of the engine."""
    import uvicorn

    from mclabel.search.server.app import make_app

    searcher = make_searcher()
    app = make_app(reader, searcher, token=place.token)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            workers=1,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=END_S,
        )
    )

    def stop() -> None:
        server.should_exit = True

    host = f"[{place.host}]" if ":" in place.host else place.host
    try:
        await searcher.start()
        watching = asyncio.create_task(_end_together(server, searcher))
        on_ready(f"http://{host}:{listening.getsockname()[1]}/v1", stop)
        await server.serve(sockets=[listening])
        await watching
    finally:
        await searcher.close()
    if searcher.died is not None:
        raise searcher.died


async def _end_together(server: uvicorn.Server, searcher: Searcher) -> None:
    """End the server with its engine, and the searches with the server."""
    while not server.should_exit:
        await asyncio.sleep(LOOK_S)
        server.should_exit = server.should_exit or searcher.died is not None
    searcher.end("the server ends")


def _listen(place: Place) -> socket.socket:
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        # the protocol is named, for only then does asyncio send small answers at once
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"--host {place.host}: is no address of this machine ({error}). Give one, such as "
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
