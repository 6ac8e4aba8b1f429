"""The journal of one attempt at a block: what it takes from earlier ones, and what it adds."""

from __future__ import annotations

import threading

from mclabel.data.shards.journal import Replay, Rolled, delete_journal, read_journal, write_journal
from mclabel.data.shards.store import Store
from mclabel.records import Completion, Rollout, Solution


class BlockJournal:
    """Completions of one block, by what they continued and their index.

    Adding and taking belong to the event loop; reading and flushing may be done in threads.
    """

    def __init__(self, store: Store, block_id: str, attempt: str) -> None:
        """Args:
        store: the run's.
        block_id: of the block.
        attempt: unique to this attempt at it.
        """
        self._store, self._block_id = store, block_id
        self.attempt = attempt
        self._replay = Replay()
        self._solutions: list[Solution] = []
        self._rollouts: list[Rolled] = []
        self._flushing = threading.Lock()
        self.num_files = 0
        """Written by this attempt."""
        self.num_replayed = 0
        """Completions taken from earlier attempts."""
        self.num_replayed_tokens = 0
        """Of these."""

    def read(self) -> None:
        """Read what earlier attempts have left."""
        self._replay = read_journal(self._store, self._block_id)

    def take_solution(self, problem_id: str, index: int) -> Solution | None:
        """A solution that an earlier attempt has sampled."""
        found = self._replay.solutions.pop((problem_id, index), None)
        if found is not None:
            self.num_replayed += 1
            self.num_replayed_tokens += len(found.ids)
        return found

    def take_rollout(self, prefix_id: str, index: int) -> Rolled | None:
        """A rollout that an earlier attempt has sampled and graded."""
        found = self._replay.rollouts.pop((prefix_id, index), None)
        if found is not None:
            self.num_replayed += 1
            self.num_replayed_tokens += found.rollout.num_tokens
        return found

    def add_solution(self, solution: Solution) -> None:
        """Note a solution that this attempt has sampled."""
        self._solutions.append(solution)

    def add_rollout(self, rollout: Rollout, completion: Completion) -> None:
        """Note a rollout that this attempt has sampled and graded."""
        self._rollouts.append(Rolled(rollout=rollout, ids=completion.ids))

    def flush(self) -> None:
        """Write down what is new since the last time."""
        with self._flushing:
            solutions, self._solutions = self._solutions, []
            rollouts, self._rollouts = self._rollouts, []
            if not solutions and not rollouts:
                return
            try:
                write_journal(
                    self._store, self._block_id, self.attempt, self.num_files, solutions, rollouts
                )
            except BaseException:  # nothing is lost: the next flush writes it
                self._solutions[:0], self._rollouts[:0] = solutions, rollouts
                raise
            self.num_files += 1

    def delete(self) -> None:
        """Remove the block's journals, those of all attempts."""
        delete_journal(self._store, self._block_id)
