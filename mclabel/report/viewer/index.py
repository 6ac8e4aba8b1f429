"""An index of labelling runs for looking at them: a temporary DuckDB file beside the shards.

The shards stay the truth: the index holds what is filtered, sorted, searched and listed, and where
each solution lies. It follows a run that is still being written: `refresh` adds the shards that it
does not know yet.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from mclabel.core.errors import ShardError
from mclabel.core.records import Outcome
from mclabel.domains.registry import carries_truth, true_first_error
from mclabel.evaluate.grouping import GROUP_KEYS
from mclabel.run.kinds import Run
from mclabel.run.shards.catalog import Catalog, read_catalog
from mclabel.run.shards.shard import read_shard
from mclabel.show.texts import answer_kind

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


MEMORY = "128MB"
THREADS = 2
SHARDS_A_BATCH = 32
ROWS_A_BATCH = 4096


class _Shard(NamedTuple):
    """A labels shard that was read, and the blocks in it that were new."""

    run: int
    name: str
    rollouts: str | None
    blocks: tuple[str, ...]


class Index:
    """Solutions of one or more runs, for any number of threads."""

    def __init__(self, runs: Sequence[Run]) -> None:
        """Make an empty index; `refresh` fills it.

        Args:
            runs: labelling runs.
        """
        import duckdb

        self.runs = list(runs)
        self._folder = tempfile.mkdtemp(prefix="mclabel-view-")
        self._database = duckdb.connect(
            str(Path(self._folder) / "index.duckdb"),
            config={
                "memory_limit": MEMORY,
                "threads": THREADS,
                "temp_directory": str(Path(self._folder) / "spill"),
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            },
        )
        self._database.execute("SET enable_external_access = false")
        self._database.execute(TABLES)
        self._local = threading.local()
        self._writing = threading.Lock()
        self._known: set[tuple[int, str]] = set()  # number of the run, and block
        self._superseded: list[Mapping[str, frozenset[str]]] = [{} for _ in self.runs]
        self._num_rows = 0
        self.num_pending = 0
        """Shards that were seen and are not in the index yet."""
        self.version = 0
        """Rises with every change."""

    def close(self) -> None:
        """Remove the index."""
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def refresh(self) -> bool:
        """Add the shards that have been committed since; whether there were any.

        Raises:
            ShardError: a shard is torn or of another version.
        """
        import pyarrow as pa

        with self._writing:
            catalogs = [read_catalog(run.store) for run in self.runs]
            fresh = [
                (number, name, new)
                for number, catalog in enumerate(catalogs)
                for name, blocks in sorted(catalog.by_file().items())
                if (new := [block for block in blocks if (number, block) not in self._known])
            ]
            dropped = [self._drop(number, catalog) for number, catalog in enumerate(catalogs)]
            self.num_pending = len(fresh)
            stores = [run.store for run in self.runs]
            batch: list[pa.Table] = []
            shards: list[_Shard] = []
            for number, name, blocks in fresh:
                metadata, table = read_shard(stores[number], name, "labels")
                table = table.append_column("row", pa.array(range(len(table)), pa.uint32()))
                parts = [
                    part.append_column("block", pa.array([block] * len(part), pa.string()))
                    for block, part in zip(
                        blocks,
                        catalogs[number].parts(stores[number], name, blocks, metadata, table),
                        strict=True,
                    )
                ]
                table = pa.concat_tables(parts)
                batch.append(prepared(table, number, name))
                shards.append(_Shard(number, name, metadata["rollouts"], tuple(blocks)))
                rows = sum(part.num_rows for part in batch)
                if len(batch) == SHARDS_A_BATCH or rows >= ROWS_A_BATCH:
                    self._insert(batch, shards)
                    batch, shards = [], []
            if batch:
                self._insert(batch, shards)
            changed = bool(fresh) or any(dropped)
            if changed and len(self.runs) > 1:
                self._compare()
            return changed

    def query(
        self, sql: str, arguments: Sequence[Any] = (), *, asked: pa.Table | None = None
    ) -> list[dict[str, Any]]:
        """Rows by column name.

        Args:
            sql: what to ask.
            arguments: arguments of its question marks.
            asked: a table that `sql` knows by this name.
        """
        cursor = self._cursor()
        if asked is not None:
            cursor.register("asked", asked)
        try:
            answer = cursor.execute(sql, list(arguments))
            names = [column[0] for column in answer.description or ()]
            return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
        finally:
            if asked is not None:
                cursor.unregister("asked")

    def column(self, sql: str, arguments: Sequence[Any] = ()) -> Any:
        """The first column of the rows, as an array."""
        columns = self._cursor().execute(sql, list(arguments)).fetchnumpy()
        return next(iter(columns.values()))

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        if not hasattr(self._local, "cursor"):
            self._local.cursor = self._database.cursor()
        cursor: duckdb.DuckDBPyConnection = self._local.cursor
        return cursor

    def _insert(self, batch: Sequence[pa.Table], shards: Sequence[_Shard]) -> None:
        import pyarrow as pa

        cursor = self._cursor()
        incoming = pa.concat_tables(batch)
        cursor.register("incoming", incoming)
        cursor.execute("BEGIN")
        cursor.execute(INSERT, [self._num_rows])
        rows = [(shard.run, shard.name, shard.rollouts) for shard in shards]
        cursor.executemany("INSERT INTO shards VALUES (?, ?, ?)", rows)
        cursor.execute("COMMIT")
        cursor.unregister("incoming")
        self._num_rows += incoming.num_rows
        self._known |= {(shard.run, block) for shard in shards for block in shard.blocks}
        self.num_pending -= len(shards)
        self.version += 1

    def _drop(self, run: int, catalog: Catalog) -> bool:
        """Remove rows that a run's plan has superseded since; whether there were any."""
        before, self._superseded[run] = self._superseded[run], catalog.superseded
        fresh = [
            (run, block, problem_id)
            for block, ids in catalog.superseded.items()
            if (run, block) in self._known
            for problem_id in ids - before.get(block, frozenset())
        ]
        if fresh:
            self._cursor().executemany(
                "DELETE FROM solutions WHERE run = ? AND block = ? AND problem_id = ?", fresh
            )
            self.version += 1
        return bool(fresh)

    def _compare(self) -> None:
        """Find the solutions whose first error another run labels elsewhere; both are decided."""
        cursor = self._cursor()
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM differing")
        cursor.execute(
            """
            INSERT INTO differing
            SELECT one.id FROM solutions one JOIN (
                SELECT key FROM solutions WHERE decided GROUP BY key
                HAVING count(DISTINCT coalesce(first_error, -1)) > 1 AND count(DISTINCT run) > 1
            ) USING (key) WHERE one.decided
            """
        )
        cursor.execute("COMMIT")
        self.version += 1


# Keeps an index up to date with runs that are still being written.

EVERY_S = 2.0


class Follower:
    """A thread that looks for new shards."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follow", daemon=True)
        self.fault: str | None = None
        """Why the runs can no longer be followed."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, when the shard being read is read."""
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                self._index.refresh()
                self.fault = None
            except (ShardError, OSError, duckdb.Error) as error:
                self.fault = str(error)
            self._ended.wait(EVERY_S)


MAX_LISTED = 280
"""Characters of a problem in the list."""
MAX_ANSWER = 80
MAX_SEARCHED = 20_000
"""Characters of a problem and of a solution that the search sees."""
MAX_FACET = 60
"""Characters of a field of the problems' metadata that can be filtered by."""
NUM_BINS = 10
BINS = tuple(f"bin{number}" for number in range(NUM_BINS))
"""Columns: how many steps of a solution but the last have a value in each tenth. Counted once, so
that a chart over any number of solutions, however long, adds up so many numbers of each."""

TABLES = f"""
CREATE TABLE solutions (
    id INTEGER, run UTINYINT, shard VARCHAR, block VARCHAR, row UINTEGER, solution_id VARCHAR,
    problem_id VARCHAR, sample_index INTEGER, problem VARCHAR, answer VARCHAR, prediction VARCHAR,
    outcome VARCHAR, first_error INTEGER, decided BOOLEAN, truth INTEGER, has_truth BOOLEAN,
    num_steps INTEGER, vals FLOAT[], hard TINYINT[], width FLOAT, fall FLOAT, num_rollouts INTEGER,
    num_truncated INTEGER, num_ungraded INTEGER, num_tokens BIGINT, key UBIGINT,
    answer_type VARCHAR, family VARCHAR, level VARCHAR, subject VARCHAR, kept BOOLEAN,
    search VARCHAR,
    {", ".join(f"{name} UINTEGER" for name in BINS)}
);
CREATE TABLE shards (run UTINYINT, name VARCHAR, rollouts VARCHAR);
CREATE TABLE differing (id INTEGER);
"""

_DECIDED = f"""
outcome IN ('{Outcome.RIGHT}', '{Outcome.WRONG}') AND len(steps) > 0 AND (first_error IS NOT NULL
    OR len(list_filter(steps[:-2], lambda s: s.hard IS NOT TRUE)) = 0)
"""
"""`LabeledSolution.is_decided` in SQL, over the columns of a labels shard."""

INSERT = f"""
INSERT INTO solutions
SELECT ? + row_number() OVER () - 1, run, shard, block, row, solution_id, problem_id, sample_index,
    left(problem, {MAX_LISTED}), left(answer, {MAX_ANSWER}), left(prediction, {MAX_ANSWER}),
    outcome, first_error, {_DECIDED}, truth, has_truth, len(steps),
    list_transform(steps, lambda s: coalesce(s.value, s.mean)::FLOAT),
    list_transform(steps, lambda s: s.hard::TINYINT),
    list_max(list_transform(steps, lambda s: s.high - s.low)),
    list_max(list_transform(generate_series(2, len(steps)),
        lambda i: coalesce(steps[i - 1].value, steps[i - 1].mean)
            - coalesce(steps[i].value, steps[i].mean))),
    list_sum(list_transform(steps,
        lambda s: s.num_right + s.num_wrong + s.num_truncated + s.num_ungraded)),
    list_sum(list_transform(steps, lambda s: s.num_truncated)),
    list_sum(list_transform(steps, lambda s: s.num_ungraded)),
    list_sum(list_transform(steps, lambda s: s.num_tokens)),
    hash(problem, solution), answer_type, family, level, subject, kept,
    lower(concat_ws(chr(10), problem_id, solution_id, answer, left(problem, {MAX_SEARCHED}),
        left(solution, {MAX_SEARCHED}))),
    {", ".join(f"list_count(list_filter(tenths, lambda t: t = {n}))" for n in range(NUM_BINS))}
FROM (
    SELECT *, list_transform(
        list_filter(
            list_transform(steps[:-2], lambda s: coalesce(s.value, s.mean)),
            lambda v: v IS NOT NULL),
        lambda v: least(floor(v * {NUM_BINS}), {NUM_BINS - 1})) AS tenths
    FROM incoming
)
"""

COLUMNS = (
    "solution_id",
    "problem_id",
    "sample_index",
    "problem",
    "answer",
    "prediction",
    "outcome",
    "first_error",
    "steps",
    "solution",
    "meta",
    "row",
    "block",
)


def prepared(table: pa.Table, run: int, shard: str) -> pa.Table:
    """Return what the index takes of a shard, with the truth where it can be computed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    meta = [json.loads(text) for text in table.column("meta").to_pylist()]
    answers = table.column("answer").to_pylist()
    have_truth = [carries_truth(fields) for fields in meta]
    truths = [
        true_first_error(fields, [step["text"] for step in steps]) if knows else None
        for knows, fields, steps in zip(
            have_truth, meta, table.column("steps").to_pylist(), strict=True
        )
    ]
    columns = {
        "run": pa.array([run] * table.num_rows, pa.uint8()),
        "shard": pa.array([shard] * table.num_rows, pa.string()),
        "truth": pa.array(truths, pa.int32()),
        "has_truth": pa.array(have_truth, pa.bool_()),
        "kept": pc.struct_field(table.column("consensus"), "kept"),
        **{
            name: pa.array(
                [fields.get(name, "")[:MAX_FACET] or None for fields in meta], pa.string()
            )
            for name in GROUP_KEYS
        },
    }
    columns["answer_type"] = pa.array(
        [
            fields.get("answer_type", "")[:MAX_FACET] or answer_kind(answer)
            for fields, answer in zip(meta, answers, strict=True)
        ],
        pa.string(),
    )
    kept = table.select([name for name in COLUMNS if name != "meta"])
    kept = kept.replace_schema_metadata()
    for name, column in columns.items():
        kept = kept.append_column(name, column)
    return kept
