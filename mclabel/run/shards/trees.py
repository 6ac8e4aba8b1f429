"""Trees of searches, `trees/BLOCK.ATTEMPT.parquet`: one row per problem, pruned parts included.

A block's trees are written before its labels; the labels shard that wins names the attempt, and
trees of other attempts are never read.
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
from mclabel.run.shards.digest import parquet_with_digest
from mclabel.run.shards.labels import label_tables
from mclabel.run.shards.plan import planned_blocks
from mclabel.run.shards.shard import METADATA_KEY, read_stamped
from mclabel.run.shards.store import Store, damaged

FOLDER = "trees"
TASK = "search"
"""Name of the task in the manifest of a search."""
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class StoredNode:
    """A beginning of a solution that was sampled, without what it continues."""

    id: str
    parent: str
    """Id of the node that it continues; empty for the bare problem."""
    depth: Count
    """Steps from the beginning of the solution."""
    num_tokens: Count
    """Tokens from the beginning of the solution."""
    steps: tuple[str, ...]
    """Texts of the steps that it adds."""
    scores: tuple[float, ...]
    """A score for each step from the beginning of the solution; empty where it was not scored."""
    count: Count
    """Number of times that it was sampled."""
    num_sampled: Count
    """Tokens sampled for it, all times together."""
    is_finished: bool
    is_cut: bool
    """True if there was no room left to go on."""
    weight: Amount | None = None
    """Weight of a result in a vote; None for a beginning that was given up."""
    score: float | None = None
    """Scores of a result, joined to one number."""
    outcome: Literal["right", "wrong", "ungraded"] | None = None
    """Grade of a result."""
    prediction: str | None = None
    """Answer that was read out of a result."""
    group: int | None = None
    """Number of a result that equivalent answers to the problem share."""


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
    """Number of completions requested of the engine."""
    num_scored: Count = 0
    """Tokens that the scorer computed, prompts included."""
    num_score_cached: Count = 0
    """Tokens that the scorer reused from its cache."""


@dataclass(frozen=True, kw_only=True)
class StoredTree:
    """The search of one problem."""

    problem_id: str
    problem: str
    answer: str
    meta: Mapping[str, str]
    nodes: tuple[StoredNode, ...]
    """Parents before children."""
    chosen: str | None
    """Id of the solution that is the result; None where none was finished."""
    is_spent: bool
    """True if the limit of tokens ended the search."""
    cost: StoredCost

    @property
    def results(self) -> list[StoredNode]:
        """The finished solutions that count."""
        return [node for node in self.nodes if node.weight is not None]

    def choice(self) -> dict[str, Any]:
        """The chosen answer, as a row of `answers.jsonl`."""
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
    def is_right(self) -> bool:
        """Return whether the chosen solution has the right answer."""
        return any(node.id == self.chosen and node.outcome == "right" for node in self.nodes)


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_NODE = pa.struct(
    [
        _required("id", pa.string()),
        _required("parent", pa.string()),
        _required("depth", pa.int32()),
        _required("num_tokens", pa.int32()),
        _required("steps", pa.list_(pa.string())),
        _required("scores", pa.list_(pa.float64())),
        _required("count", pa.int32()),
        _required("num_sampled", pa.int32()),
        _required("is_finished", pa.bool_()),
        _required("is_cut", pa.bool_()),
        pa.field("weight", pa.float64()),
        pa.field("score", pa.float64()),
        pa.field("outcome", pa.string()),
        pa.field("prediction", pa.string()),
        pa.field("group", pa.int32()),
    ]
)
TREES_SCHEMA = pa.schema(
    [
        _required("problem_id", pa.string()),
        _required("problem", pa.string()),
        _required("answer", pa.string()),
        _required("meta", pa.string()),
        _required("nodes", pa.list_(_NODE)),
        pa.field("chosen", pa.string()),
        _required("is_spent", pa.bool_()),
        _required(
            "cost", pa.struct([_required(field.name, pa.int64()) for field in fields(StoredCost)])
        ),
    ]
)
"""The columns of a file of trees; `meta` is a JSON object."""


def write_trees(
    store: Store,
    block_id: str,
    attempt: str,
    trees: Sequence[StoredTree],
    metadata: Mapping[str, Any],
) -> None:
    """Write the trees of a block, before its labels.

    Args:
        store: the run's store.
        block_id: id of the block.
        attempt: unique to this attempt at it.
        trees: one a problem.
        metadata: JSON-serialisable.
    """
    rows = [{**asdict(tree), "meta": json.dumps(dict(tree.meta))} for tree in trees]
    stamp = json.dumps({**metadata, "version": VERSION, "block": block_id, "attempt": attempt})
    table = pa.Table.from_pylist(rows, schema=TREES_SCHEMA)
    table = table.replace_schema_metadata({METADATA_KEY: stamp.encode()})
    store.create(tree_file(block_id, attempt), parquet_with_digest(table, compression="zstd"))


def delete_trees(store: Store, block_id: str, attempt: str) -> None:
    """Remove the trees of an attempt that has lost."""
    store.delete(tree_file(block_id, attempt))


def sweep_trees(store: Store) -> None:
    """Remove the trees of all attempts that have lost; called while none is under way."""
    if not store.names(FOLDER):
        return
    kept = {tree_file(*place) for place in committed_trees(store, must_be_whole=False)}
    for name in set(store.names(FOLDER)) - kept:
        store.delete(name)


def has_trees(store: Store) -> bool:
    """Return whether a run holds trees."""
    return bool(store.names(FOLDER))


def is_search(config: Any) -> bool:
    """Return whether a configuration is of a search, not of a run made from its labels.

    Args:
        config: configuration in a manifest or a labels shard; None where it carries none.
    """
    made_from_labels = ("regraded", "combined")
    return (
        isinstance(config, Mapping)
        and config.get("task") == TASK
        and not any(key in config for key in made_from_labels)
    )


def read_trees(store: Store, *, must_be_whole: bool = True) -> Iterator[StoredTree]:
    """Read the searches of all committed problems of a run.

    Args:
        store: the run's store.
        must_be_whole: see `read_catalog`.

    Raises:
        ShardError: it is no run of a search.
        DamagedFile: a file is missing or damaged; says what to do.
    """
    if not has_trees(store):
        raise ShardError(
            f"{store.location}: holds no trees/*.parquet. Give the `out` of `mclabel search`"
        )
    plan = planned_blocks(store)
    for block, attempt in committed_trees(store, must_be_whole=must_be_whole):
        left_out = frozenset() if plan is None else plan.superseded.get(block, frozenset())
        yield from (
            tree for tree in read_block(store, block, attempt) if tree.problem_id not in left_out
        )


def read_block(store: Store, block_id: str, attempt: str) -> list[StoredTree]:
    """Return the trees of one block.

    Raises:
        DamagedFile: the file is missing, damaged or another block's; says what to do.
    """
    name = tree_file(block_id, attempt)
    stamp, table = read_stamped(store, name, TREES_SCHEMA)
    try:
        if (version := stamp["version"]) != VERSION:
            raise ValueError(f"has version {version}, this mclabel reads {VERSION}")
        if (own := (stamp["block"], stamp["attempt"])) != (block_id, attempt):
            raise ValueError(f"it is {tree_file(*own)}, put in the place of this file")
        return [
            read_record(StoredTree, {**row, "meta": json.loads(row["meta"])})
            for row in table.to_pylist()
        ]
    except (ValueError, LookupError) as error:
        raise damaged(store, name, f"damaged, or not a file of trees ({error})") from error


def committed_trees(store: Store, *, must_be_whole: bool) -> Iterator[tuple[str, str]]:
    """Yield the blocks whose labels are there, and the attempts that won."""
    if blocks := read_catalog(store, must_be_whole=must_be_whole).blocks:
        for metadata, _ in label_tables(store, blocks):
            yield metadata["block"], metadata["attempt"]


def tree_file(block_id: str, attempt: str) -> str:
    """Name of the file with the trees of an attempt at a block."""
    return f"{FOLDER}/{block_id}.{attempt}.parquet"
