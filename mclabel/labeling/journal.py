"""Entries of labelling in the journals of its blocks: solutions and rollouts, as sampled.

A completion is known by what it continued and by its index. A kill redraws the completions that
were under way. Engines that honour seeds give the same ones again; on others long ones are a little
likelier to be redrawn. A completion on which the checker failed is kept with the mark `failed`: the
next attempt does not sample it again, and grades it anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mclabel.core.errors import CheckerError, ShardError
from mclabel.core.records import Completion, Outcome, Rollout, Solution, Step
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.journal import FOLDER, JournalEntry, Line, journal_lines
from mclabel.run.shards.store import Store


@dataclass(frozen=True, kw_only=True)
class JournaledSolution:
    """A solution that was sampled."""

    solution: Solution
    failed: bool
    """True if the checker failed on it, so that it is to be graded again."""

    @property
    def completion(self) -> Completion:
        """Return what the policy sampled."""
        solution = self.solution
        return Completion(
            ids=solution.ids, text=solution.text, finish_reason=solution.finish_reason
        )


@dataclass(frozen=True, kw_only=True)
class JournaledRollout:
    """A rollout and the ids that were sampled."""

    rollout: Rollout
    ids: tuple[int, ...]
    failed: bool
    """True if the checker failed on it, so that it is to be graded again."""

    @property
    def completion(self) -> Completion:
        """Return what the policy sampled."""
        return Completion(
            ids=self.ids, text=self.rollout.text, finish_reason=self.rollout.finish_reason
        )


def solution_line(solution: Solution, *, failed: bool = False) -> Line:
    """The line of a journal that holds a solution.

    Args:
        solution: as far as it could be graded.
        failed: whether the checker failed on it.
    """
    return {"solution": asdict(solution), **_mark(failed)}


def rollout_line(rollout: Rollout, ids: tuple[int, ...], *, failed: bool = False) -> Line:
    """The line of a journal that holds a rollout.

    Args:
        rollout: as far as it could be graded.
        ids: tokens that were sampled.
        failed: whether the checker failed on it.
    """
    return {"rollout": asdict(rollout), "ids": ids, **_mark(failed)}


def holds_verdict(line: Line) -> bool:
    """Return whether a line of a journal rests on a verdict of the checker."""
    completion = line["solution"] if "solution" in line else line["rollout"]
    return "failed" not in line and completion["finish_reason"] != "length"


def _mark(failed: bool) -> dict[str, bool]:
    return {"failed": True} if failed else {}


def read_entry(line: Line) -> JournalEntry:
    """The solution or rollout that a line holds."""
    if "solution" in line:
        row = line["solution"]
        solution = Solution(
            **{
                **row,
                "ids": tuple(row["ids"]),
                "steps": tuple(Step(**step) for step in row["steps"]),
                "outcome": Outcome(row["outcome"]),
            }
        )
        key = ("solution", solution.problem_id, solution.sample_index)
        return JournalEntry(
            key=key,
            content=JournaledSolution(solution=solution, failed="failed" in line),
            num_tokens=len(solution.ids),
        )
    row = line["rollout"]
    rollout = Rollout(**{**row, "outcome": Outcome(row["outcome"])})
    return JournalEntry(
        key=("rollout", rollout.completer, rollout.prefix_id, rollout.index),
        content=JournaledRollout(rollout=rollout, ids=tuple(line["ids"]), failed="failed" in line),
        num_tokens=rollout.num_tokens,
    )


# A labelling run goes on with a mended checker, where no verdict of the former one is on record.
#
# A checker that fails on all that it grades ends its job (`mclabel.checkers.guarded`). Mending it
# changes its version, which decides about labels, and so the run would be one of another
# configuration. What such a job has left are samples without a verdict, which any checker may
# grade.

VERSION = "checker.version"


def may_mend(store: Store, changed: Sequence[str]) -> bool:
    """Return whether a run may have another configuration than its own; see `Run.check`.

    Args:
        store: store of the run.
        changed: keys that differ.

    Raises:
        ShardError: the version of the checker is all that has changed, and verdicts of the former
            one are on record.
    """
    if changed != [VERSION]:
        return False
    if read_catalog(store, must_be_whole=False).blocks or _has_verdicts(store):
        raise ShardError(
            f"{store.location}: holds a run of another configuration: its verdicts are of another "
            f"version of the checker ({VERSION}). Choose another out=…, restore the checker to "
            "resume that run, or grade its results again with the current checker: mclabel "
            f"regrade {store.location} -o NEW"
        )
    return True


def with_committed(error: CheckerError, store: Store) -> CheckerError:
    """The error of a checker that fails, with what becomes of blocks that were committed."""
    count = len(read_catalog(store, must_be_whole=False).blocks)
    if not count:
        return error
    return CheckerError(
        f"{error}. {count:,} blocks are committed and keep their verdicts, or the lack of them; "
        f"mclabel regrade {store.location} -o NEW grades them again"
    )


def _has_verdicts(store: Store) -> bool:
    """Return whether a journal rests on a verdict; one that cannot be read may."""
    for name in store.names(FOLDER):
        if (content := store.read(name)) is None:
            continue
        try:
            if any(map(holds_verdict, journal_lines(content))):
                return True
        except (ValueError, LookupError, TypeError):  # damaged, or of another mclabel
            return True
    return False
