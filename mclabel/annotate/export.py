"""Exports of what people said in `mclabel annotate`, and imports of what they said elsewhere.

Formats are those of `mclabel export`, and tasks of Label Studio (its JSON export). In a task, a
step is a paragraph; its rating is a `Choices` of a region that covers it. Fields that
Label Studio has no place for are kept in the task's `meta` and beside the annotation's own ones, so
that what this package wrote is read back whole. docs/annotate.md has the labeling config.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.annotate.events import FINISHES, Event, parse_event, read_events, write_events
from mclabel.annotate.folder import LOSSES, Annotated, exported, prm800k_rows
from mclabel.annotate.items import OVERSEER, Item, Settings, is_annotations, read_items, write_items
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.seeds import content_id
from mclabel.core.settings import read_record
from mclabel.data.exchange import LABEL_STUDIO, PARQUET, PRM800K
from mclabel.data.exchange.job import CARD, ExportReport, push_folder
from mclabel.data.readers.rows import is_unicode, read_text
from mclabel.run.outputs import ANNOTATIONS, EXPORT, check_free, check_places, output_folder

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
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
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


SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "person", "solution", "problem", "answer")),
        ("steps", pa.list_(pa.string())),
        ("ratings", pa.list_(pa.string())),
        ("is_sure", pa.bool_()),
        ("first_error", pa.int32()),
        ("finish", pa.string()),
        ("note", pa.string()),
        *((name, pa.int64()) for name in ("ms", "at", "revision")),
        ("stratum", pa.string()),
        ("probability", pa.float64()),
        ("gold", pa.list_(pa.int32())),
        ("is_quality_control_question", pa.bool_()),
        ("is_initial_screening_question", pa.bool_()),
    ]
)
"""Columns of `--to parquet`, a row for each opinion; docs/annotate.md explains them."""


@dataclass(frozen=True, kw_only=True)
class _Form:
    """A format that annotations are written in."""

    file: str
    losses: str
    write: Callable[[Path, list[dict[str, Any]]], None]
    rows: Callable[[Annotated, bool], Iterator[dict[str, Any]]]


def export_people(
    folder: str,
    to: str,
    out: str,
    *,
    screening: bool = False,
    push_to_hub: str | None = None,
) -> ExportReport:
    """Write each person's opinion on each solution, and a data set card.

    Args:
        folder: of `mclabel annotate`.
        to: name of the format: `prm800k`, `label-studio` or `parquet`.
        out: folder, made if it is missing; what it holds of an earlier export is replaced.
        screening: whether the answers of the screening are written, too.
        push_to_hub: data set of the Hugging Face Hub that the folder is uploaded to.

    Raises:
        ConfigError: another format, or the upload was refused.
        DataError: nobody whose labels count has submitted anything.
    """
    if to not in _FORMS:
        raise ConfigError(
            f"--to {to}: what people said in {folder} can be written as {', '.join(_FORMS)}. Give "
            f"one of these; `mclabel import --from {PRM800K}` makes a run of the first, for other "
            "formats"
        )
    check_free(out, EXPORT, "-o ")
    annotated, form = Annotated.read(folder), _FORMS[to]
    said = [e for item in annotated.items for e in exported(annotated, item, screening=screening)]
    if not said:
        raise DataError(
            f"{folder}: nobody whose labels count has submitted a solution yet, so there are no "
            "rows. Answers of the screening are written with --screening"
        )
    place = output_folder(out, "-o ")
    rows = list(form.rows(annotated, screening))
    partial = place / f"{form.file}.partial"
    form.write(partial, rows)
    partial.rename(place / form.file)
    num_people = len({event.person for event in said})
    card = _card(form, to, len(said), num_people)
    (place / CARD).write_text(card, encoding="utf-8")
    url = None if push_to_hub is None else push_folder(place, push_to_hub, [form.file, CARD])
    return ExportReport(
        to=to,
        losses=form.losses,
        path=str(place / form.file),
        num_rows=len(rows),
        num_left_out=0,
        num_cut=0,
        num_not_kept=0,
        url=url,
    )


@dataclass(frozen=True, kw_only=True)
class PeopleReport:
    """Result of an import of annotations."""

    num_opinions: int
    num_people: int
    num_solutions: int

    def line(self, out: str) -> str:
        """What to say of it."""
        return (
            f"{self.num_opinions} opinions of {self.num_people} people on {self.num_solutions} "
            f"solutions. Measure a run: mclabel eval labels RUN --truth {out}"
        )


def import_people(path: str, out: str) -> PeopleReport:
    """Read a JSON export of Label Studio as a folder of annotations.

    Args:
        path: of the file.
        out: folder; the same file into the same folder again changes nothing.

    Raises:
        DataError: the file is no such export.
        ConfigError: the folder holds other annotations.
        ShardError: the folder holds something else.
    """
    found = read_tasks(path)
    check_places(out, ANNOTATIONS, key="-o ")
    folder = output_folder(out, "-o ")
    if is_annotations(folder):
        there = {event.id: event for event in read_events(folder)}
        same = there == {event.id: event for event in found.events}
        if not same or read_items(folder) != list(found.items):
            raise ConfigError(f"-o {out}: holds other annotations. Give another folder")
    else:
        write_events(folder, found.events)
        write_items(folder, found.items, found.settings)
    return PeopleReport(
        num_opinions=len(found.events),
        num_people=len({event.person for event in found.events}),
        num_solutions=len(found.items),
    )


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _list(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _table(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path, compression="zstd")


def _plain_rows(annotated: Annotated, screening: bool) -> Iterator[dict[str, Any]]:
    for item in annotated.items:
        for event in exported(annotated, item, screening=screening):
            is_screening = annotated.is_screening(event.person, item)
            content: dict[str, Any] = {**vars(item), **vars(event)}
            yield {
                **{name: content[name] for name in SCHEMA.names if name in content},
                "is_sure": event.is_sure,
                "first_error": event.first_error if event.is_sure else None,
                "is_quality_control_question": item.gold is not None and not is_screening,
                "is_initial_screening_question": is_screening,
            }


_LAST = "earlier revisions of an opinion are lost"
_FORMS: Mapping[str, _Form] = {
    PRM800K: _Form(
        file="data.jsonl",
        losses=LOSSES,
        write=_lines,
        rows=lambda annotated, screening: prm800k_rows(annotated, screening=screening),
    ),
    LABEL_STUDIO: _Form(
        file="data.json",
        losses=f"guidelines and {_LAST}",
        write=_list,
        rows=lambda annotated, screening: tasks(annotated, screening=screening),
    ),
    PARQUET: _Form(file="data.parquet", losses=_LAST, write=_table, rows=_plain_rows),
}


def _card(form: _Form, to: str, num_opinions: int, num_people: int) -> str:
    return f"""---
tags: [process-reward-model, mclabel]
configs:
- config_name: default
  data_files: {form.file}
---
{num_opinions} opinions of {num_people} people on the steps of solutions, in the format of {to},
collected with `mclabel annotate`.

What this format cannot hold: {form.losses}.
"""
