"""Reads and writes search trees, `trees/BLOCK.ATTEMPT.parquet`: one row per problem, with all
nodes.

A block's trees are written before its labels. The committed labels shard names the attempt that
wrote it, and trees of other attempts are never read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import pyarrow as pa

from mclabel.core.errors import ShardError
from mclabel.core.settings import Amount, Count, read_record
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.digest import encode_parquet_with_digest
from mclabel.run.shards.labels import iter_label_tables
from mclabel.run.shards.plan import read_planned_blocks
from mclabel.run.shards.shard import METADATA_KEY, read_table_with_digest
from mclabel.run.shards.store import Store, make_damaged_file_error

FOLDER = "trees"
TASK = "search"
"""Name of the task in the manifest of a search."""
VERSION = 1
"""Version of the files; no other version can be read."""


@dataclass(frozen=True, kw_only=True)
class StoredNode:
    """A node of a search tree: a prefix of a solution, or a finished solution.

    A node stores only the steps that it adds to its parent node. A result is a finished solution
    that takes part in the vote for the final answer.
    """

    id: str
    parent: str
    """Id of the parent node; empty if the node begins a solution."""
    depth: Count
    """Number of steps from the beginning of the solution."""
    num_tokens: Count
    """Number of tokens from the beginning of the solution."""
    steps: tuple[str, ...]
    """Texts of the steps that the node adds to its parent."""
    scores: tuple[float, ...]
    """One score per step from the beginning of the solution; empty if the node was not scored."""
    count: Count
    """Number of times that the node was sampled."""
    num_sampled: Count
    """Number of tokens sampled for the node, summed over all `count` samples."""
    is_finished: bool
    """True if the node is a finished solution, False if it is a prefix."""
    is_cut: bool
    """True if a token limit was reached before the policy ended the solution."""
    weight: Amount | None = None
    """Weight of a result in the vote; None for other nodes."""
    score: float | None = None
    """Score of a result, aggregated over its steps; None for other nodes."""
    outcome: Literal["right", "wrong", "ungraded"] | None = None
    """Verdict on the answer of a result; None for other nodes."""
    prediction: str | None = None
    """Answer that was extracted from a result; None for other nodes, or if none was found."""
    group: int | None = None
    """Number of the group of results with equivalent answers to which a result belongs; None for
    other nodes."""


@dataclass(frozen=True, kw_only=True)
class StoredCost:
    """Cost of the search of one problem, including pruned and repeated work."""

    num_prompt: Count = 0
    """Tokens of the prompt."""
    num_sampled: Count = 0
    """Tokens that the policy sampled, end tokens included."""
    num_pruned: Count = 0
    """Sampled tokens that are in no finished solution."""
    num_repeated: Count = 0
    """Sampled tokens of prefixes that had been sampled before, token for token."""
    num_replayed: Count = 0
    """Sampled tokens that were reused from the journal of a killed attempt."""
    num_requests: Count = 0
    """Number of completions that were requested from the engine."""
    num_scored: Count = 0
    """Tokens that the scorer computed, prompts included."""
    num_score_cached: Count = 0
    """Tokens that the scorer reused from its cache."""


@dataclass(frozen=True, kw_only=True)
class StoredTree:
    """The search tree of one problem."""

    problem_id: str
    problem: str
    answer: str
    meta: Mapping[str, str]
    nodes: tuple[StoredNode, ...]
    """All nodes; every parent comes before its children."""
    chosen: str | None
    """Id of the node of the chosen solution; None if no solution was finished."""
    is_spent: bool
    """True if the search ended because its limit of tokens was reached."""
    cost: StoredCost

    @property
    def results(self) -> list[StoredNode]:
        """Finished solutions that take part in the vote."""
        return [node for node in self.nodes if node.weight is not None]

    def chosen_answer_row(self) -> dict[str, Any]:
        """Return the chosen answer as a row of `answers.jsonl`."""
        result = next((node for node in self.results if node.id == self.chosen), None)
        weights = [(node.group, node.weight or 0.0) for node in self.results]
        return {
            "problem_id": self.problem_id,
            "problem": self.problem,
            "answer": None if result is None else result.prediction,
            "score": None if result is None else result.score,
            "votes": 0.0
            if result is None
            else sum(weight for group, weight in weights if group == result.group),
            "of_votes": sum(weight for _, weight in weights),
            "outcome": result.outcome if result is not None and self.answer else None,
        }

    @property
    def is_chosen_right(self) -> bool:
        """Return whether the chosen solution has the right answer; False if no solution was
        chosen.
        """
        return any(node.id == self.chosen and node.outcome == "right" for node in self.nodes)


def _make_required_field(name: str, arrow_type: pa.DataType) -> pa.Field:
    return pa.field(name, arrow_type, nullable=False)


_NODE = pa.struct(
    [
        _make_required_field("id", pa.string()),
        _make_required_field("parent", pa.string()),
        _make_required_field("depth", pa.int32()),
        _make_required_field("num_tokens", pa.int32()),
        _make_required_field("steps", pa.list_(pa.string())),
        _make_required_field("scores", pa.list_(pa.float64())),
        _make_required_field("count", pa.int32()),
        _make_required_field("num_sampled", pa.int32()),
        _make_required_field("is_finished", pa.bool_()),
        _make_required_field("is_cut", pa.bool_()),
        pa.field("weight", pa.float64()),
        pa.field("score", pa.float64()),
        pa.field("outcome", pa.string()),
        pa.field("prediction", pa.string()),
        pa.field("group", pa.int32()),
    ]
)
TREES_SCHEMA = pa.schema(
    [
        _make_required_field("problem_id", pa.string()),
        _make_required_field("problem", pa.string()),
        _make_required_field("answer", pa.string()),
        _make_required_field("meta", pa.string()),
        _make_required_field("nodes", pa.list_(_NODE)),
        pa.field("chosen", pa.string()),
        _make_required_field("is_spent", pa.bool_()),
        _make_required_field(
            "cost",
            pa.struct(
                [_make_required_field(field.name, pa.int64()) for field in fields(StoredCost)]
            ),
        ),
    ]
)
"""Columns of a file of trees; `meta` is a JSON object."""


def write_trees(
    store: Store,
    block_id: str,
    attempt: str,
    trees: Sequence[StoredTree],
    metadata: Mapping[str, Any],
) -> None:
    """Write the trees of a block, which has to be done before its labels are written.

    Args:
        store: the run's store.
        block_id: id of the block.
        attempt: unique id of this attempt at the block.
        trees: one tree per problem.
        metadata: JSON-serialisable metadata.
    """
    rows = [{**asdict(tree), "meta": json.dumps(dict(tree.meta))} for tree in trees]
    stored = json.dumps({**metadata, "version": VERSION, "block": block_id, "attempt": attempt})
    table = pa.Table.from_pylist(rows, schema=TREES_SCHEMA)
    table = table.replace_schema_metadata({METADATA_KEY: stored.encode()})
    store.create(
        make_tree_file_name(block_id, attempt),
        encode_parquet_with_digest(table, compression="zstd"),
    )


def delete_trees(store: Store, block_id: str, attempt: str) -> None:
    """Delete the trees of an attempt that was not committed."""
    store.delete(make_tree_file_name(block_id, attempt))


def delete_uncommitted_trees(store: Store) -> None:
    """Delete the trees of all attempts that were not committed.

    It must be called only while no attempt is running.
    """
    if not store.names(FOLDER):
        return
    kept = {
        make_tree_file_name(*place)
        for place in iter_committed_attempts(store, require_complete=False)
    }
    for name in set(store.names(FOLDER)) - kept:
        store.delete(name)


def has_trees(store: Store) -> bool:
    """Return whether a run has files of trees."""
    return bool(store.names(FOLDER))


def is_search_config(config: Any) -> bool:
    """Return whether a configuration is that of a search.

    A run that was regraded or combined from a search's labels is not a search.

    Args:
        config: configuration in a manifest or a labels shard; None if there is none.
    """
    made_from_labels = ("regraded", "combined")
    return (
        isinstance(config, Mapping)
        and config.get("task") == TASK
        and not any(key in config for key in made_from_labels)
    )


def read_trees(store: Store, *, require_complete: bool = True) -> Iterator[StoredTree]:
    """Yield the search tree of each committed problem of a run.

    Args:
        store: the run's store.
        require_complete: True raises an error if a block that was once committed is missing.

    Raises:
        ShardError: the run is not a search.
        DamagedFile: a file is missing or damaged. The error names the remedy.
    """
    if not has_trees(store):
        raise ShardError(
            f"{store.location}: holds no trees/*.parquet. Give the `out` of `mclabel search`"
        )
    plan = read_planned_blocks(store)
    for block, attempt in iter_committed_attempts(store, require_complete=require_complete):
        left_out = frozenset() if plan is None else plan.superseded_ids.get(block, frozenset())
        yield from (
            tree
            for tree in read_block_trees(store, block, attempt)
            if tree.problem_id not in left_out
        )


def read_block_trees(store: Store, block_id: str, attempt: str) -> list[StoredTree]:
    """Return the trees of one block.

    Raises:
        DamagedFile: the file is missing or damaged, or belongs to another block. The error names
            the remedy.
    """
    name = make_tree_file_name(block_id, attempt)
    metadata, table = read_table_with_digest(store, name, TREES_SCHEMA)
    try:
        if (version := metadata["version"]) != VERSION:
            raise ValueError(f"has version {version}, this mclabel reads {VERSION}")
        if (own := (metadata["block"], metadata["attempt"])) != (block_id, attempt):
            raise ValueError(f"its content is that of {make_tree_file_name(*own)}")
        return [
            read_record(StoredTree, {**row, "meta": json.loads(row["meta"])})
            for row in table.to_pylist()
        ]
    except (ValueError, LookupError) as error:
        raise make_damaged_file_error(
            store, name, f"damaged, or not a file of trees ({error})"
        ) from error


def iter_committed_attempts(store: Store, *, require_complete: bool) -> Iterator[tuple[str, str]]:
    """Yield the id of each committed block, and of the attempt that committed it."""
    if blocks := read_catalog(store, require_complete=require_complete).blocks:
        for metadata, _ in iter_label_tables(store, blocks):
            yield metadata["block"], metadata["attempt"]


def make_tree_file_name(block_id: str, attempt: str) -> str:
    """Return the name of the file that holds the trees of an attempt at a block."""
    return f"{FOLDER}/{block_id}.{attempt}.parquet"
