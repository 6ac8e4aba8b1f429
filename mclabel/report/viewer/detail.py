"""The data of one solution and of the rollouts of its steps, read from the shards on request.

The length of every text is limited. A longer text is cut and sent with its full length; the page
requests further parts with `text_part`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import PydanticCustomError

from mclabel.checkers import CHECKERS, GradeItem, make_checker, read_recorded_checker, run_inline
from mclabel.checkers.base import default_checker
from mclabel.core.errors import DataError
from mclabel.core.records import Step
from mclabel.core.seeds import content_id
from mclabel.evaluate.grouping import GROUP_KEYS
from mclabel.report.viewer.cache import ResultCache
from mclabel.report.viewer.index import Index
from mclabel.report.viewer.listing import is_number
from mclabel.run.kinds import has_program_solutions
from mclabel.run.shards.catalog import make_labels_shard_name
from mclabel.run.shards.manifest import MANIFEST, read_manifest_config
from mclabel.run.shards.schema import parse_consensus, parse_problem
from mclabel.run.shards.shard import read_shard
from mclabel.show.solutions import (
    describe_kept,
    describe_opinions,
    describe_rule,
    get_shown_value,
    group_passages_by_step,
)

MAX_TEXT = 20_000
"""Maximum characters of a text in one response."""
MAX_STEPS = 100
"""Maximum number of steps in one response; `steps` returns later steps."""
MAX_SAMPLES = 64
"""Maximum number of samples of the same problem that are listed."""
MAX_ROLLOUTS = 64
"""Maximum number of rollouts in one response."""
MAX_ROLLOUT_TEXT = 4_000
"""Maximum characters of a rollout's text in the list of rollouts."""
MAX_NAME = 200
"""Maximum characters of the name of a checker."""
MAX_GRADED = 50
"""Maximum number of distinct answers to a step that are graded again."""
_MAX_CACHED_BYTES = 48 << 20
"""Maximum bytes of cached shard tables."""

_STEP_FIELDS = (
    "source",
    "hard",
    "value",
    "low",
    "high",
    "mean",
    "state",
    "committed",
    "num_right",
    "num_wrong",
    "num_truncated",
    "num_ungraded",
    "num_tokens",
)


class Details:
    """Thread-safe reader of solutions and rollouts."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._tables: ResultCache[pa.Table] = ResultCache(
            _MAX_CACHED_BYTES, size=lambda table: int(table.nbytes)
        )

    def solution(self, run: int, solution_id: str) -> dict[str, Any]:
        """Return a solution with its steps, and the labels of the same solution in other runs.

        Args:
            run: 0-based index of the run.
            solution_id: id of the solution in the run.

        Raises:
            DataError: the run has no such solution.
        """
        index_entry, row = self._find_solution(run, solution_id)
        posterior, consensus = row["posterior"], parse_consensus(row["consensus"])
        return {
            "solution_id": solution_id,
            "digest": content_id("same", row["problem"], row["solution"]),
            "problem_id": truncate_text(row["problem_id"]),
            "given_id": index_entry["given_id"],
            "sample_index": row["sample_index"],
            "problem": truncate_text(row["problem"]),
            "answer": truncate_text(row["answer"]),
            "prediction": truncate_text(row["prediction"]),
            "outcome": row["outcome"],
            "origin": row["origin"],
            "finish_reason": row["finish_reason"],
            "first_error": row["first_error"],
            "decided": index_entry["decided"],
            "truth": index_entry["truth"],
            "has_truth": index_entry["has_truth"],
            "is_code": has_program_solutions(
                read_manifest_config(self._index.runs[run].store, MANIFEST) or {}
            ),
            "meta": {
                name: index_entry[name] for name in GROUP_KEYS if index_entry[name] is not None
            },
            "root": row["root"],
            "siblings": row["siblings"],
            "root_value": row["root_value"],
            "priors": row["priors"],
            "values_of": row["values_of"],
            "completers": [completer["name"] for completer in row["completers"]],
            "consensus": None
            if consensus is None
            else {
                "rule": describe_rule(consensus),
                "kept": consensus.kept,
                "word": describe_kept(consensus),
                "opinions": [
                    {"source": source, "words": words}
                    for source, words in describe_opinions(consensus)
                ],
            },
            "num_steps": len(row["steps"]),
            "sources": list(dict.fromkeys(step["source"] for step in row["steps"])),
            "steps": _convert_steps(row, 0),
            "no_error": None if posterior is None else posterior[-1],
            "rollouts_kept": self._find_rollouts_shard(run, index_entry["block"]) is not None,
            "samples": self._index.query(
                "SELECT solution_id, sample_index, outcome, first_error, decided "
                "FROM solutions WHERE run = ? AND problem_id = ? ORDER BY sample_index, id "
                f"LIMIT {MAX_SAMPLES}",
                [run, row["problem_id"]],
            ),
            "others": self._index.query(
                "SELECT run, solution_id, first_error, decided, vals, hard FROM solutions "
                "WHERE key = ? AND id <> ? AND run <> ? ORDER BY run LIMIT 8",
                [index_entry["key"], index_entry["id"], run],
            ),
        }

    def steps(self, run: int, solution_id: str, offset: int) -> dict[str, Any]:
        """Return at most `MAX_STEPS` steps of a solution.

        Args:
            run: 0-based index of the run.
            solution_id: id of the solution in the run.
            offset: 0-based index of the first step.

        Raises:
            DataError: there is no such solution.
        """
        return {
            "offset": offset,
            "steps": _convert_steps(self._find_solution(run, solution_id)[1], offset),
        }

    def rollouts(self, run: int, solution_id: str, step: int, offset: int) -> dict[str, Any]:
        """Return rollouts from a step, sorted by completer and index, and the count of each answer.

        The reason for the verdict on an answer is taken from its first rollout.

        Args:
            run: 0-based index of the run.
            solution_id: id of the solution in the run.
            step: 0-based index of the step.
            offset: number of rollouts to skip.

        Raises:
            DataError: there is no such step.
        """
        _, table = self._read_rollouts(run, solution_id, step)
        answers_by_count = _count_answers(table)
        reasons = {
            (row["prediction"], row["outcome"]): row["reason"]
            for row in reversed(table.select(["prediction", "outcome", "reason"]).to_pylist())
        }
        shown_rollouts = table.slice(max(0, offset), MAX_ROLLOUTS).to_pylist()
        return {
            "total": table.num_rows,
            "offset": max(0, offset),
            "num_answers": len(answers_by_count),
            "answers": [
                {
                    "answer": truncate_text(answer[0], 500),
                    "outcome": answer[1],
                    "count": count,
                    "reason": reasons[answer],
                }
                for answer, count in answers_by_count[:MAX_GRADED]
            ],
            "rows": [
                {
                    "completer": row["completer"],
                    "index": row["index"],
                    "text": truncate_text(row["text"], MAX_ROLLOUT_TEXT),
                    "answer": truncate_text(row["prediction"], 500),
                    "outcome": row["outcome"],
                    "reason": row["reason"],
                    "num_tokens": row["num_tokens"],
                }
                for row in shown_rollouts
            ],
        }

    def grades(self, run: int, solution_id: str, step: int) -> dict[str, Any]:
        """Grade one rollout for each answer again, to show the checker's reasons.

        Args:
            run: 0-based index of the run.
            solution_id: id of the solution in the run.
            step: 0-based index of the step from which the rollouts begin.

        Returns:
            The checker's name and version as `checker`, and one entry per answer as `grades`, in
            the order of `rollouts`. An entry is None if the rollout has no answer, or if a
            third-party checker graded it, which the viewer does not call.
        """
        row, table = self._read_rollouts(run, solution_id, step)
        answers = [answer for answer, _ in _count_answers(table)[:MAX_GRADED]]
        config = read_manifest_config(self._index.runs[run].store, MANIFEST) or {}
        recorded_checker = config.get("checker")
        checker_name = (
            recorded_checker.get("kind")
            if isinstance(recorded_checker, Mapping)
            else default_checker().kind
        )
        if not isinstance(checker_name, str) or checker_name not in CHECKERS:
            return {
                "checker": str(checker_name)[:MAX_NAME],
                "grades": [None] * len(answers),
            }
        try:
            checker = make_checker(read_recorded_checker(recorded_checker))
        except PydanticCustomError as error:
            raise DataError(
                f"the run's checker cannot be made: {error}. To grade with another checker, run "
                "mclabel regrade, for example with checker=math"
            ) from error
        texts = {
            (answer["prediction"], answer["outcome"]): answer["text"]
            for answer in reversed(table.to_pylist())
        }
        problem, prefix_text = (
            parse_problem(row),
            "".join(step_row["text"] for step_row in row["steps"][: step + 1]),
        )
        items = [
            GradeItem(problem=problem, completion=prefix_text + texts[answer])
            for answer in answers
            if answer[0] is not None
        ]
        grades = iter(asyncio.run(checker.grade(items, run_inline)))
        return {
            "checker": f"{checker.name} {checker.version}",
            "grades": [None if answer is None else asdict(next(grades)) for answer, _ in answers],
        }

    def texts(self, run: int, solution_id: str) -> tuple[str, list[str]]:
        """Return the full texts of a solution's problem and steps."""
        _, row = self._find_solution(run, solution_id)
        return row["problem"], [step["text"] for step in row["steps"]]

    def text_part(self, run: int, solution_id: str, text_name: str, offset: int) -> dict[str, Any]:
        """Return the part of a text from `offset` on.

        Args:
            run: 0-based index of the run.
            solution_id: id of the solution in the run.
            text_name: name of the text: `problem`, `answer`, `prediction`, `step.3`, or
                `rollout.3.12` for the rollout with index 12 of step 3.
            offset: number of characters to skip.

        Raises:
            DataError: there is no such text.
        """
        base_name, *numbers = text_name.split(".")
        if not all(map(is_number, numbers)):
            raise DataError(f"what={text_name[:80]!r}: is not the name of a text")
        match base_name, [int(number) for number in numbers]:
            case "problem" | "answer" | "prediction", []:
                text = self._find_solution(run, solution_id)[1][base_name]
            case "step", [step]:
                text = _get_existing_row(
                    self._find_solution(run, solution_id)[1]["steps"], step, text_name
                )["text"]
            case "rollout", [step, index]:
                _, table = self._read_rollouts(run, solution_id, step)
                text = _get_existing_row(
                    table.filter(pc.equal(table.column("index"), index)).to_pylist(), 0, text_name
                )["text"]
            case _:
                raise DataError(f"what={text_name!r}: is not the name of a text")
        return truncate_text((text or "")[max(0, offset) :]) | {"length": len(text or "")}  # type: ignore[operator]

    def _find_solution(self, run: int, solution_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a solution's entry in the index, and its row in the shard."""
        matches = self._index.query(
            f"SELECT id, block, row, decided, truth, has_truth, key, given_id, "
            f"{', '.join(GROUP_KEYS)} FROM solutions WHERE run = ? AND solution_id = ?",
            [run, solution_id],
        )
        if not matches:
            raise DataError(f"no solution {solution_id[:80]!r} in this run")
        table = self._read_table(run, make_labels_shard_name(matches[0]["block"]), "labels")
        return matches[0], table.slice(matches[0]["row"], 1).to_pylist()[0]

    def _read_rollouts(
        self, run: int, solution_id: str, step: int
    ) -> tuple[dict[str, Any], pa.Table]:
        """Return a solution's row, and the rollouts from one step, by completer and index."""
        index_entry, row = self._find_solution(run, solution_id)
        prefix_id = _get_existing_row(row["steps"], step, f"step={step}")["prefix_id"]
        name = self._find_rollouts_shard(run, index_entry["block"])
        if name is None:
            raise DataError("this run has not stored its rollouts (keep_rollouts=false)")
        table = self._read_table(run, name, "rollouts")
        is_from_step = pc.and_(
            pc.equal(table.column("prefix_id"), prefix_id),
            pc.equal(table.column("problem_id"), row["problem_id"]),
        )
        return row, table.filter(is_from_step).sort_by(
            [("completer", "ascending"), ("index", "ascending")]
        )

    def _find_rollouts_shard(self, run: int, block: str) -> str | None:
        matches = self._index.query(
            "SELECT rollouts FROM shards WHERE run = ? AND block = ?", [run, block]
        )
        name: str | None = matches[0]["rollouts"]
        return name

    def _read_table(self, run: int, name: str, shard_kind: Any) -> pa.Table:
        store = self._index.runs[run].store
        return self._tables.get((run, name), lambda: read_shard(store, name, shard_kind)[1])


def _convert_steps(row: Mapping[str, Any], offset: int) -> list[dict[str, Any]]:
    """Return at most MAX_STEPS steps from `offset` on, with their texts and labels."""
    steps, posterior = row["steps"], row["posterior"]
    texts = [Step(text=step["text"], end=step["end"]) for step in steps]
    passages = group_passages_by_step(parse_consensus(row["consensus"]), texts)
    return [
        {
            "text": truncate_text(steps[number]["text"]),
            **{name: steps[number][name] for name in _STEP_FIELDS},
            "value": get_shown_value(steps[number]["source"], steps[number]["value"]),
            "chance": None if posterior is None else posterior[number],
            "by_completer": [completer["steps"][number] for completer in row["completers"]],
            "places": [asdict(passage) for passage in passages.get(number, ())],
        }
        for number in range(max(0, offset), min(len(steps), max(0, offset) + MAX_STEPS))
    ]


def truncate_text(text: str | None, limit: int = MAX_TEXT) -> dict[str, Any] | None:
    """Return the first `limit` characters of a text, and the full length in characters."""
    return None if text is None else {"text": text[:limit], "length": len(text)}


def _count_answers(table: pa.Table) -> list[tuple[tuple[str | None, str], int]]:
    """Return each pair of an answer and an outcome with its number of rollouts.

    The most frequent pair comes first. The answer is None for rollouts without an answer.
    """
    pairs = zip(
        table.column("prediction").to_pylist(), table.column("outcome").to_pylist(), strict=True
    )
    return Counter(pairs).most_common()


def _get_existing_row(
    rows: Sequence[Mapping[str, Any]], number: int, row_name: str
) -> Mapping[str, Any]:
    if not 0 <= number < len(rows):
        raise DataError(f"{row_name[:80]}: does not exist in this solution")
    return rows[number]
