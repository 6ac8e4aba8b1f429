"""Exports to and imports from data formats of other projects."""

from __future__ import annotations

from collections.abc import Mapping

FORMATS: Mapping[str, str] = {
    "trl": "mclabel.data.exchange.published:Trl",
    "math-shepherd": "mclabel.data.exchange.published:MathShepherd",
    "rlhflow": "mclabel.data.exchange.published:Rlhflow",
    "prm800k": "mclabel.data.exchange.published:Prm800k",
    "processbench": "mclabel.data.exchange.published:ProcessBench",
}
"""Import path of each built-in format by name, as `module:Class` (docs/extending-formats.md)."""
PARQUET = "parquet"
"""Name of the export that writes all labels and rollouts, with all columns, to Parquet files."""
PRM800K = "prm800k"
VERIFIER_CHAINS = "verifier-chains"
"""Name of the export that writes judges' answers as conversations for training a verifier."""
