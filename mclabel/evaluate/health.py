"""Checks the health of a labelling run: whether its labels are useful for training.

Each check compares a share, such as that of truncated solutions, with two thresholds. From the
first on, the finding is a warning. From the second on, it is an error: training on the labels is
not worthwhile. A share of fewer than `MIN_SEEN` cases gives no finding. docs/evaluation.md lists
the checks.

Numbers from ProcessBench (arXiv 2412.06559) are those of its splits gsm8k and math.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from mclabel.checkers.guarded import is_checker_failure
from mclabel.core.records import Outcome
from mclabel.evaluate.health_counts import GUESSABLE, HealthCounts, count_health
from mclabel.run.shards.labels import read_committed_block_ids
from mclabel.run.shards.store import Store

ENOUGH_FILES = 2_000
"""Maximum number of shards that are read for the health of a run at its end. Reading this number of
shards from a local disk takes seconds."""
MAX_REASONS = 10
"""Maximum number of reasons for rollouts without a verdict that a health report lists."""
MAX_NAMED = 3
"""Maximum number of reasons for rollouts without a verdict that a finding names."""
MIN_SEEN = 20
"""Minimum number of cases of a share. With fewer cases, the 95% interval of the share is wider than
±.22."""
Severity = Literal["warning", "error"]


@dataclass(frozen=True, kw_only=True)
class CountedShare:
    """A share that a check compares with its thresholds, as two counts.

    The cases are solutions, rollouts, steps, problems or tokens.
    """

    count: int
    """Number of cases with the property that the check looks for, such as being truncated."""
    total: int
    """Number of all cases."""

    @property
    def share(self) -> float | None:
        """Share of counted cases, in [0, 1]; None if there are no cases."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault of a run: a share that has reached a threshold of its check."""

    check: str
    severity: Severity
    count: int
    total: int
    share: float | None
    threshold: float
    """Threshold that the share has reached."""
    text: str
    """Sentence that states the fault, with its numbers."""
    why: str
    """Reason why reaching the threshold is a fault."""
    remedy: str
    """Sentence that says what to do about the fault."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """Result of all checks of a run's labels, with the counts behind it."""

    findings: tuple[Finding, ...]
    """Faults of the run, errors first."""
    figures: Mapping[str, CountedShare]
    """Share that each check measures, by name of the check."""
    solved_sometimes: CountedShare
    """Problems whose share of right solutions is within `SOLVED_SOMETIMES`, among those with enough
    solutions. No check uses this share."""
    num_shards: int
    """Number of labels shards of the run."""
    num_read: int
    """Number of labels shards that were read."""
    num_problems: int
    num_solutions: int
    median_steps: float | None
    """Median number of steps of a solution."""
    max_steps: int | None
    ungraded: Mapping[str, int]
    """Number of rollouts without a verdict by reason, the most frequent reasons first."""


def assess_run_health(store: Store, *, max_files: int | None = None) -> Health | None:
    """Return the health of a run, or None if no block of it is committed yet.

    Args:
        store: store of the run.
        max_files: maximum number of shards that are read; None reads all. If the run has more, a
            random selection is read.

    Raises:
        ShardError: a shard cannot be read.
    """
    if not read_committed_block_ids(store):
        return None
    return assess_health(count_health(store, max_files=max_files))


def assess_health(counts: HealthCounts) -> Health:
    """Return the health of a run from the counts of its labels."""
    figures = compute_share_per_check(counts)
    findings = [
        finding
        for name, figure in figures.items()
        if (finding := _make_finding_if_faulty(name, figure, counts)) is not None
    ]
    if not counts.num_solutions:
        findings.append(
            Finding(
                check="no_solutions",
                severity="error",
                count=0,
                total=counts.num_problems,
                share=None,
                threshold=0.0,
                text="no solution has labels",
                why="there is nothing to train on",
                remedy="Read rejects.jsonl, which has the reasons why problems were left out. "
                "solutions.balance leaves out problems without right or wrong solutions",
            )
        )
    reports_truncation = any(finding.check == "solutions_truncated" for finding in findings)
    if reports_truncation or counts.num_solutions < MIN_SEEN:
        findings = [finding for finding in findings if finding.check != "tokens_at_limit"]
    return Health(
        findings=tuple(sorted(findings, key=lambda finding: finding.severity != "error")),
        figures=figures,
        solved_sometimes=CountedShare(count=counts.num_sometimes_solved, total=counts.num_rated),
        num_shards=counts.num_shards,
        num_read=counts.num_read,
        num_problems=counts.num_problems,
        num_solutions=counts.num_solutions,
        median_steps=float(np.median(np.repeat(list(counts.steps), list(counts.steps.values()))))
        if counts.steps
        else None,
        max_steps=max(counts.steps, default=None),
        ungraded=dict(counts.ungraded.most_common(MAX_REASONS)),
    )


def convert_health_to_json(health: Health) -> dict[str, Any]:
    """Return the health of a run as a mapping of JSON values."""
    return {
        **asdict(health),
        "figures": {name: {**asdict(f), "share": f.share} for name, f in health.figures.items()},
    }


def compute_share_per_check(counts: HealthCounts) -> dict[str, CountedShare]:
    """Return the share that each check compares with its thresholds, by name of the check."""
    solutions, labels = counts.num_solutions, counts.num_sound + counts.num_wrong
    long = sum(number for steps, number in counts.steps.items() if steps > MANY_STEPS)
    pairs = {
        "solutions_truncated": (counts.outcomes[Outcome.TRUNCATED], solutions),
        "rollouts_truncated": (counts.num_rollouts_truncated, counts.num_rollouts),
        "rollouts_withheld": (
            counts.num_rollouts_withheld,
            counts.num_rollouts + counts.num_rollouts_withheld,
        ),
        "tokens_at_limit": (counts.num_tokens_cut, counts.num_tokens),
        "solutions_ungraded": (counts.outcomes[Outcome.UNGRADED], solutions),
        "rollouts_ungraded": (counts.num_rollouts_ungraded, counts.num_rollouts),
        "rollouts_weak": (counts.num_rollouts_weak, counts.num_rollouts),
        "never_solved": (counts.num_never_solved, counts.num_tried),
        "always_solved": (counts.num_always_solved, counts.num_tried),
        "guessable": (counts.num_guessable, counts.num_problems),
        "right_answers_differ": (counts.num_answers_differing, counts.num_answers_compared),
        "labels_wrong": (counts.num_wrong, labels),
        "labels_sound": (counts.num_sound, labels),
        "undecided": (counts.num_undecided, counts.num_to_decide),
        "one_step": (counts.steps[0] + counts.steps[1], solutions),
        "many_steps": (long, solutions),
        "right_with_error": (counts.num_right_with_error, counts.num_right_decided),
        "wrong_without_error": (counts.num_wrong_without_error, counts.num_wrong_decided),
    }
    return {name: CountedShare(count=count, total=total) for name, (count, total) in pairs.items()}


def format_share(counted_share: CountedShare) -> str:
    """Return a share as text; a share below 1 is never rounded up to 1."""
    if counted_share.share is None:
        return "-"
    if counted_share.share > 0.99 and counted_share.count < counted_share.total:
        return f"{min(counted_share.share, 0.9999):.2%}"
    return f"{counted_share.share:.0%}"


def _make_finding_if_faulty(
    name: str, counted_share: CountedShare, counts: HealthCounts
) -> Finding | None:
    check, share, max_tokens = CHECKS[name], counted_share.share, counts.max_tokens
    if share is None or counted_share.total < MIN_SEEN or share < check.warning_share:
        return None
    text = check.text.format(limit="" if max_tokens is None else f"={max_tokens}")
    is_error = check.error_share is not None and share >= check.error_share
    threshold = (
        check.error_share if is_error and check.error_share is not None else check.warning_share
    )
    remedy = check.remedy
    if name in ("rollouts_ungraded", "solutions_ungraded"):
        remedy = _find_checker_remedy(counts.ungraded) or remedy
    if name == "rollouts_ungraded" and counts.ungraded:
        named = counts.ungraded.most_common(MAX_NAMED)
        text += ": " + ", ".join(f"{reason} ({count:,})" for reason, count in named)
    return Finding(
        check=name,
        severity="error" if is_error else "warning",
        count=counted_share.count,
        total=counted_share.total,
        share=share,
        threshold=threshold,
        text=f"{counted_share.count:,} of {counted_share.total:,} {check.cases_noun} "
        f"({format_share(counted_share)}) {text}",
        why=check.why,
        remedy=remedy,
    )


def _find_checker_remedy(reasons: Counter[str]) -> str | None:
    """Return a sentence on how to repair the checker.

    It is None unless faults of the checker are the reason for most rollouts without a verdict.
    """
    faults = {reason: count for reason, count in reasons.items() if is_checker_failure(reason)}
    if 2 * sum(faults.values()) <= reasons.total():
        return None
    return (
        f"Repair the checker: {max(faults, key=faults.__getitem__)}. Then grade again with "
        "mclabel regrade RUN -o NEW"
    )


MANY_STEPS = 50
"""Number of steps above which a solution counts as long. ProcessBench's solutions of GSM8K and MATH
have 5 and 6 steps in the median, and at most 32."""


@dataclass(frozen=True, kw_only=True)
class ShareCheck:
    """A check of a share: its thresholds, and the texts of the finding if one is reached."""

    name: str
    """Name of the share in tables."""
    warning_share: float
    """Share from which the finding is a warning."""
    error_share: float | None
    """Share from which the finding is an error; None if it is always a warning."""
    cases_noun: str
    """Plural noun for all cases, counted or not, such as "solutions"."""
    text: str
    """Predicate of the finding's sentence, whose subject is the counted cases. `{limit}` is
    replaced by "=" and the value of policy.max_tokens, or by nothing if that is unknown."""
    why: str
    """Reason why reaching a threshold is a fault."""
    remedy: str
    """Sentence that says what to do about the fault."""


_CUT_REMEDY = (
    "Raise policy.max_tokens. If completions ramble on, end them with policy.stop or with a better "
    "prompt (policy.template, policy.system)"
)
_UNGRADED_REMEDY = (
    "Look at their answers and golds (mclabel view, filter ungraded). Correct the golds "
    "(mclabel regrade RUN --golds FILE), or ask for another form of answer (policy.system)"
)
_HELP = (
    "in this order: let a stronger model roll out (completers='[{{model: MODEL}}]'), combine the "
    "labels with a judge of steps (mclabel judge, mclabel combine), or give {problems} "
    "(problems.source)"
)
"""Remedy if rollouts do not distinguish sound steps from wrong ones."""
_EASIER = _HELP.format(problems="easier problems")
_HARDER = "harder problems (problems.source), or solutions.balance with more solutions.per_problem"

CHECKS: Mapping[str, ShareCheck] = {
    "solutions_truncated": ShareCheck(
        name="solutions cut at the limit",
        warning_share=0.1,
        error_share=0.5,
        cases_noun="solutions",
        text="were cut at policy.max_tokens{limit}",
        why="truncated solutions count as wrong or are left out, so pass rates are off by up to "
        "this share",
        remedy=_CUT_REMEDY,
    ),
    "rollouts_truncated": ShareCheck(
        name="rollouts cut at the limit",
        warning_share=0.1,
        error_share=0.5,
        cases_noun="rollouts",
        text="were cut at policy.max_tokens{limit}",
        why="values are off by up to this share; at .1 by as much as the noise of 16 rollouts",
        remedy=_CUT_REMEDY,
    ),
    "rollouts_withheld": ShareCheck(
        name="rollouts skipped: context limit",
        warning_share=0.1,
        error_share=0.5,
        cases_noun="wanted rollouts",
        text="were not sampled: policy.max_tokens{limit} leaves less room than is usually needed",
        why="steps without these rollouts have no value, and mostly no label; most of these "
        "rollouts would be cut if they were sampled",
        remedy=_CUT_REMEDY,
    ),
    "tokens_at_limit": ShareCheck(
        name="tokens of solutions that were cut",
        warning_share=0.25,
        error_share=0.75,
        cases_noun="tokens of solutions",
        text="belong to solutions that were cut at policy.max_tokens{limit}",
        why="these tokens cost money and carry no information",
        remedy="End rambling solutions with policy.stop, or lower policy.max_tokens",
    ),
    "solutions_ungraded": ShareCheck(
        name="solutions without a verdict",
        warning_share=0.05,
        error_share=0.5,
        cases_noun="solutions",
        text="could not be graded",
        why="they are not counted, and they depend on the form of the answer, so the rest is a "
        "biased selection",
        remedy=_UNGRADED_REMEDY,
    ),
    "rollouts_ungraded": ShareCheck(
        name="rollouts without a verdict",
        warning_share=0.05,
        error_share=0.5,
        cases_noun="rollouts",
        text="could not be graded",
        why="they are not counted, and they depend on the form of the answer, so the rest is a "
        "biased selection",
        remedy=_UNGRADED_REMEDY,
    ),
    "rollouts_weak": ShareCheck(
        name="rollouts with a weak verdict",
        warning_share=0.1,
        error_share=0.5,
        cases_noun="rollouts",
        text="mark no answer and were graded by their last number, or are programs that were "
        "tested in their own process",
        why="ProcessBench has a share of .02; a guess may grade the form of an answer instead "
        "of its value, and a program can manipulate a test that runs in the same process",
        remedy="Ask for a marked answer, such as \\boxed{} (policy.system), or leave guesses "
        "without a verdict (checker.grade_guesses=false). Give tests that call functions "
        "with plain data",
    ),
    "never_solved": ShareCheck(
        name="problems never solved",
        warning_share=0.5,
        error_share=0.9,
        cases_noun="problems",
        text="have no right solution and no right rollout",
        why="all their labels are wrong, so no step differs from another",
        remedy=f"{_EASIER[:1].upper()}{_EASIER[1:]}; solutions.balance leaves such problems out",
    ),
    "always_solved": ShareCheck(
        name="problems always solved",
        warning_share=0.5,
        error_share=0.9,
        cases_noun="problems",
        text="have only right solutions and right rollouts",
        why="all their labels are sound, so no step differs from another",
        remedy=f"Choose {_HARDER}",
    ),
    "guessable": ShareCheck(
        name="problems whose answer can be guessed",
        warning_share=0.5,
        error_share=None,
        cases_noun="problems",
        text="have an answer that a guess hits with a chance of at least "
        f"{GUESSABLE:.0%} (problems.chance)",
        why="rollouts from wrong steps are often right, so fewer first errors are decided",
        remedy="In this order"
        + _HELP.format(problems="problems with numbers as answers").removeprefix("in this order"),
    ),
    "right_answers_differ": ShareCheck(
        name="problems whose right answers differ",
        warning_share=0.05,
        error_share=None,
        cases_noun="problems with several right solutions",
        text="have right solutions whose answers are different numbers",
        why="the checker accepts more than one number, so wrong solutions may be right by luck; "
        "then beliefs are too high and first errors are missed",
        remedy="Set problems.chance to the probability that a wrong answer is graded as right, or "
        "use a checker that accepts only the gold answer",
    ),
    "labels_wrong": ShareCheck(
        name="wrong labels",
        warning_share=0.98,
        error_share=0.995,
        cases_noun="step labels",
        text="are wrong",
        why="a scorer with one constant answer does as well; ProcessBench has .35 to .42",
        remedy=f"If right answers are among them, correct the golds; else, {_EASIER}",
    ),
    "labels_sound": ShareCheck(
        name="sound labels",
        warning_share=0.98,
        error_share=0.995,
        cases_noun="step labels",
        text="are sound",
        why="a scorer with one constant answer does as well; ProcessBench has .58 to .65",
        remedy=f"Choose {_HARDER}",
    ),
    "undecided": ShareCheck(
        name="undecided solutions",
        warning_share=0.5,
        error_share=0.95,
        cases_noun="solutions",
        text="are undecided: neither a first error nor its absence is sure enough",
        why="their undecided steps have no hard label, so they are useless for training",
        remedy="Raise solutions.per_problem, since the agreement of solutions is evidence; or, "
        f"{_EASIER}",
    ),
    "one_step": ShareCheck(
        name="solutions of one step",
        warning_share=0.5,
        error_share=0.9,
        cases_noun="solutions",
        text="have only one step",
        why="their only label is the outcome, as for an ORM; ProcessBench has no such solution",
        remedy="Split solutions in another way (split.by, split.pattern), or ask for steps "
        "(policy.system). With split.region=answer, thinking that never ends is one step: raise "
        "policy.max_tokens, or set split.region=think",
    ),
    "many_steps": ShareCheck(
        name=f"solutions of more than {MANY_STEPS} steps",
        warning_share=0.5,
        error_share=None,
        cases_noun="solutions",
        text=f"have more than {MANY_STEPS} steps",
        why="the cost grows with the number of steps, and labels of short steps carry little "
        "information. The maximum in ProcessBench is 32",
        remedy="Join steps with split.max_steps, split.min_tokens or split.by=blank_line",
    ),
    "right_with_error": ShareCheck(
        name="right solutions with a labelled error",
        warning_share=0.3,
        error_share=0.7,
        cases_noun="right solutions",
        text="are labelled with an error",
        why="in ProcessBench people find an error in .04 (GSM8K) to .19 (MATH) of right solutions, "
        "so a higher share is probably due to false labels",
        remedy="Raise estimator.rollouts (or lower estimator.min_gain). Check that rollouts are "
        "sampled with the same settings as solutions, and are not cut",
    ),
    "wrong_without_error": ShareCheck(
        name="wrong solutions without a labelled error",
        warning_share=0.05,
        error_share=0.5,
        cases_noun="wrong solutions",
        text="are labelled without an error",
        why="a wrong answer has a wrong step: ProcessBench has no such solution",
        remedy="Check their golds (mclabel view, filter wrong), and raise estimator.rollouts",
    ),
}
"""Checks by name."""
