"""Annotation events, and `mclabel annotate` in a separate process."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mclabel.annotate.events import Event, parse_event
from mclabel.annotate.gold import GoldLine, add_gold_items
from mclabel.annotate.items import AnnotationSettings, Item, draw_items, hash_problem_and_steps
from mclabel.annotate.storage import EventLog, lock_events_file, read_folder, write_folder
from mclabel.core.records import LabeledSolution

ONLY = Item(
    id="solution-1",
    problem="p",
    answer="1",
    steps=("a", "b", "c"),
    prediction=None,
    digest=hash_problem_and_steps("p", ("a", "b", "c")),
    stratum="all",
    probability=1.0,
    people=("ana", "ben"),
)


@contextmanager
def begun_log(folder: Path) -> Iterator[EventLog]:
    """Open a folder's event log; an empty folder is first set up with the item `ONLY`."""
    folder.mkdir(exist_ok=True)
    with lock_events_file(folder) as file:
        if not (folder / "annotations.json").exists():
            write_folder(
                folder, AnnotationSettings(id="x", run="r", run_id="r", people=ONLY.people), [ONLY]
            )
        yield EventLog(folder, file, read_folder(folder))


def add_events(folder: Path, events: Iterable[Event]) -> None:
    """Record events in a folder."""
    with begun_log(folder) as log:
        for recorded in events:
            log.add(recorded)


def event(number: int = 0, **changes: Any) -> Event:
    """Return a valid event; events of different numbers differ."""
    content: dict[str, Any] = {
        "id": f"event-{number:04d}",
        "person": "ana",
        "solution": "solution-1",
        "digest": ONLY.digest,
        "ratings": ["good", "bad", None],
        "finish": "found_error",
        "note": "",
        "ms": 1500,
        "at": 1_700_000_000_000 + number,
        "revision": number + 1,
    }
    return parse_event({**content, **changes})


class AnnotateProcess:
    """`mclabel annotate` as a context manager that ends it as Ctrl-C does."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.addresses: dict[str, str] = {}
        self.said = ""
        """Output of the process after its start; empty until the process has ended."""

    def __enter__(self) -> AnnotateProcess:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "mclabel", "annotate", *self._arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if address := re.search(r"(\S+): open (http://127.0.0.1:(\d+)\S+)", line):
                self.addresses[address[1]] = address[2]
                self.port = int(address[3])
            elif line.startswith("Stop"):
                break
        else:
            raise RuntimeError("mclabel annotate ended without printing an address")
        self.origin = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.said = self.process.communicate(timeout=60)[0]

    def cookie(self, person: str) -> str:
        """Open a person's address and return the cookie that a browser keeps."""
        _, headers, _ = self.ask("GET", self.addresses[person].removeprefix(self.origin))
        return headers["set-cookie"].split(";")[0]

    def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """Send a request; return the status, headers and body of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = None if body is None else body if isinstance(body, str) else json.dumps(body)
        kind = {} if body is None else {"content-type": "application/json"}
        connection.request(method, path, sent, {**kind, **headers})
        response = connection.getresponse()
        content = response.read().decode()
        connection.close()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, content

    def get(self, path: str, person: str) -> Any:
        """Return the decoded response that a person's page gets."""
        status, _, body = self.ask("GET", path, cookie=self.cookie(person))
        assert status == 200, body
        return json.loads(body)

    def post(self, content: object, person: str, **headers: str) -> tuple[int, str]:
        """Send an event; return the status and body of the response."""
        sent = {"cookie": self.cookie(person), "origin": self.origin, **headers}
        status, _, body = self.ask("POST", "/api/events", content, **sent)
        return status, body

    def opinion(self, person: str, solution: str, ratings: list[str | None], **more: Any) -> Any:
        """Return a valid event on a solution of the run."""
        digest = self.get(f"/api/item?id={solution}", person)["digest"]
        content: dict[str, Any] = {
            "id": f"{person}-{solution}-1",
            "person": person,
            "solution": solution,
            "digest": digest,
            "ratings": ratings,
            "finish": "found_error" if "bad" in ratings else "solution",
            "note": "",
            "ms": 2000,
            "at": 1_700_000_000_000,
            "revision": 1,
        }
        return {**content, **more}


def annotated_folder(
    folder: Path,
    rows: list[LabeledSolution],
    opinions: dict[tuple[str, str], dict[str, Any]],
    gold: list[GoldLine] | None = None,
    **settings: Any,
) -> list[Item]:
    """Make a folder with annotations of all rows.

    Args:
        folder: folder to be made.
        rows: labelled solutions of the run.
        opinions: changes of an annotation event, by person and solution.
        gold: gold lines that are mixed in.
        settings: settings of the draw.
    """
    folder.mkdir()
    chosen = AnnotationSettings(id="test", run="run", run_id="run", **settings)
    items = draw_items(lambda: rows, chosen)
    if gold is not None:
        items = add_gold_items(items, gold, lambda: rows, chosen)
    write_folder(folder, chosen, items)
    digests = {item.id: item.digest for item in items}
    events = [
        event(
            number,
            person=person,
            solution=solution_id,
            digest=digests[solution_id],
            **{"revision": 1, **changes},
        )
        for number, ((person, solution_id), changes) in enumerate(opinions.items())
    ]
    add_events(folder, events)
    return items
