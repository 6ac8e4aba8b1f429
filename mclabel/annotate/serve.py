"""`mclabel annotate`: serves the page on which people label, on this machine, until interrupted.

The server gives out items and records events. The labels of the run are given out for a solution
only to who has submitted an opinion on it; with gold among the solutions they are not given out,
for gold may have none and would be known by that.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from mclabel.annotate.events import event_fault, parse_event
from mclabel.annotate.folder import Annotated, Summary, answer_of, summarise
from mclabel.annotate.gold import (
    GoldLine,
    gold_digest,
    is_of_run,
    queues,
    read_gold,
    with_gold,
)
from mclabel.annotate.items import (
    OVERSEER,
    Item,
    Settings,
    check_same,
    draw_items,
    text_digest,
)
from mclabel.annotate.storage import (
    EventLog,
    StoredFolder,
    is_annotations,
    locked_events,
    read_folder,
    write_folder,
)
from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import LabeledSolution
from mclabel.core.seeds import content_id
from mclabel.data.readers.solutions import Selected, read_selected
from mclabel.run.kinds import Run, find_runs, run_identity
from mclabel.run.outputs import ANNOTATIONS, check_places, output_folder
from mclabel.run.shards.labels import read_labels
from mclabel.serving.access import PageFence
from mclabel.serving.requests import Refused, json_response, parsed, read_body
from mclabel.show.texts import STATIC

PORT = 8790


def annotate(
    run: str,
    out: str,
    given: Mapping[str, Any],
    *,
    gold: str | None = None,
    select: str | None = None,
    port: int | None,
    on_ready: Callable[[Mapping[str, str]], None],
) -> Summary:
    """Serve the page until interrupted.

    Args:
        run: whose solutions are labelled, or a folder that holds one.
        out: folder of the annotations; one that was begun goes on.
        given: fields of `Settings` that the user has chosen; of a folder that was begun, they
            must be the same.
        gold: file of solutions whose first errors are known, which are mixed in.
        select: manifest of `mclabel select` that says which solutions; None draws them.
        port: None takes PORT, or any free one if that is in use.
        on_ready: called with each person's address, the overseer's at the end, once it is
            served.

    Returns:
        What has been done so far.

    Raises:
        ConfigError: another process serves the folder, the settings differ, or the port is in use.
        DataError: the run's solutions are not those that the folder holds.
        ShardError: the run or the folder cannot be read, or the folder holds something else.
    """
    from mclabel.serving.access import listen_here, page_address, serve_page

    labelled = _labelled(run)
    lines = [] if gold is None else read_gold(gold)
    selected = None if select is None else read_selected(select, "--select ")
    given = _with_digests(given, lines, selected)
    check_places(out, ANNOTATIONS, key="-o ")
    folder = output_folder(out, "-o ")
    listening = listen_here(port, PORT)
    with closing(listening), locked_events(folder) as file:
        stored = _begun(labelled, folder, given, lines, selected)
        rows = _rows_of(labelled, stored.items, out)
        annotations = Annotations(stored, rows, EventLog(folder, file, stored))
        names = (*stored.settings.people, OVERSEER)
        tokens = {secrets.token_urlsafe(24): person for person in names}
        app = make_app(annotations, tokens)
        address = page_address(listening)
        with suppress(KeyboardInterrupt):  # also one that comes before the server listens to it
            on_ready(
                {
                    person: f"{address}{OVERVIEW if person == OVERSEER else '/'}?token={token}"
                    for token, person in tokens.items()
                }
            )
            serve_page(app, listening)
        return annotations.summary()


def _labelled(place: str) -> Run:
    runs = [run for run in find_runs([place]) if run.kind == "labels"]
    if len(runs) != 1:
        raise ShardError(f"{place}: holds {len(runs)} runs of labels, must be one. Give its `out`")
    return runs[0]


def _with_digests(
    given: Mapping[str, Any], lines: Sequence[GoldLine], selected: Selected | None
) -> dict[str, Any]:
    """The given settings, with what gold and selection are known by.

    Raises:
        ConfigError: a person has the overseer's name, or both a selection and a sample are given.
    """
    if OVERSEER in given.get("people", ()):
        raise ConfigError(f"--people {OVERSEER}: is the name of whoever runs this. Give another")
    content = dict(given)
    if lines:
        content["gold"] = gold_digest(lines)
    if selected is not None:
        if "sample" in content:
            raise ConfigError("--sample: --select names the solutions already. Leave one out")
        content["sample"] = len(selected.texts)
        content["select"] = content_id(dict(selected.texts), dict(selected.probabilities))
    return content


def _begun(
    run: Run,
    folder: Path,
    given: Mapping[str, Any],
    lines: Sequence[GoldLine],
    selected: Selected | None,
) -> StoredFolder:
    """Return what a folder holds, which is begun if it holds nothing."""
    identity = run_identity(run)
    wanted = {**given, "run_id": identity}
    if is_annotations(folder):
        stored = read_folder(folder)
        check_same(wanted, stored.settings, str(folder))
        return stored
    settings = Settings(id=secrets.token_hex(8), run=run.location, **wanted)
    if settings.fault is not None:
        raise ConfigError(f"{settings.fault}. Give another value")
    items = draw_items(lambda: read_labels(run.store), settings, selected)
    if lines:
        items = with_gold(items, lines, lambda: read_labels(run.store), settings)
    return write_folder(folder, settings, items)


def _rows_of(run: Run, items: Sequence[Item], out: str) -> dict[str, LabeledSolution]:
    """The run's rows of the items.

    Raises:
        DataError: a solution is missing, or has other texts.
    """
    digests = {item.id: item.digest for item in items if is_of_run(item)}
    rows = {row.solution.id: row for row in read_labels(run.store) if row.solution.id in digests}
    changed = [
        solution_id
        for solution_id in digests
        if solution_id not in rows or text_digest(rows[solution_id]) != digests[solution_id]
    ]
    if changed:
        raise DataError(
            f"{run.location}: {len(changed)} of the {len(items)} solutions that {out} labels are "
            f"gone or have other texts, the first being {changed[0]}. Give the run as it was, or "
            "another -o"
        )
    return rows


MAX_BODY = 1 << 20
"""Bytes of one event, which has a word for each step."""
EVENTS_PATH, OVERVIEW = "/api/events", "/overview"
MAX_SHOWN = 500
"""Disagreements of one overview."""


class Annotations:
    """The state of a folder that is served."""

    def __init__(
        self, stored: StoredFolder, rows: Mapping[str, LabeledSolution], log: EventLog
    ) -> None:
        """Serve items.

        Args:
            stored: what the folder holds.
            rows: labels of the run, by solution id.
            log: log of the events.
        """
        settings, items = stored.settings, stored.items
        self.settings, self._items, self._rows, self._log = settings, items, rows, log
        self._by_id = {item.id: item for item in items}
        self._has_gold = any(item.gold is not None for item in items)
        self._queues = queues(items, settings)

    def annotated(self) -> Annotated:
        """Items, and what has been said of them by now."""
        return Annotated(
            settings=self.settings,
            items=self._items,
            events=self._log.events(),
        )

    def summary(self) -> Summary:
        """Return what people have done, and how far they agree."""
        return summarise(self.annotated())

    def said_summary(self, person: str, _: Mapping[str, str]) -> dict[str, Any]:
        """The summary as JSON; rates on gold for the overseer alone, as they show what is gold."""
        content = asdict(self.summary())
        if person != OVERSEER:
            for summary in content["people"]:
                del summary["hidden"]
        return content

    def overview(self, person: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return what whoever runs this looks at: the summary, and where people differ."""
        only(person, OVERSEER)
        annotated = self.annotated()
        differ = annotated.disagreements
        return {
            "summary": asdict(summarise(annotated)),
            "num_differ": len(differ),
            "num_settled": sum(events[-1].person == OVERSEER for _, events in differ),
            "differ": [
                {
                    "id": item.id,
                    "problem": item.problem,
                    "answer": item.answer,
                    "steps": item.steps,
                    "labels": [
                        {"person": e.person, "answer": answer_of(e), "ratings": e.ratings,
                         "note": e.note}
                        for e in events
                    ],
                    "settled": events[-1].person == OVERSEER,
                }
                for item, events in differ[:MAX_SHOWN]
            ],
        }  # fmt: skip

    def state(self, person: str, _: Mapping[str, str]) -> dict[str, Any]:
        """Return what the page begins with: who it is for, what is to be done, what is done."""
        done = {
            solution: {"ratings": e.ratings, "finish": e.finish, "note": e.note, "ms": e.ms,
                       "revision": e.revision}
            for (who, solution), e in self._log.last().items() if who == person
        }  # fmt: skip
        if person == OVERSEER:
            items = [item.id for item, _ in self.annotated().disagreements]
        else:
            items = list(self._queues[person])
        return {
            "person": person,
            "folder": self.settings.id,
            "items": items,
            "done": done,
            "guidelines": self.settings.guidelines,
            "shows_run": not self._has_gold,
            "oversees": person == OVERSEER,
        }

    def item(self, person: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return what is shown of a solution before it is labelled: not its labels, nor its
        outcome.
        """
        item = self._own(person, query.get("id", ""))
        shown = ("id", "problem", "answer", "steps", "digest")
        return {name: getattr(item, name) for name in shown}

    def labels(self, person: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return what the run says of a solution that the person has submitted."""
        item = self._own(person, query.get("id", ""))
        if self._has_gold:
            raise Refused(403, "labels of the run are not shown here")
        if self._log.first(person, item.id) is None:
            raise Refused(403, "labels of the run are shown once you have submitted your own")
        row = self._rows[item.id]
        return {
            "outcome": row.solution.outcome,
            "first_error": row.first_error,
            "decided": row.is_decided,
            "values": [step.estimate for step in row.steps],
            "hard": [step.hard for step in row.steps],
        }

    def add(self, person: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Record an event of the page; returns when it is on the disk."""
        try:
            event = parse_event(content)
        except DataError as error:
            raise Refused(400, f"{error}. Reload the page, and label it again") from None
        if event.person != person:
            raise Refused(
                403,
                f"person={event.person[:80]!r}: this browser is open for {person} now. Open the "
                f"address of {event.person[:80]} again",
            )
        item = self._own(person, event.solution)
        if (fault := event_fault(event, item, before=None)) is not None:
            raise Refused(409, f"{fault}. Reload the page, and label it again")
        try:
            return {"new": self._log.add(event)}
        except DataError as error:
            raise Refused(409, str(error)) from None
        except ShardError as error:
            raise Refused(503, str(error)) from None

    def _own(self, person: str, solution: str) -> Item:
        item = self._by_id.get(solution)
        is_overseer = person == OVERSEER
        if item is None or not (item.gold is None if is_overseer else person in item.people):
            raise Refused(404, f"id={solution[:80]!r}: is no solution that {person} labels")
        return item


def only(person: str, wanted: str) -> None:
    """Refuse everybody else.

    Raises:
        Refused: the person is another.
    """
    if person != wanted:
        raise Refused(403, f"this is for {wanted} alone: open the address that was printed for it")


def make_app(annotations: Annotations, tokens: Mapping[str, str]) -> ASGIApp:
    """The page as an ASGI application.

    Args:
        annotations: that are made.
        tokens: name of the person, by token.
    """
    answers: dict[str, Callable[[str, Mapping[str, str]], Any]] = {
        "/api/state": annotations.state,
        "/api/item": annotations.item,
        "/api/labels": annotations.labels,
        "/api/overview": annotations.overview,
        "/summary": annotations.said_summary,
    }
    app = Starlette(
        routes=[
            Route("/", _page),
            Route(OVERVIEW, _overview),
            *(Route(path, partial(_answer, made)) for path, made in answers.items()),
            Route(EVENTS_PATH, partial(_record, annotations), methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={Refused: _refusal},
    )
    return PageFence(app, tokens, command="mclabel annotate", posts=(EVENTS_PATH,))


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "annotate" / "index.html")


async def _overview(request: Request) -> Response:
    only(request.state.person, OVERSEER)
    return FileResponse(STATIC / "annotate" / "overview.html")


async def _answer(made: Callable[[str, Mapping[str, str]], Any], request: Request) -> Response:
    return json_response(await run_in_threadpool(made, request.state.person, request.query_params))


async def _record(annotations: Annotations, request: Request) -> Response:
    content = parsed(await read_body(request, max_bytes=MAX_BODY))
    return json_response(await run_in_threadpool(annotations.add, request.state.person, content))


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return json_response({"error": str(error)}, error.status, error.headers)
