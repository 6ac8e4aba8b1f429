"""Journal entries of labelling: the sampled solutions and rollouts of unfinished blocks.

A completion is identified by its prefix and its index. After a process is killed, the completions
that were being sampled are sampled again. Engines that respect seeds sample the same completions.
With other engines, a kill interrupts long completions more often than short ones, and so these are
replaced by new samples a little more often. A completion on which the checker failed is stored with
the mark `failed`. The next attempt grades it again without sampling it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mclabel.core.errors import CheckerError, ShardError
from mclabel.core.records import Completion, Outcome, Rollout, Solution, Step
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.journal import FOLDER, JournalEntry, Line, parse_journal_lines
from mclabel.run.shards.store import Store


@dataclass(frozen=True, kw_only=True)
class JournaledSolution:
    """A sampled solution that was read from a journal."""

    solution: Solution
    failed: bool
    """True if the checker failed on the solution, so the solution must be graded again."""

    @property
    def completion(self) -> Completion:
        """Completion that the policy sampled for the solution."""
        solution = self.solution
        return Completion(
            ids=solution.ids, text=solution.text, finish_reason=solution.finish_reason
        )


@dataclass(frozen=True, kw_only=True)
class JournaledRollout:
    """A rollout that was read from a journal, and its token ids."""

    rollout: Rollout
    ids: tuple[int, ...]
    failed: bool
    """True if the checker failed on the rollout, so the rollout must be graded again."""

    @property
    def completion(self) -> Completion:
        """Completion that the policy sampled for the rollout."""
        return Completion(
            ids=self.ids, text=self.rollout.text, finish_reason=self.rollout.finish_reason
        )


def make_solution_line(solution: Solution, *, failed: bool = False) -> Line:
    """Return the journal line that stores a solution.

    Args:
        solution: sampled solution, graded unless the checker failed.
        failed: True if the checker failed on the solution.
    """
    return {"solution": asdict(solution), **_make_failure_field(failed)}


def make_rollout_line(rollout: Rollout, ids: tuple[int, ...], *, failed: bool = False) -> Line:
    """Return the journal line that stores a rollout.

    Args:
        rollout: sampled rollout, graded unless the checker failed.
        ids: sampled token ids.
        failed: True if the checker failed on the rollout.
    """
    return {"rollout": asdict(rollout), "ids": ids, **_make_failure_field(failed)}


def holds_verdict(line: Line) -> bool:
    """Return whether a journal line contains a verdict of the checker."""
    completion = line["solution"] if "solution" in line else line["rollout"]
    return "failed" not in line and completion["finish_reason"] != "length"


def _make_failure_field(failed: bool) -> dict[str, bool]:
    return {"failed": True} if failed else {}


def parse_entry(line: Line) -> JournalEntry:
    """Parse the solution or rollout in a journal line."""
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


# A labelling run may continue with a repaired checker if it holds no verdicts of the old version.
#
# A checker that fails on every completion ends its job (`mclabel.checkers.guarded`). Repairing the
# checker changes its version. Labels depend on that version, so resuming would normally be refused
# as a change of configuration. But such a job has left only samples without verdicts, which any
# checker may grade.

CHECKER_VERSION_KEY = "checker.version"
"""Configuration key of the checker's version."""


def may_resume_with_changes(store: Store, changed: Sequence[str]) -> bool:
    """Return whether a run may be resumed although its configuration changed.

    This is allowed if only the checker's version changed and the run holds no verdicts.
    `RunOutput.check_config` calls this function.

    Args:
        store: store of the run.
        changed: configuration keys that differ from the recorded configuration.

    Raises:
        ShardError: only the checker's version changed, and the run holds verdicts of the old
            version.
    """
    if changed != [CHECKER_VERSION_KEY]:
        return False
    if read_catalog(store, require_complete=False).blocks or _journals_hold_verdicts(store):
        raise ShardError(
            f"{store.location}: holds a run of another configuration: its verdicts come from "
            f"another version of the checker ({CHECKER_VERSION_KEY}). Choose another out=…, "
            "restore the old checker to resume that run, or grade its results again with the "
            f"current checker: mclabel regrade {store.location} -o NEW"
        )
    return True


def advise_regrading(error: CheckerError, store: Store) -> CheckerError:
    """Extend a checker's error by advice on how to grade again the blocks that the run has
    committed.
    """
    count = len(read_catalog(store, require_complete=False).blocks)
    if not count:
        return error
    return CheckerError(
        f"{error}. {count:,} blocks are committed and keep their present grades; "
        f"mclabel regrade {store.location} -o NEW grades these blocks again"
    )


def _journals_hold_verdicts(store: Store) -> bool:
    """Return whether a journal of the run contains a verdict; True also if a journal cannot be
    read.
    """
    for name in store.names(FOLDER):
        if (content := store.read(name)) is None:
            continue
        try:
            if any(map(holds_verdict, parse_journal_lines(content))):
                return True
        except (ValueError, LookupError, TypeError):  # damaged, or of another mclabel version
            return True
    return False
