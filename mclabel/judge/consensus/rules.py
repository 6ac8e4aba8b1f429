"""Rules that make one label of several opinions.

`posterior` learns whom to believe (`mclabel.judge.consensus.posterior`), and `same_location` is the
consensus filter of arXiv 2501.07301.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.core.records import SourceOpinion

POSTERIOR = "posterior"
SAME_LOCATION = "same_location"
JUDGE = "judge"
"""Takes the labels of one judge, such as a large PRM that labels for small ones, as they are: what
rollouts say does not count (Let's Verify Step by Step, arXiv 2305.20050, appendix H)."""
RULES = (POSTERIOR, SAME_LOCATION, JUDGE)


def same_location(opinions: Sequence[SourceOpinion]) -> bool:
    """Return whether all sources know, and name the same first error or none.

    A judge that only claims that an error is at a step or before it contradicts later locations and
    the absence of errors, and says nothing for any.

    Args:
        opinions: opinions of all sources; the first one, that of rollouts, names the location.
    """
    named = opinions[0].first_error
    return all(
        opinion.first_error is None or (named is not None and named <= opinion.first_error)
        if opinion.claim == "at_or_before"
        else opinion.is_known and opinion.first_error == named
        for opinion in opinions
    )
