"""Export of the annotations from `mclabel annotate`, as PRM800K or as plain Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.annotate.events import WITH_REASON, Event
from mclabel.annotate.folder import AnnotationFolder
from mclabel.annotate.items import Item
from mclabel.core.errors import ConfigError, DataError
from mclabel.data.exchange import PARQUET, PRM800K
from mclabel.data.exchange.job import CARD, ExportReport, push_folder
from mclabel.data.exchange.published import make_prm800k_row
from mclabel.run.outputs import EXPORT, check_no_other_output, make_output_folder

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
    ]
)
"""Columns of `--to parquet`. Each opinion is one row; docs/annotate.md explains the columns."""


@dataclass(frozen=True, kw_only=True)
class _ExportForm:
    """A file format for annotations."""

    file: str
    """Name of the written file."""
    lost_information: str
    """Sentence that names the data that the format cannot store, for the report and the data set
    card."""
    write_rows: Callable[[Path, list[dict[str, Any]]], object]
    """Function that writes rows to a path."""
    make_row: Callable[[Item, Event], dict[str, Any]]
    """Function that makes the row of an opinion on an item."""


def export_annotations(
    folder: str, format_name: str, out: str, *, push_to_hub: str | None = None
) -> ExportReport:
    """Write each person's last opinion on each solution, and a data set card.

    Args:
        folder: folder of `mclabel annotate`.
        format_name: name of the format: `prm800k` or `parquet`.
        out: output folder, created if it does not exist. Files of an earlier export are replaced.
        push_to_hub: data set on the Hugging Face Hub to which the folder is uploaded; None uploads
            nothing.

    Raises:
        ConfigError: the format is unknown, or the upload was refused.
        DataError: the folder contains no opinions.
    """
    if format_name not in _FORMS:
        raise ConfigError(
            f"--to {format_name}: the annotations in {folder} can be written as "
            f"{', '.join(_FORMS)}. Give one of these. For another format, write {PRM800K} first, "
            "and turn it into a run with "
            f"`mclabel import --from {PRM800K}`"
        )
    check_no_other_output(out, EXPORT, "-o ")
    annotated, form = AnnotationFolder.read(folder), _FORMS[format_name]
    opinions = [
        (item, event) for item in annotated.items for event in annotated.list_last_opinions(item)
    ]
    if not opinions:
        raise DataError(
            f"{folder}: nobody has submitted a solution yet, so there are no rows. Label some on "
            "the page of `mclabel annotate` first"
        )
    place = make_output_folder(out, "-o ")
    rows = [form.make_row(item, event) for item, event in opinions]
    partial = place / f"{form.file}.partial"
    form.write_rows(partial, rows)
    partial.rename(place / form.file)
    num_people = len({event.person for _, event in opinions})
    (place / CARD).write_text(
        _format_card_text(form, format_name, len(opinions), num_people), encoding="utf-8"
    )
    return ExportReport(
        to=format_name,
        losses=form.lost_information,
        path=str(place / form.file),
        num_rows=len(rows),
        num_left_out=0,
        num_cut=0,
        num_not_kept=0,
        url=None if push_to_hub is None else push_folder(place, push_to_hub, [form.file, CARD]),
    )


def _make_parquet_row(item: Item, event: Event) -> dict[str, Any]:
    content: dict[str, Any] = {**vars(item), **vars(event)}
    return {
        **{name: content[name] for name in SCHEMA.names if name in content},
        "is_sure": event.is_sure,
        "first_error": event.first_error if event.is_sure else None,
        "is_quality_control_question": item.gold is not None,
    }


def _make_prm800k_row(item: Item, event: Event) -> dict[str, Any]:
    # If the person gave up, a bad rating must not be read as the first error.
    ends = (None, "bad") if event.finish in WITH_REASON else (None,)
    return make_prm800k_row(
        problem=item.problem,
        answer=item.answer,
        steps=[text.removesuffix("\n") for text in item.steps],
        prediction=item.prediction,
        ratings=[
            _RATING_NUMBERS[word]
            for word in takewhile(lambda word: word not in ends, event.ratings)
        ],
        finish_reason=event.finish,
        labeler=event.person,
        timestamp=datetime.fromtimestamp(event.at / 1000, UTC).isoformat(),
        total_time=event.ms,
        is_control=item.gold is not None,
    )


_RATING_NUMBERS: Mapping[str | None, int | None] = {"good": 1, "okay": 0, "bad": -1, "unsure": None}
_FORMS: Mapping[str, _ExportForm] = {
    PRM800K: _ExportForm(
        file="data.jsonl",
        lost_information="ratings after the first bad step, notes, reasons for giving up and "
        "sampling probabilities are lost",
        write_rows=lambda path, rows: path.write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        ),
        make_row=_make_prm800k_row,
    ),
    PARQUET: _ExportForm(
        file="data.parquet",
        lost_information="earlier revisions of an opinion are lost",
        write_rows=lambda path, rows: pq.write_table(
            pa.Table.from_pylist(rows, schema=SCHEMA), path, compression="zstd"
        ),
        make_row=_make_parquet_row,
    ),
}


def _format_card_text(form: _ExportForm, to: str, num_opinions: int, num_people: int) -> str:
    return f"""---
tags: [process-reward-model, mclabel]
configs:
- config_name: default
  data_files: {form.file}
---
{num_opinions} opinions of {num_people} people on the steps of solutions, in the format {to}. They
were collected with `mclabel annotate`.

Limits of this format: {form.lost_information}.
"""
