"""Writes a copy of a run with new labels, block by block. The labels come from grading again, or
from the opinions of judges.

The source run is only read. Each block of the source becomes one block of the new run, with a new
id. So running the same command again writes only the missing blocks. Problems without labels and
rejected rows are copied to the new run.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import LabeledSolution, Rollout
from mclabel.core.seeds import content_id
from mclabel.labeling.grading import count_ungraded_reasons, count_weak_verdicts
from mclabel.run.run import RunOutput, make_location_absolute
from mclabel.run.shards.catalog import Catalog, read_catalog, read_labels_shard
from mclabel.run.shards.finished import write_completion_marker
from mclabel.run.shards.labels import (
    commit_block,
    delete_uncommitted_shards,
    read_committed_block_ids,
    read_shard_rollouts,
)
from mclabel.run.shards.manifest import (
    MANIFEST,
    SemanticConfig,
    collect_package_versions,
    make_missing_priors_error,
    make_priors_file_name,
    read_manifest_config,
    read_priors,
)
from mclabel.run.shards.opinions import make_no_labels_error
from mclabel.run.shards.rejects import FILE as REJECTS
from mclabel.run.shards.rejects import read_rejects, write_rejects
from mclabel.run.shards.schema import parse_labeled_solution, parse_rollout
from mclabel.run.shards.store import Store


@dataclass(frozen=True, kw_only=True)
class SourceBlock:
    """A block of the source run that must be written again."""

    id: str
    """Id of the block in the source run."""
    rows: Sequence[LabeledSolution]
    rollouts: Sequence[Rollout] | None
    """Rollouts of the block's problems; None if the source run did not store rollouts."""
    problems_without_rows: Mapping[str, Any]
    """Shard metadata about problems that have no labels."""


class RewrittenRun:
    """A new run that is written from the blocks of a source run."""

    def __init__(
        self, source: Store, target: Store, provenance: Mapping[str, Any], *, action: str
    ) -> None:
        """Determine which blocks the new run still lacks.

        Args:
            source: store of the source run, which is only read.
            target: store of the new run, whose manifest is already claimed.
            provenance: metadata of every shard, including the `config`.
            action: name of the operation. It is hashed into the ids of the new blocks.

        Raises:
            ShardError: the source holds no labels, or lacks a block that it once had.
        """
        self._catalog = read_catalog(source)
        if not self._catalog.blocks:
            raise make_no_labels_error(source)
        self._source, self._target = source, target
        self._provenance, self._action = provenance, action
        self._done = read_committed_block_ids(target, require_complete=False)
        self._copied: set[str] = set()
        self.num_blocks = len(self._catalog.blocks)
        self.num_resumed = sum(
            self._make_new_block_id(block) in self._done for block in self._catalog.blocks
        )

    def iter_missing_blocks(
        self,
        on_progress: Callable[[int, int], None],
        on_table: Callable[[pa.Table], None] = lambda _: None,
    ) -> Iterator[SourceBlock]:
        """Yield the blocks that are not written yet.

        Args:
            on_progress: called with the numbers of finished and of all blocks.
            on_table: called with the labels of every shard of the source.
        """
        finished = self.num_resumed
        for block in _read_source_blocks(
            self._source,
            self._catalog,
            lambda block_id: self._make_new_block_id(block_id) not in self._done,
            on_table,
        ):
            yield block
            finished += 1
            on_progress(finished, self.num_blocks)

    def commit(
        self,
        block: SourceBlock,
        labeled: Sequence[LabeledSolution],
        rollouts: Sequence[Rollout] | None,
    ) -> None:
        """Write a block to the new run.

        Args:
            block: block of the source run.
            labeled: new labelled solutions of the block.
            rollouts: rollouts on which the labels are based; None to store none.
        """
        commit_block(
            self._target,
            self._make_new_block_id(block.id),
            uuid.uuid4().hex[:12],
            labeled,
            rollouts,
            self._provenance,
            ungraded=count_ungraded_reasons(rollouts or ()),
            num_weak_verdicts=count_weak_verdicts(rollouts or ()),
            **block.problems_without_rows,
        )

    def finish(self) -> None:
        """Write the files that complete the new run: its rejects and the completion marker."""
        delete_uncommitted_shards(self._target)
        files = (REJECTS,) if write_rejects(self._target, read_rejects(self._source)) else ()
        write_completion_marker(self._target, num_blocks=self.num_blocks, files=files)

    def copy_priors(self, block: SourceBlock) -> None:
        """Copy the priors on which the labels of a block rest to the new run."""
        for identity in {row.priors for row in block.rows if row.priors is not None}:
            if identity not in self._copied:
                self.copy_and_read_priors(identity)
                self._copied.add(identity)

    def copy_and_read_priors(self, identity: str) -> str:
        """Copy priors of the source run to the new run, and return their content.

        Args:
            identity: id of the priors that the source's estimator had learned.

        Raises:
            DamagedFile: the priors are missing or damaged.
        """
        content = read_priors(self._source, identity)
        if content is None:
            raise make_missing_priors_error(self._source, identity)
        self._target.create(make_priors_file_name(identity), content)
        return content.decode()

    def _make_new_block_id(self, block: str) -> str:
        return content_id(self._action, block, self._provenance["config"])


def iter_source_blocks(source: Store) -> Iterator[SourceBlock]:
    """Return an iterator over all blocks of a run.

    Raises:
        ShardError: the run holds no labels.
    """
    catalog = read_catalog(source)
    if not catalog.blocks:
        raise make_no_labels_error(source)
    return _read_source_blocks(source, catalog, lambda block: True, lambda table: None)


def _read_source_blocks(
    source: Store,
    catalog: Catalog,
    is_wanted: Callable[[str], bool],
    on_table: Callable[[pa.Table], None],
) -> Iterator[SourceBlock]:
    for block in catalog.blocks:
        metadata, table = read_labels_shard(source, block)
        on_table(table)
        if not is_wanted(block):
            continue
        rows = list(
            map(parse_labeled_solution, catalog.drop_superseded_rows(block, table).to_pylist())
        )
        rollouts = _read_rollouts_by_problem(source, metadata)
        names = dict.fromkeys(row.problem.id for row in rows)
        yield SourceBlock(
            id=block,
            rows=rows,
            rollouts=None
            if rollouts is None
            else [rollout for name in names for rollout in rollouts.get(name, ())],
            problems_without_rows=catalog.problems_without_rows(block, metadata),
        )


def _read_rollouts_by_problem(
    source: Store, metadata: Mapping[str, Any]
) -> dict[str, list[Rollout]] | None:
    """Return the rollouts of a shard by problem id; None if rollouts were not stored."""
    if metadata["rollouts"] is None:
        return None
    by_problem: dict[str, list[Rollout]] = defaultdict(list)
    for row in read_shard_rollouts(source, metadata).to_pylist():
        by_problem[row["problem_id"]].append(parse_rollout(row))
    return by_problem


def read_recorded_config(source: Store) -> dict[str, Any]:
    """Return the settings that determine a labelling run's labels, from its manifest.

    Raises:
        ShardError: the run has no manifest.
    """
    config = read_manifest_config(source, MANIFEST)
    if config is None:
        raise ShardError(
            f"{source.location}: has no {MANIFEST}. Give the `out` of `mclabel label`. Imported "
            "labels cannot be used, because they have no rollouts"
        )
    return config


SUPERSEDED = "superseded"
"""Key in the configuration of the new run. Its value is a hash that identifies the superseded rows:
those of problems that a later block of the source run labelled again."""


def hash_superseded_rows(source: Store) -> dict[str, str]:
    """Return a hash of the run's superseded rows under the key `SUPERSEDED`; empty without any."""
    rows = sorted(
        (block, sorted(ids)) for block, ids in read_catalog(source).superseded_ids.items()
    )
    return {SUPERSEDED: content_id(rows)} if rows else {}


def begin_rewritten_run(
    run: str,
    out: str,
    semantic: Mapping[str, Any],
    *,
    action: str,
    may_change: Callable[[Store, Sequence[str]], bool] = lambda store, changed: False,
) -> tuple[Store, dict[str, Any]]:
    """Claim the output store of the new run, and return it with the metadata of its shards.

    Args:
        run: folder or URL of the source run.
        out: folder or URL of the new run.
        semantic: settings and hashes that determine the labels of the new run.
        action: participle that names the operation in messages, such as `graded again`.
        may_change: function that receives the store of `out` and the keys whose values differ, and
            returns whether the run may continue with the new values.

    Raises:
        ConfigError: `run` and `out` are the same folder or URL.
        ShardError: `out` holds another run.
    """
    if make_location_absolute(run) == make_location_absolute(out):
        raise ConfigError(f"-o {out}: must not be the run that is {action}. Give another folder")
    target = RunOutput.inspect(out)
    target.check_config(SemanticConfig.from_config(semantic), may_change)
    shard_metadata = target.shard_metadata(versions=collect_package_versions())
    return target.claim(shard_metadata), shard_metadata


def check_rollouts_kept(run: str, block: SourceBlock, action: str) -> None:
    """Check that the rollouts of a block were stored if its labels are based on rollouts.

    Args:
        run: folder or URL of the run, for the message.
        block: block of the run.
        action: participle that names the operation in the message, such as `graded again`.

    Raises:
        DataError: the rollouts were not stored.
    """
    all_counts = (c for row in block.rows for c in (row.root, *(s.counts for s in row.steps)))
    if block.rollouts is None and any(counts.num_rollouts for counts in all_counts):
        raise DataError(
            f"{run}: was labelled with keep_rollouts=false, so it has no rollouts to be {action}. "
            "Label the problems again with keep_rollouts=true"
        )
