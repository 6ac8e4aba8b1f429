"""Beam search: the best beginnings of all are continued (arXiv 2408.03314).

Of every level the best `n / width` distinct open nodes share the samples of the next one. A
solution that ends is put aside and takes its place with it, so that the search ends with `n`
finished solutions, or earlier where nothing is open.

Departs from the paper's reimplementation in search-and-learn, which goes on to sample `n`
continuations a level however many are finished, cuts the surplus by score, and repeats solutions
where there are too few. Identical continuations compete as one node there only by an option, and
here always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil

from mclabel.search.methods.levels import LevelSearch, WidthSettings, open_nodes


class BeamSearch(LevelSearch):
    """At most `n` samples a level, and never more than solutions are missing."""

    class Settings(WidthSettings):
        """Continues the best beginnings of all, `width` times each."""

    def choose(self, level: Counter[str]) -> Mapping[str, int]:
        """The best open nodes, with an even share each; the better ones take what is left over."""
        kept = open_nodes(self.ranked(level))[: ceil(self.num_missing / self.settings.width)]
        if not kept:
            return {}
        share, rest = divmod(self.num_missing, len(kept))
        return {node.id: share + (place < rest) for place, node in enumerate(kept)}
