"""Rules that make one label of several opinions, without learning whom to believe.

`same_location` is the consensus filter of arXiv 2501.07301: it keeps a solution where rollouts and
judges name the same first error, or all find none. `same_verdict` keeps it where they agree on
whether there is an error, wherever; the location is that of the rollouts. `step_majority` decides
every step by the majority of those that have an opinion, and keeps a solution without ties up to
its first error. A judge that only claims that an error is at a step or before it contradicts later
locations and the absence of errors, and says nothing for any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mclabel.core.records import SourceOpinion


@dataclass(frozen=True)
class Agreed:
    """What a rule makes of the opinions on one solution."""

    first_error: int | None
    kept: bool
    """Whether the sources agree as the rule demands."""


def same_location(opinions: Sequence[SourceOpinion], num_steps: int) -> Agreed:
    """Kept where all know, and name the same first error or none.

    Args:
        opinions: of all sources, those of rollouts first.
        num_steps: of the solution.
    """
    rollouts, *_ = opinions
    naming = [one for one in opinions if one.claim != "at_or_before"]
    agreed = all(one.is_known and one.first_error == rollouts.first_error for one in naming)
    return Agreed(rollouts.first_error, agreed and not _contradicted(rollouts, opinions))


def same_verdict(opinions: Sequence[SourceOpinion], num_steps: int) -> Agreed:
    """Kept where all know, and agree on whether there is an error; see `same_location`."""
    rollouts, *_ = opinions
    naming = [one for one in opinions if one.claim != "at_or_before"]
    has_error = rollouts.first_error is not None
    agreed = all(one.is_known and (one.first_error is not None) == has_error for one in naming)
    return Agreed(rollouts.first_error, agreed and not _contradicted(rollouts, opinions))


def step_majority(opinions: Sequence[SourceOpinion], num_steps: int) -> Agreed:
    """Every step by the majority of those that know; see `same_location`."""
    kept = True
    for step in range(num_steps):
        balance = sum(vote for one in opinions if (vote := _vote(one, step)) is not None)
        if balance < 0:
            return Agreed(step, kept)
        kept = kept and balance > 0
    return Agreed(None, kept)


def _vote(opinion: SourceOpinion, step: int) -> int | None:
    """1 for a sound step, -1 for a wrong one, None for neither."""
    if not opinion.is_known:
        return None
    is_wrong = opinion.first_error is not None and step >= opinion.first_error
    if opinion.claim == "at_or_before" and not is_wrong:
        return None
    return -1 if is_wrong else 1


def _contradicted(rollouts: SourceOpinion, opinions: Sequence[SourceOpinion]) -> bool:
    """Whether a judge finds an error before the first one that the others name."""
    bounds = [
        one.first_error
        for one in opinions
        if one.claim == "at_or_before" and one.first_error is not None
    ]
    named = rollouts.first_error
    return any(named is None or named > bound for bound in bounds)


Rule = Callable[[Sequence[SourceOpinion], int], Agreed]
RULES: Mapping[str, Rule] = {
    "same_location": same_location,
    "same_verdict": same_verdict,
    "step_majority": step_majority,
}
"""By name; `posterior` learns whom to believe (`mclabel.judge.consensus.posterior`)."""
POSTERIOR = "posterior"
JUDGE = "judge"
"""Takes the labels of one judge, such as a large PRM that labels for small ones, as they are: what
rollouts say does not count (Let's Verify Step by Step, arXiv 2305.20050, appendix H)."""
