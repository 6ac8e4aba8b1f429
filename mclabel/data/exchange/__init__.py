"""Exports to and imports from other people's formats."""

from __future__ import annotations

from collections.abc import Mapping

FORMATS: Mapping[str, str] = {
    "trl": "mclabel.data.exchange.published:Trl",
    "math-shepherd": "mclabel.data.exchange.published:MathShepherd",
    "rlhflow": "mclabel.data.exchange.published:Rlhflow",
    "prm800k": "mclabel.data.exchange.published:Prm800k",
    "processbench": "mclabel.data.exchange.published:ProcessBench",
}
"""Formats by name: `module:Class` (docs/extending-formats.md)."""
PARQUET = "parquet"
"""An export of all our own columns in plain Parquet files, of tables and not of rows."""
PRM800K = "prm800k"
VERIFIER_CHAINS = "verifier-chains"
"""Conversations for the training of a verifier, of opinions and not of labels."""
