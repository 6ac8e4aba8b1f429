"""`mclabel view`: the viewer on a port of this machine, until it is interrupted."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence

from mclabel.data.shards.shard import read_shard
from mclabel.errors import ConfigError, ShardError
from mclabel.report.runs import Run, find_runs, is_finished_prm
from mclabel.report.viewer.following import Follower
from mclabel.report.viewer.index import Index
from mclabel.report.viewer.scoring import Scorers
from mclabel.serving.run import GRACE_S, make_server
from mclabel.stop import ends_within

ADDRESS = "127.0.0.1"
PORT = 8780
MAX_THREADS = 4


def serve(
    places: Sequence[str],
    *,
    port: int | None,
    on_ready: Callable[[str], None],
) -> None:
    """Serve the viewer until interrupted.

    Args:
        places: labelling runs, PRMs whose scores are shown beside the labels, or folders that
            hold some.
        port: None takes PORT, or any free one if that is in use.
        on_ready: called with the address to open, once it is served.

    Raises:
        ShardError: a place is no run, or its shards are of another version.
        ConfigError: the port is in use.
    """
    found = find_runs(places)
    runs = [run for run in found if run.kind == "labels"]
    if not runs:
        raise ShardError(f"{', '.join(places)}: holds no labels. Give the `out` of `mclabel label`")
    listening = _listen(port)
    for run in runs:
        _check_version(run)
    scorers = Scorers({run.name: run.location for run in found if is_finished_prm(run)})
    index = Index(runs)
    follower = Follower(index)
    try:
        follower.start()
        _run(index, follower, scorers, listening, on_ready)
    finally:
        follower.close()
        scorers.close()
        index.close()


def _check_version(run: Run) -> None:
    """Refuse a run whose first shard cannot be read; faults of later ones are shown on the page."""
    store = run.store
    for name in store.names("labels"):
        if name.endswith(".parquet"):
            read_shard(store, name, "labels")
            return


def _run(
    index: Index,
    follower: Follower,
    scorers: Scorers,
    listening: socket.socket,
    on_ready: Callable[[str], None],
) -> None:
    import anyio.to_thread

    from mclabel.report.viewer.server import make_app

    token = secrets.token_urlsafe(24)
    app = make_app(index, follower, scorers, token=token)
    server = make_server(app)

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = MAX_THREADS
        await server.serve(sockets=[listening])

    on_ready(f"http://{ADDRESS}:{listening.getsockname()[1]}/?token={token}")
    with ends_within(GRACE_S):
        try:
            anyio.run(main)
        except KeyboardInterrupt:
            return


def _listen(port: int | None) -> socket.socket:
    try:
        return _bound(PORT if port is None else port)
    except OSError as error:
        if port is None:
            return _bound(0)
        raise ConfigError(
            f"--port {port}: cannot be listened on ({error.strerror}). Give another, or none for a "
            "free one"
        ) from error


def _bound(port: int) -> socket.socket:
    # the protocol is named, for only then does asyncio send small answers at once
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ADDRESS, port))
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening
