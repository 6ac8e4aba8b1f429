"""Annotations as tasks of Label Studio (its JSON export), and back.

A step is a paragraph of the task; its rating is a `Choices` of a region that covers it. Fields that
Label Studio has no place for are kept in the task's `meta` and beside the annotation's own ones, so
that what this package wrote is read back whole. docs/annotate.md has the labeling config.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mclabel.annotate.events import FINISHES, Event, parse_event
from mclabel.annotate.folder import Annotated, exported
from mclabel.annotate.items import OVERSEER, Item, Settings
from mclabel.core.errors import DataError
from mclabel.core.seeds import content_id
from mclabel.core.settings import read_record
from mclabel.data.readers.rows import is_unicode

RATING, FINISH, NOTE, STEPS, STEP, PROBLEM = "rating", "finish", "note", "steps", "step", "problem"
"""Names in the labeling config."""
STRATUM = "imported"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT = ("id", "prediction", "digest", "stratum", "probability", "people", "gold")
_SETTINGS = tuple(f.name for f in fields(Settings) if f.name not in ("run", "guidelines"))


def tasks(annotated: Annotated, *, screening: bool = False) -> Iterator[dict[str, Any]]:
    """A task for each item, with an annotation for each person's last opinion.

    Args:
        annotated: the folder.
        screening: whether the answers of the screening are written, too.
    """
    settings = {name: getattr(annotated.settings, name) for name in _SETTINGS}
    for number, item in enumerate(annotated.items, 1):
        events = exported(annotated, item, screening=screening)
        yield {
            "id": number,
            "data": {
                PROBLEM: item.problem,
                "answer": item.answer,
                STEPS: [{"number": str(n), "text": text} for n, text in enumerate(item.steps)],
            },
            "meta": {"item": {name: getattr(item, name) for name in _KEPT}, "settings": settings},
            "annotations": [_annotation(event, item) for event in events],
            "predictions": [],
        }


def _annotation(event: Event, item: Item) -> dict[str, Any]:
    at = (_EPOCH + timedelta(milliseconds=event.at)).isoformat(timespec="milliseconds")
    return {
        "completed_by": {"email": event.person},
        "unique_id": event.id,
        "created_at": at,
        "updated_at": at,
        "lead_time": event.ms / 1000,
        "was_cancelled": event.finish == "give_up",
        "ground_truth": event.person == OVERSEER,
        "revision": event.revision,
        "digest": event.digest,
        "result": list(_results(event, item)),
    }


def _results(event: Event, item: Item) -> Iterator[dict[str, Any]]:
    for number, (text, word) in enumerate(zip(item.steps, event.ratings, strict=True)):
        if word is None:
            continue
        at = {"start": str(number), "end": str(number), "startOffset": 0, "endOffset": len(text)}
        region = {"id": f"{STEP}-{number}", "to_name": STEPS}
        yield {**region, "from_name": STEP, "type": "paragraphlabels",
               "value": {**at, "text": text, "paragraphlabels": [STEP]}}  # fmt: skip
        yield {**region, "from_name": RATING, "type": "choices", "value": {**at, "choices": [word]}}
    whole = {"to_name": PROBLEM}
    yield {**whole, "id": FINISH, "from_name": FINISH, "type": "choices",
           "value": {"choices": [event.finish]}}  # fmt: skip
    if event.note:
        yield {**whole, "id": NOTE, "from_name": NOTE, "type": "textarea",
               "value": {"text": [event.note]}}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What a file of Label Studio holds."""

    settings: Settings
    items: Sequence[Item]
    events: Sequence[Event]


def read_tasks(path: str) -> Imported:
    """The items and events of a JSON export of Label Studio.

    Of a project that this package did not write, every solution has probability 1, and a person is
    the email, or the number, of who completed an annotation.

    Raises:
        DataError: names a task, and what is wrong with it.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(content, list) or not content:
        raise DataError(f"{path}: must be a list of tasks, at least one: export as JSON")
    items: dict[str, Item] = {}
    events: list[Event] = []
    for number, task in enumerate(content):
        try:
            item = _item(task)
            found = [_event(one, item) for one in task["annotations"]]
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise _no_task(path, number, f"{type(error).__name__}: {error}") from error
        except DataError as error:
            raise _no_task(path, number, str(error)) from error
        if item.id in items:
            raise _no_task(path, number, "is of the same problem and steps as an earlier one")
        items[item.id] = item
        events += found
    if twice := len(events) - len({event.id for event in events}):
        raise DataError(f"{path}: {twice} annotations have the unique_id of another one")
    named = _with_people(items.values(), events)
    people = dict.fromkeys(person for item in named for person in item.people)
    settings = _settings(path, content[0])
    everybody = dict.fromkeys((*settings.people, *people)) or {"me": None}
    return Imported(settings=replace(settings, people=tuple(everybody)), items=named, events=events)


def _no_task(path: str, number: int, why: str) -> DataError:
    return DataError(
        f"{path}, task {number + 1}: {why}. A task needs data with problem, answer and steps, and "
        "annotations made with the labeling config of docs/annotate.md"
    )


def _item(task: Mapping[str, Any]) -> Item:
    data = task["data"]
    if not is_unicode(task) or not isinstance(data[STEPS], list):
        raise ValueError("steps must be a list, and all texts valid Unicode")
    steps = [step["text"] if isinstance(step, Mapping) else step for step in data[STEPS]]
    digest = content_id("annotated", data[PROBLEM], steps)
    kept: dict[str, Any] = {"id": digest, "prediction": None, "digest": digest, "stratum": STRATUM,
            "probability": 1.0, "people": []}  # fmt: skip
    kept |= (task.get("meta") or {}).get("item") or {}
    texts = {"problem": data[PROBLEM], "answer": data["answer"], "steps": steps}
    item = read_record(Item, {**kept, **texts})
    if not steps or (item.probability is not None and not 0 < item.probability <= 1):
        raise ValueError("must have one step at least, and a probability in (0, 1]")
    return item


def _event(annotation: Mapping[str, Any], item: Item) -> Event:
    said: dict[str, list[Any]] = {FINISH: [], NOTE: []}
    rated: dict[int, str] = {}
    for one in annotation["result"]:
        name, value = one["from_name"], one["value"]
        if name == RATING:
            rated[int(value["start"])] = value["choices"][0]
        elif name in said:
            said[name] = value["choices" if name == FINISH else "text"]
    if beyond := [n for n in rated if not 0 <= n < len(item.steps)]:
        raise ValueError(f"rates step {beyond[0]}, and there are steps 0 to {len(item.steps) - 1}")
    note = "\n".join(said[NOTE]) if isinstance(said[NOTE], list) else str(said[NOTE])
    finish = said[FINISH][0] if said[FINISH] else _usual_finish(annotation, rated.values())
    if finish not in FINISHES:
        raise ValueError(f"finish={finish!r}: must be one of {', '.join(FINISHES)}")
    at = datetime.fromisoformat(annotation["created_at"].replace("Z", "+00:00"))
    who = annotation["completed_by"]
    person = str(who.get("email") or who["id"]) if isinstance(who, Mapping) else str(who)
    made = content_id("annotation", item.id, person, annotation.get("id"), annotation["created_at"])
    return parse_event(
        {
            "id": annotation.get("unique_id") or made,
            "person": person,
            "solution": item.id,
            "digest": annotation.get("digest", item.digest),
            "ratings": [rated.get(n) for n in range(len(item.steps))],
            "finish": finish,
            "note": note or ("skipped" if finish == "give_up" else ""),
            "ms": round((annotation.get("lead_time") or 0) * 1000),
            "at": (at - _EPOCH) // timedelta(milliseconds=1),
            "revision": annotation.get("revision", 1),
        }
    )


def _usual_finish(annotation: Mapping[str, Any], words: Iterable[str]) -> str:
    if annotation.get("was_cancelled"):
        return "give_up"
    return "found_error" if "bad" in words else "solution"


def _with_people(items: Iterable[Item], events: Sequence[Event]) -> list[Item]:
    """Items with all those who labelled them."""
    by_item: dict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.person != OVERSEER:
            by_item[event.solution].append(event.person)
    return [
        replace(item, people=tuple(dict.fromkeys((*item.people, *by_item[item.id]))))
        for item in items
    ]


def _settings(path: str, task: Mapping[str, Any]) -> Settings:
    new = {"id": content_id("label-studio", path), "run_id": "", "people": []}
    kept = (task.get("meta") or {}).get("settings") or new
    try:
        return read_record(Settings, {**kept, "run": path})
    except (ValueError, TypeError) as error:
        raise _no_task(path, 0, f"meta.settings: {error}") from error
