"""Storage of a folder of annotations: writing, reading and checking its files.

`items.jsonl` contains the solutions that people label. `events.jsonl` contains the opinions, in the
order in which they were recorded. Each line of both files begins with a hash (its digest) of its
content and the previous line's digest. So a line that was changed, duplicated, moved or removed is
detected. `annotations.json` contains the settings, and the number of lines and the last digest of
both files.

The server acknowledges an event only after it is written to disk and counted in `annotations.json`.
A process that is killed can leave two traces. A complete event that is not counted is kept. A
partial last line was never acknowledged: readers skip it with a warning, and the next start of the
server removes it.
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
    collect_first_opinions,
    collect_last_opinions,
    find_event_fault,
    parse_event,
)
from mclabel.annotate.items import AnnotationSettings, Item
from mclabel.core.errors import ConfigError, DamagedFile, DataError, ShardError
from mclabel.core.plain_files import write_atomically
from mclabel.core.settings import read_record
from mclabel.run.outputs import ANNOTATIONS
from mclabel.run.shards.digest import add_digest, parse_checked_object
from mclabel.run.shards.durable import sync_folder, write_synced
from mclabel.run.verify.single_files import Verification

logger = logging.getLogger(__name__)

MANIFEST, ITEMS, EVENTS = str(ANNOTATIONS.manifest), "items.jsonl", "events.jsonl"
_CHECK = "check"
"""JSON key of the digest at the beginning of a line."""
_LINE_PATTERN = re.compile(rb'\{"check":"([0-9a-f]{32})",(.*)', re.DOTALL)
_RESTORE_ADVICE = "Restore all files of the folder from a copy"
_CHANGED_LINE_FAULT = (
    "is not the line that was written here: this line or earlier lines were changed, moved, "
    "duplicated or removed"
)


@dataclass(frozen=True, kw_only=True)
class FileEnd:
    """End of a file of lines: the number of its lines, and the digest of the last one."""

    num: int = 0
    """Number of complete lines."""
    check: str = ""
    """Digest of the last line; empty if the file has no lines."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of `annotations.json`."""

    settings: AnnotationSettings
    items: FileEnd
    """End of `items.jsonl`, a file that never grows."""
    events: FileEnd
    """End of the lines of `events.jsonl` that were acknowledged (see the module); the file may have
    further lines."""


@dataclass(frozen=True, kw_only=True)
class StoredFolder:
    """The content of a folder of annotations, which was checked and has no faults."""

    manifest: Manifest
    items: Sequence[Item]
    """Items, in the order of the page."""
    events: Sequence[Event]
    """Events, in the order in which they were recorded."""
    events_end: FileEnd
    """End of the complete lines of `events.jsonl`, including those that are not acknowledged."""
    events_size: int
    """Bytes of these complete lines."""

    @property
    def settings(self) -> AnnotationSettings:
        """Settings with which the folder was created."""
        return self.manifest.settings


def is_annotation_folder(folder: str | Path) -> bool:
    """Return whether a folder was written by `mclabel annotate`, even if it is damaged now."""
    root = Path(folder)
    if os.path.lexists(root / MANIFEST):
        return True
    events = root / EVENTS
    has_events = os.path.lexists(events) and not (events.is_file() and not events.stat().st_size)
    return has_events and os.path.lexists(root / ITEMS)


def read_folder(folder: str | Path) -> StoredFolder:
    """Read a folder of annotations, and check all of its content.

    Raises:
        DamagedFile: the folder has a fault; the message describes the first one.
    """
    reading = _FolderReader(Path(folder))
    stored = reading.read()
    if stored is None:
        raise reading.faults[0]
    for note in reading.notes:
        logger.warning("%s", note)
    return stored


def verify_annotations(folder: str) -> Verification:
    """Read a folder of annotations, and list all of its faults."""
    reading = _FolderReader(Path(folder))
    reading.read()
    verification = Verification(run=folder, holds="annotations", notes=reading.notes)
    verification.num_solutions, verification.num_opinions = reading.num_items, reading.num_events
    for fault in reading.faults:
        verification.add_error(fault)
    return verification


def write_folder(folder: Path, settings: AnnotationSettings, items: Sequence[Item]) -> StoredFolder:
    """Write a new folder. The manifest comes last: it shows that the other files are complete."""
    (folder / EVENTS).touch()
    items_content, items_end = _encode_chained_lines(map(asdict, items), FileEnd())
    write_atomically(folder / ITEMS, items_content)
    manifest = Manifest(settings=settings, items=items_end, events=FileEnd())
    _write_manifest(folder, manifest)
    sync_folder(folder)
    return StoredFolder(
        manifest=manifest,
        items=tuple(items),
        events=(),
        events_end=FileEnd(),
        events_size=0,
    )


@contextmanager
def lock_events_file(folder: Path) -> Iterator[int]:
    """Open and lock the file of events, so that no other process can add to it.

    In a new folder, the file is created.

    Raises:
        ConfigError: another process has locked the file.
        DamagedFile: the file is missing from an existing folder, or is not a regular file.
    """
    if os.path.lexists(folder / EVENTS) or os.path.lexists(folder / MANIFEST):
        _require_regular_file(folder, EVENTS)
    file = os.open(folder / EVENTS, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"-o {folder}: another `mclabel annotate` serves this folder. Use its page, or end "
                "that command first"
            ) from error
        yield file
    finally:
        os.close(file)


class EventLog:
    """Log of a folder's events, for the one process that has locked `events.jsonl` to append."""

    def __init__(self, folder: Path, file: int, stored: StoredFolder) -> None:
        """Prepare to append events, and remove a partial line after the last complete event.

        Args:
            folder: folder of the annotations.
            file: descriptor of the file of events, open and locked (`lock_events_file`).
            stored: content of the folder.
        """
        self._folder, self._file, self._manifest = folder, file, stored.manifest
        self._size, self._end = stored.events_size, stored.events_end
        self._events = {event.id: event for event in stored.events}
        self._last, self._first = (
            collect_last_opinions(stored.events),
            collect_first_opinions(stored.events),
        )
        self._lock = threading.Lock()
        os.ftruncate(file, self._size)
        os.fsync(file)
        self._write_end_of_saved_events(self._end)

    def add(self, event: Event) -> bool:
        """Record an event, and return after it is written to disk.

        Returns:
            True if the event is new. An identical event is not recorded twice.

        Raises:
            DataError: another event has the same id, or the revision is not the next number.
            ShardError: the event could not be written. The caller may add it again.
        """
        with self._lock:
            recorded = self._events.get(event.id)
            if recorded == event:
                return False
            if recorded is not None:
                raise DataError(f"id={event.id!r}: another event has this id. Reload the page")
            before = self._last.get((event.person, event.solution))
            wanted = 1 if before is None else before.revision + 1
            if event.revision != wanted:
                raise DataError(
                    f"revision={event.revision}: must be {wanted}, as {event.person[:80]} has "
                    f"submitted {wanted - 1} opinions on solution {event.solution}, perhaps in "
                    "another window. Reload the page to change the last opinion"
                )
            line, end = _encode_chained_lines([asdict(event)], self._end)
            try:
                os.ftruncate(self._file, self._size)  # removes the rest of a failed write
                write_synced(self._file, line)
                self._write_end_of_saved_events(end)
            except OSError as error:
                path = self._folder / EVENTS
                raise ShardError(
                    f"{path}: cannot be written ({error.strerror}). Correct this, and submit again"
                ) from error
            self._size, self._end = self._size + len(line), end
            self._events[event.id] = event
            self._last[event.person, event.solution] = event
            self._first |= collect_first_opinions([event])
            return True

    def _write_end_of_saved_events(self, end: FileEnd) -> None:
        """Record the end of the acknowledged events in the manifest."""
        manifest = Manifest(
            settings=self._manifest.settings, items=self._manifest.items, events=end
        )
        if manifest != self._manifest:
            _write_manifest(self._folder, manifest)
            self._manifest = manifest

    def list_events(self) -> list[Event]:
        """Return all events, in the order in which they were recorded."""
        with self._lock:
            return list(self._events.values())

    def copy_last_events(self) -> dict[tuple[str, str], Event]:
        """Return the last event of each person on each solution, by (person, solution id)."""
        with self._lock:
            return dict(self._last)

    def get_first_event(self, person: str, solution: str) -> Event | None:
        """Return the first event of a person on a solution; None if there is none."""
        return self._first.get((person, solution))


@dataclass
class _FileLines:
    """The complete lines of one file, which were not yet compared with the other files."""

    records: list[tuple[int, Any]] = field(default_factory=list)
    """1-based line number and parsed content of each line that can be parsed."""
    digests: list[str] = field(default_factory=list)
    """Digest written in each line, whether it is right or wrong; empty if a line has none."""
    size: int = 0
    """Bytes of all complete lines."""
    num_partial_bytes: int = 0
    """Bytes after the last complete line."""

    @property
    def end(self) -> FileEnd:
        return FileEnd(num=len(self.digests), check=self.digests[-1] if self.digests else "")


class _FolderReader:
    """Reader of a folder that collects all faults instead of stopping at the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.faults: list[DamagedFile] = []
        self.notes: list[str] = []
        self.num_items = self.num_events = 0

    def read(self) -> StoredFolder | None:
        """Return the content of the folder; None if it has a fault.

        The manifest is read first. Events that are recorded during the reading only add lines
        beyond those that the manifest counts.
        """
        manifest = self._read_manifest()
        item_lines = self._parse_lines(ITEMS, _parse_item)
        event_lines = self._parse_lines(EVENTS, parse_event)
        if manifest is None or item_lines is None or event_lines is None:
            return None
        self._compare_ends_with_manifest(manifest, item_lines, event_lines)
        items = self._collect_items(manifest.settings, item_lines)
        events = self._collect_events(items, event_lines)
        self.num_items, self.num_events = len(item_lines.digests), len(event_lines.digests)
        if self.faults:
            return None
        return StoredFolder(
            manifest=manifest,
            items=tuple(items.values()),
            events=tuple(events),
            events_end=event_lines.end,
            events_size=event_lines.size,
        )

    def _add_fault(
        self, name: str, line: int | None, fault: str, remedy: str = _RESTORE_ADVICE
    ) -> None:
        place = name if line is None else f"{name}, line {line}"
        self.faults.append(DamagedFile(str(self._folder), place, fault, remedy))

    def _read_file(self, name: str) -> bytes | None:
        try:
            _require_regular_file(self._folder, name)
            return (self._folder / name).read_bytes()
        except DamagedFile as fault:
            self.faults.append(fault)
        except OSError as error:
            self._add_fault(name, None, f"cannot be read ({error.strerror})", "Make it readable")
        return None

    def _read_manifest(self) -> Manifest | None:
        if (raw := self._read_file(MANIFEST)) is None:
            return None
        try:
            content, check = parse_checked_object(raw)
            manifest = read_record(Manifest, content)
            fault = manifest.settings.fault
        except ValueError as error:
            fault = f"is not a manifest of annotations ({error})"
        else:
            if fault is None and check != "sound":
                fault = "was changed after it was written: its digest does not match its content"
        if fault is not None:
            self._add_fault(MANIFEST, None, fault)
            return None
        return manifest

    def _parse_lines(self, name: str, parse: Callable[[Any], Any]) -> _FileLines | None:
        if (raw := self._read_file(name)) is None:
            return None
        result, before = _FileLines(), ""
        *lines, rest = raw.split(b"\n")
        result.size, result.num_partial_bytes = len(raw) - len(rest), len(rest)
        for number, line in enumerate(lines, 1):
            parts = _LINE_PATTERN.fullmatch(line)
            check = "" if parts is None else parts[1].decode()
            try:
                content = json.loads(line)
                if isinstance(content, dict):
                    content.pop(_CHECK, None)
                result.records.append((number, parse(content)))
            except (ValueError, RecursionError, DataError) as error:
                self._add_fault(name, number, f"cannot be used: {error}")
            else:
                if parts is None or check != _hash_chained_line(before, parts[2]):
                    self._add_fault(name, number, _CHANGED_LINE_FAULT)
            result.digests.append(check)
            before = check
        return result

    def _compare_ends_with_manifest(
        self, manifest: Manifest, items: _FileLines, events: _FileLines
    ) -> None:
        """Compare each file's number of lines and the digest in its last line with the manifest."""
        for name, lines, end in ((ITEMS, items, manifest.items), (EVENTS, events, manifest.events)):
            num, is_whole = len(lines.digests), name == ITEMS
            if num < end.num or (is_whole and num > end.num):
                cut = " and an incomplete line" if lines.num_partial_bytes else ""
                self._add_fault(
                    name,
                    None,
                    f"has {num:,} complete lines{cut}, but {MANIFEST} counts {end.num:,}",
                )
            elif end.num and lines.digests[end.num - 1] != end.check:
                self._add_fault(
                    name,
                    end.num,
                    f"has the digest {lines.digests[end.num - 1]!r}, but {MANIFEST} records "
                    f"{end.check!r} for it",
                )
            elif lines.num_partial_bytes and is_whole:
                self._add_fault(
                    name, end.num + 1, f"was added: {MANIFEST} does not count this line"
                )
            elif lines.num_partial_bytes:
                self.notes.append(
                    f"{self._folder / EVENTS}: the last line of {lines.num_partial_bytes:,} bytes "
                    "is incomplete and is left out. The server was killed before it acknowledged "
                    "the event"
                )

    def _collect_items(self, settings: AnnotationSettings, lines: _FileLines) -> dict[str, Item]:
        items: dict[str, Item] = {}
        for number, item in lines.records:
            if item.id in items:
                self._add_fault(ITEMS, number, f"id={item.id[:80]!r}: an earlier line has this id")
            elif unknown := [person for person in item.people if person not in settings.people]:
                people = ", ".join(settings.people)[:200]
                fault = (
                    f"people: {unknown[0][:80]!r} is not among the people of {MANIFEST}: {people}"
                )
                self._add_fault(ITEMS, number, fault)
            items[item.id] = item
        return items

    def _collect_events(self, items: Mapping[str, Item], lines: _FileLines) -> list[Event]:
        events: dict[str, Event] = {}
        last: dict[tuple[str, str], Event] = {}
        for number, event in lines.records:
            key, item = (event.person, event.solution), items.get(event.solution)
            if event.id in events:
                fault: str | None = f"id={event.id!r}: an earlier line has this id"
            elif item is None:
                fault = f"solution={event.solution[:80]!r}: is not in {ITEMS}"
            else:
                fault = find_event_fault(event, item, last.get(key))
            if fault is not None:
                self._add_fault(EVENTS, number, fault)
            events[event.id] = last[key] = event
        return list(events.values())


def _parse_item(json_value: Any) -> Item:
    item = read_record(Item, json_value)
    if item.fault is not None:
        raise DataError(item.fault)
    return item


def _require_regular_file(folder: Path, name: str) -> None:
    """Check that a file of the folder exists.

    Raises:
        DamagedFile: the file is missing, or is not a regular file.
    """
    if not (folder / name).is_file():
        raise DamagedFile(
            str(folder),
            name,
            "is missing or not a regular file, but a folder of annotations must have it",
            _RESTORE_ADVICE,
        )


def _encode_chained_lines(
    contents: Iterable[Mapping[str, Any]], end: FileEnd
) -> tuple[bytes, FileEnd]:
    """Return the lines of records, to be appended to a file with a given end, and the new end."""
    lines, num, check = [], end.num, end.check
    for content in contents:
        body = json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode()[1:]
        num, check = num + 1, _hash_chained_line(check, body)
        lines.append(b'{"%s":"%s",%s\n' % (_CHECK.encode(), check.encode(), body))
    return b"".join(lines), FileEnd(num=num, check=check)


def _hash_chained_line(previous_digest: str, body: bytes) -> str:
    """Return the digest of a line.

    Args:
        previous_digest: digest of the previous line; empty for the first line.
        body: bytes of the line after its digest.
    """
    return hashlib.sha256(previous_digest.encode() + b"\n" + body).hexdigest()[:32]


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    content = json.dumps(add_digest(asdict(manifest)), ensure_ascii=True, indent=1) + "\n"
    write_atomically(folder / MANIFEST, content.encode())
