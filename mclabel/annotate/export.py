"""Exports of what people said in `mclabel annotate`, as PRM800K and as plain Parquet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.annotate.folder import LOSSES, Annotated, exported, prm800k_rows
from mclabel.core.errors import ConfigError, DataError
from mclabel.data.exchange import PARQUET, PRM800K
from mclabel.data.exchange.job import CARD, ExportReport, push_folder
from mclabel.run.outputs import EXPORT, check_free, output_folder

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
        to: name of the format: `prm800k` or `parquet`.
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


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


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
