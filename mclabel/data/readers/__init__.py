"""Readers of problems and solutions, from a user's files or from anywhere else."""

from __future__ import annotations

from collections.abc import Mapping

READERS: Mapping[str, str] = {
    "arith": "mclabel.data.readers.generated:ArithReader",
    "pyarith": "mclabel.data.readers.generated:PyArithReader",
    "words": "mclabel.data.readers.generated:WordsReader",
    "file": "mclabel.data.readers.sources:FileReader",
    "hf": "mclabel.data.readers.sources:HubReader",
}
"""Readers of problems by name: `module:Class` (docs/extending-formats.md)."""
