"""The tables of the viewer's index, and what it takes of a labels shard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mclabel.core.records import Outcome
from mclabel.domains.registry import carries_truth, true_first_error
from mclabel.evaluate.grouping import GROUP_KEYS
from mclabel.show.texts import answer_kind

if TYPE_CHECKING:
    import pyarrow as pa

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
"""As `LabeledSolution.is_decided` has it, over the columns of a labels shard."""

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
    """What the index takes of a shard, with the truth where it can be computed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    meta = [json.loads(text) for text in table.column("meta").to_pylist()]
    answers = table.column("answer").to_pylist()
    known = [carries_truth(one) for one in meta]
    truths = [
        true_first_error(one, [step["text"] for step in steps]) if knows else None
        for knows, one, steps in zip(known, meta, table.column("steps").to_pylist(), strict=True)
    ]
    columns = {
        "run": pa.array([run] * table.num_rows, pa.uint8()),
        "shard": pa.array([shard] * table.num_rows, pa.string()),
        "truth": pa.array(truths, pa.int32()),
        "has_truth": pa.array(known, pa.bool_()),
        "kept": pc.struct_field(table.column("consensus"), "kept"),
        **{
            name: pa.array([one.get(name, "")[:MAX_FACET] or None for one in meta], pa.string())
            for name in GROUP_KEYS
        },
    }
    columns["answer_type"] = pa.array(
        [
            one.get("answer_type", "")[:MAX_FACET] or answer_kind(answer)
            for one, answer in zip(meta, answers, strict=True)
        ],
        pa.string(),
    )
    kept = table.select([name for name in COLUMNS if name != "meta"])
    kept = kept.replace_schema_metadata()
    for name, column in columns.items():
        kept = kept.append_column(name, column)
    return kept
