"""Searches for solutions of problems. The scores of steps decide which prefixes are continued.

A search method decides which prefixes of solutions to continue, as a pure state machine. A built-in
method is one class in the module `levels` and one line in `SEARCHES`. A user's method is a class in
a package of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

SEARCHES: Mapping[str, str] = {
    "best_of_n": "mclabel.search.levels:BestOfNSearch",
    "beam": "mclabel.search.levels:BeamSearch",
    "dvts": "mclabel.search.levels:DvtsSearch",
    "rebase": "mclabel.search.levels:RebaseSearch",
    "particle": "mclabel.search.levels:ParticleSearch",
}
"""Maps the name of a built-in method in a configuration to its class, as `module:Class`."""
