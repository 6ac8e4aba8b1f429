"""The files of a folder of annotations: how they are written, read and checked.

`items.jsonl` holds the solutions that people label, `events.jsonl` what people said, in the order
in which it was recorded. Each line begins with a digest of its own content and of the digest of the
line before, so that no line can be changed, doubled, moved or removed unnoticed.
`annotations.json` holds the settings, and the number and the last digest of the lines of both.

An event is on the disk, and counted in `annotations.json`, before it is acknowledged. A process
that is killed can leave a whole event that is not counted, which is kept, and half a line at the
end, which was never acknowledged: readers leave it out with a warning, and the next start cuts it
off.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mclabel.annotate.events import (
    Event,
    event_fault,
    first_opinions,
    last_opinions,
    parse_event,
)
from mclabel.annotate.items import Item, Settings
from mclabel.core.errors import ConfigError, DamagedFile, DataError, ShardError
from mclabel.core.plain_files import write_whole
from mclabel.core.settings import read_record
from mclabel.run.outputs import ANNOTATIONS
from mclabel.run.shards.digest import read_object, with_digest
from mclabel.run.shards.durable import sync_folder, write_synced
from mclabel.run.verify.single_files import Verification

logger = logging.getLogger(__name__)

MANIFEST, ITEMS, EVENTS = str(ANNOTATIONS.manifest), "items.jsonl", "events.jsonl"
_CHECK = "check"
"""Name of the digest that begins a line."""
_LINE = re.compile(rb'\{"check":"([0-9a-f]{32})",(.*)', re.DOTALL)
_RESTORE = "Restore the whole folder from a copy"
_CHANGED = (
    "is not the line that was written here: lines before it or itself were changed, moved, doubled "
    "or removed"
)


@dataclass(frozen=True, kw_only=True)
class LineEnd:
    """End of a file of lines."""

    num: int = 0
    """Number of lines."""
    check: str = ""
    """Digest of the last line; empty where there is none."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of `annotations.json`."""

    settings: Settings
    items: LineEnd
    """Exactly the lines of this file."""
    events: LineEnd
    """Lines that were acknowledged; there may be more."""


@dataclass(frozen=True, kw_only=True)
class StoredFolder:
    """A folder of annotations that was found sound."""

    manifest: Manifest
    items: Sequence[Item]
    """In the order in which they are shown."""
    events: Sequence[Event]
    """In the order in which they were recorded."""
    events_end: LineEnd
    """End of the whole lines of events."""
    events_size: int
    """Bytes of these lines."""

    @property
    def settings(self) -> Settings:
        """Return how the folder was begun."""
        return self.manifest.settings


def is_annotations(folder: str | Path) -> bool:
    """Return whether a folder is one of `mclabel annotate`, be it damaged."""
    root = Path(folder)
    if os.path.lexists(root / MANIFEST):
        return True
    events = root / EVENTS
    has_events = os.path.lexists(events) and not (events.is_file() and not events.stat().st_size)
    return has_events and os.path.lexists(root / ITEMS)


def read_folder(folder: str | Path) -> StoredFolder:
    """Read a folder, and check everything in it.

    Raises:
        DamagedFile: names the first fault.
    """
    reading = _Reading(Path(folder))
    stored = reading.read()
    if stored is None:
        raise reading.faults[0]
    for note in reading.notes:
        logger.warning("%s", note)
    return stored


def verify_annotations(folder: str) -> Verification:
    """Read a folder, and list everything that is wrong with it."""
    reading = _Reading(Path(folder))
    reading.read()
    verification = Verification(run=folder, holds="annotations", notes=reading.notes)
    verification.num_solutions, verification.num_opinions = reading.num_items, reading.num_events
    for fault in reading.faults:
        verification.add(fault)
    return verification


def write_folder(folder: Path, settings: Settings, items: Sequence[Item]) -> StoredFolder:
    """Write a new folder; the manifest last, since it says that the others are whole."""
    (folder / EVENTS).touch()
    items_content, items_end = _chained(map(asdict, items), LineEnd())
    write_whole(folder / ITEMS, items_content)
    manifest = Manifest(settings=settings, items=items_end, events=LineEnd())
    _write_manifest(folder, manifest)
    sync_folder(folder)
    return StoredFolder(
        manifest=manifest,
        items=tuple(items),
        events=(),
        events_end=LineEnd(),
        events_size=0,
    )


@contextmanager
def locked_events(folder: Path) -> Iterator[int]:
    """Open the file of events for the one process that may add to it; made if nothing was begun.

    Raises:
        ConfigError: another process has it open.
        DamagedFile: it is missing, or is no plain file.
    """
    if os.path.lexists(folder / EVENTS) or os.path.lexists(folder / MANIFEST):
        _check_file(folder, EVENTS)
    file = os.open(folder / EVENTS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"-o {folder}: another `mclabel annotate` serves this folder. Use its page, or end "
                "it first"
            ) from error
        yield file
    finally:
        os.close(file)


class EventLog:
    """The events of a folder, for the one process that may add to them."""

    def __init__(self, folder: Path, file: int, stored: StoredFolder) -> None:
        """Go on after the last whole event.

        Args:
            folder: folder of the annotations.
            file: file of the events, open and locked (`locked_events`).
            stored: what the folder holds.
        """
        self._folder, self._file, self._manifest = folder, file, stored.manifest
        self._size, self._end = stored.events_size, stored.events_end
        self._events = {event.id: event for event in stored.events}
        self._last, self._first = last_opinions(stored.events), first_opinions(stored.events)
        self._lock = threading.Lock()
        os.ftruncate(file, self._size)
        os.fsync(file)
        self._count(self._end)

    def add(self, event: Event) -> bool:
        """Record an event; when this returns, it is on the disk.

        Returns:
            Whether it is new. One that was recorded before is not recorded again.

        Raises:
            DataError: another event has its id, or its revision is not the next one.
            ShardError: it could not be written. It can be added again.
        """
        with self._lock:
            recorded = self._events.get(event.id)
            if recorded == event:
                return False
            if recorded is not None:
                raise DataError(f"id={event.id!r}: is the id of another event. Reload the page")
            before = self._last.get((event.person, event.solution))
            wanted = 1 if before is None else before.revision + 1
            if event.revision != wanted:
                raise DataError(
                    f"revision={event.revision}: must be {wanted}, as {event.person[:80]} has "
                    f"{wanted - 1} opinions on solution {event.solution} here, perhaps from "
                    "another window. Reload the page to change the last one"
                )
            line, end = _chained([asdict(event)], self._end)
            try:
                os.ftruncate(self._file, self._size)  # without what a write that failed has left
                write_synced(self._file, line)
                self._count(end)
            except OSError as error:
                path = self._folder / EVENTS
                raise ShardError(f"{path}: cannot be written ({error.strerror})") from error
            self._size, self._end = self._size + len(line), end
            self._events[event.id] = event
            self._last[event.person, event.solution] = event
            self._first |= first_opinions([event])
            return True

    def _count(self, end: LineEnd) -> None:
        """Record in the manifest how far the events go."""
        manifest = Manifest(
            settings=self._manifest.settings, items=self._manifest.items, events=end
        )
        if manifest != self._manifest:
            _write_manifest(self._folder, manifest)
            self._manifest = manifest

    def events(self) -> list[Event]:
        """Return all events, in the order in which they were recorded."""
        with self._lock:
            return list(self._events.values())

    def last(self) -> dict[tuple[str, str], Event]:
        """Return the last event of each person on each solution."""
        with self._lock:
            return dict(self._last)

    def first(self, person: str, solution: str) -> Event | None:
        """Return the first event of a person on a solution."""
        return self._first.get((person, solution))


@dataclass
class _Lines:
    """The whole lines of a file that are sound so far as it can be told without other files."""

    records: list[tuple[int, Any]] = field(default_factory=list)
    """Each with its number, from 1."""
    checks: list[str] = field(default_factory=list)
    """Digest that each line carries, sound or not."""
    size: int = 0
    rest: int = 0
    """Bytes after the last whole line."""

    @property
    def end(self) -> LineEnd:
        return LineEnd(num=len(self.checks), check=self.checks[-1] if self.checks else "")


class _Reading:
    """Reads a folder once, and collects what is wrong with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.faults: list[DamagedFile] = []
        self.notes: list[str] = []
        self.num_items = self.num_events = 0

    def read(self) -> StoredFolder | None:
        """Return what the folder holds; None if anything in it is wrong.

        The manifest is read first: events that are recorded meanwhile only add to what it counts.
        """
        manifest = self._manifest()
        item_lines = self._lines(ITEMS, _parse_item)
        event_lines = self._lines(EVENTS, parse_event)
        if manifest is None or item_lines is None or event_lines is None:
            return None
        self._check_ends(manifest, item_lines, event_lines)
        items = self._items(manifest.settings, item_lines)
        events = self._events(items, event_lines)
        self.num_items, self.num_events = len(item_lines.checks), len(event_lines.checks)
        if self.faults:
            return None
        return StoredFolder(
            manifest=manifest,
            items=tuple(items.values()),
            events=tuple(events),
            events_end=event_lines.end,
            events_size=event_lines.size,
        )

    def _fault(self, name: str, line: int | None, fault: str, remedy: str = _RESTORE) -> None:
        place = name if line is None else f"{name}, line {line}"
        self.faults.append(DamagedFile(str(self._folder), place, fault, remedy))

    def _content(self, name: str) -> bytes | None:
        try:
            _check_file(self._folder, name)
            return (self._folder / name).read_bytes()
        except DamagedFile as fault:
            self.faults.append(fault)
        except OSError as error:
            self._fault(name, None, f"cannot be read ({error.strerror})", "Make it readable")
        return None

    def _manifest(self) -> Manifest | None:
        if (raw := self._content(MANIFEST)) is None:
            return None
        try:
            content, check = read_object(raw)
            manifest = read_record(Manifest, content)
            fault = manifest.settings.fault
        except ValueError as error:
            fault = f"is no manifest of annotations ({error})"
        else:
            if fault is None and check != "sound":
                fault = "has changed since it was written: its digest is that of another content"
        if fault is not None:
            self._fault(MANIFEST, None, fault)
            return None
        return manifest

    def _lines(self, name: str, parse: Callable[[Any], Any]) -> _Lines | None:
        if (raw := self._content(name)) is None:
            return None
        result, before = _Lines(), ""
        *lines, rest = raw.split(b"\n")
        result.size, result.rest = len(raw) - len(rest), len(rest)
        for number, line in enumerate(lines, 1):
            parts = _LINE.fullmatch(line)
            check = "" if parts is None else parts[1].decode()
            try:
                content = json.loads(line)
                if isinstance(content, dict):
                    content.pop(_CHECK, None)
                result.records.append((number, parse(content)))
            except (ValueError, RecursionError, DataError) as error:
                self._fault(name, number, f"cannot be used: {error}")
            else:
                if parts is None or check != _check_of(before, parts[2]):
                    self._fault(name, number, _CHANGED)
            result.checks.append(check)
            before = check
        return result

    def _check_ends(self, manifest: Manifest, items: _Lines, events: _Lines) -> None:
        """Compare the numbers of lines and their digests with those of the manifest."""
        for name, lines, end in ((ITEMS, items, manifest.items), (EVENTS, events, manifest.events)):
            num, is_whole = len(lines.checks), name == ITEMS
            if num < end.num or (is_whole and num > end.num):
                cut = " and part of another" if lines.rest else ""
                written = f"{MANIFEST} counts {end.num:,}"
                self._fault(name, None, f"holds {num:,} whole lines{cut}, and {written}")
            elif end.num and lines.checks[end.num - 1] != end.check:
                carried = lines.checks[end.num - 1]
                fault = f"carries the digest {carried!r}, and {MANIFEST} has {end.check!r} for it"
                self._fault(name, end.num, fault)
            elif lines.rest and is_whole:
                self._fault(name, end.num + 1, "is more than was written")
            elif lines.rest:
                self.notes.append(
                    f"{self._folder / EVENTS}: its last line, of {lines.rest:,} bytes, is half "
                    "written and left out: the server was killed before it acknowledged the event"
                )

    def _items(self, settings: Settings, lines: _Lines) -> dict[str, Item]:
        items: dict[str, Item] = {}
        for number, item in lines.records:
            if item.id in items:
                self._fault(ITEMS, number, f"id={item.id[:80]!r}: an earlier line has this id")
            elif unknown := [person for person in item.people if person not in settings.people]:
                people = ", ".join(settings.people)[:200]
                fault = f"people: {unknown[0][:80]!r} is not among those of {MANIFEST} ({people})"
                self._fault(ITEMS, number, fault)
            items[item.id] = item
        return items

    def _events(self, items: Mapping[str, Item], lines: _Lines) -> list[Event]:
        events: dict[str, Event] = {}
        last: dict[tuple[str, str], Event] = {}
        for number, event in lines.records:
            key, item = (event.person, event.solution), items.get(event.solution)
            if event.id in events:
                fault: str | None = f"id={event.id!r}: an earlier line has this id"
            elif item is None:
                fault = f"solution={event.solution[:80]!r}: is not in {ITEMS}"
            else:
                fault = event_fault(event, item, last.get(key))
            if fault is not None:
                self._fault(EVENTS, number, fault)
            events[event.id] = last[key] = event
        return list(events.values())


def _parse_item(content: Any) -> Item:
    item = read_record(Item, content)
    if item.fault is not None:
        raise DataError(item.fault)
    return item


def _check_file(folder: Path, name: str) -> None:
    """See that a file is there.

    Raises:
        DamagedFile: it is missing, or something else has its name.
    """
    if not (folder / name).is_file():
        fault = "is missing or no plain file, and a folder of annotations has this file"
        raise DamagedFile(str(folder), name, fault, _RESTORE)


def _chained(contents: Iterable[Mapping[str, Any]], end: LineEnd) -> tuple[bytes, LineEnd]:
    """Return lines that go on after an end, and where they end."""
    lines, num, check = [], end.num, end.check
    for content in contents:
        body = json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode()[1:]
        num, check = num + 1, _check_of(check, body)
        lines.append(b'{"%s":"%s",%s\n' % (_CHECK.encode(), check.encode(), body))
    return b"".join(lines), LineEnd(num=num, check=check)


def _check_of(before: str, body: bytes) -> str:
    """Return the digest of a line.

    Args:
        before: digest of the line before; empty for the first one.
        body: bytes of the line behind its digest.
    """
    return hashlib.sha256(before.encode() + b"\n" + body).hexdigest()[:32]


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    content = json.dumps(with_digest(asdict(manifest)), ensure_ascii=True, indent=1) + "\n"
    write_whole(folder / MANIFEST, content.encode())
