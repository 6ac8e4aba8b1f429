"""Server of the viewer: it serves the page, and JSON from the index and the shards, only locally.

A model's text is sent as JSON, and the page inserts it as plain text. `mclabel.serving.access`
refuses visitors without the token.

A separate process scores single solutions with PRMs. So the server loads no models, needs little
memory and starts quickly.
"""

from __future__ import annotations

import json
import multiprocessing
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from mclabel.core.errors import MclabelError, ShardError
from mclabel.report.viewer.detail import Details
from mclabel.report.viewer.index import Index, IndexRefresher
from mclabel.report.viewer.listing import Listing, ListingQuery, Selection, count_facets, is_number
from mclabel.run.kinds import find_runs, is_finished_prm, read_run_identity
from mclabel.run.shards.catalog import read_catalog, read_labels_shard
from mclabel.serving.access import (
    PageAccessControl,
    format_page_address,
    listen_on_loopback,
    serve_page,
)
from mclabel.show.texts import STATIC

if TYPE_CHECKING:
    from mclabel.prm.scoring.score import PRM


Query = Mapping[str, str]
"""Parameters of a URL."""


def make_app(index: Index, refresher: IndexRefresher, scorers: Scorers, *, token: str) -> ASGIApp:
    """Make the ASGI application of the viewer.

    Args:
        index: index of the runs shown.
        refresher: thread that keeps the index up to date.
        scorers: PRMs whose scores are shown beside the labels.
        token: secret token that requests must contain.
    """
    listing, details = Listing(index), Details(index)
    selection = Selection(index, listing)
    identities = [read_run_identity(run) for run in index.runs]

    def read_number(query: Query, name: str, default: int = 0) -> int:
        raw = query.get(name) or str(default)
        if not is_number(raw):
            raise MclabelError(f"{name}={raw[:40]!r}: must be a whole number of at most 9 digits")
        if name == "run" and int(raw) >= len(index.runs):
            raise MclabelError(f"run={raw}: must be from 0 to {len(index.runs) - 1}")
        return int(raw)

    def read_listing_query(query: Query) -> ListingQuery:
        return ListingQuery.parse(query, len(index.runs))

    def read_solution_key(query: Query) -> tuple[int, str]:
        return read_number(query, "run"), query.get("id", "")

    handlers: dict[str, Callable[[Query], Any]] = {
        "state": lambda query: {
            "runs": [run.name for run in index.runs],
            "identities": identities,
            "prms": list(scorers.folders),
            "version": index.version,
            "pending": index.num_pending,
            "fault": refresher.fault,
            "counts": count_facets(index, read_number(query, "run")),
        },
        "solutions": lambda query: listing.list_page(
            read_listing_query(query), read_number(query, "offset"), read_number(query, "limit", 50)
        ),
        "place": lambda query: listing.locate_solution(
            read_listing_query(query), query.get("id", "")
        ),
        "summary": lambda query: selection.compute_counts(read_listing_query(query)),
        "export": lambda query: selection.export_part(
            read_listing_query(query), read_number(query, "offset")
        ),
        "solution": lambda query: details.solution(*read_solution_key(query)),
        "steps": lambda query: details.steps(
            *read_solution_key(query), read_number(query, "offset")
        ),
        "rollouts": lambda query: details.rollouts(
            *read_solution_key(query), read_number(query, "step"), read_number(query, "offset")
        ),
        "grades": lambda query: details.grades(
            *read_solution_key(query), read_number(query, "step")
        ),
        "scores": lambda query: scorers.scores(*details.texts(*read_solution_key(query))),
        "text": lambda query: details.text_part(
            *read_solution_key(query), query.get("what", ""), read_number(query, "offset")
        ),
    }
    app = Starlette(
        routes=[
            Route("/", lambda request: FileResponse(STATIC / "viewer" / "index.html")),
            *(
                Route(f"/api/{name}", partial(_send_json, handler))
                for name, handler in handlers.items()
            ),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )
    return PageAccessControl(app, {token: ""}, command="mclabel view")


async def _send_json(handler: Callable[[Query], Any], request: Request) -> Response:
    try:
        content, status = await run_in_threadpool(handler, request.query_params), 200
    except MclabelError as error:
        content, status = {"error": str(error)}, 404
    body = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(body.encode("utf-8", "replace"), status, media_type="application/json")


# `mclabel view`: the viewer on a port of this machine, until it is interrupted.

PORT = 8780


def serve(
    locations: Sequence[str],
    *,
    port: int | None,
    on_ready: Callable[[str], None],
) -> None:
    """Serve the viewer on this machine until the process is interrupted.

    Args:
        locations: labelling runs, PRMs whose scores are shown beside the labels, or folders that
            contain such outputs.
        port: port of the server. None takes PORT, or any free port if PORT is in use.
        on_ready: function that is called with the address of the page when it is served.

    Raises:
        ShardError: a location is not a run, or its shards were written by another version.
        ConfigError: the port is in use.
    """
    runs_and_prms = find_runs(locations)
    runs = [run for run in runs_and_prms if run.kind == "labels"]
    if not runs:
        raise ShardError(
            f"{', '.join(locations)}: holds no labels. Give the `out` of `mclabel label`"
        )
    listening = listen_on_loopback(port, PORT)
    for run in runs:
        # Check that no shard is missing, and that the first shard can be read. The page shows
        # faults of later shards.
        for block in islice(read_catalog(run.store).blocks, 1):
            read_labels_shard(run.store, block)
    scorers = Scorers({run.name: run.location for run in runs_and_prms if is_finished_prm(run)})
    index = Index(runs)
    refresher = IndexRefresher(index)
    try:
        refresher.start()
        token = secrets.token_urlsafe(24)
        app = make_app(index, refresher, scorers, token=token)
        on_ready(f"{format_page_address(listening)}/?token={token}")
        serve_page(app, listening)
    finally:
        refresher.close()
        scorers.close()
        index.close()


MAX_CHARACTERS = 200_000
"""Maximum number of characters of a solution that is scored."""


class Scorers:
    """PRMs by name. A child process loads each PRM at its first use."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        """Record the PRMs without loading them.

        Args:
            folders: outputs of finished `mclabel train` jobs, by name.
        """
        self.folders = dict(folders)
        self._pool: ProcessPoolExecutor | None = None

    def scores(self, problem: str, steps: list[str]) -> dict[str, Any]:
        """Return the `kind` of each PRM and its `scores` of the steps, by name of the PRM.

        If a PRM cannot score the solution, it has the `reason` instead.
        """
        if sum(map(len, steps)) > MAX_CHARACTERS:
            reason = f"longer than {MAX_CHARACTERS:,} characters"
            return {name: {"kind": None, "reason": reason} for name in self.folders}
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=signal.signal,
                initargs=(signal.SIGINT, signal.SIG_IGN),  # the server terminates the child
            )
        try:
            scores_by_prm = {
                name: self._pool.submit(_score_solution, folder, problem, steps)
                for name, folder in self.folders.items()
            }
            return {name: future.result() for name, future in scores_by_prm.items()}
        except BrokenProcessPool:
            self.close()
            reason = "the scoring process died, perhaps for lack of memory; open the solution again"
            return {name: {"kind": None, "reason": reason} for name in self.folders}

    def close(self) -> None:
        """End the child process."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _score_solution(folder: str, problem: str, steps: list[str]) -> dict[str, Any]:
    try:
        prm = _load_prm(folder)
    except MclabelError as error:
        return {"kind": None, "reason": str(error)}
    try:
        return {"kind": prm.manifest.kind, "scores": prm.score([problem], [steps])[0]}
    except MclabelError as error:
        return {"kind": prm.manifest.kind, "reason": str(error)}


@lru_cache
def _load_prm(folder: str) -> PRM:
    from mclabel.engines.pretrained import name_option_in_code_errors
    from mclabel.prm.scoring.score import PRM

    # On the CPU: a page that stays open would keep a GPU's memory from the jobs it shows.
    with name_option_in_code_errors(""):
        return PRM.load(folder, device="cpu", threads=1)
