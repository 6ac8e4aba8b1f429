"""Journals: what an attempt at a block has sampled so far, for the attempt after it.

    journals/BLOCK/ATTEMPT.NUMBER.jsonl.gz

An attempt writes what is new each time it flushes, whole files that are never changed; what it
took from a journal itself is not written again. A completion is known by what it continued and
by its index, so of two attempts that sampled the same one, the first in the order of names
counts, and the other is forgotten: nothing enters a label twice. A block's journals are deleted
once it is committed.

A kill redraws the completions that were under way. Engines that honour seeds give the same
ones again; on others long ones are a little likelier to be redrawn.
"""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mclabel.data.shards.store import Store
from mclabel.records import Completion, Outcome, Rollout, Solution, Step

logger = logging.getLogger(__name__)

FORMAT = 1
FOLDER = "journals"


@dataclass(frozen=True, kw_only=True)
class Rolled:
    """A graded rollout and the ids that were sampled."""

    rollout: Rollout
    ids: tuple[int, ...]

    @property
    def completion(self) -> Completion:
        """What the policy sampled."""
        return Completion(
            ids=self.ids, text=self.rollout.text, finish_reason=self.rollout.finish_reason
        )


@dataclass(kw_only=True)
class Replay:
    """What earlier attempts at a block have sampled."""

    solutions: dict[tuple[str, int], Solution] = field(default_factory=dict)
    """By problem id and sample index."""
    rollouts: dict[tuple[str, int], Rolled] = field(default_factory=dict)
    """By prefix id and index."""


def write_journal(
    store: Store,
    block_id: str,
    attempt: str,
    number: int,
    solutions: Iterable[Solution],
    rollouts: Iterable[Rolled],
) -> None:
    """Write one file of an attempt's journal.

    Args:
        store: the run's.
        block_id: of the block.
        attempt: unique to the attempt at the block.
        number: counts the attempt's files.
        solutions: sampled since its last file.
        rollouts: sampled and graded since its last file.
    """
    lines: list[dict[str, Any]] = [{"format": FORMAT, "block": block_id, "attempt": attempt}]
    lines += [{"solution": asdict(solution)} for solution in solutions]
    lines += [{"rollout": asdict(one.rollout), "ids": one.ids} for one in rollouts]
    text = "\n".join(json.dumps(line, ensure_ascii=True, separators=(",", ":")) for line in lines)
    content = gzip.compress(text.encode(), compresslevel=3, mtime=0)
    store.create(f"{FOLDER}/{block_id}/{attempt}.{number:05d}.jsonl.gz", content)


def read_journal(store: Store, block_id: str) -> Replay:
    """What all earlier attempts at a block have written down.

    A journal that is damaged is left out, with a warning: what it holds is sampled again.
    """
    replay = Replay()
    for name in store.names(f"{FOLDER}/{block_id}"):
        content = store.read(name)
        if content is None:
            continue  # an attempt that has just committed the block deletes them
        try:
            one = parse_journal(content)
        except ValueError as error:
            logger.warning(
                "%s/%s: damaged, or a journal of another mclabel (%s). It is left out: what it "
                "holds is sampled again",
                store.location,
                name,
                error,
            )
            continue
        replay.solutions = one.solutions | replay.solutions
        replay.rollouts = one.rollouts | replay.rollouts
    return replay


def parse_journal(content: bytes) -> Replay:
    """What one file of a journal holds.

    Raises:
        ValueError: it is damaged (gzip has a checksum), or of another format.
    """
    replay = Replay()
    try:
        _read(content, replay)
    except (OSError, EOFError, zlib.error, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return replay


def journaled_blocks(store: Store) -> set[str]:
    """Ids of the blocks of which there are journals."""
    return {name.split("/")[1] for name in store.names(FOLDER)}


def delete_journal(store: Store, block_id: str) -> None:
    """Remove a block's journals."""
    folder = f"{FOLDER}/{block_id}"
    for name in store.names(folder):
        store.delete(name)
    store.delete_folder(folder)
    store.delete_folder(FOLDER)


def _read(content: bytes, replay: Replay) -> None:
    header, *lines = map(json.loads, gzip.decompress(content).decode().splitlines())
    if header.get("format") != FORMAT:
        raise ValueError(f"format {header.get('format')!r}, must be {FORMAT}")
    for line in lines:
        if "solution" in line:
            solution = _solution(line["solution"])
            replay.solutions.setdefault((solution.problem_id, solution.sample_index), solution)
        else:
            row = line["rollout"]
            rollout = Rollout(**{**row, "outcome": Outcome(row["outcome"])})
            rolled = Rolled(rollout=rollout, ids=tuple(line["ids"]))
            replay.rollouts.setdefault((rollout.prefix_id, rollout.index), rolled)


def _solution(row: Mapping[str, Any]) -> Solution:
    return Solution(
        **{
            **row,
            "ids": tuple(row["ids"]),
            "steps": tuple(Step(**step) for step in row["steps"]),
            "outcome": Outcome(row["outcome"]),
        }
    )
