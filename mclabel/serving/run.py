"""A server from its application, until a signal, its own end or the death of what it runs on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from mclabel.serving.asked import Asked
from mclabel.serving.place import Place

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

LOOK_S = 0.1
"""Seconds between two looks whether the server is to end."""
END_S = 2
"""Seconds that responses under way have to end."""
GRACE_S = 4.0
"""Seconds after which a signal ends a server, whatever it is doing."""

Ready = Callable[[str, Callable[[], None]], None]
"""Called with the base URL once it is served, and with a function that ends the server, from
whatever thread."""


def make_server(app: ASGIApp, *, places: int = 1_024) -> uvicorn.Server:
    """A server that speaks HTTP alone, and keeps its places for those who may ask.

    Args:
        app: with its fence.
        places: connections at a time.
    """
    import uvicorn

    from mclabel.serving.crowd import Crowd

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=cast(Any, Crowd(places).protocol),
            ws="none",
            log_level="critical",
            access_log=False,
            lifespan="off",
            workers=1,
            timeout_graceful_shutdown=END_S,
        )
    )


async def run_server(
    app: ASGIApp, asked: Asked, listening: socket.socket, place: Place, on_ready: Ready
) -> None:
    """Serve until a signal, a call of what `on_ready` was given, or `asked.died`.

    Args:
        app: with all its endpoints.
        asked: its requests, which end with the server.
        listening: at the place.
        place: where to listen.
        on_ready: called when it listens.
    """
    server = make_server(app)

    def stop() -> None:
        server.should_exit = True

    host = f"[{place.host}]" if ":" in place.host else place.host
    watching = asyncio.create_task(_end_together(server, asked))
    on_ready(f"http://{host}:{listening.getsockname()[1]}", stop)
    await server.serve(sockets=[listening])
    await watching


async def _end_together(server: uvicorn.Server, asked: Asked) -> None:
    """End the server with what it runs on, and the requests with the server."""
    while not server.should_exit:
        await asyncio.sleep(LOOK_S)
        server.should_exit = server.should_exit or asked.died is not None
    asked.end("the server ends")
