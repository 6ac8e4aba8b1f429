"""The figures of a labelling run in the report, gathered in one pass over its shards.

Rows are let go as soon as they are read: of a solution there stays what label quality needs, and of
its steps a few numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Counts, LabeledSolution, Outcome, Problem, StepLabel
from mclabel.core.seeds import content_id
from mclabel.core.stats.bootstrap import Estimate, clustered_mean, clustered_share
from mclabel.evaluate.grouping import GROUP_KEYS, groups_by_key, solution_meta
from mclabel.evaluate.labels.quality import (
    Described,
    LabelCost,
    LabelQuality,
    described,
    exact_first_error,
    has_exact_truth,
    label_cost,
    label_quality,
)
from mclabel.report.page.example import Example, more_telling, shown_value
from mclabel.run.kinds import Run, read_json
from mclabel.run.progress_log import job_starts
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.manifest import MANIFEST, flat
from mclabel.run.shards.store import Store
from mclabel.show.solutions import rule_name
from mclabel.show.texts import answer_kind

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """One entry a step but the last of its solution, whose label is the outcome; NaN: unknown."""

    value: Floats
    """As labelled, else the expected value of a Bayesian estimator."""
    width: Floats
    """Of the interval."""
    place: Floats
    """In its solution, in [0, 1)."""
    right: Floats
    """Whether the solution ends right."""
    sound: Floats
    """Whether no step up to it is wrong in truth."""
    drawn: Floats
    """Whether the policy sampled the solution and it was not chosen by its outcome, so that its
    outcome is a draw of the value."""


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """Figures from a job's progress log, all its starts together."""

    num_starts: int
    elapsed_s: float
    gpu_hours: float
    num_failures: int
    """Engines lost; the job went on without them."""
    num_replayed: int
    """Completions taken over from attempts that were cut short."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Solutions of one kind."""

    num_problems: int
    num_solutions: int
    outcomes: Mapping[str, int]
    num_with_error: int
    quality: LabelQuality | None
    """Quality against the truth; None where it is not known."""


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Figures of the whole run, with 95% intervals over problems."""

    right: Estimate
    """Of the solutions, those that end right."""
    with_error: Estimate
    """Of the solutions, those with a step labelled wrong."""
    undecided: Estimate
    """Of the solutions, those without such a step of which it is not decided that none is wrong."""
    gap: Estimate
    """Mean value of the steps of solutions drawn by the policy, less the share of these steps
    whose solution ends right: 0 where values hold."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Everything about one labelling run."""

    name: str
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    job: JobFacts | None
    all: Group
    shares: Shares
    example: Example | None
    """The solution that shows best what a label is; None where there is no solution."""
    groups: Mapping[str, Mapping[str, Group]]
    """By field of the problems' metadata and its value."""
    hard: Mapping[str, int]
    """Steps labelled sound and wrong, and without a verdict."""
    sources: Counter[str]
    """Number of steps by the source of their label."""
    num_rollouts: int
    """Prefixes that solutions share are counted once."""
    cost: LabelCost
    steps: Steps
    first_errors: Mapping[str, int | None]
    """Of decided solutions, by a hash of problem and solution: what several runs have labelled is
    compared."""
    errors_at: Counter[int]
    num_undecided: int
    """Solutions that count as `Shares.undecided`."""
    true_errors_at: Counter[int] | None
    consensus: Counter[tuple[str, bool]]
    """Solutions by the rule of their consensus and whether it keeps them."""
    describes: Described | None
    """What label quality describes where the solutions were selected from a pool."""

    @property
    def kept(self) -> str:
        """`12 of 20 by same_location`; empty without a consensus."""
        totals: Counter[str] = Counter()
        for (rule, _), count in self.consensus.items():
            totals[rule] += count
        return ", ".join(
            f"{self.consensus[rule, True]:,} of {total:,} by {rule}"
            for rule, total in sorted(totals.items())
        )


def run_facts(run: Run) -> RunFacts:
    """Read a run.

    Raises:
        ShardError: it holds no labels yet, or its shards cannot be read.
    """
    store = run.store
    gathered = _Gathered()
    cost = label_cost(gathered.through(read_labels(store)))
    rows, truths = gathered.rows, gathered.truths
    manifest = read_json(store, MANIFEST) or {}
    known = len(truths) == len(rows)
    groups = {
        key: {name: _group(members, truths) for name, members in found.items()}
        for key, found in groups_by_key(rows, solution_meta).items()
    }
    return RunFacts(
        name=run.name,
        config=flat(manifest.get("config", {})) | flat(manifest.get("input", {})),
        versions=manifest.get("versions", {}),
        job=_job_facts(store),
        all=_group(rows, truths),
        shares=gathered.shares(),
        example=gathered.example,
        groups=groups,
        hard=gathered.hard,
        sources=gathered.sources,
        num_rollouts=sum(gathered.rollouts.values()),
        cost=cost,
        steps=Steps(**{name: np.array(column) for name, column in gathered.columns.items()}),
        first_errors=gathered.first_errors,
        errors_at=Counter(row.first_error for row in rows if row.first_error is not None),
        num_undecided=sum(map(_is_open, rows)),
        true_errors_at=Counter(t for t in truths.values() if t is not None) if known else None,
        consensus=gathered.consensus,
        describes=described(rows),
    )


class _Gathered:
    """What stays of the rows that have passed."""

    def __init__(self) -> None:
        self.rows: list[LabeledSolution] = []
        self.truths: dict[str, int | None] = {}
        self.hard = {"sound": 0, "wrong": 0, "no verdict": 0}
        self.sources: Counter[str] = Counter()
        self.rollouts: dict[str, int] = {}
        self.first_errors: dict[str, int | None] = {}
        self.columns: dict[str, list[float]] = {
            name: [] for name in ("value", "width", "place", "right", "sound", "drawn")
        }
        self.example: Example | None = None
        self.consensus: Counter[tuple[str, bool]] = Counter()
        self._problems: dict[str, Problem] = {}
        self._labels: dict[bool | None, StepLabel] = {}
        self._sums: dict[str, list[float]] = {}

    def shares(self) -> Shares:
        """From the sums by problem."""
        sums = np.array(list(self._sums.values()), dtype=np.float64).reshape(-1, 6)
        count, right, error, undecided, steps, gap = sums.T
        return Shares(
            right=clustered_share(right, count),
            with_error=clustered_share(error, count),
            undecided=clustered_share(undecided, count),
            gap=clustered_mean(gap, steps, low=-1.0, high=1.0),
        )

    def through(self, rows: Iterator[LabeledSolution]) -> Iterator[LabeledSolution]:
        for row in rows:
            self._take(row)
            yield row

    def _take(self, row: LabeledSolution) -> None:
        known = has_exact_truth([row])
        truth = exact_first_error(row) if known else None
        if known:
            self.truths[row.solution.id] = truth
        if row.consensus is not None:
            self.consensus[rule_name(row.consensus), row.consensus.kept] += 1
        self.rows.append(self._light(row))
        if row.is_decided:
            same = content_id("same", row.problem.text, row.solution.text)
            self.first_errors[same] = row.first_error
        self.rollouts[row.problem.id] = row.root.num_rollouts
        outcome = row.solution.outcome
        right = {Outcome.RIGHT: 1.0, Outcome.WRONG: 0.0}.get(outcome, np.nan)
        drawn = row.solution.origin == "sampled" and not row.chosen_by_outcome
        self.example = more_telling(self.example, Example(row=row, has_truth=known, truth=truth))
        self._sum_up(row, drawn)
        for number, step in enumerate(row.steps):
            word = {True: "sound", False: "wrong", None: "no verdict"}[step.hard]
            self.hard[word] += 1
            self.sources[step.source] += 1
            self.rollouts[step.prefix_id] = step.counts.num_rollouts
            if number == len(row.steps) - 1:
                continue
            value = shown_value(step)
            open_ended = step.low is None or step.high is None
            entry = {
                "value": np.nan if value is None else value,
                "width": np.nan if open_ended else step.high - step.low,  # type: ignore[operator]
                "place": number / (len(row.steps) - 1),
                "right": right,
                "sound": float(truth is None or number < truth) if known else np.nan,
                "drawn": float(drawn),
            }
            for name, column in self.columns.items():
                column.append(entry[name])

    def _sum_up(self, row: LabeledSolution, drawn: bool) -> None:
        """Add a solution to the sums of its problem: see `shares`."""
        outcome = row.solution.outcome
        sums = self._sums.setdefault(row.problem.id, [0.0] * 6)
        sums[0] += 1
        sums[1] += outcome is Outcome.RIGHT
        sums[2] += row.first_error is not None
        sums[3] += _is_open(row)
        if drawn and outcome in (Outcome.RIGHT, Outcome.WRONG):
            values = [v for step in row.steps[:-1] if (v := shown_value(step)) is not None]
            sums[4] += len(values)
            sums[5] += sum(values) - len(values) * (outcome is Outcome.RIGHT)

    def _light(self, row: LabeledSolution) -> LabeledSolution:
        """Without its texts and token ids, and with nothing in its steps."""
        for step in row.steps:
            self._labels.setdefault(step.hard, replace(step, prefix_id="", counts=Counts()))
        problem = self._problems.get(row.problem.id)
        if problem is None:
            kept = {key: row.problem.meta[key] for key in GROUP_KEYS if key in row.problem.meta}
            kept.setdefault("answer_type", answer_kind(row.problem.answer))
            problem = Problem(id=row.problem.id, text="", answer="", meta=kept)
            self._problems[row.problem.id] = problem
        return replace(
            row,
            problem=problem,
            solution=replace(row.solution, text="", ids=(), steps=(), prediction=None),
            prompt_ids=(),
            steps=tuple(self._labels[step.hard] for step in row.steps),
            posterior=None,
            consensus=row.consensus and replace(row.consensus, opinions=()),
        )


def _is_open(row: LabeledSolution) -> bool:
    """Whether no error is labelled and it is not decided that there is none."""
    return row.first_error is None and not row.is_decided


def _group(rows: Sequence[LabeledSolution], truths: Mapping[str, int | None]) -> Group:
    outcomes = Counter(str(row.solution.outcome) for row in rows)
    known = all(row.solution.id in truths for row in rows)
    return Group(
        num_problems=len({row.problem.id for row in rows}),
        num_solutions=len(rows),
        outcomes=outcomes,
        num_with_error=sum(row.first_error is not None for row in rows),
        quality=label_quality(rows, lambda row: truths[row.solution.id]) if known else None,
    )


def _job_facts(store: Store) -> JobFacts | None:
    """What all starts of the job add up to; None if the run has no log of them."""
    starts = job_starts(store)
    if not starts:
        return None
    return JobFacts(
        num_starts=len(starts),
        elapsed_s=sum(line.get("elapsed_s", 0.0) for line in starts),
        gpu_hours=sum(line.get("gpu_hours", 0.0) for line in starts),
        num_failures=sum(line.get("num_failures", 0) for line in starts),
        num_replayed=sum(line.get("num_replayed", 0) for line in starts),
    )
