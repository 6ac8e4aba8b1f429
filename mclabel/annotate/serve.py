"""Server of `mclabel annotate`: it serves the annotation page until the command is interrupted.

The server sends items and records events. It sends the run's labels of a solution only to people
who have submitted an opinion on it. If the folder has gold, the server sends no labels of the run:
gold solutions may have none, so their absence would reveal the gold.
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

from mclabel.annotate.events import find_event_fault, parse_event
from mclabel.annotate.folder import AnnotationFolder, Summary, describe_opinion, summarise
from mclabel.annotate.gold import (
    GoldLine,
    add_gold_items,
    build_queues,
    hash_gold_lines,
    is_run_solution,
    read_gold_lines,
)
from mclabel.annotate.items import (
    OVERSEER,
    AnnotationSettings,
    Item,
    check_same_settings,
    draw_items,
    hash_solution_texts,
)
from mclabel.annotate.storage import (
    EventLog,
    StoredFolder,
    is_annotation_folder,
    lock_events_file,
    read_folder,
    write_folder,
)
from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import LabeledSolution
from mclabel.core.seeds import content_id
from mclabel.data.readers.solutions import SelectionManifest, read_selected
from mclabel.run.kinds import Run, find_runs, read_run_identity
from mclabel.run.outputs import ANNOTATIONS, check_output_is_usable, make_output_folder
from mclabel.run.shards.labels import read_labels
from mclabel.serving.access import PageAccessControl
from mclabel.serving.requests import Refused, make_json_response, parse_body, read_body
from mclabel.show.solutions import get_shown_value
from mclabel.show.texts import STATIC

PORT = 8790
"""Default port of the page."""


def annotate(
    run: str,
    out: str,
    given_settings: Mapping[str, Any],
    *,
    gold: str | None = None,
    select: str | None = None,
    port: int | None,
    on_ready: Callable[[Mapping[str, str]], None],
) -> Summary:
    """Serve the annotation page on this machine until the process is interrupted.

    Args:
        run: folder or URL of the run whose solutions are labelled, or a folder that contains it.
        out: folder of the annotations; an existing one is continued.
        given_settings: fields of `AnnotationSettings` that the user has set. For an existing
            folder, they must equal its settings.
        gold: gold file, whose solutions with known first errors are hidden among the others.
        select: manifest of `mclabel select` that lists the solutions; None draws them.
        port: port of the page. None takes PORT, or any free port if PORT is in use.
        on_ready: called once when the page is served, with the address of each person, by name;
            the overseer's is the last.

    Returns:
        The summary of all work in the folder so far.

    Raises:
        ConfigError: another process serves the folder, the settings differ, or the port is in use.
        DataError: the run's solutions are not those in the folder.
        ShardError: the run or the folder cannot be read, or the folder contains other data.
    """
    from mclabel.serving.access import format_page_address, listen_on_loopback, serve_page

    labelled = _find_labelling_run(run)
    lines = [] if gold is None else read_gold_lines(gold)
    selected = None if select is None else read_selected(select, "--select ")
    given_settings = _add_hashes_of_input_files(given_settings, lines, selected)
    check_output_is_usable(out, ANNOTATIONS, key="-o ")
    folder = make_output_folder(out, "-o ")
    listening = listen_on_loopback(port, PORT)
    with closing(listening), lock_events_file(folder) as file:
        stored = _open_or_create_folder(labelled, folder, given_settings, lines, selected)
        rows = _read_rows_of_items(labelled, stored.items, out)
        annotations = AnnotationService(stored, rows, EventLog(folder, file, stored))
        tokens = {
            secrets.token_urlsafe(24): person for person in (*stored.settings.people, OVERSEER)
        }
        app = make_app(annotations, tokens)
        address = format_page_address(listening)
        with suppress(KeyboardInterrupt):  # Ctrl-C before the server has its own signal handler
            on_ready(
                {
                    person: f"{address}{OVERVIEW if person == OVERSEER else '/'}?token={token}"
                    for token, person in tokens.items()
                }
            )
            serve_page(app, listening)
        return annotations.summarise()


def _find_labelling_run(place: str) -> Run:
    runs = [run for run in find_runs([place]) if run.kind == "labels"]
    if len(runs) != 1:
        raise ShardError(
            f"{place}: contains {len(runs)} labelling runs, but must contain exactly one. Give the "
            "`out` of one labelling run"
        )
    return runs[0]


def _add_hashes_of_input_files(
    given: Mapping[str, Any], lines: Sequence[GoldLine], selected: SelectionManifest | None
) -> dict[str, Any]:
    """Return the given settings, with the hashes of the gold file and of the selection.

    Raises:
        ConfigError: a person has the overseer's name, or both a selection and a sample are given.
    """
    if OVERSEER in given.get("people", ()):
        raise ConfigError(
            f"--people {OVERSEER}: this name is reserved for the user who runs the command. Give "
            "another name"
        )
    content = dict(given)
    if lines:
        content["gold"] = hash_gold_lines(lines)
    if selected is not None:
        if "sample" in content:
            raise ConfigError(
                "--sample: must not be given with --select, which lists the solutions. Leave out "
                "one of these options"
            )
        content["sample"] = len(selected.text_hashes)
        content["select"] = content_id(dict(selected.text_hashes), dict(selected.probabilities))
    return content


def _open_or_create_folder(
    run: Run,
    folder: Path,
    given: Mapping[str, Any],
    lines: Sequence[GoldLine],
    selected: SelectionManifest | None,
) -> StoredFolder:
    """Return the content of a folder of annotations, after creating it if it is empty."""
    wanted = {**given, "run_id": read_run_identity(run)}
    if is_annotation_folder(folder):
        stored = read_folder(folder)
        check_same_settings(wanted, stored.settings, str(folder))
        return stored
    settings = AnnotationSettings(id=secrets.token_hex(8), run=run.location, **wanted)
    if settings.fault is not None:
        raise ConfigError(f"{settings.fault}. Give another value")
    items = draw_items(lambda: read_labels(run.store), settings, selected)
    if lines:
        items = add_gold_items(items, lines, lambda: read_labels(run.store), settings)
    return write_folder(folder, settings, items)


def _read_rows_of_items(run: Run, items: Sequence[Item], out: str) -> dict[str, LabeledSolution]:
    """Return the run's rows of the items, by solution id.

    Raises:
        DataError: the run lacks a solution, or the solution has other texts than the item.
    """
    digests = {item.id: item.digest for item in items if is_run_solution(item)}
    rows = {row.solution.id: row for row in read_labels(run.store) if row.solution.id in digests}
    changed = [
        solution_id
        for solution_id in digests
        if solution_id not in rows or hash_solution_texts(rows[solution_id]) != digests[solution_id]
    ]
    if changed:
        raise DataError(
            f"{run.location}: {len(changed)} of the {len(items)} solutions in {out} are missing "
            f"from the run or have other texts there; the first is {changed[0]}. Restore the run, "
            "or give another folder with -o"
        )
    return rows


MAX_BODY = 1 << 20
"""Maximum bytes of one event, which has a rating for each step."""
EVENTS_PATH, OVERVIEW = "/api/events", "/overview"
MAX_SHOWN = 500
"""Maximum number of disagreements in the overview."""


class AnnotationService:
    """Answers the requests of the annotation page from the state of the served folder."""

    def __init__(
        self, stored: StoredFolder, rows: Mapping[str, LabeledSolution], log: EventLog
    ) -> None:
        """Prepare the queues of all people.

        Args:
            stored: content of the folder.
            rows: labels of the run, by solution id.
            log: log of the events, which receives new ones.
        """
        settings, items = stored.settings, stored.items
        self.settings, self._items, self._rows, self._log = settings, items, rows, log
        self._by_id = {item.id: item for item in items}
        self._has_gold = any(item.gold is not None for item in items)
        self._queues = build_queues(items, settings)

    def make_snapshot(self) -> AnnotationFolder:
        """Return the folder's items with all opinions recorded so far."""
        return AnnotationFolder(
            settings=self.settings,
            items=self._items,
            events=self._log.list_events(),
        )

    def summarise(self) -> Summary:
        """Return the summary of people's work and agreement so far."""
        return summarise(self.make_snapshot())

    def make_visible_summary(self, person: str, _: Mapping[str, str]) -> dict[str, Any]:
        """Return the summary as JSON. Rates on gold, which reveal gold, go only to the overseer."""
        content = asdict(self.summarise())
        if person != OVERSEER:
            for summary in content["people"]:
                del summary["hidden"]
        return content

    def make_overview(self, person: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the content of the overseer's page: the summary and the disagreements."""
        refuse_other_people(person, OVERSEER)
        annotated = self.make_snapshot()
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
                        {"person": e.person, "answer": describe_opinion(e), "ratings": e.ratings,
                         "note": e.note}
                        for e in events
                    ],
                    "settled": events[-1].person == OVERSEER,
                }
                for item, events in differ[:MAX_SHOWN]
            ],
        }  # fmt: skip

    def make_page_state(self, person: str, _: Mapping[str, str]) -> dict[str, Any]:
        """Return the initial content of a person's page: the queue, and the opinions so far."""
        done = {
            solution: {"ratings": e.ratings, "finish": e.finish, "note": e.note, "ms": e.ms,
                       "revision": e.revision}
            for (name, solution), e in self._log.copy_last_events().items() if name == person
        }  # fmt: skip
        items = (
            [item.id for item, _ in self.make_snapshot().disagreements]
            if person == OVERSEER
            else list(self._queues[person])
        )
        return {
            "person": person,
            "folder": self.settings.id,
            "items": items,
            "done": done,
            "guidelines": self.settings.guidelines,
            "shows_run": not self._has_gold,
            "oversees": person == OVERSEER,
        }

    def get_item_texts(self, person: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the texts of a solution to label, without its labels and its outcome."""
        item = self._require_assigned_item(person, query.get("id", ""))
        return {
            name: getattr(item, name) for name in ("id", "problem", "answer", "steps", "digest")
        }

    def get_run_labels(self, person: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the run's labels of a solution on which the person has submitted an opinion."""
        item = self._require_assigned_item(person, query.get("id", ""))
        if self._has_gold:
            raise Refused(
                403,
                "the labels of the run are not shown in a folder with gold, because they would "
                "show which solutions are gold",
            )
        if self._log.get_first_event(person, item.id) is None:
            raise Refused(
                403, "the labels of the run are shown only after you have submitted an opinion"
            )
        row = self._rows[item.id]
        return {
            "outcome": row.solution.outcome,
            "first_error": row.first_error,
            "decided": row.is_decided,
            "values": [get_shown_value(step.source, step.estimate) for step in row.steps],
            "hard": [step.hard for step in row.steps],
        }

    def record_event(self, person: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Record an event from the page, and return after it is written to disk."""
        try:
            event = parse_event(content)
        except DataError as error:
            raise Refused(400, f"{error}. Reload the page, and label the solution again") from None
        if event.person != person:
            raise Refused(
                403,
                f"person={event.person[:80]!r}: this browser is open for {person} now. Open the "
                f"address of {event.person[:80]} again",
            )
        item = self._require_assigned_item(person, event.solution)
        if (fault := find_event_fault(event, item, previous=None)) is not None:
            raise Refused(409, f"{fault}. Reload the page, and label the solution again")
        try:
            return {"new": self._log.add(event)}
        except DataError as error:
            raise Refused(409, str(error)) from None
        except ShardError as error:
            raise Refused(503, str(error)) from None

    def _require_assigned_item(self, person: str, solution: str) -> Item:
        item = self._by_id.get(solution)
        is_overseer = person == OVERSEER
        if item is None or not (item.gold is None if is_overseer else person in item.people):
            raise Refused(404, f"id={solution[:80]!r}: is not a solution assigned to {person}")
        return item


def refuse_other_people(person: str, allowed: str) -> None:
    """Check that a request comes from one particular person.

    Raises:
        Refused: it comes from another person.
    """
    if person != allowed:
        raise Refused(
            403,
            f"this page is only for {allowed}, but the request comes from {person}. Open the "
            f"address that was printed for {allowed}",
        )


def make_app(annotations: AnnotationService, tokens: Mapping[str, str]) -> ASGIApp:
    """Make the ASGI application that serves the page.

    Args:
        annotations: state of the served folder.
        tokens: name of each person, by the token in the person's address.
    """
    answers: dict[str, Callable[[str, Mapping[str, str]], Any]] = {
        "/api/state": annotations.make_page_state,
        "/api/item": annotations.get_item_texts,
        "/api/labels": annotations.get_run_labels,
        "/api/overview": annotations.make_overview,
        "/summary": annotations.make_visible_summary,
    }
    app = Starlette(
        routes=[
            Route("/", _serve_page),
            Route(OVERVIEW, _serve_overview),
            *(Route(path, partial(_answer_query, made)) for path, made in answers.items()),
            Route(EVENTS_PATH, partial(_record_opinion, annotations), methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={Refused: _make_refusal_response},
    )
    return PageAccessControl(app, tokens, command="mclabel annotate", post_paths=(EVENTS_PATH,))


async def _serve_page(request: Request) -> Response:
    return FileResponse(STATIC / "annotate" / "index.html")


async def _serve_overview(request: Request) -> Response:
    refuse_other_people(request.state.person, OVERSEER)
    return FileResponse(STATIC / "annotate" / "overview.html")


async def _answer_query(
    make_content: Callable[[str, Mapping[str, str]], Any], request: Request
) -> Response:
    return make_json_response(
        await run_in_threadpool(make_content, request.state.person, request.query_params)
    )


async def _record_opinion(annotations: AnnotationService, request: Request) -> Response:
    content = parse_body(await read_body(request, max_bytes=MAX_BODY))
    return make_json_response(
        await run_in_threadpool(annotations.record_event, request.state.person, content)
    )


async def _make_refusal_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return make_json_response({"error": str(error)}, error.status, error.headers)
