"""Whether a problem to train on is in an evaluation set: problems that read the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from mclabel.data.readers.rows import FORMATS, file_rows
from mclabel.data.shards.labels import label_tables
from mclabel.data.shards.store import Store
from mclabel.errors import DataError

_WORDS = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|[+\-*/^=<>%]")
_COLUMNS = ("problem", "question", "prompt")


def leak_key(problem_text: str) -> str:
    """The words, numbers and operators of a problem, whatever its case, spaces and marks."""
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", problem_text).casefold()))


def leak_keys(sources: Sequence[str]) -> frozenset[str]:
    """Keys of the problems of evaluation sets.

    Args:
        sources: folders or URLs of runs with `labels/`, or files whose rows have a `problem`,
            `question` or `prompt`.

    Raises:
        DataError: a row has none of these.
        ShardError: a folder holds no labels.
    """
    found: set[str] = set()
    for source in sources:
        if Path(source).is_file() or source.endswith(FORMATS):
            for place, row in file_rows(source):
                text = next((row[c] for c in _COLUMNS if isinstance(row.get(c), str)), None)
                if text is None:
                    raise DataError(f"{place}: needs one of {', '.join(_COLUMNS)} (text)")
                found.add(leak_key(text))
            continue
        for _, table in label_tables(Store(source)):
            found |= {leak_key(text) for text in table.column("problem").unique().to_pylist()}
    return frozenset(found)
