"""The checks of a run's health: shares from which on labels teach less, why, and what to change.

The figures of ProcessBench (arXiv 2412.06559) are those of its splits gsm8k and math.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MANY_STEPS = 50
"""Solutions of GSM8K and MATH have 5 and 6 in the median, 32 at most (ProcessBench)."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """When a share is a finding."""

    name: str
    """Name of the share, in tables."""
    warning: float
    error: float | None
    """Share from which on it is an error; None is never worse than a warning."""
    of: str
    """What is counted."""
    text: str
    """Predicate: what is wrong with them; {limit} is the limit of tokens."""
    why: str
    """The reason for the thresholds."""
    remedy: str


_CUT_REMEDY = (
    "Raise policy.max_tokens; if completions ramble on, end them by policy.stop or by the prompt "
    "(policy.template, policy.system)"
)
_UNGRADED_REMEDY = (
    "Look at their answers and golds (mclabel view, filter ungraded); mend the golds "
    "(mclabel regrade RUN --golds FILE), or ask for another form of answer (policy.system)"
)
_EASIER = "a stronger policy.model or easier problems (problems.source)"
_HARDER = "harder problems (problems.source), or solutions.balance with more solutions.per_problem"

CHECKS: Mapping[str, Check] = {
    "solutions_truncated": Check(
        name="solutions cut at the limit",
        warning=0.1,
        error=0.5,
        of="solutions",
        text="were cut at policy.max_tokens{limit}",
        why="truncated solutions count as wrong or are left out, so pass rates are off by up to "
        "this share",
        remedy=_CUT_REMEDY,
    ),
    "rollouts_truncated": Check(
        name="rollouts cut at the limit",
        warning=0.1,
        error=0.5,
        of="rollouts",
        text="were cut at policy.max_tokens{limit}",
        why="values are off by up to this share; at .1 by as much as the noise of 16 rollouts",
        remedy=_CUT_REMEDY,
    ),
    "rollouts_withheld": Check(
        name="rollouts without room",
        warning=0.1,
        error=0.5,
        of="wanted rollouts",
        text="were not sampled: policy.max_tokens{limit} leaves less room than is usually needed",
        why="their steps have no value, and mostly no label; most of these rollouts would be cut",
        remedy=_CUT_REMEDY,
    ),
    "tokens_at_limit": Check(
        name="tokens of solutions that were cut",
        warning=0.25,
        error=0.75,
        of="tokens of solutions",
        text="belong to solutions that were cut at policy.max_tokens{limit}",
        why="these tokens cost money and carry no information",
        remedy="End rambling solutions by policy.stop, or lower policy.max_tokens",
    ),
    "solutions_ungraded": Check(
        name="solutions without a verdict",
        warning=0.05,
        error=0.5,
        of="solutions",
        text="could not be graded",
        why="they are not counted, and they depend on the form of the answer, so the rest is a "
        "biased selection",
        remedy=_UNGRADED_REMEDY,
    ),
    "rollouts_ungraded": Check(
        name="rollouts without a verdict",
        warning=0.05,
        error=0.5,
        of="rollouts",
        text="could not be graded",
        why="they are not counted, and they depend on the form of the answer, so the rest is a "
        "biased selection",
        remedy=_UNGRADED_REMEDY,
    ),
    "rollouts_weak": Check(
        name="rollouts with a weak verdict",
        warning=0.1,
        error=0.5,
        of="rollouts",
        text="mark no answer and were graded by their last number, or are programs that were "
        "tested in their own process",
        why="solutions of ProcessBench have .02; a guess may judge the form of an answer instead "
        "of its value, and a program can forge what it is in one process with",
        remedy="Ask for a marked answer, such as \\boxed{} (policy.system), or leave guesses "
        "without a verdict (checker.rules.grade_guesses=false); give tests that call functions "
        "with plain data",
    ),
    "never_solved": Check(
        name="problems never solved",
        warning=0.5,
        error=0.9,
        of="problems",
        text="have no right solution and no right rollout",
        why="all their labels are wrong, so no step differs from another",
        remedy=f"Choose {_EASIER}; solutions.balance leaves such problems out",
    ),
    "always_solved": Check(
        name="problems always solved",
        warning=0.5,
        error=0.9,
        of="problems",
        text="have only right solutions and right rollouts",
        why="all their labels are sound, so no step differs from another",
        remedy=f"Choose {_HARDER}",
    ),
    "labels_wrong": Check(
        name="wrong labels",
        warning=0.98,
        error=0.995,
        of="step labels",
        text="are wrong",
        why="a scorer with one constant answer does as well; ProcessBench has .35 to .42",
        remedy=f"Choose {_EASIER}; if right answers are among them, mend the golds",
    ),
    "labels_sound": Check(
        name="sound labels",
        warning=0.98,
        error=0.995,
        of="step labels",
        text="are sound",
        why="a scorer with one constant answer does as well; ProcessBench has .58 to .65",
        remedy=f"Choose {_HARDER}",
    ),
    "undecided": Check(
        name="undecided solutions",
        warning=0.5,
        error=0.95,
        of="solutions",
        text="have no first error that is sure enough, nor surely none",
        why="their unsure steps have no hard label and teach nothing",
        remedy=f"Choose {_EASIER}, a second, stronger model (completers), or more "
        "solutions.per_problem, whose agreement is evidence",
    ),
    "one_step": Check(
        name="solutions of one step",
        warning=0.5,
        error=0.9,
        of="solutions",
        text="are one step",
        why="their only label is the outcome, as for an ORM; ProcessBench has none",
        remedy="Split them in another way (split.by, split.pattern), or ask for steps "
        "(policy.system). With split.region=answer, thinking that never ends is one step: raise "
        "policy.max_tokens, or set split.region=think",
    ),
    "many_steps": Check(
        name=f"solutions of more than {MANY_STEPS} steps",
        warning=0.5,
        error=None,
        of="solutions",
        text=f"have more than {MANY_STEPS} steps",
        why="cost grows with the steps, and short steps show little; the maximum in "
        "ProcessBench is 32",
        remedy="Join steps by split.max_steps or split.min_tokens, or split.by=blank_line",
    ),
    "right_with_error": Check(
        name="right solutions with a labelled error",
        warning=0.3,
        error=0.7,
        of="right solutions",
        text="are labelled with an error",
        why="in ProcessBench people find .04 (GSM8K) to .19 (MATH), so the rest are probably false",
        remedy="Raise estimator.rollouts (or lower estimator.min_gain_per_token), and check that "
        "rollouts are sampled as solutions are and not cut",
    ),
    "wrong_without_error": Check(
        name="wrong solutions without a labelled error",
        warning=0.05,
        error=0.5,
        of="wrong solutions",
        text="are labelled without an error",
        why="a wrong answer has a wrong step: ProcessBench has no such solution",
        remedy="Check their golds (mclabel view, filter wrong), and raise estimator.rollouts",
    ),
}
"""By the name of the finding."""
