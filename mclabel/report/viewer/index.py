"""The viewer's index of labelling runs, in a temporary DuckDB file.

The index contains the columns for filtering, sorting, searching and listing, and the block and row
of each solution. All other data is read from the shards. `refresh` adds the new shards of a run
that is still being written.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.errors import ShardError
from mclabel.core.records import Outcome
from mclabel.domains.registry import find_true_first_error, has_known_truth
from mclabel.evaluate.grouping import GROUP_KEYS
from mclabel.run.kinds import Run
from mclabel.run.shards.catalog import Catalog, read_catalog, read_labels_shard
from mclabel.show.texts import find_answer_kind

MAX_MEMORY = "128MB"
"""Maximum memory of DuckDB."""
MAX_THREADS = 2
"""Maximum number of threads of DuckDB."""
MAX_BATCH_SHARDS = 32
"""Maximum number of shards that are added to the index at once."""
MAX_BATCH_ROWS = 4096
"""Number of rows from which a batch is added even if it has fewer than MAX_BATCH_SHARDS shards."""


class _NewShard(NamedTuple):
    """The labels shard of a block that the index did not have."""

    run: int
    block: str
    rollouts: str | None


class Index:
    """Thread-safe index of the solutions of one or more runs."""

    def __init__(self, runs: Sequence[Run]) -> None:
        """Create an empty index; `refresh` fills it.

        Args:
            runs: labelling runs.
        """
        self.runs = list(runs)
        self._folder = tempfile.mkdtemp(prefix="mclabel-view-")
        self._database = duckdb.connect(
            str(Path(self._folder) / "index.duckdb"),
            config={
                "memory_limit": MAX_MEMORY,
                "threads": MAX_THREADS,
                "temp_directory": str(Path(self._folder) / "spill"),
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            },
        )
        self._database.execute("SET enable_external_access = false")
        self._database.execute(CREATE_TABLES)
        self._thread_local = threading.local()
        self._write_lock = threading.Lock()
        self._indexed_blocks: set[tuple[int, str]] = set()
        """0-based run and block of all indexed rows."""
        self._superseded: list[Mapping[str, frozenset[str]]] = [{} for _ in self.runs]
        self._num_rows = 0
        self.num_pending = 0
        """Number of committed shards that were found but are not in the index yet."""
        self.version = 0
        """Version of the index's content; it increases with every change."""

    def close(self) -> None:
        """Close the database and delete its files."""
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def refresh(self) -> bool:
        """Add the shards that were committed since the last call, and remove superseded rows.

        Returns:
            True if the index changed.

        Raises:
            ShardError: a shard is damaged, or was written by another version.
        """
        with self._write_lock:
            catalogs = [read_catalog(run.store) for run in self.runs]
            new_shards = [
                (number, block)
                for number, catalog in enumerate(catalogs)
                for block in catalog.blocks
                if (number, block) not in self._indexed_blocks
            ]
            drops = [
                self._drop_superseded_shards(number, catalog)
                for number, catalog in enumerate(catalogs)
            ]
            self.num_pending = len(new_shards)
            batch: list[pa.Table] = []
            shards: list[_NewShard] = []
            for number, block in new_shards:
                metadata, table = read_labels_shard(self.runs[number].store, block)
                table = table.append_column("row", pa.array(range(len(table)), pa.uint32()))
                table = catalogs[number].drop_superseded_rows(block, table)
                batch.append(build_index_columns(table, number, block))
                shards.append(_NewShard(number, block, metadata["rollouts"]))
                num_rows = sum(table.num_rows for table in batch)
                if len(batch) == MAX_BATCH_SHARDS or num_rows >= MAX_BATCH_ROWS:
                    self._insert_shards(batch, shards)
                    batch, shards = [], []
            if batch:
                self._insert_shards(batch, shards)
            changed = bool(new_shards) or any(drops)
            if changed and len(self.runs) > 1:
                self._record_solutions_that_differ()
            return changed

    def query(
        self, sql: str, arguments: Sequence[Any] = (), *, matching: pa.Table | None = None
    ) -> list[dict[str, Any]]:
        """Run a query, and return its rows as values by column name.

        Args:
            sql: SQL query.
            arguments: values for the placeholders `?` of the query.
            matching: table that the query can use as `matching`; None for none.
        """
        cursor = self._get_cursor()
        if matching is not None:
            cursor.register("matching", matching)
        try:
            result = cursor.execute(sql, list(arguments))
            names = [column[0] for column in result.description or ()]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
        finally:
            if matching is not None:
                cursor.unregister("matching")

    def column(self, sql: str, arguments: Sequence[Any] = ()) -> Any:
        """Run a query, and return the first column of its result as an array."""
        columns = self._get_cursor().execute(sql, list(arguments)).fetchnumpy()
        return next(iter(columns.values()))

    def _get_cursor(self) -> duckdb.DuckDBPyConnection:
        if not hasattr(self._thread_local, "cursor"):
            self._thread_local.cursor = self._database.cursor()
        cursor: duckdb.DuckDBPyConnection = self._thread_local.cursor
        return cursor

    def _insert_shards(self, batch: Sequence[pa.Table], shards: Sequence[_NewShard]) -> None:
        cursor = self._get_cursor()
        incoming = pa.concat_tables(batch)
        cursor.register("incoming", incoming)
        cursor.execute("BEGIN")
        cursor.execute(INSERT_ROWS, [self._num_rows])
        cursor.executemany("INSERT INTO shards VALUES (?, ?, ?)", shards)
        cursor.execute("COMMIT")
        cursor.unregister("incoming")
        self._num_rows += incoming.num_rows
        self._indexed_blocks |= {(shard.run, shard.block) for shard in shards}
        self.num_pending -= len(shards)
        self.version += 1

    def _drop_superseded_shards(self, run: int, catalog: Catalog) -> bool:
        """Remove rows of a run that newer rows have replaced; return True if there were any."""
        previously_superseded, self._superseded[run] = self._superseded[run], catalog.superseded_ids
        superseded_rows = [
            (run, block, problem_id)
            for block, ids in catalog.superseded_ids.items()
            if (run, block) in self._indexed_blocks
            for problem_id in ids - previously_superseded.get(block, frozenset())
        ]
        if superseded_rows:
            self._get_cursor().executemany(
                "DELETE FROM solutions WHERE run = ? AND block = ? AND problem_id = ?",
                superseded_rows,
            )
            self.version += 1
        return bool(superseded_rows)

    def _record_solutions_that_differ(self) -> None:
        """Record the solutions on whose first error decided labels of different runs differ."""
        cursor = self._get_cursor()
        cursor.execute("BEGIN")
        cursor.execute("DELETE FROM differing")
        cursor.execute(
            """
            INSERT INTO differing
            SELECT solution.id FROM solutions solution JOIN (
                SELECT key FROM solutions WHERE decided GROUP BY key
                HAVING count(DISTINCT coalesce(first_error, -1)) > 1 AND count(DISTINCT run) > 1
            ) USING (key) WHERE solution.decided
            """
        )
        cursor.execute("COMMIT")
        self.version += 1


REFRESH_INTERVAL_S = 2.0
"""Seconds between two refreshes of the index."""


class IndexRefresher:
    """Thread that keeps an index up to date with runs that are still being written."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._refresh_until_closed, name="follow", daemon=True
        )
        self.fault: str | None = None
        """Message of the last refresh's error; None if the refresh succeeded."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, and wait until its current refresh has ended."""
        self._ended.set()
        self._thread.join()

    def _refresh_until_closed(self) -> None:
        while not self._ended.is_set():
            try:
                self._index.refresh()
                self.fault = None
            except (ShardError, OSError, duckdb.Error) as error:
                self.fault = str(error)
            self._ended.wait(REFRESH_INTERVAL_S)


MAX_LISTED = 280
"""Maximum characters of a problem in the list."""
MAX_ANSWER = 80
"""Maximum characters of an answer in the list."""
MAX_SEARCHED = 20_000
"""Maximum characters of a problem, and of a solution, in which the search looks."""
MAX_FACET = 60
"""Maximum characters of a metadata value by which solutions can be filtered."""
NUM_BINS = 10
"""Number of bins of step values, each a tenth wide."""
BINS = tuple(f"bin{number}" for number in range(NUM_BINS))
"""Names of the index columns that count a solution's steps by tenths of their value, without the
last step. The counts are computed once, so a chart adds only NUM_BINS numbers per solution."""

CREATE_TABLES = f"""
CREATE TABLE solutions (
    id INTEGER, run UTINYINT, block VARCHAR, row UINTEGER, solution_id VARCHAR,
    problem_id VARCHAR, sample_index INTEGER, problem VARCHAR, answer VARCHAR, prediction VARCHAR,
    outcome VARCHAR, first_error INTEGER, decided BOOLEAN, truth INTEGER, has_truth BOOLEAN,
    num_steps INTEGER, vals FLOAT[], hard TINYINT[], width FLOAT, fall FLOAT, num_rollouts INTEGER,
    num_truncated INTEGER, num_ungraded INTEGER, num_tokens BIGINT, key UBIGINT,
    answer_type VARCHAR, family VARCHAR, level VARCHAR, subject VARCHAR, kept BOOLEAN,
    given_id VARCHAR, search VARCHAR,
    {", ".join(f"{name} UINTEGER" for name in BINS)}
);
CREATE TABLE shards (run UTINYINT, block VARCHAR, rollouts VARCHAR);
CREATE TABLE differing (id INTEGER);
"""

_DECIDED = f"""
outcome IN ('{Outcome.RIGHT}', '{Outcome.WRONG}') AND len(steps) > 0 AND (first_error IS NOT NULL
    OR len(list_filter(steps[:-2], lambda s: s.hard IS NOT TRUE)) = 0)
"""
"""`LabeledSolution.is_decided` in SQL, over the columns of a labels shard."""

INSERT_ROWS = f"""
INSERT INTO solutions
SELECT ? + row_number() OVER () - 1, run, block, row, solution_id, problem_id, sample_index,
    left(problem, {MAX_LISTED}), left(answer, {MAX_ANSWER}), left(prediction, {MAX_ANSWER}),
    outcome, first_error, {_DECIDED}, truth, has_truth, len(steps),
    list_transform(shown, lambda v: v::FLOAT),
    list_transform(steps, lambda s: s.hard::TINYINT),
    list_max(list_transform(steps, lambda s: s.high - s.low)),
    list_max(list_transform(generate_series(2, len(steps)),
        lambda i: shown[i - 1] - shown[i])),
    list_sum(list_transform(steps,
        lambda s: s.num_right + s.num_wrong + s.num_truncated + s.num_ungraded)),
    list_sum(list_transform(steps, lambda s: s.num_truncated)),
    list_sum(list_transform(steps, lambda s: s.num_ungraded)),
    list_sum(list_transform(steps, lambda s: s.num_tokens)),
    hash(problem, solution), answer_type, family, level, subject, kept,
    given_id, lower(concat_ws(chr(10), problem_id, solution_id, given_id, answer,
        left(problem, {MAX_SEARCHED}), left(solution, {MAX_SEARCHED}))),
    {", ".join(f"list_count(list_filter(tenths, lambda t: t = {n}))" for n in range(NUM_BINS))}
FROM (
    SELECT *,
        list_transform(steps, lambda s: CASE
            WHEN s.source = 'given' AND s.value IN (0, 0.5, 1) THEN NULL
            ELSE coalesce(s.value, s.mean) END) AS shown,
        list_transform(list_filter(shown[:-2], lambda v: v IS NOT NULL),
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
)


def build_index_columns(table: pa.Table, run: int, block: str) -> pa.Table:
    """Return the columns of a shard for the index, with the true first errors if they are known.

    Args:
        table: rows of the labels shard, one per solution.
        run: 0-based index of the run.
        block: name of the shard's block.
    """
    metadata_of_rows = [json.loads(text) for text in table.column("meta").to_pylist()]
    answers, steps = (table.column(name).to_pylist() for name in ("answer", "steps"))
    known_truths = [has_known_truth(fields) for fields in metadata_of_rows]
    truths = [
        find_true_first_error(fields, [step["text"] for step in solution_steps])
        if has_truth
        else None
        for has_truth, fields, solution_steps in zip(
            known_truths, metadata_of_rows, steps, strict=True
        )
    ]
    columns = {
        "run": pa.array([run] * table.num_rows, pa.uint8()),
        "block": pa.array([block] * table.num_rows, pa.string()),
        "truth": pa.array(truths, pa.int32()),
        "has_truth": pa.array(known_truths, pa.bool_()),
        "given_id": pa.array(
            [
                fields.get("id", "")[:MAX_FACET] or None
                if any(step["source"] == "given" for step in solution_steps)
                else None
                for fields, solution_steps in zip(metadata_of_rows, steps, strict=True)
            ],
            pa.string(),
        ),
        "kept": pc.struct_field(table.column("consensus"), "kept"),
        **{
            name: pa.array(
                [fields.get(name, "")[:MAX_FACET] or None for fields in metadata_of_rows],
                pa.string(),
            )
            for name in GROUP_KEYS
        },
    }
    columns["answer_type"] = pa.array(
        [
            fields.get("answer_type", "")[:MAX_FACET] or find_answer_kind(answer)
            for fields, answer in zip(metadata_of_rows, answers, strict=True)
        ],
        pa.string(),
    )
    index_table = table.select([name for name in COLUMNS if name != "meta"])
    index_table = index_table.replace_schema_metadata()
    for name, column in columns.items():
        index_table = index_table.append_column(name, column)
    return index_table
