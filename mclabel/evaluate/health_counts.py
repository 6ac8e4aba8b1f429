"""Counts that show whether a run's labels can teach anything, added up shard by shard.

All of it stands in the labels shards: no rollouts are read. A shard is reduced to sums by column,
so memory does not grow with the run. A problem's solutions lie in one shard; an import that cuts
one in two counts it twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mclabel.core.records import NO_ROOM, Outcome
from mclabel.labeling.estimators.paths import answer_class, chance_of
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.labels import label_tables
from mclabel.run.shards.schema import problem_of
from mclabel.run.shards.store import Store

MIN_TRIES = 4
"""Completions of a problem, solutions and rollouts together: of fewer all are often right, or none,
by chance alone."""
GUESSABLE = 0.1
"""Least chance of a right guess that is counted."""
SOMETIMES = (0.15, 0.8)
"""Shares of right solutions, ends included, between which a problem mostly has right ones and wrong
ones among eight. A rule of thumb, and no threshold of a check."""

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(kw_only=True)
class HealthCounts:
    """Counts of the labels of a run."""

    num_shards: int = 0
    """Number of shards of the run."""
    num_read: int = 0
    """Shards that were counted."""
    max_tokens: int | None = None
    """`policy.max_tokens`; None for labels that no policy made."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Solutions by outcome."""
    steps: Counter[int] = field(default_factory=Counter)
    """Solutions by their number of steps."""
    num_problems: int = 0
    num_tried: int = 0
    """Problems with `MIN_TRIES` completions that have an outcome."""
    num_never: int = 0
    """Number of these without any right completion."""
    num_always: int = 0
    """Number of these all of whose completions are right."""
    num_guessable: int = 0
    """Problems whose answer a guess hits with a chance of `GUESSABLE` or more."""
    num_rated: int = 0
    """Problems with `MIN_TRIES` solutions that have an outcome; rollouts do not count."""
    num_sometimes: int = 0
    """Number of these with a share of right solutions within `SOMETIMES`."""
    num_tokens: int = 0
    """Number of tokens of solutions."""
    num_tokens_cut: int = 0
    """Number of these in solutions that were cut at their limit."""
    num_rollouts: int = 0
    """Number of rollouts that were sampled."""
    num_rollouts_withheld: int = 0
    """Number of rollouts that were not sampled for lack of room, as far as the shards count
    them.
    """
    num_rollouts_truncated: int = 0
    num_rollouts_ungraded: int = 0
    ungraded: Counter[str] = field(default_factory=Counter)
    """Rollouts without a verdict by reason, as far as their shards have counted it."""
    num_rollouts_weak: int = 0
    """Rollouts whose verdict is weak (`mclabel.checkers.guarded.is_weak`), as far as their shards
    have counted."""
    num_sound: int = 0
    """Steps whose hard label is that they are sound."""
    num_wrong: int = 0
    num_asked: int = 0
    """Graded solutions of which more than the last step was to be labelled."""
    num_undecided: int = 0
    """Number of these in which it is not decided whether and where they have an error."""
    num_right_judged: int = 0
    """Number of the decided solutions that end right."""
    num_right_with_error: int = 0
    num_wrong_judged: int = 0
    num_wrong_without_error: int = 0
    _dropped_by: set[tuple[str, str]] = field(default_factory=set, repr=False)

    @property
    def num_solutions(self) -> int:
        """Number of solutions, whatever their outcomes."""
        return self.outcomes.total()

    def add(self, metadata: Mapping[str, Any], table: pa.Table) -> None:
        """Count a labels shard.

        Args:
            metadata: metadata of the shard.
            table: its rows.
        """
        self.num_read += 1
        policy = metadata.get("config", {}).get("policy", {})
        self.max_tokens = self.max_tokens or policy.get("max_tokens")
        self._add_dropped(metadata)
        reasons = Counter[str](metadata.get("ungraded", {}))
        self._count_withheld(reasons.pop(NO_ROOM, 0))
        self.ungraded.update(reasons)
        self.num_rollouts_weak += metadata.get("weak", 0)
        if not len(table):
            return
        shard = _Shard(table)
        self._add_solutions(shard)
        self._add_rollouts(shard)
        self._add_labels(shard)
        self._add_problems(shard)

    def _count_withheld(self, number: int) -> None:
        """Count rollouts that were not sampled apart; the rows hold them among the ungraded."""
        self.num_rollouts_withheld += number
        self.num_rollouts -= number
        self.num_rollouts_ungraded -= number

    def _add_dropped(self, metadata: Mapping[str, Any]) -> None:
        """Add the problems that `solutions.balance` has dropped for lack of right or wrong
        solutions.
        """
        dropped = metadata.get("dropped") or {}
        key = (str(metadata.get("block")), str(metadata.get("attempt")))
        if not dropped or key in self._dropped_by:
            return
        self._dropped_by.add(key)
        for counts in dropped.values():
            tries, right = np.array([counts["num_sampled"]]), np.array([counts["num_right"]])
            self._add_rates(tries, right)
            self._add_tries(tries, right)

    def _add_solutions(self, shard: _Shard) -> None:
        self.outcomes.update(shard.outcomes.tolist())
        self.steps.update(shard.num_steps.tolist())
        self.num_tokens += int(shard.num_tokens.sum())
        self.num_tokens_cut += int(shard.num_tokens[shard.is_cut].sum())

    def _add_rollouts(self, shard: _Shard) -> None:
        for counts, once in ((shard.counts, shard.first_of_prefix), (shard.root, shard.first_rows)):
            self.num_rollouts += sum(int(column[once].sum()) for column in counts.values())
            self.num_rollouts_truncated += int(counts["num_truncated"][once].sum())
            self.num_rollouts_ungraded += int(counts["num_ungraded"][once].sum())

    def _add_labels(self, shard: _Shard) -> None:
        self.num_sound += int(shard.is_sound.sum())
        self.num_wrong += int(shard.is_wrong.sum())
        right, wrong = (
            (shard.outcomes == outcome) & shard.is_asked & shard.is_decided
            for outcome in (Outcome.RIGHT, Outcome.WRONG)
        )
        asked = np.isin(shard.outcomes, (Outcome.RIGHT, Outcome.WRONG)) & shard.is_asked
        self.num_asked += int(asked.sum())
        self.num_undecided += int((asked & ~shard.is_decided).sum())
        self.num_right_judged += int(right.sum())
        self.num_right_with_error += int((right & shard.has_error).sum())
        self.num_wrong_judged += int(wrong.sum())
        self.num_wrong_without_error += int((wrong & ~shard.has_error).sum())

    def _add_problems(self, shard: _Shard) -> None:
        count = len(shard.first_rows)
        right = np.bincount(shard.problem, shard.outcomes == Outcome.RIGHT, count)
        tries = np.bincount(shard.problem, shard.outcomes != Outcome.UNGRADED, count)
        chosen = shard.is_chosen[shard.first_rows]  # by their outcomes: all that were sampled count
        right = np.where(chosen, shard.num_sampled_right[shard.first_rows], right)
        tries = np.where(chosen, shard.num_sampled[shard.first_rows], tries)
        self._add_rates(tries, right)
        self.num_guessable += int((shard.chance >= GUESSABLE).sum())
        of_prefix = shard.problem[shard.step_row[shard.first_of_prefix]]
        for name in ("num_right", "num_wrong", "num_truncated"):
            rolled = shard.counts[name][shard.first_of_prefix]
            rollout_counts = (
                np.bincount(of_prefix, rolled, count) + shard.root[name][shard.first_rows]
            )
            tries += rollout_counts
            right += rollout_counts if name == "num_right" else 0
        self._add_tries(tries, right)

    def _add_rates(self, tries: NDArray[Any], right: NDArray[Any]) -> None:
        """Count problems by the share of their solutions that is right."""
        rated = tries >= MIN_TRIES
        rates = right[rated] / tries[rated]
        low, high = SOMETIMES
        self.num_rated += int(rated.sum())
        self.num_sometimes += int(((rates >= low) & (rates <= high)).sum())

    def _add_tries(self, tries: NDArray[Any], right: NDArray[Any]) -> None:
        """Count problems by how many of their completions are right."""
        tried = tries >= MIN_TRIES
        self.num_problems += len(tries)
        self.num_tried += int(tried.sum())
        self.num_never += int((tried & (right == 0)).sum())
        self.num_always += int((tried & (right == tries)).sum())


def health_counts(store: Store, *, max_files: int | None = None) -> HealthCounts:
    """Return the counts of the committed labels of a run.

    Args:
        store: the run's.
        max_files: maximum number of files of more shards, evenly spaced ones are read; a
            shard's name is a hash of what it holds. None reads all.

    Raises:
        ShardError: there are none, or a shard cannot be read.
    """
    catalog = read_catalog(store)
    every = 1 if max_files is None else -(-len(catalog.files) // max_files)
    blocks = None
    if every > 1:
        by_file = catalog.by_file()
        blocks = {block for file in catalog.files[::every] for block in by_file[file]}
    counts = HealthCounts(num_shards=len(catalog.files))
    for metadata, table in label_tables(store, blocks):
        of_shard = metadata.get("blocks") or [metadata.get("block", "")]
        counts.add({**metadata, **catalog.without_rows(of_shard, metadata)}, table)
    return counts


class _Shard:
    """The columns of a labels shard as arrays: an entry a solution, or a step."""

    def __init__(self, table: pa.Table) -> None:
        steps = table["steps"].combine_chunks()
        flat = steps.flatten()
        self.step_row = _numbers(pc.list_parent_indices(steps))
        self.num_steps = _numbers(pc.list_value_length(steps))
        self.outcomes = table["outcome"].to_numpy()
        self.num_tokens = _numbers(pc.list_value_length(table["solution_ids"]))
        self.is_cut: Flags = table["finish_reason"].to_numpy() == "length"
        self.problem = _codes_of_names(table["problem_id"].combine_chunks())
        self.first_rows = _first_indices(self.problem)
        names = ["problem_id", "problem", "answer", "answer_is_json", "meta"]
        problems = table.select(names).take(self.first_rows).to_pylist()
        self.chance = np.array([chance_of(answer_class(problem_of(row))) for row in problems])
        """Chance of a right guess, by problem."""
        self.is_chosen: Flags = table["chosen_by_outcome"].to_numpy()
        self.num_sampled = _numbers(table["num_sampled"])
        self.num_sampled_right = _numbers(table["num_sampled_right"])
        self.has_error = _is_known(table["first_error"])
        self.root = _counts(table["root"].combine_chunks())
        self.counts = _counts(flat)
        self.first_of_prefix = _first_indices(_codes_of_names(pc.struct_field(flat, "prefix_id")))
        hard = pc.struct_field(flat, "hard")
        self.is_sound = _flags(hard)
        self.is_wrong = _flags(pc.invert(hard))
        last_step = self.num_steps.cumsum()[self.step_row] - 1
        before_last = np.arange(len(flat)) != last_step
        asked = before_last & ~_flags(pc.equal(pc.struct_field(flat, "source"), "none"))
        self.is_asked: Flags = self._has_step(asked)
        """True if more than the solution's last step was to be labelled."""
        self.is_decided: Flags = self.has_error | ~self._has_step(~self.is_sound & before_last)

    def _has_step(self, of_steps: Flags) -> Flags:
        """Return whether a solution has such a step."""
        return np.bincount(self.step_row[of_steps], minlength=len(self.num_steps)) > 0


def _counts(column: pa.StructArray) -> dict[str, Ints]:
    names = ("num_right", "num_wrong", "num_truncated", "num_ungraded")
    return {name: _numbers(pc.struct_field(column, name)) for name in names}


def _numbers(column: pa.Array) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _flags(column: pa.Array) -> Flags:
    """Return a mask of where a column of booleans is true; null is not."""
    return np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _is_known(column: pa.ChunkedArray) -> Flags:
    return np.asarray(pc.is_valid(column).to_numpy(), dtype=np.bool_)


def _codes_of_names(names: pa.Array) -> Ints:
    """Return a number for each distinct name, from 0."""
    return _numbers(names.dictionary_encode().indices)


def _first_indices(codes: Ints) -> Ints:
    """Return the first index of each code, in the order of the codes."""
    return np.asarray(np.unique(codes, return_index=True)[1], dtype=np.int64)
