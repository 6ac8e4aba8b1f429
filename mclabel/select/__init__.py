"""Selection of solutions to label from a pool."""

from __future__ import annotations

from collections.abc import Mapping

RULES: Mapping[str, str] = {
    "uniform": "mclabel.select.pool:UNIFORM",
    "convincing": "mclabel.select.pool:CONVINCING",
    "uncertain": "mclabel.select.pool:UNCERTAIN",
}
"""Import path of each built-in rule, by its name in a configuration."""
