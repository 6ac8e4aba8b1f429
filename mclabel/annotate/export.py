"""Exports of what people said in `mclabel annotate`, and imports of what they said elsewhere.

Formats are those of `mclabel export`, and tasks of Label Studio (its JSON export). In a task, a
step is a paragraph; its rating is a `Choices` of a region that covers it, alone or with others.
Fields that Label Studio has no place for are kept in the task's `meta` and beside the annotation's
own ones, so that what this package wrote is read back whole. docs/annotate.md has the labeling
config.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.annotate.events import MAX_MS, Event, event_fault, last_opinions, parse_event
from mclabel.annotate.folder import LOSSES, Annotated, exported, prm800k_rows
from mclabel.annotate.items import OVERSEER, Item, Settings, texts_digest
from mclabel.annotate.storage import is_annotations, read_folder, write_folder
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.seeds import content_id
from mclabel.core.settings import read_record
from mclabel.data.exchange import LABEL_STUDIO, PARQUET, PRM800K
from mclabel.data.exchange.job import CARD, ExportReport, push_folder
from mclabel.data.readers.rows import read_text
from mclabel.run.outputs import ANNOTATIONS, EXPORT, check_free, check_places, output_folder

RATING, FINISH, NOTE, STEPS, STEP, PROBLEM = "rating", "finish", "note", "steps", "step", "problem"
"""Names in the labeling config."""
_CONTROLS = (STEP, RATING, FINISH, NOTE)
STRATUM = "imported"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT = ("id", "prediction", "digest", "stratum", "probability", "people", "gold")
_SETTINGS = tuple(f.name for f in fields(Settings) if f.name not in ("run", "guidelines"))


def tasks(annotated: Annotated, *, screening: bool = False) -> Iterator[dict[str, Any]]:
    """Yield a task for each item, with an annotation for each opinion, revised ones included.

    Args:
        annotated: the folder.
        screening: whether the answers of the screening are written, too.
    """
    settings = {name: getattr(annotated.settings, name) for name in _SETTINGS}
    by_item: dict[str, list[Event]] = defaultdict(list)
    for event in annotated.events:
        by_item[event.solution].append(event)
    for number, item in enumerate(annotated.items, 1):
        people = {event.person for event in exported(annotated, item, screening=screening)}
        yield {
            "id": number,
            "data": {
                PROBLEM: item.problem,
                "answer": item.answer,
                STEPS: [{"number": str(n), "text": text} for n, text in enumerate(item.steps)],
            },
            "meta": {"item": {name: getattr(item, name) for name in _KEPT}, "settings": settings},
            "annotations": [_annotation(e, item) for e in by_item[item.id] if e.person in people],
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
    """Return the items and events of a JSON export of Label Studio.

    In a project that this package did not write, every solution has probability 1, a person is
    the email, or the number, of who completed an annotation, and several annotations of one person
    on a task are revisions in the order in which they were created.

    Raises:
        DataError: names a task, and what is wrong with it.
    """
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}). {_EXPORT}") from error
    if not isinstance(content, list) or not content:
        raise DataError(f"{path}: must be a list of tasks, at least one. {_EXPORT}")
    settings = _settings(path, content[0])
    items: dict[str, Item] = {}
    events: dict[str, Event] = {}
    for number, task in enumerate(content):
        try:
            item = _item(task)
            if item.id in items:
                raise DataError("has the id or the texts of an earlier task")
            found = _events(_part(task, "annotations", list, "a list of annotations"), item)
            if twice := [event.id for event in found if event.id in events]:
                raise DataError(f"unique_id={twice[0]!r}: is that of an earlier annotation")
        except DataError as error:
            raise _no_task(path, number, str(error)) from error
        people = dict.fromkeys((*item.people, *(e.person for e in found if e.person != OVERSEER)))
        items[item.id] = replace(item, people=tuple(people))
        events |= {event.id: event for event in found}
    named = dict.fromkeys(person for item in items.values() for person in item.people)
    everybody = dict.fromkeys((*settings.people, *named)) or {"me": None}
    return Imported(
        settings=replace(settings, people=tuple(everybody)),
        items=tuple(items.values()),
        events=tuple(events.values()),
    )


_EXPORT = "Export the project from Label Studio as JSON, not as JSON-MIN, CSV or another format"


def _no_task(path: str, number: int, why: str) -> DataError:
    return DataError(
        f"{path}, task {number + 1}: {why}. {_EXPORT}; a task needs data with problem, answer and "
        "steps, and annotations made with the labeling config of docs/annotate.md"
    )


def _part(content: Any, name: str, kind: type | tuple[type, ...], rule: str) -> Any:
    """Return a field of a JSON object.

    Raises:
        DataError: the object lacks it, or it is of another type.
    """
    value = content.get(name) if isinstance(content, Mapping) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(f"{name}={str(value)[:60]!r}: must be {rule}")
    return value


def _item(task: Any) -> Item:
    data = _part(task, "data", Mapping, "an object with problem, answer and steps")
    texts = {name: _part(data, name, str, "a text") for name in (PROBLEM, "answer")}
    steps = [
        _part(step if isinstance(step, Mapping) else {"text": step}, "text", str, "a step's text")
        for step in _part(data, STEPS, list, "a list of steps")
    ]
    digest = texts_digest(texts[PROBLEM], steps)
    kept: dict[str, Any] = {"id": digest, "prediction": None, "digest": digest, "stratum": STRATUM,
            "probability": 1.0, "people": []}  # fmt: skip
    try:
        item = read_record(Item, {**kept, **_meta(task, "item"), **texts, "steps": steps})
    except ValueError as error:
        raise DataError(f"meta.item: {error}") from None
    if item.fault is not None:
        raise DataError(item.fault)
    return item


def _meta(task: Any, name: str) -> Mapping[str, Any]:
    """Return what this package has kept in a task's `meta`; empty in other projects."""
    meta = task.get("meta") if isinstance(task, Mapping) else None
    kept = meta.get(name) if isinstance(meta, Mapping) else None
    return kept if isinstance(kept, Mapping) else {}


def _events(annotations: Sequence[Any], item: Item) -> list[Event]:
    """Return the events of one task's annotations, each person's in the order of revisions."""
    made = [(_made_at(one), one) for one in annotations]
    made.sort(key=lambda pair: (_revision(pair[1], 0), pair[0]))
    found: list[Event] = []
    last: dict[str, Event] = {}
    for at, annotation in made:
        person = _person(annotation)
        before = last.get(person)
        next_one = 1 if before is None else before.revision + 1
        event = _event(annotation, item, person, at, _revision(annotation, next_one))
        labelled = replace(item, people=(*item.people, person))
        if (fault := event_fault(event, labelled, before)) is not None:
            raise DataError(fault)
        found.append(event)
        last[person] = event
    return found


def _made_at(annotation: Any) -> int:
    """Return when an annotation was created, in milliseconds since 1970."""
    rule = "a time such as 2021-03-09T22:16:08Z"
    created = _part(annotation, "created_at", str, rule)
    try:
        at = datetime.fromisoformat(created)
    except ValueError:
        raise DataError(f"created_at={created[:60]!r}: must be {rule}") from None
    if at.tzinfo is None:
        raise DataError(f"created_at={created[:60]!r}: must be {rule}, with its time zone")
    return (at - _EPOCH) // timedelta(milliseconds=1)


def _revision(annotation: Mapping[str, Any], usual: int) -> int:
    if annotation.get("revision") is None:
        return usual
    revision: int = _part(annotation, "revision", int, "a whole number")
    return revision


def _person(annotation: Mapping[str, Any]) -> str:
    who, rule = annotation.get("completed_by"), "a number or an email, or an object with one"
    if isinstance(who, Mapping):
        who = who.get("email") or who.get("id")
    return str(_part({"completed_by": who}, "completed_by", (int, str), rule))


def _event(annotation: Mapping[str, Any], item: Item, person: str, at: int, revision: int) -> Event:
    rated: dict[int, str] = {}
    finish, note = None, ""
    for result in _part(annotation, "result", list, "a list of results"):
        name = _part(result, "from_name", str, f"one of {', '.join(_CONTROLS)}")
        if name not in _CONTROLS:
            raise DataError(f"from_name={name[:60]!r}: must be one of {', '.join(_CONTROLS)}")
        value = _part(result, "value", Mapping, "an object")
        if name == RATING:
            word = _choice(value, RATING)
            for number in _covered(value, item):
                if rated.setdefault(number, word) != word:
                    raise DataError(
                        f"step {number} is rated {rated[number]!r} and {word!r} by two regions, "
                        f"and must have one rating. Delete one of the regions of {person}"
                    )
        elif name == FINISH:
            if finish not in (None, chosen := _choice(value, FINISH)):
                raise DataError(f"finish={finish!r} and {chosen!r} are both chosen by {person}")
            finish = chosen
        elif name == NOTE:
            texts = value.get("text")
            note = "\n".join(map(str, texts)) if isinstance(texts, list) else str(texts)
    cancelled = annotation.get("was_cancelled") is True
    if finish is None:
        usual = "found_error" if "bad" in rated.values() else "solution"
        finish = "give_up" if cancelled else usual
    elif cancelled and finish != "give_up":
        raise DataError(f"finish={finish!r}: {person} has skipped the task, which is give_up")
    seconds = annotation.get("lead_time") or 0
    _part({"lead_time": seconds}, "lead_time", (int, float), "a number of seconds")
    if not 0 <= seconds <= MAX_MS / 1000:
        raise DataError(f"lead_time={seconds}: must be from 0 to {MAX_MS // 1000} seconds")
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
            "ms": round(seconds * 1000),
            "at": at,
            "revision": revision,
        }
    )


def _choice(value: Mapping[str, Any], name: str) -> str:
    choices = _part(value, "choices", list, f"a list of one choice of {name}")
    if len(choices) != 1:
        raise DataError(f"{name}={str(choices)[:60]}: must be one choice")
    return str(choices[0])


def _covered(value: Mapping[str, Any], item: Item) -> range:
    """Return the steps that a region covers: those of which it holds a character.

    A selection often ends before the first character of a step, or begins behind the last one.
    """
    count = len(item.steps)
    ends = [
        str(_part(value, name, (int, str), "the number of a step")) for name in ("start", "end")
    ]
    if beyond := [one for one in ends if not (one.isdecimal() and int(one) < count)]:
        raise DataError(f"rates step {beyond[0][:60]}, and there are steps 0 to {count - 1}")
    first, last = map(int, ends)
    if first < last and value.get("endOffset") == 0:
        last -= 1
    begin = value.get("startOffset")
    if first < last and isinstance(begin, int) and begin >= len(item.steps[first]):
        first += 1
    if first > last:
        raise DataError(f"rates steps {ends[0]} to {ends[1]}: must end where it begins, or later")
    return range(first, last + 1)


def _settings(path: str, task: Any) -> Settings:
    new = {"id": content_id("label-studio", path), "run_id": "", "people": []}
    try:
        settings = read_record(Settings, {**(_meta(task, "settings") or new), "run": path})
        fault = replace(settings, people=settings.people or ("me",)).fault
    except ValueError as error:
        fault = str(error)
    if fault is not None:
        raise _no_task(path, 0, f"meta.settings: {fault}")
    return settings


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
        there = read_folder(folder)
        if (there.items, there.events) != (found.items, found.events):
            raise ConfigError(f"-o {out}: holds other annotations. Give another folder")
    else:
        write_folder(folder, found.settings, found.items, found.events)
    return PeopleReport(
        num_opinions=len(last_opinions(found.events)),
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
        losses="guidelines",
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
