"""The health of a labelling run: what makes its labels teach little or nothing, and what to change.

Each check is a share with two thresholds. Under the first there is no finding; from the first on
there is a warning, from the second on an error: as they stand the labels are not worth training on.
A share of fewer than `MIN_SEEN` decides nothing. docs/evaluation.md lists the checks.

The figures of ProcessBench (arXiv 2412.06559) are those of its splits gsm8k and math.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mclabel.checkers.guarded import is_failure
from mclabel.core.records import Outcome
from mclabel.evaluate.health_counts import GUESSABLE, HealthCounts, health_counts
from mclabel.run.shards.labels import committed_blocks
from mclabel.run.shards.store import Store

ENOUGH_FILES = 2_000
"""Shards that are read for the health of a run at its end: on a local disk that takes seconds."""
MAX_REASONS = 10
"""Largest number of reasons of rollouts without a verdict that are reported."""
MAX_NAMED = 3
"""Largest number of these that a finding names."""
MIN_SEEN = 20
"""Fewer give a share that may be off by more than .22 (95%)."""
Severity = Literal["warning", "error"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A share that a check looks at."""

    count: int
    """Number of cases that the check counts."""
    total: int
    """Number of all."""

    @property
    def share(self) -> float | None:
        """The share; None of nothing."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault of a run."""

    check: str
    severity: Severity
    count: int
    total: int
    share: float | None
    threshold: float
    """The threshold that was reached."""
    text: str
    """The fault in words, with its figures."""
    why: str
    """Reason for the threshold."""
    remedy: str
    """The remedy in words."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """The health of a run."""

    findings: tuple[Finding, ...]
    """Faults of the run, errors first."""
    figures: Mapping[str, Figure]
    """Shares by the name of their check."""
    solved_sometimes: Figure
    """Problems with a share of right solutions within `SOMETIMES`; no check looks at it."""
    num_shards: int
    """Number of labels shards of the run."""
    num_read: int
    """Number of shards that the figures rest on."""
    num_problems: int
    num_solutions: int
    median_steps: float | None
    """Median number of steps of a solution."""
    max_steps: int | None
    ungraded: Mapping[str, int]
    """The commonest reasons of rollouts without a verdict, with their numbers, most first."""


def run_health(store: Store, *, max_files: int | None = None) -> Health | None:
    """Return the health of a run; None before any block of it is committed.

    Args:
        store: the run's.
        max_files: shards to read; of more, evenly spaced ones. None reads all.

    Raises:
        ShardError: a shard cannot be read.
    """
    if not committed_blocks(store):
        return None
    return judge(health_counts(store, max_files=max_files))


def judge(counts: HealthCounts) -> Health:
    """Return the health that counts amount to."""
    figures = health_figures(counts)
    findings = [
        finding
        for name, figure in figures.items()
        if (finding := _find_fault(name, figure, counts)) is not None
    ]
    if not counts.num_solutions:
        findings.append(_find_no_solutions(counts))
    says_it = any(finding.check == "solutions_truncated" for finding in findings)
    if says_it or counts.num_solutions < MIN_SEEN:
        findings = [finding for finding in findings if finding.check != "tokens_at_limit"]
    return Health(
        findings=tuple(sorted(findings, key=lambda finding: finding.severity != "error")),
        figures=figures,
        solved_sometimes=Figure(count=counts.num_sometimes, total=counts.num_rated),
        num_shards=counts.num_shards,
        num_read=counts.num_read,
        num_problems=counts.num_problems,
        num_solutions=counts.num_solutions,
        median_steps=_median(counts.steps),
        max_steps=max(counts.steps, default=None),
        ungraded=dict(counts.ungraded.most_common(MAX_REASONS)),
    )


def health_json(health: Health) -> dict[str, Any]:
    """Return the health of a run as JSON."""
    figures = {name: {**asdict(f), "share": f.share} for name, f in health.figures.items()}
    return {**asdict(health), "figures": figures}


def health_figures(counts: HealthCounts) -> dict[str, Figure]:
    """Return the share that each check looks at."""
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
        "never_solved": (counts.num_never, counts.num_tried),
        "always_solved": (counts.num_always, counts.num_tried),
        "guessable": (counts.num_guessable, counts.num_problems),
        "labels_wrong": (counts.num_wrong, labels),
        "labels_sound": (counts.num_sound, labels),
        "undecided": (counts.num_undecided, counts.num_asked),
        "one_step": (counts.steps[0] + counts.steps[1], solutions),
        "many_steps": (long, solutions),
        "right_with_error": (counts.num_right_with_error, counts.num_right_judged),
        "wrong_without_error": (counts.num_wrong_without_error, counts.num_wrong_judged),
    }
    return {name: Figure(count=count, total=total) for name, (count, total) in pairs.items()}


def share_text(figure: Figure) -> str:
    """Return a share as text; a share below 1 is never rounded up to 1."""
    if figure.share is None:
        return "-"
    if figure.share > 0.99 and figure.count < figure.total:
        return f"{min(figure.share, 0.9999):.2%}"
    return f"{figure.share:.0%}"


def _find_fault(name: str, figure: Figure, counts: HealthCounts) -> Finding | None:
    check, share, max_tokens = CHECKS[name], figure.share, counts.max_tokens
    if share is None or figure.total < MIN_SEEN or share < check.warning:
        return None
    text = check.text.format(limit="" if max_tokens is None else f"={max_tokens}")
    is_error = check.error is not None and share >= check.error
    threshold = check.error if is_error and check.error is not None else check.warning
    remedy = check.remedy
    if name in ("rollouts_ungraded", "solutions_ungraded"):
        remedy = _mending(counts.ungraded) or remedy
    if name == "rollouts_ungraded" and counts.ungraded:
        named = counts.ungraded.most_common(MAX_NAMED)
        text += ": " + ", ".join(f"{reason} ({count:,})" for reason, count in named)
    return Finding(
        check=name,
        severity="error" if is_error else "warning",
        count=figure.count,
        total=figure.total,
        share=share,
        threshold=threshold,
        text=f"{figure.count:,} of {figure.total:,} {check.of} ({share_text(figure)}) {text}",
        why=check.why,
        remedy=remedy,
    )


def _mending(reasons: Counter[str]) -> str | None:
    """Return the remedy where most rollouts have no verdict by a fault of the checker; else
    None.
    """
    faults = {reason: count for reason, count in reasons.items() if is_failure(reason)}
    if 2 * sum(faults.values()) <= reasons.total():
        return None
    return (
        f"Mend the checker: {max(faults, key=faults.__getitem__)}; then grade again: "
        "mclabel regrade RUN -o NEW"
    )


def _find_no_solutions(counts: HealthCounts) -> Finding:
    return Finding(
        check="no_solutions",
        severity="error",
        count=0,
        total=counts.num_problems,
        share=None,
        threshold=0.0,
        text="no solution has labels",
        why="there is nothing to train on",
        remedy="rejects.jsonl has the reasons why problems were left out; solutions.balance leaves "
        "out those that lack one kind of solutions",
    )


def _median(steps: Mapping[int, int]) -> float | None:
    """Return the median of numbers, each with how often it occurs."""
    total, seen, middle = sum(steps.values()), 0, []
    for number, count in sorted(steps.items()):
        for wanted in ((total - 1) // 2, total // 2):
            if seen <= wanted < seen + count:
                middle.append(number)
        seen += count
    return sum(middle) / 2 if middle else None


MANY_STEPS = 50
"""Solutions of GSM8K and MATH have 5 and 6 in the median, 32 at most (ProcessBench)."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """Thresholds from which a share is a finding."""

    name: str
    """Name of the share, in tables."""
    warning: float
    error: float | None
    """Share from which on it is an error; None is never worse than a warning."""
    of: str
    """Name of the things that are counted."""
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
_HELP = (
    "in this order: let a stronger model roll out (completers='[{{model: MODEL}}]'), combine the "
    "labels with a judge of steps (mclabel judge, mclabel combine), or give {problems} "
    "(problems.source)"
)
"""Remedy where rollouts cannot tell a sound step from a wrong one."""
_EASIER = _HELP.format(problems="easier problems")
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
        name="rollouts skipped: context limit",
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
        "without a verdict (checker.grade_guesses=false); give tests that call functions "
        "with plain data",
    ),
    "never_solved": Check(
        name="problems never solved",
        warning=0.5,
        error=0.9,
        of="problems",
        text="have no right solution and no right rollout",
        why="all their labels are wrong, so no step differs from another",
        remedy=f"{_EASIER[:1].upper()}{_EASIER[1:]}; solutions.balance leaves such problems out",
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
    "guessable": Check(
        name="problems whose answer can be guessed",
        warning=0.5,
        error=None,
        of="problems",
        text="have an answer that a guess hits with a chance of at least "
        f"{GUESSABLE:.0%} (problems.chance)",
        why="rollouts from wrong steps are often right, so fewer first errors are decided",
        remedy="In this order"
        + _HELP.format(problems="problems with numbers as answers").removeprefix("in this order"),
    ),
    "labels_wrong": Check(
        name="wrong labels",
        warning=0.98,
        error=0.995,
        of="step labels",
        text="are wrong",
        why="a scorer with one constant answer does as well; ProcessBench has .35 to .42",
        remedy=f"If right answers are among them, correct the golds; else, {_EASIER}",
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
        remedy=f"Sample more solutions.per_problem, whose agreement is evidence; or, {_EASIER}",
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
        remedy="Raise estimator.rollouts (or lower estimator.min_gain), and check that "
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
"""Remedies by the name of the finding."""
