"""Counts that show whether a run's labels are useful for training, summed over its shards.

The counts need only the labels shards, not the rollouts. Each shard is reduced to sums, so memory
does not grow with the run. All solutions of a problem are usually in one shard. An import may split
a problem over two shards, and then the problem is counted twice.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mclabel.core.records import NO_ROOM, Outcome
from mclabel.labeling.estimators.paths import classify_gold_answer, get_guess_probability
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.labels import iter_label_tables
from mclabel.run.shards.schema import parse_problem
from mclabel.run.shards.store import Store

MIN_TRIES = 4
"""Minimum number of completions (solutions and rollouts) of a problem for its pass rate to be used.
With fewer completions, often all or none are right by chance alone."""
GUESSABLE = 0.1
"""Minimum probability of a right guess for a problem to count as guessable."""
ROUNDING = 0.01
"""Difference of two numbers, as a fraction of the larger one, up to which one may be the other one
rounded."""
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
SOLVED_SOMETIMES = (0.15, 0.8)
"""Lowest and highest share of right solutions of a problem that counts as sometimes solved. Eight
solutions of such a problem mostly include right and wrong ones. This is a rule of thumb, not a
threshold of a check."""

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(kw_only=True)
class HealthCounts:
    """Counts of the problems, solutions, steps and rollouts in the labels of a run.

    A solution is decided if its labels decide which step is the first wrong one, or that no step
    is wrong.
    """

    num_shards: int = 0
    """Number of shards of the run."""
    num_read: int = 0
    """Number of shards that were counted."""
    max_tokens: int | None = None
    """`policy.max_tokens` of the run; None for labels that no policy made."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Number of solutions by outcome."""
    steps: Counter[int] = field(default_factory=Counter)
    """Number of solutions by number of steps."""
    num_problems: int = 0
    num_tried: int = 0
    """Number of problems with at least `MIN_TRIES` completions that have an outcome."""
    num_never_solved: int = 0
    """Number of problems counted in `num_tried` without any right completion."""
    num_always_solved: int = 0
    """Number of problems counted in `num_tried` whose completions are all right."""
    num_guessable: int = 0
    """Number of problems whose answer a guess hits with a probability of at least `GUESSABLE`."""
    num_answers_compared: int = 0
    """Number of problems with several right solutions that answer with a number, if a guess hits
    their answer with probability 0."""
    num_answers_differing: int = 0
    """Number of problems counted in `num_answers_compared` with right solutions whose numbers
    differ by more than `ROUNDING`."""
    num_rated: int = 0
    """Number of problems with at least `MIN_TRIES` solutions that have an outcome; rollouts do not
    count."""
    num_sometimes_solved: int = 0
    """Number of problems counted in `num_rated` whose share of right solutions is within
    `SOLVED_SOMETIMES`."""
    num_tokens: int = 0
    """Number of tokens of all solutions."""
    num_tokens_cut: int = 0
    """Number of tokens of solutions that were cut at the maximum number of tokens."""
    num_rollouts: int = 0
    """Number of rollouts that were sampled."""
    num_rollouts_withheld: int = 0
    """Number of rollouts that were not sampled because the model's context had too little room,
    summed over the shards that record it."""
    num_rollouts_truncated: int = 0
    num_rollouts_ungraded: int = 0
    ungraded: Counter[str] = field(default_factory=Counter)
    """Number of rollouts without a verdict by reason, summed over the shards that record it."""
    num_rollouts_weak: int = 0
    """Number of rollouts with a weak verdict, summed over the shards that record it. A verdict is
    weak if the checker guessed it, or if the graded program could have forged the test result."""
    num_sound: int = 0
    """Number of steps with the hard label sound."""
    num_wrong: int = 0
    """Number of steps with the hard label wrong."""
    num_to_decide: int = 0
    """Number of right or wrong solutions that have a step before their last one whose label the
    estimator had to decide."""
    num_undecided: int = 0
    """Number of solutions counted in `num_to_decide` that are not decided."""
    num_right_decided: int = 0
    """Number of decided solutions with a right outcome."""
    num_right_with_error: int = 0
    """Number of decided solutions with a right outcome and a labelled error."""
    num_wrong_decided: int = 0
    """Number of decided solutions with a wrong outcome."""
    num_wrong_without_error: int = 0
    """Number of decided solutions with a wrong outcome and no labelled error."""
    _dropped_by: set[tuple[str, str]] = field(default_factory=set, repr=False)

    @property
    def num_solutions(self) -> int:
        """Number of solutions with any outcome."""
        return self.outcomes.total()

    def add(self, metadata: Mapping[str, Any], table: pa.Table) -> None:
        """Count a labels shard.

        Args:
            metadata: metadata of the shard.
            table: rows of the shard, one per solution.
        """
        self.num_read += 1
        policy = metadata.get("config", {}).get("policy", {})
        self.max_tokens = self.max_tokens or policy.get("max_tokens")
        self._add_dropped_problems(metadata)
        reasons = Counter[str](metadata.get("ungraded", {}))
        # Rollouts that were not sampled are recorded as ungraded ones.
        num_withheld = reasons.pop(NO_ROOM, 0)
        self.num_rollouts_withheld += num_withheld
        self.num_rollouts -= num_withheld
        self.num_rollouts_ungraded -= num_withheld
        self.ungraded.update(reasons)
        self.num_rollouts_weak += metadata.get("weak", 0)
        if not len(table):
            return
        shard = _LabelsShardColumns(table)
        self._add_solutions(shard)
        self._add_rollouts(shard)
        self._add_labels(shard)
        self._add_problems(shard)
        self._add_answer_differences(shard)

    def _add_dropped_problems(self, metadata: Mapping[str, Any]) -> None:
        """Count problems that the setting `solutions.balance` left out of the labels.

        Such problems have no right solutions or no wrong solutions.
        """
        dropped = metadata.get("dropped") or {}
        key = (str(metadata.get("block")), str(metadata.get("attempt")))
        if not dropped or key in self._dropped_by:
            return
        self._dropped_by.add(key)
        for counts in dropped.values():
            tries, right = np.array([counts["num_sampled"]]), np.array([counts["num_right"]])
            self._count_rated_problems(tries, right)
            self._count_tried_problems(tries, right)

    def _add_solutions(self, shard: _LabelsShardColumns) -> None:
        self.outcomes.update(shard.outcomes.tolist())
        self.steps.update(shard.num_steps.tolist())
        self.num_tokens += int(shard.num_tokens.sum())
        self.num_tokens_cut += int(shard.num_tokens[shard.is_truncated].sum())

    def _add_rollouts(self, shard: _LabelsShardColumns) -> None:
        # Several rows repeat the counts of a prefix that they share, so one row of each is used.
        for counts, distinct in (
            (shard.counts, shard.first_step_of_prefix),
            (shard.root, shard.first_solution_of_problem),
        ):
            self.num_rollouts += sum(int(column[distinct].sum()) for column in counts.values())
            self.num_rollouts_truncated += int(counts["num_truncated"][distinct].sum())
            self.num_rollouts_ungraded += int(counts["num_ungraded"][distinct].sum())

    def _add_labels(self, shard: _LabelsShardColumns) -> None:
        self.num_sound += int(shard.is_sound.sum())
        self.num_wrong += int(shard.is_wrong.sum())
        right, wrong = (
            (shard.outcomes == outcome) & shard.is_to_decide & shard.is_decided
            for outcome in (Outcome.RIGHT, Outcome.WRONG)
        )
        asked = np.isin(shard.outcomes, (Outcome.RIGHT, Outcome.WRONG)) & shard.is_to_decide
        self.num_to_decide += int(asked.sum())
        self.num_undecided += int((asked & ~shard.is_decided).sum())
        self.num_right_decided += int(right.sum())
        self.num_right_with_error += int((right & shard.has_error).sum())
        self.num_wrong_decided += int(wrong.sum())
        self.num_wrong_without_error += int((wrong & ~shard.has_error).sum())

    def _add_problems(self, shard: _LabelsShardColumns) -> None:
        count = len(shard.first_solution_of_problem)
        right = np.bincount(shard.problem_index, shard.outcomes == Outcome.RIGHT, count)
        tries = np.bincount(shard.problem_index, shard.outcomes != Outcome.UNGRADED, count)
        # If solutions were chosen by outcome, count all sampled solutions instead.
        chosen = shard.is_chosen[shard.first_solution_of_problem]
        right = np.where(chosen, shard.num_sampled_right[shard.first_solution_of_problem], right)
        tries = np.where(chosen, shard.num_sampled[shard.first_solution_of_problem], tries)
        self._count_rated_problems(tries, right)
        self.num_guessable += int((shard.guess_probability >= GUESSABLE).sum())
        of_prefix = shard.problem_index[shard.row_of_step[shard.first_step_of_prefix]]
        for name in ("num_right", "num_wrong", "num_truncated"):
            rolled = shard.counts[name][shard.first_step_of_prefix]
            rollout_counts = (
                np.bincount(of_prefix, rolled, count)
                + shard.root[name][shard.first_solution_of_problem]
            )
            tries += rollout_counts
            right += rollout_counts if name == "num_right" else 0
        self._count_tried_problems(tries, right)

    def _add_answer_differences(self, shard: _LabelsShardColumns) -> None:
        """Count the problems with several right solutions that answer with a number, and among them
        those with different numbers.
        """
        numbers = defaultdict[int, list[float]](list)
        for problem, outcome, answer in zip(
            shard.problem_index.tolist(), shard.outcomes, shard.answers, strict=True
        ):
            if (
                outcome == Outcome.RIGHT
                and answer is not None
                and not shard.guess_probability[problem]
            ):
                number = answer.replace(",", "")
                if _NUMBER.fullmatch(number):
                    numbers[problem].append(float(number))
        compared = [answers for answers in numbers.values() if len(answers) > 1]
        self.num_answers_compared += len(compared)
        self.num_answers_differing += sum(
            max(answers) - min(answers) > ROUNDING * max(map(abs, answers)) for answers in compared
        )

    def _count_rated_problems(self, tries: NDArray[Any], right: NDArray[Any]) -> None:
        """Add to `num_rated` and `num_sometimes_solved`.

        Args:
            tries: number of solutions with an outcome, [problems].
            right: number of right solutions, [problems].
        """
        rated = tries >= MIN_TRIES
        rates = right[rated] / tries[rated]
        low, high = SOLVED_SOMETIMES
        self.num_rated += int(rated.sum())
        self.num_sometimes_solved += int(((rates >= low) & (rates <= high)).sum())

    def _count_tried_problems(self, tries: NDArray[Any], right: NDArray[Any]) -> None:
        """Add to `num_problems`, `num_tried`, `num_never_solved` and `num_always_solved`.

        Args:
            tries: number of completions with an outcome, [problems].
            right: number of right completions, [problems].
        """
        tried = tries >= MIN_TRIES
        self.num_problems += len(tries)
        self.num_tried += int(tried.sum())
        self.num_never_solved += int((tried & (right == 0)).sum())
        self.num_always_solved += int((tried & (right == tries)).sum())


def count_health(store: Store, *, max_files: int | None = None) -> HealthCounts:
    """Return the counts of the committed labels of a run.

    Args:
        store: store of the run.
        max_files: maximum number of shard files that are read; None reads all. If there are more
            files, every k-th one in the order of their names is read. The names are hashes of the
            content, so this is a random selection.

    Raises:
        ShardError: there are no labels, or a shard cannot be read.
    """
    catalog = read_catalog(store)
    every = 1 if max_files is None else -(-len(catalog.blocks) // max_files)
    blocks = set(islice(catalog.blocks, None, None, every)) if every > 1 else None
    counts = HealthCounts(num_shards=len(catalog.blocks))
    for metadata, table in iter_label_tables(store, blocks):
        counts.add(
            {**metadata, **catalog.problems_without_rows(metadata["block"], metadata)}, table
        )
    return counts


class _LabelsShardColumns:
    """Columns of a labels shard as arrays. The steps of all solutions follow one another.

    `row_of_step` (row of the step's solution), `is_sound`, `is_wrong` and `counts` have one entry
    per step, and `first_step_of_prefix` has one per distinct prefix. `first_solution_of_problem`
    and `guess_probability` (probability that a guess is right) have one per problem. All others
    have one entry per solution.
    """

    def __init__(self, table: pa.Table) -> None:
        steps = table["steps"].combine_chunks()
        flat = steps.flatten()
        self.row_of_step = _as_integers(pc.list_parent_indices(steps))
        self.num_steps = _as_integers(pc.list_value_length(steps))
        self.outcomes = table["outcome"].to_numpy()
        self.answers: list[str | None] = table["prediction"].to_pylist()
        self.num_tokens = _as_integers(pc.list_value_length(table["solution_ids"]))
        self.is_truncated: Flags = table["finish_reason"].to_numpy() == "length"
        self.problem_index = _encode_names_as_integers(table["problem_id"].combine_chunks())
        self.first_solution_of_problem = _find_first_indices(self.problem_index)
        names = ["problem_id", "problem", "answer", "answer_is_json", "meta"]
        problems = table.select(names).take(self.first_solution_of_problem).to_pylist()
        self.guess_probability = np.array(
            [get_guess_probability(classify_gold_answer(parse_problem(row))) for row in problems]
        )
        """Probability of a right guess, [problems]."""
        self.is_chosen: Flags = table["chosen_by_outcome"].to_numpy()
        self.num_sampled = _as_integers(table["num_sampled"])
        self.num_sampled_right = _as_integers(table["num_sampled_right"])
        self.has_error = np.asarray(pc.is_valid(table["first_error"]).to_numpy(), dtype=np.bool_)
        self.root = _read_count_columns(table["root"].combine_chunks())
        self.counts = _read_count_columns(flat)
        self.first_step_of_prefix = _find_first_indices(
            _encode_names_as_integers(pc.struct_field(flat, "prefix_id"))
        )
        hard = pc.struct_field(flat, "hard")
        self.is_sound = _as_mask(hard)
        self.is_wrong = _as_mask(pc.invert(hard))
        last_step = self.num_steps.cumsum()[self.row_of_step] - 1
        before_last = np.arange(len(flat)) != last_step
        asked = before_last & ~_as_mask(pc.equal(pc.struct_field(flat, "source"), "none"))
        self.is_to_decide: Flags = self._mask_solutions_with_step(asked)
        """[solutions]: True for solutions with a step before their last one whose label the
        estimator had to decide."""
        self.is_decided: Flags = self.has_error | ~self._mask_solutions_with_step(
            ~self.is_sound & before_last
        )

    def _mask_solutions_with_step(self, step_mask: Flags) -> Flags:
        """Return a mask of the solutions that have at least one selected step, [solutions].

        Args:
            step_mask: True for each selected step, [steps of all solutions].
        """
        return np.bincount(self.row_of_step[step_mask], minlength=len(self.num_steps)) > 0


def _read_count_columns(column: pa.StructArray) -> dict[str, Ints]:
    names = ("num_right", "num_wrong", "num_truncated", "num_ungraded")
    return {name: _as_integers(pc.struct_field(column, name)) for name in names}


def _as_integers(column: pa.Array) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _as_mask(column: pa.Array) -> Flags:
    """Return a column of booleans as a mask; null becomes False."""
    return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _encode_names_as_integers(names: pa.Array) -> Ints:
    """Return the names as integers from 0, equal for equal names, [names]."""
    return _as_integers(names.dictionary_encode().indices)


def _find_first_indices(codes: Ints) -> Ints:
    """Return the index at which each distinct code first occurs, in increasing order of codes."""
    return np.asarray(np.unique(codes, return_index=True)[1], dtype=np.int64)
