"""`mclabel view`: the viewer on a port of this machine, until it is interrupted."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from mclabel.data.shards.shard import read_shard
from mclabel.errors import ShardError
from mclabel.report.runs import Run, find_runs, is_finished_prm
from mclabel.report.viewer.following import Follower
from mclabel.report.viewer.index import Index
from mclabel.report.viewer.scoring import Scorers
from mclabel.report.viewer.server import make_app
from mclabel.serving.page import listen_here, page_address, serve_page

PORT = 8780


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
    listening = listen_here(port, PORT)
    for run in runs:
        _check_version(run)
    scorers = Scorers({run.name: run.location for run in found if is_finished_prm(run)})
    index = Index(runs)
    follower = Follower(index)
    try:
        follower.start()
        token = secrets.token_urlsafe(24)
        app = make_app(index, follower, scorers, token=token)
        on_ready(f"{page_address(listening)}/?token={token}")
        serve_page(app, listening)
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
