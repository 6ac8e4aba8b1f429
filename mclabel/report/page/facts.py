"""A labelling run in the report, gathered in one pass over its shards.

To save memory, each row is reduced when it is read. Only the data for label quality and a few
numbers for each step are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from mclabel.core.records import Counts, LabeledSolution, Outcome, Problem, StepLabel
from mclabel.core.seeds import content_id
from mclabel.core.stats.bootstrap import (
    estimate_clustered_mean,
    estimate_clustered_share,
    sum_by_problem,
)
from mclabel.evaluate.grouping import GROUP_KEYS, get_solution_meta, group_by_dividing_fields
from mclabel.evaluate.labels.quality import (
    compute_label_cost,
    find_described_population,
    find_exact_first_error,
    has_exact_truth,
    measure_label_quality,
)
from mclabel.report.page.example import (
    ExampleCandidate,
    choose_better_example,
    convert_example_to_page_data,
)
from mclabel.report.page.health import collect_health_data
from mclabel.run.kinds import Run, has_program_solutions, read_checked_json
from mclabel.run.progress_log import read_job_starts
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.manifest import MANIFEST, flatten_config
from mclabel.show.solutions import describe_rule, get_shown_value
from mclabel.show.texts import find_answer_kind

VERDICTS = {True: "sound", False: "wrong", None: "no verdict"}
"""Names of the verdicts on a step."""
STEP_FIGURES = ("value", "right", "sound", "drawn")
"""Names of the numbers that are kept for each step; `GatheredRun.steps` explains them."""
JOB_FIGURES = ("elapsed_s", "gpu_hours", "num_failures", "num_replayed")
"""Fields in a job's progress log that are summed over all starts of the job."""


class GatheredRun:
    """Data of a labelling run, gathered in one pass over its rows."""

    def __init__(self, run: Run) -> None:
        """Read the run.

        Raises:
            ShardError: the run has no labels yet, or its shards cannot be read.
        """
        self.run = run
        self.rows: list[LabeledSolution] = []
        """Solutions without texts and token ids."""
        self.truths: dict[str, int | None] = {}
        """0-based true first errors by solution id; None for no error. Solutions whose truth is
        unknown are missing."""
        self.first_errors: dict[str, int | None] = {}
        """0-based labelled first errors of decided solutions, by a hash of problem and solution.
        None means that the solution is labelled as free of errors."""
        self.example: ExampleCandidate | None = None
        self._rollouts: dict[str, int] = {}
        self._problems: dict[str, Problem] = {}
        self._labels: dict[tuple[bool | None, str], StepLabel] = {}
        self._tallies: list[tuple[float, ...]] = []
        steps: list[tuple[float, ...]] = []
        self.cost = compute_label_cost(self._record_and_yield_rows(read_labels(run.store), steps))
        table = np.array(steps, dtype=np.float64).reshape(-1, len(STEP_FIGURES))
        self.steps = dict(zip(STEP_FIGURES, table.T, strict=True))
        """Arrays by name, with one entry for each step except the last of a solution. NaN means
        unknown. `value` is the step's value. `right` is 1 if the solution ends right. `sound` is 1
        if this step and all earlier ones are truly sound. `drawn` is 1 if the outcome is an
        unbiased draw of the value: the policy sampled the solution, and it was not selected by its
        outcome."""

    @property
    def has_truth(self) -> bool:
        """Return whether the true first errors of all solutions are known."""
        return len(self.truths) == len(self.rows)

    def _record_and_yield_rows(
        self, rows: Iterator[LabeledSolution], steps: list[tuple[float, ...]]
    ) -> Iterator[LabeledSolution]:
        for row in rows:
            has_truth = has_exact_truth([row])
            truth = find_exact_first_error(row) if has_truth else None
            if has_truth:
                self.truths[row.solution.id] = truth
            if row.is_decided:
                self.first_errors[content_id("same", row.problem.text, row.solution.text)] = (
                    row.first_error
                )
            self.example = choose_better_example(
                self.example, ExampleCandidate(row=row, has_truth=has_truth, truth=truth)
            )
            self._rollouts[row.problem.id] = row.root.num_rollouts
            self._rollouts |= {step.prefix_id: step.counts.num_rollouts for step in row.steps}
            right = {Outcome.RIGHT: 1.0, Outcome.WRONG: 0.0}.get(row.solution.outcome, np.nan)
            drawn = row.solution.origin == "sampled" and not row.chosen_by_outcome
            values = [get_shown_value(step.source, step.estimate) for step in row.steps[:-1]]
            for number, value in enumerate(values):
                sound = float(truth is None or number < truth) if has_truth else np.nan
                steps.append((np.nan if value is None else value, right, sound, drawn))
            drawn_values = (
                [value for value in values if value is not None]
                if drawn and not np.isnan(right)
                else []
            )
            error, is_undecided = row.first_error is not None, _is_undecided(row)
            gap = sum(drawn_values) - len(drawn_values) * right if drawn_values else 0.0
            self._tallies.append((1, right == 1, error, is_undecided, len(drawn_values), gap))
            self.rows.append(self._drop_texts_from_row(row))
            yield row

    def _drop_texts_from_row(self, row: LabeledSolution) -> LabeledSolution:
        """Return a row without texts and token ids, and with reduced step labels.

        Equal labels share one object.
        """
        for step in row.steps:
            self._labels.setdefault(
                (step.hard, step.source), replace(step, prefix_id="", counts=Counts())
            )
        problem = self._problems.get(row.problem.id)
        if problem is None:
            kept_meta = {
                key: row.problem.meta[key] for key in GROUP_KEYS if key in row.problem.meta
            }
            kept_meta.setdefault("answer_type", find_answer_kind(row.problem.answer))
            problem = Problem(id=row.problem.id, text="", answer="", meta=kept_meta)
            self._problems[row.problem.id] = problem
        return replace(
            row,
            problem=problem,
            solution=replace(row.solution, text="", ids=(), steps=(), prediction=None),
            prompt_ids=(),
            steps=tuple(self._labels[step.hard, step.source] for step in row.steps),
            posterior=None,
            consensus=row.consensus and replace(row.consensus, opinions=()),
        )

    def compute_facts(self) -> dict[str, Any]:
        """Return all data on the run for the report; shares have 95% intervals over problems."""
        manifest = read_checked_json(self.run.store, MANIFEST) or {}
        config = flatten_config(manifest.get("config", {})) | flatten_config(
            manifest.get("input", {})
        )
        tallies = np.array(self._tallies, dtype=np.float64).reshape(-1, 6)
        sums = sum_by_problem([row.problem.id for row in self.rows], tallies)
        count, right, error, undecided, steps, gap = sums.T
        starts = read_job_starts(self.run.store)
        labels = [step for row in self.rows for step in row.steps]
        verdicts = Counter(VERDICTS[step.hard] for step in labels)
        rules = Counter(
            (describe_rule(row.consensus), row.consensus.kept) for row in self.rows if row.consensus
        )
        return {
            "name": self.run.name,
            "config": config,
            "versions": manifest.get("versions", {}),
            "job": {"num_starts": len(starts)}
            | {name: sum(start.get(name, 0) for start in starts) for name in JOB_FIGURES}
            if starts
            else None,
            "health": collect_health_data(self.run.store),
            **self._summarise_group(self.rows),
            "shares": {
                "right": estimate_clustered_share(right, count),
                "with_error": estimate_clustered_share(error, count),
                "undecided": estimate_clustered_share(undecided, count),
                # mean value of the drawn steps minus the share of them whose solution ends right
                "gap": estimate_clustered_mean(gap, steps, low=-1.0, high=1.0),
            },
            "steps": {name: verdicts[name] for name in VERDICTS.values()},
            "sources": dict(Counter(step.source for step in labels).most_common()),
            "num_rollouts": sum(self._rollouts.values()),
            "cost": self.cost,
            # `12 of 20 by same_location`; empty without a consensus
            "kept": ", ".join(
                f"{rules[rule, True]:,} of {rules[rule, True] + rules[rule, False]:,} by {rule}"
                for rule in sorted({rule for rule, _ in rules})
            ),
            "describes": find_described_population(self.rows),
            "groups": {
                key: {name: self._summarise_group(members) for name, members in groups.items()}
                for key, groups in group_by_dividing_fields(self.rows, get_solution_meta).items()
            },
            "example": self.example and convert_example_to_page_data(self.example),
            "is_code": has_program_solutions(config),
        }

    def _summarise_group(self, rows: Sequence[LabeledSolution]) -> dict[str, Any]:
        has_truth = all(row.solution.id in self.truths for row in rows)
        return {
            "num_problems": len({row.problem.id for row in rows}),
            "num_solutions": len(rows),
            "outcomes": Counter(str(row.solution.outcome) for row in rows),
            "num_with_error": sum(row.first_error is not None for row in rows),
            "quality": measure_label_quality(rows, lambda row: self.truths[row.solution.id])
            if has_truth
            else None,
        }

    def compute_error_shares(self) -> dict[str, dict[int | str, float]]:
        """Return the shares of solutions by labelled first error, and by true first error.

        The keys are `labelled`, and `in truth` if the truth is known. Their values map the 0-based
        index of the first error, `none` or `undecided` to a share.
        """
        labelled = Counter(
            "undecided" if _is_undecided(row) else row.first_error for row in self.rows
        )
        columns = {"labelled": labelled}
        if self.has_truth:
            columns["in truth"] = Counter(self.truths.values())
        return {
            name: {
                "none" if first_error is None else first_error: count / len(self.rows)
                for first_error, count in counts.items()
            }
            for name, counts in columns.items()
        }


def compute_agreement(runs: Sequence[GatheredRun]) -> list[dict[str, Any]]:
    """Return how often each pair of runs labels the same first error.

    Only solutions for which both runs decide on a first error, or on none, are compared.
    """
    rows = []
    for first, second in combinations(runs, 2):
        shared_keys = first.first_errors.keys() & second.first_errors.keys()
        pairs = [(first.first_errors[key], second.first_errors[key]) for key in shared_keys]
        pairs_with_error = [pair for pair in pairs if pair != (None, None)]
        num_equal = sum(first_label == other_label for first_label, other_label in pairs_with_error)
        rows.append(
            {
                "runs": f"{first.run.name}, {second.run.name}",
                "distinct solutions decided in both": len(pairs),
                "same first error": 1 - (len(pairs_with_error) - num_equal) / len(pairs)
                if pairs
                else None,
                "where either has one": num_equal / len(pairs_with_error)
                if pairs_with_error
                else None,
            }
        )
    return rows


def _is_undecided(row: LabeledSolution) -> bool:
    """Return whether a row has no labelled error and is not decided to be free of errors."""
    return row.first_error is None and not row.is_decided
