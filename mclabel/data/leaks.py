"""Detects training problems that are also in an evaluation set, by their normalised texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mclabel.core.errors import DataError, RejectReason
from mclabel.data.readers.rows import FORMATS, describe_row_place, read_object_rows
from mclabel.run.shards.labels import iter_label_tables
from mclabel.run.shards.store import Store

_WORDS = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[+\-*/^=<>%]")
_COLUMNS = ("problem", "question", "prompt")
ReportRowFault = Callable[[str], None]
"""Function that receives a message with the file, the row number and the fault of a row without a
problem."""


def normalize_for_leaks(problem_text: str) -> str:
    """Return the words, numbers and operators of a problem in lower case, for a comparison."""
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", problem_text).casefold()))


def read_leak_keys(
    sources: Sequence[str], on_unread: ReportRowFault = lambda fault: None
) -> frozenset[str]:
    """Return the normalised texts (`normalize_for_leaks`) of the problems in evaluation sets.

    Args:
        sources: folders or URLs of runs with `labels/`, or files whose rows have a `problem`,
            `question` or `prompt`.
        on_unread: function that receives the place and fault of each row without a problem.

    Raises:
        DataError: a file cannot be read, or none of its rows has a problem.
        ShardError: a folder has no labels.
    """
    all_keys: set[str] = set()
    for source in sources:
        if Path(source).is_file() or source.endswith(FORMATS):
            keys, first_fault = set[str](), f"{source}: holds no rows"
            for number, row in read_object_rows(source):
                text = find_problem_text(row)
                if isinstance(text, str):
                    keys.add(normalize_for_leaks(text))
                    continue
                fault = f"{describe_row_place(source, number)}: {text.detail}"
                first_fault = first_fault if keys else fault
                on_unread(fault)
            if not keys:
                raise DataError(f"{first_fault}. Give files of evaluation problems")
            all_keys |= keys
            continue
        for _, table in iter_label_tables(Store(source)):
            all_keys |= {
                normalize_for_leaks(text) for text in table.column("problem").unique().to_pylist()
            }
    return frozenset(all_keys)


def find_problem_text(row: Mapping[str, Any] | RejectReason) -> str | RejectReason:
    """Return the text of the problem in a row, or the reason why there is none."""
    if isinstance(row, RejectReason):
        return row
    for name in _COLUMNS:
        if isinstance(text := row.get(name), str) and text.strip():
            return text
    return RejectReason("no_problem", f"needs one of the columns {', '.join(_COLUMNS)} with a text")
