"""Which solutions of a pool to label next."""

from __future__ import annotations

from collections.abc import Mapping

RULES: Mapping[str, str] = {
    "uniform": "mclabel.selection.rules:UNIFORM",
    "convincing": "mclabel.selection.rules:CONVINCING",
    "uncertain": "mclabel.selection.rules:UNCERTAIN",
}
"""Name of a rule, and where it stands."""
