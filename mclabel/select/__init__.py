"""Selection of the solutions of a pool that are worth labelling."""

from __future__ import annotations

from collections.abc import Mapping

RULES: Mapping[str, str] = {
    "uniform": "mclabel.select.pool:UNIFORM",
    "convincing": "mclabel.select.pool:CONVINCING",
}
"""Maps the name of each built-in rule in a configuration to its object, as `module:name`."""
