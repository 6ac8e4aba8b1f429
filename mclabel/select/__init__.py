"""Which solutions of a pool to label next."""

from __future__ import annotations

from collections.abc import Mapping

RULES: Mapping[str, str] = {
    "uniform": "mclabel.select.rules:UNIFORM",
    "convincing": "mclabel.select.rules:CONVINCING",
    "uncertain": "mclabel.select.rules:UNCERTAIN",
}
"""Name of a rule, and where it stands."""
