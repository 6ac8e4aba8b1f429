"""Whether a problem can be labelled at all: its texts must fit, and its gold be understood."""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.checkers import Checker
from mclabel.core.errors import RejectReason, bounded
from mclabel.core.records import AUTHOR, GivenSolution, Problem
from mclabel.engines import Policy
from mclabel.engines.base import never_fits
from mclabel.run.desk import Desk


async def prompts_for(
    problem: Problem,
    given: Sequence[GivenSolution],
    policies: Sequence[tuple[str, Policy]],
    *,
    checker: Checker,
    desk: Desk,
) -> list[tuple[int, ...]] | RejectReason:
    """The prompt of a problem for each model, or why it cannot be labelled.

    Args:
        problem: with its gold answer.
        given: solutions to label.
        policies: with their names, the author first, then all that roll out; one that is there
            twice is asked once.
        checker: that is to grade.
        desk: where it computes.
    """
    prompts: dict[int, tuple[int, ...]] = {}
    for name, policy in policies:
        if id(policy) in prompts:
            continue
        who = "the model" if name == AUTHOR else f"the completer {name}"
        if (why := _too_long(problem, given, policy, who)) is not None:
            return why
        prompts[id(policy)] = policy.prompt_ids(problem.text)
        if (why := _no_context(len(prompts[id(policy)]), policy, who)) is not None:
            return why
    reason = await checker.refuse(problem, desk.run)
    if reason is not None:
        return RejectReason(
            "unparsed_gold",
            f"the checker {checker.name} does not understand the gold "
            f"{bounded(problem.answer)!r} ({reason})",
        )
    return [prompts[id(policy)] for _, policy in policies]


def _too_long(
    problem: Problem, given: Sequence[GivenSolution], policy: Policy, who: str
) -> RejectReason | None:
    """A text that cannot fit, refused by its length: tokenising it alone would take long."""
    takes = f"which {who} takes of prompt and solution together"
    if (size := never_fits(len(problem.text), policy)) is not None:
        return RejectReason("prompt_too_long", f"its text has {size}, {takes}")
    for index, solution in enumerate(given):
        if (size := never_fits(len(solution.text), policy)) is not None:
            return RejectReason("solution_too_long", f"its solution {index} has {size}, {takes}")
    return None


def _no_context(num_prompt: int, policy: Policy, who: str) -> RejectReason | None:
    """That a prompt leaves no room in what a model takes."""
    if num_prompt < policy.max_context:
        return None
    return RejectReason(
        "prompt_too_long",
        f"its prompt has {num_prompt} tokens, {who} takes {policy.max_context:g} of prompt and "
        "solution together",
    )
