"""Readers of problems and solutions, from files, data sets and generators."""

from __future__ import annotations

from collections.abc import Mapping

READERS: Mapping[str, str] = {
    "arith": "mclabel.data.readers.generated:ArithReader",
    "pyarith": "mclabel.data.readers.generated:PyArithReader",
    "words": "mclabel.data.readers.generated:WordsReader",
    "file": "mclabel.data.readers.sources:FileReader",
    "hf": "mclabel.data.readers.sources:HubReader",
}
"""Import path of each built-in reader by name, as `module:Class` (docs/extending-formats.md)."""
