"""A run written again, block by block, with other labels: graded again, or combined with opinions.

The source is only read. A block of it is one of the new run, under an id of its own, so running the
same command again does what is missing. Problems without labels and rejected rows go with it.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import LabeledSolution, Rollout
from mclabel.core.seeds import content_id
from mclabel.labeling.grading import num_weak, ungraded_reasons
from mclabel.run.run import Run
from mclabel.run.shards.catalog import Catalog, read_catalog
from mclabel.run.shards.compact import BlocksAnew, fit_of
from mclabel.run.shards.finished import write_finished
from mclabel.run.shards.labels import (
    FIT,
    commit_block,
    committed_blocks,
    delete_losers,
    named_rollouts,
)
from mclabel.run.shards.manifest import (
    MANIFEST,
    Semantic,
    claimed_config,
    missing_priors,
    priors_name,
    read_priors,
    versions,
)
from mclabel.run.shards.opinions import no_labels
from mclabel.run.shards.rejects import FILE as REJECTS
from mclabel.run.shards.rejects import read_rejects, write_rejects
from mclabel.run.shards.schema import labeled_solution, recorded_rollout
from mclabel.run.shards.shard import read_shard
from mclabel.run.shards.store import Store


@dataclass(frozen=True, kw_only=True)
class SourceBlock:
    """A block of the source that is to be written again."""

    id: str
    rows: Sequence[LabeledSolution]
    rollouts: Sequence[Rollout] | None
    """Those of its problems; None if the source did not keep them."""
    without_rows: Mapping[str, Any]
    """Problems of the block that have no labels."""


class RewrittenRun:
    """The blocks of a run that another one still lacks."""

    def __init__(
        self,
        source: Store,
        target: Store,
        provenance: Mapping[str, Any],
        *,
        action: str,
        fit: str | None = None,
    ) -> None:
        """Check which blocks exist.

        Args:
            source: store of the source run, which is only read.
            target: store of the new run, whose manifest is already claimed.
            provenance: metadata of every shard, with the `config`.
            action: name of the operation, for the ids of blocks.
            fit: identity of the parameters learned from the whole source, on which the labels
                rest. Blocks that rest on other parameters are all written again. None if nothing
                was learned.

        Raises:
            ShardError: the source holds no labels, or lacks a block that it once had.
        """
        self._catalog = read_catalog(source)
        if not self._catalog.blocks:
            raise no_labels(source)
        self._source, self._target = source, target
        self._provenance, self._what = {**provenance, **({FIT: fit} if fit else {})}, action
        self._done = committed_blocks(target, must_be_whole=False)
        self._anew: BlocksAnew | None = None
        self.num_replaced = 0
        if fit is not None and self._done and fit_of(target) != fit:
            self._begin_anew()
        self._copied: set[str] = set()
        self.num_blocks = len(self._catalog.blocks)
        self.num_resumed = sum(self._new_id(block) in self._done for block in self._catalog.blocks)

    def _begin_anew(self) -> None:
        if lacking := self._done - {self._new_id(block) for block in self._catalog.blocks}:
            raise ShardError(
                f"{self._source.location}: lacks {len(lacking):,} blocks that were there when "
                f"{self._target.location} was made of it. Choose another -o"
            )
        self.num_replaced = len(self._done)
        self._done, self._anew = frozenset(), BlocksAnew(self._target)

    def missing(
        self,
        on_progress: Callable[[int, int], None],
        on_table: Callable[[pa.Table], None] = lambda _: None,
    ) -> Iterator[SourceBlock]:
        """Yield the blocks that are not written yet.

        Args:
            on_progress: called with the number of finished blocks and of all blocks.
            on_table: called with the labels of every shard of the source.
        """
        finished = self.num_resumed
        for block in _blocks(self._source, self._catalog, self._is_missing, on_table):
            yield block
            finished += 1
            on_progress(finished, self.num_blocks)

    def commit(
        self,
        block: SourceBlock,
        labeled: Sequence[LabeledSolution],
        rollouts: Sequence[Rollout] | None,
    ) -> None:
        """Write a block."""
        ungraded, weak = ungraded_reasons(rollouts or ()), num_weak(rollouts or ())
        if self._anew is not None:
            more = {"ungraded": dict(ungraded), "weak": weak, **block.without_rows}
            self._anew.write(self._new_id(block.id), labeled, rollouts, self._provenance, more)
            return
        commit_block(
            self._target,
            self._new_id(block.id),
            uuid.uuid4().hex[:12],
            labeled,
            rollouts,
            self._provenance,
            ungraded=ungraded,
            weak=weak,
            **block.without_rows,
        )

    def finish(self) -> None:
        """Write the files of a finished run besides its shards.

        Raises:
            ShardError: all blocks were written anew, and another command was faster.
        """
        if self._anew is not None:
            self._anew.commit()
        delete_losers(self._target)
        rejects = read_rejects(self._source)
        files = (REJECTS,) if write_rejects(self._target, rejects) else ()
        write_finished(self._target, num_blocks=self.num_blocks, files=files)

    def copy_priors(self, block: SourceBlock) -> None:
        """Copy the priors on which the labels of a block rest to the new run."""
        for identity in {row.priors for row in block.rows if row.priors is not None}:
            if identity not in self._copied:
                self.copied_priors(identity)
                self._copied.add(identity)

    def copied_priors(self, identity: str) -> str:
        """Return what the source's estimator had learned, by its id; the new run gets it, too.

        Raises:
            DamagedFile: it is missing, or damaged.
        """
        content = read_priors(self._source, identity)
        if content is None:
            raise missing_priors(self._source, identity)
        self._target.create(priors_name(identity), content)
        return content.decode()

    def _new_id(self, block: str) -> str:
        return content_id(self._what, block, self._provenance["config"])

    def _is_missing(self, block: str) -> bool:
        return self._new_id(block) not in self._done


def source_blocks(source: Store) -> Iterator[SourceBlock]:
    """Return all blocks of a run.

    Raises:
        ShardError: it holds no labels.
    """
    catalog = read_catalog(source)
    if not catalog.blocks:
        raise no_labels(source)
    return _blocks(source, catalog, lambda block: True, lambda table: None)


def _blocks(
    source: Store,
    catalog: Catalog,
    is_wanted: Callable[[str], bool],
    on_table: Callable[[pa.Table], None],
) -> Iterator[SourceBlock]:
    for file, blocks in catalog.by_file().items():
        metadata, table = read_shard(source, file, "labels")
        on_table(table)
        wanted = [block for block in blocks if is_wanted(block)]
        parts = catalog.parts(source, file, wanted, metadata, table)
        rollouts = _rollouts(source, metadata) if wanted else None
        for block, part in zip(wanted, parts, strict=True):
            rows = list(map(labeled_solution, part.to_pylist()))
            names = dict.fromkeys(row.problem.id for row in rows)
            # Of a shard of several blocks problems without rows go with the first one.
            is_first = block == blocks[0]
            yield SourceBlock(
                id=block,
                rows=rows,
                rollouts=None
                if rollouts is None
                else [rollout for name in names for rollout in rollouts.get(name, ())],
                without_rows=catalog.without_rows(blocks, metadata) if is_first else {},
            )


def _rollouts(source: Store, metadata: Mapping[str, Any]) -> dict[str, list[Rollout]] | None:
    """Return the rollouts by problem; None if they were not kept."""
    if metadata["rollouts"] is None:
        return None
    by_problem: dict[str, list[Rollout]] = defaultdict(list)
    for row in named_rollouts(source, metadata).to_pylist():
        by_problem[row["problem_id"]].append(recorded_rollout(row))
    return by_problem


def recorded_config(source: Store) -> dict[str, Any]:
    """Return the semantic configuration of a labelling run.

    Raises:
        ShardError: it has none.
    """
    config = claimed_config(source, MANIFEST)
    if config is None:
        raise ShardError(
            f"{source.location}: has no {MANIFEST}. Give the `out` of `mclabel label`; imported "
            "labels have no rollouts"
        )
    return config


def superseded_rows(source: Store) -> dict[str, str]:
    """Return a hash of the run's superseded rows; empty if there are none."""
    superseded = read_catalog(source).superseded
    rows = sorted((block, sorted(ids)) for block, ids in superseded.items())
    return {"superseded": content_id(rows)} if rows else {}


def begin_rewritten(
    run: str, out: str, semantic: Mapping[str, Any], *, action: str
) -> tuple[Store, dict[str, Any]]:
    """Claim the store of the rewritten run, and return it with the metadata of its shards.

    Args:
        run: folder or URL of the source run.
        out: folder or URL of the rewritten run.
        semantic: inputs that determine the labels of the rewritten run.
        action: participle for messages that names the operation, such as `graded again`.

    Raises:
        ConfigError: `run` and `out` are the same place.
        ShardError: `out` holds another run.
    """
    if place_of(run) == place_of(out):
        raise ConfigError(f"-o {out}: must not be the run that is {action}. Give another folder")
    target = Run.look(out)
    target.check(Semantic.of(semantic))
    stamp = target.stamp(versions=versions())
    return target.claim(stamp), stamp


def check_kept(run: str, block: SourceBlock, action: str) -> None:
    """Refuse a block that was labelled by rollouts and does not hold them.

    Raises:
        DataError: it does not.
    """
    made = (counts for row in block.rows for counts in (row.root, *(s.counts for s in row.steps)))
    if block.rollouts is None and any(counts.num_rollouts for counts in made):
        raise DataError(
            f"{run}: was labelled with keep_rollouts=false, so there is nothing to be {action}. "
            "Label it again with keep_rollouts=true"
        )


def place_of(run: str) -> str:
    """Return the absolute path of a folder; a URL stays as it is."""
    return run if "://" in run else str(Path(run).resolve())
