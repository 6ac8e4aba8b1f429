"""Reads a critic's answer as a verifier's chain of thought, with a verdict on each step.

The module `parse` reads an answer as a vote, for which only the first error matters. A chain that
is training data for a verifier must also be complete: every step up to the first incorrect step has
a consistent verdict, and the text is not truncated.
"""

from __future__ import annotations

import re

from mclabel.judge.critic.answer_text import split_thoughts
from mclabel.judge.critic.parse import FIRST_INDEX, MAX_CHARACTERS, check_parser, parse_output
from mclabel.judge.critic.verdicts import StepVerdicts, VerdictFault, read_verdicts

_ANALYSIS = re.compile(r"<\s{0,3}analysis[_\s]{0,3}(\d{1,9})\s{0,3}>", re.IGNORECASE)


def read_step_verdicts(
    text: str, num_steps: int, parser: str = "step_verdicts", *, truncated: bool = False
) -> StepVerdicts:
    """Return the verdicts of a chain on the steps of a solution.

    The result has a `fault` if the chain is truncated or lacks verdicts up to the first error.

    Args:
        text: text of the answer, thoughts included.
        num_steps: number of steps of the solution, at least 1.
        parser: name of the requested answer format, one of `FIRST_INDEX`.
        truncated: True if the answer was cut at its maximum number of tokens.

    Raises:
        ConfigError: there is no such parser.
    """
    check_parser(parser)
    nothing = (None,) * num_steps
    if len(text) > MAX_CHARACTERS:
        reason = f"longer than {MAX_CHARACTERS:,} characters"
        return StepVerdicts(nothing, VerdictFault.TOO_LONG, reason)
    outside, inside, is_open = split_thoughts(text)
    if is_open:
        fault = VerdictFault.TRUNCATED if truncated else VerdictFault.OPEN_THOUGHT
        return StepVerdicts(nothing, fault, "unclosed think block")
    verdicts = (
        _read_verdicts_on_steps(outside, inside, num_steps)
        if parser == "step_verdicts"
        else _derive_verdicts_from_first_error(text, outside, num_steps, parser)
    )
    if truncated:
        return StepVerdicts(verdicts.verdicts, VerdictFault.TRUNCATED, "truncated")
    return verdicts


def _read_verdicts_on_steps(
    text_outside_thoughts: str, text_inside_thoughts: str, num_steps: int
) -> StepVerdicts:
    """Return the verdicts outside of thoughts; if they are incomplete, also read the thoughts."""
    verdicts = read_verdicts(text_outside_thoughts, num_steps)
    if text_inside_thoughts and (verdicts is None or verdicts.fault is not None):
        whole = read_verdicts(f"{text_inside_thoughts}\n{text_outside_thoughts}", num_steps)
        if whole is not None and (verdicts is None or whole.fault is None):
            return whole
    return verdicts or StepVerdicts((None,) * num_steps, VerdictFault.NO_VERDICTS, "no verdicts")


def _derive_verdicts_from_first_error(
    text: str, text_outside_thoughts: str, num_steps: int, parser: str
) -> StepVerdicts:
    """Return verdicts derived from the first error that an answer names.

    Earlier steps are correct, and later steps have no verdict. In the format `lessons`, a step
    without an analysis has no verdict either.
    """
    vote = parse_output(text, parser, num_steps, truncated=False)
    if not vote.is_known:
        return StepVerdicts((None,) * num_steps, VerdictFault.NO_VERDICTS, vote.reason)
    error = num_steps if vote.first_error is None else vote.first_error
    verdicts: list[bool | None] = [True] * error
    verdicts += [False] * (error < num_steps)
    if parser == "lessons":  # a step without an analysis has no verdict
        first = FIRST_INDEX[parser]
        analysed = {int(match[1]) - first for match in _ANALYSIS.finditer(text_outside_thoughts)}
        verdicts = [says if i in analysed else None for i, says in enumerate(verdicts)]
    padded = (*verdicts, *[None] * (num_steps - len(verdicts)))
    if None in verdicts:
        reason = f"no analysis of step {verdicts.index(None) + 1}"
        return StepVerdicts(padded, VerdictFault.MISSING, reason)
    return StepVerdicts(padded)
