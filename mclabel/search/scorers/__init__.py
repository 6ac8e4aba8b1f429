"""What scores the beginnings of solutions in a search: a component, chosen by name."""

from __future__ import annotations

from collections.abc import Mapping

SCORERS: Mapping[str, str] = {
    "prm": "mclabel.search.scorers.prm:PrmScorer",
    "constant": "mclabel.search.scorers.base:ConstantScorer",
    "exact": "mclabel.search.scorers.base:ExactScorer",
}
"""Name of each built-in scorer in a configuration, and where its class stands."""
