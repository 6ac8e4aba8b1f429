"""Search for solutions that a step scorer steers: pure state machines over one engine.

A method is one class in `levels` and one line in `SEARCHES`, or a class in a package of your own.
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
"""Import path of each built-in method, by its name in a configuration."""
