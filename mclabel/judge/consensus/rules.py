"""Rules that derive one label of a solution from the opinions of several sources.

The rule `posterior` learns the error rates of the sources (`mclabel.judge.consensus.posterior`).
The rule `same_location` keeps a solution if all sources name the same first error (the consensus
filter of arXiv 2501.07301). The rule `judge` takes the labels of a single judge.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.core.records import SourceOpinion

POSTERIOR = "posterior"
SAME_LOCATION = "same_location"
JUDGE = "judge"
"""Rule that takes the labels of one judge unchanged and ignores rollouts. The judge may be a large
PRM that labels training data for small PRMs (Let's Verify Step by Step, arXiv 2305.20050,
appendix H)."""
RULES = (POSTERIOR, SAME_LOCATION, JUDGE)


def same_location(opinions: Sequence[SourceOpinion]) -> bool:
    """Return whether all sources have an opinion and name the same first error, or no error.

    A judge with the claim `at_or_before` agrees if the first error is at its step or before it. If
    it names no step, it agrees with every opinion.

    Args:
        opinions: opinions of all sources, those of the rollouts first. The other opinions are
            compared with the first error that the rollouts name.
    """
    named = opinions[0].first_error
    return all(
        opinion.first_error is None or (named is not None and named <= opinion.first_error)
        if opinion.claim == "at_or_before"
        else opinion.is_known and opinion.first_error == named
        for opinion in opinions
    )
