"""The manifest of a selection: which solutions of a pool to label, and how likely each one was.

`mclabel select` writes it, `mclabel label --select` reads it. It is one Parquet file that carries
its digest: a row for each chosen solution, in the order of ids, and in the metadata of its footer
how and from what they were chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.core.errors import DataError
from mclabel.core.records import Selection
from mclabel.core.seeds import content_id
from mclabel.data.readers.rows import local_path
from mclabel.run.parquet import whole_table
from mclabel.run.shards.digest import check_parquet, parquet_with_digest

VERSION = 1
_KEY = b"mclabel.select"
SCHEMA = pa.schema(
    [
        pa.field("problem_id", pa.string(), nullable=False),
        pa.field("solution_id", pa.string(), nullable=False),
        pa.field("text_id", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("rank", pa.int32()),
        pa.field("key", pa.float64()),
        pa.field("score", pa.float64()),
        pa.field("probability", pa.float64(), nullable=False),
    ]
)
"""Its columns are explained in docs/select.md."""
_MAKE = "Make one with `mclabel select`"


def text_id(problem: str, solution: str) -> str:
    """By which a solution is known again by its text: a hash of the problem's and its own."""
    return content_id("text", problem, solution)


@dataclass(frozen=True, kw_only=True)
class Selected:
    """The solutions that a manifest names."""

    place: str
    about: Mapping[str, Any]
    """How they were chosen: the metadata."""
    texts: Mapping[str, str]
    """By solution id, the `text_id`."""
    probabilities: Mapping[str, float]
    key: str = "solutions.select"
    """That names it, for messages."""

    def selection(self, solution_id: str) -> Selection:
        """How a chosen solution was chosen."""
        by_content: bool = self.about["by_content"]
        return Selection(probability=self.probabilities[solution_id], by_content=by_content)

    def check_text(self, solution_id: str, problem: str, solution: str) -> None:
        """See that a solution is still the one that was chosen.

        Raises:
            DataError: its text, or its problem's, is another.
        """
        if text_id(problem, solution) != self.texts[solution_id]:
            raise self._another(f"solution {solution_id} has another text")

    def check_found(self, ids: Iterable[str], pool: str) -> None:
        """See that all chosen solutions were found.

        Raises:
            DataError: the pool lacks one.
        """
        if missing := sorted(self.texts.keys() - set(ids)):
            raise self._another(
                f"{pool} lacks {len(missing):,} of its {len(self.texts):,} solutions, such as "
                f"{missing[0]}"
            )

    def _another(self, why: str) -> DataError:
        return DataError(
            f"{self.key}={self.place!r}: is a selection from another pool "
            f"({self.about['pool']['place']}): {why}. Give that pool unchanged, or select anew"
        )


def manifest_bytes(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> bytes:
    """The content of a manifest.

    Args:
        rows: one a chosen solution, with the columns of the schema.
        about: the metadata, JSON-serialisable.
    """
    stamp = {"version": VERSION, **about}
    ordered = sorted(rows, key=lambda row: str(row["solution_id"]))
    table = pa.Table.from_pylist(ordered, schema=SCHEMA)
    table = table.replace_schema_metadata({_KEY: json.dumps(stamp, sort_keys=True).encode()})
    return parquet_with_digest(table, compression="zstd")


def read_selected(place: str, key: str = "solutions.select") -> Selected:
    """Read a manifest.

    Args:
        place: file or URL.
        key: that names it, for messages.

    Raises:
        DataError: it is none, or damaged.
    """
    table, about = _opened(place, f"{key}={place!r}")
    ids = table["solution_id"].to_pylist()
    return Selected(
        place=place,
        about=about,
        texts=dict(zip(ids, table["text_id"].to_pylist(), strict=True)),
        probabilities=dict(zip(ids, table["probability"].to_pylist(), strict=True)),
        key=key,
    )


def _opened(place: str, key: str) -> tuple[pa.Table, dict[str, Any]]:
    path = local_path(place)
    try:
        content = path.read_bytes()
        table = whole_table(pq.ParquetFile(pa.BufferReader(content)))
        about = json.loads((table.schema.metadata or {})[_KEY])
        table = table.select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise DataError(f"{key}: is no manifest of a selection ({error}). {_MAKE}") from error
    if about.get("version") != VERSION:
        raise DataError(
            f"{key}: has version {about.get('version')}, this mclabel reads {VERSION}. {_MAKE}"
        )
    if check_parquet(content) != "sound":
        raise DataError(f"{key}: is damaged: its content does not match its digest. {_MAKE}")
    return table, about
