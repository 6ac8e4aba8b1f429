"""Which solutions of a pool to label next."""

from __future__ import annotations

from collections.abc import Mapping

RULES: Mapping[str, str] = {
    "uniform": "mclabel.select.pool:UNIFORM",
    "convincing": "mclabel.select.pool:CONVINCING",
    "uncertain": "mclabel.select.pool:UNCERTAIN",
}
"""Name of a rule, and where it stands."""
