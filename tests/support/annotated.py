"""Events of people, and `mclabel annotate` as a process of its own."""

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
from mclabel.annotate.gold import GoldLine, with_gold
from mclabel.annotate.items import Item, Settings, draw_items, texts_digest
from mclabel.annotate.storage import EventLog, locked_events, read_folder, write_folder
from mclabel.core.records import LabeledSolution

ONLY = Item(
    id="solution-1",
    problem="p",
    answer="1",
    steps=("a", "b", "c"),
    prediction=None,
    digest=texts_digest("p", ("a", "b", "c")),
    stratum="all",
    probability=1.0,
    people=("ana", "ben"),
)


@contextmanager
def begun_log(folder: Path) -> Iterator[EventLog]:
    """The log of a folder, which is begun with `ONLY` if it holds nothing."""
    folder.mkdir(exist_ok=True)
    with locked_events(folder) as file:
        if not (folder / "annotations.json").exists():
            write_folder(folder, Settings(id="x", run="r", run_id="r", people=ONLY.people), [ONLY])
        yield EventLog(folder, file, read_folder(folder))


def add_events(folder: Path, events: Iterable[Event]) -> None:
    """Record events in a folder."""
    with begun_log(folder) as log:
        for one in events:
            log.add(one)


def event(number: int = 0, **changes: Any) -> Event:
    """A valid event; `number` makes it another one."""
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
    """`mclabel annotate` with some arguments; a context manager that ends it as Ctrl-C does."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.addresses: dict[str, str] = {}
        self.said = ""
        """What it prints when it ends."""

    def __enter__(self) -> AnnotateProcess:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "mclabel", "annotate", *self._arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"(\S+): open (http://127.0.0.1:(\d+)\S+)", line):
                self.addresses[found[1]] = found[2]
                self.port = int(found[3])
            elif line.startswith("Stop"):
                break
        else:
            raise RuntimeError("mclabel annotate has ended without an address")
        self.origin = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.said = self.process.communicate(timeout=60)[0]

    def cookie(self, person: str) -> str:
        """What a browser keeps after the address was opened."""
        _, headers, _ = self.ask("GET", self.addresses[person].removeprefix(self.origin))
        return headers["set-cookie"].split(";")[0]

    def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """Status, headers and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = None if body is None else body if isinstance(body, str) else json.dumps(body)
        kind = {} if body is None else {"content-type": "application/json"}
        connection.request(method, path, sent, {**kind, **headers})
        response = connection.getresponse()
        content = response.read().decode()
        connection.close()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, content

    def get(self, path: str, person: str) -> Any:
        """What the page of a person is told."""
        status, _, body = self.ask("GET", path, cookie=self.cookie(person))
        assert status == 200, body
        return json.loads(body)

    def post(self, content: object, person: str, **headers: str) -> tuple[int, str]:
        """Status and body of the answer to an event."""
        sent = {"cookie": self.cookie(person), "origin": self.origin, **headers}
        status, _, body = self.ask("POST", "/api/events", content, **sent)
        return status, body

    def opinion(self, person: str, solution: str, ratings: list[str | None], **more: Any) -> Any:
        """A valid event on a solution of the run."""
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
    said: dict[tuple[str, str], dict[str, Any]],
    gold: list[GoldLine] | None = None,
    **settings: Any,
) -> list[Item]:
    """A folder of annotations of all rows, with what people said of solutions: changes of events.

    Args:
        folder: to be made.
        rows: of the run.
        said: by person and solution.
        gold: that is mixed in.
        settings: of the draw.
    """  # fmt: skip
    folder.mkdir()
    chosen = Settings(id="test", run="run", run_id="run", **settings)
    items = draw_items(lambda: rows, chosen)
    if gold is not None:
        items = with_gold(items, gold, lambda: rows, chosen)
    write_folder(folder, chosen, items)
    digests = {item.id: item.digest for item in items}
    events = [
        event(
            number, person=person, solution=one, digest=digests[one], **{"revision": 1, **changes}
        )
        for number, ((person, one), changes) in enumerate(said.items())
    ]
    add_events(folder, events)
    return items
