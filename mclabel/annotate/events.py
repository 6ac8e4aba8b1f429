"""What people have said, as an append-only file: `events.jsonl` in the folder of annotations.

An event is one person's whole opinion on one solution. It is on the disk before it is acknowledged.
The page makes its id, so that an event that is sent twice is recorded once. A later one (by
`revision`) replaces an earlier one, in whatever order they come. A process that is killed can
leave half a line at the end: it was never acknowledged, so readers skip it and the next start
cuts it off.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.data.readers.rows import is_unicode
from mclabel.run.shards.durable import sync_folder, write_synced

EVENTS = "events.jsonl"
RATINGS = ("good", "okay", "bad", "unsure")
FINISHES = ("found_error", "solution", "give_up", "bad_problem")
WITH_REASON = ("give_up", "bad_problem")
"""Ways to finish that need a note."""
MAX_NOTE = 2000
"""Characters."""
MAX_INT = 2**53
"""Whole numbers of a browser end there."""
_ID = re.compile(r"[A-Za-z0-9-]{8,64}")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One person's opinion on one solution."""

    id: str
    """Made by the page; unique."""
    person: str
    solution: str
    """Id of the solution."""
    digest: str
    """Hash of the texts that were shown."""
    ratings: tuple[str | None, ...]
    """One of `RATINGS` for each step; None for a step that was not rated."""
    finish: str
    """One of `FINISHES`."""
    note: str
    ms: int
    """Milliseconds that the solution was in sight."""
    at: int
    """When it was made, in milliseconds since 1970, by the person's clock."""
    revision: int
    """Counts the opinions of this person on this solution, from 1. From 2 on, the labels of the
    run had been shown."""

    @property
    def order(self) -> tuple[int, int, str]:
        """What decides which of two events of a person on a solution is the later one."""
        return self.revision, self.at, self.id

    @property
    def is_sure(self) -> bool:
        """Whether the event says where the first error is, or that there is none."""
        ends = next((r for r in self.ratings if r in ("bad", "unsure", None)), "none")
        return self.finish not in WITH_REASON and ends in ("bad", "none")

    @property
    def first_error(self) -> int | None:
        """Index of the first step rated bad, None for none; it means something if `is_sure`."""
        return self.ratings.index("bad") if "bad" in self.ratings else None


def parse_event(content: Mapping[str, Any]) -> Event:
    """An event from JSON.

    Raises:
        DataError: names the fields that are wrong, and what they must be.
    """
    wanted = set(Event.__dataclass_fields__)
    if set(content) != wanted:
        raise DataError(
            f"an event has the fields {', '.join(sorted(wanted))}; this one has "
            f"{', '.join(sorted(map(str, content)))[:300]}. Reload the page"
        )
    faults = [
        f"{name}={str(content[name])[:80]!r}: must be {rule}"
        for name, rule, is_right in _rules(content)
        if not is_right
    ]
    if faults:
        raise DataError("; ".join(faults))
    event = Event(**{**content, "ratings": tuple(content["ratings"])})
    bad = event.first_error
    rated = event.ratings if bad is None else event.ratings[: bad + 1]
    if event.finish == "found_error" and bad is None:
        raise DataError("finish='found_error': no step is rated bad. Rate the first wrong step bad")
    if event.finish == "solution" and bad is not None:
        raise DataError(f"finish='solution': step {bad} is rated bad. Finish with found_error")
    if event.finish not in WITH_REASON and None in rated:
        raise DataError(f"ratings: step {rated.index(None)} is not rated. Rate it, or give up")
    if event.finish in WITH_REASON and not event.note.strip():
        raise DataError(f"finish={event.finish!r}: needs a reason. Write it as the note")
    return event


def _rules(content: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Name, rule, and whether the field keeps it."""
    yield "id", "8 to 64 letters, digits or -", _is_text(content["id"], _ID)
    for name in ("person", "solution", "digest"):
        yield name, "a text that is not empty", _is_text(content[name]) and content[name] != ""
    given = content["ratings"]
    rated = isinstance(given, list | tuple) and all(r is None or r in RATINGS for r in given)
    yield "ratings", f"a list of {', '.join(RATINGS)} or null, one a step", rated
    yield "finish", f"one of {', '.join(FINISHES)}", content["finish"] in FINISHES
    note = content["note"]
    short = isinstance(note, str) and len(note) <= MAX_NOTE and is_unicode(note)
    yield "note", f"a text of {MAX_NOTE} characters at most, in valid Unicode", short
    for name, low in (("ms", 0), ("at", 0), ("revision", 1)):
        number = content[name]
        whole = isinstance(number, int) and not isinstance(number, bool)
        yield name, f"a whole number from {low} on", whole and low <= number < MAX_INT


def _is_text(value: object, pattern: re.Pattern[str] | None = None) -> bool:
    return isinstance(value, str) and (pattern is None or pattern.fullmatch(value) is not None)


class EventLog:
    """The events of a folder, for the one process that may add to them."""

    def __init__(self, folder: Path) -> None:
        """Open the file, and cut off what a killed process has left half written.

        Raises:
            ConfigError: another process has it open.
            DataError: a whole line is no event.
        """
        self._path = folder / EVENTS
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise ConfigError(
                f"-o {folder}: another `mclabel annotate` serves this folder. Use its page, or end "
                "it first"
            ) from error
        try:
            content = self._path.read_bytes()
            self._size = content.rfind(b"\n") + 1
            self._events = {one.id: one for one in _parsed(content[: self._size], self._path)}
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            sync_folder(folder)
        except BaseException:
            os.close(self._file)
            raise
        self._latest = latest(self._events.values())
        self._first = first(self._events.values())
        self._lock = threading.Lock()

    def add(self, event: Event) -> bool:
        """Record an event; when this returns, it is on the disk.

        Returns:
            Whether it is new. One that was recorded before is not recorded again.

        Raises:
            DataError: another event has its id.
            ShardError: it could not be written. It can be added again.
        """
        line = _line(event)
        with self._lock:
            known = self._events.get(event.id)
            if known == event:
                return False
            if known is not None:
                raise DataError(f"id={event.id!r}: is the id of another event. Reload the page")
            try:
                os.ftruncate(self._file, self._size)  # without what a write that failed has left
                write_synced(self._file, line)
            except OSError as error:
                raise ShardError(f"{self._path}: cannot be written ({error.strerror})") from error
            self._size += len(line)
            self._events[event.id] = event
            _take(self._latest, event)
            _take_first(self._first, event)
            return True

    def latest(self) -> dict[tuple[str, str], Event]:
        """The last event of each person on each solution."""
        with self._lock:
            return dict(self._latest)

    def firsts(self) -> dict[tuple[str, str], Event]:
        """The first event of each person on each solution."""
        with self._lock:
            return dict(self._first)

    def first(self, person: str, solution: str) -> Event | None:
        """The first event of a person on a solution."""
        return self._first.get((person, solution))

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._file)


def write_events(folder: Path, events: Iterable[Event]) -> None:
    """Write the events of a new folder."""
    file = os.open(folder / EVENTS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_synced(file, b"".join(map(_line, events)))
    finally:
        os.close(file)


def _line(event: Event) -> bytes:
    return json.dumps(asdict(event), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def read_events(folder: str | Path) -> list[Event]:
    """All events of a folder, in the order they were recorded.

    Raises:
        DataError: a whole line is no event; names it.
    """
    path = Path(folder) / EVENTS
    content = path.read_bytes() if path.exists() else b""
    events = {one.id: one for one in _parsed(content[: content.rfind(b"\n") + 1], path)}
    return list(events.values())


def latest(events: Iterable[Event]) -> dict[tuple[str, str], Event]:
    """The last event of each person on each solution, by their ids; order changes nothing."""
    found: dict[tuple[str, str], Event] = {}
    for event in events:
        _take(found, event)
    return found


def first(events: Iterable[Event]) -> dict[tuple[str, str], Event]:
    """The first event of each person on each solution, by their ids; order changes nothing."""
    found: dict[tuple[str, str], Event] = {}
    for event in events:
        _take_first(found, event)
    return found


def _take_first(found: dict[tuple[str, str], Event], event: Event) -> None:
    key = event.person, event.solution
    if key not in found or event.order < found[key].order:
        found[key] = event


def _take(found: dict[tuple[str, str], Event], event: Event) -> None:
    key = event.person, event.solution
    if key not in found or event.order > found[key].order:
        found[key] = event


def _parsed(content: bytes, path: Path) -> Iterator[Event]:
    for number, line in enumerate(content.splitlines(), 1):
        try:
            yield parse_event(json.loads(line))
        except (ValueError, TypeError, AttributeError, DataError) as error:
            raise DataError(
                f"{path}, line {number}: is no event ({error}). Only the last line can be half "
                "written, so the file has been changed: restore it from a copy"
            ) from error
