"""One solution and the rollouts of its steps, read from the shards when they are looked at.

Every text is bounded: what is longer is cut, with its whole length beside it, and `more` gives
the rest piece by piece.
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

from mclabel.checkers import CHECKERS, GradeItem, here, make_checker, recorded_checker
from mclabel.checkers.base import default_checker
from mclabel.core.errors import DataError
from mclabel.core.records import Consensus, Step
from mclabel.core.seeds import content_id
from mclabel.evaluate.grouping import GROUP_KEYS
from mclabel.report.viewer.index import Index
from mclabel.report.viewer.kept import Kept
from mclabel.report.viewer.listing import is_number
from mclabel.run.kinds import is_code
from mclabel.run.shards.manifest import MANIFEST, claimed_config
from mclabel.run.shards.schema import consensus_of, problem_of
from mclabel.run.shards.shard import read_shard
from mclabel.show.solutions import kept_word, opinions_words, places_by_step, rule_name

MAX_TEXT = 20_000
"""Characters of a text that are sent at first; `more` sends as many at a time."""
MAX_STEPS = 100
"""Sent at a time; `steps` gives those that follow."""
MAX_SAMPLES = 64
"""Other samples of a problem that are named."""
MAX_ROLLOUTS = 64
"""Sent at a time."""
MAX_ROLLOUT_TEXT = 4_000
MAX_NAME = 200
"""Characters of the name of a checker."""
MAX_GRADED = 50
"""Distinct answers to a step that are graded again."""
_KEPT_BYTES = 48 << 20

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
    """Reads solutions and rollouts, for any number of threads."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._tables: Kept[pa.Table] = Kept(_KEPT_BYTES, size=lambda table: int(table.nbytes))

    def solution(self, run: int, solution_id: str) -> dict[str, Any]:
        """A solution with its steps, and the labels of the same one in other runs.

        Raises:
            DataError: there is none.
        """
        indexed, row = self._row(run, solution_id)
        posterior, consensus = row["posterior"], consensus_of(row["consensus"])
        return {
            "solution_id": solution_id,
            "digest": content_id("same", row["problem"], row["solution"]),
            "problem_id": cut(row["problem_id"]),
            "sample_index": row["sample_index"],
            "problem": cut(row["problem"]),
            "answer": cut(row["answer"]),
            "prediction": cut(row["prediction"]),
            "outcome": row["outcome"],
            "origin": row["origin"],
            "finish_reason": row["finish_reason"],
            "first_error": row["first_error"],
            "decided": indexed["decided"],
            "truth": indexed["truth"],
            "has_truth": indexed["has_truth"],
            "is_code": is_code(claimed_config(self._index.runs[run].store, MANIFEST) or {}),
            "meta": {name: indexed[name] for name in GROUP_KEYS if indexed[name] is not None},
            "root": row["root"],
            "siblings": row["siblings"],
            "root_value": row["root_value"],
            "priors": row["priors"],
            "values_of": row["values_of"],
            "completers": [completer["name"] for completer in row["completers"]],
            "consensus": None if consensus is None else _told(consensus),
            "num_steps": len(row["steps"]),
            "sources": list(dict.fromkeys(step["source"] for step in row["steps"])),
            "steps": _steps(row, 0),
            "no_error": None if posterior is None else posterior[-1],
            "rollouts_kept": self._rollouts_name(run, indexed["shard"]) is not None,
            "samples": self._samples(run, row["problem_id"]),
            "others": self._others(run, indexed["key"], indexed["id"]),
        }

    def steps(self, run: int, solution_id: str, offset: int) -> dict[str, Any]:
        """The steps of a solution from `offset` on, `MAX_STEPS` at most.

        Raises:
            DataError: there is no such solution.
        """
        return {"offset": offset, "steps": _steps(self._row(run, solution_id)[1], offset)}

    def rollouts(self, run: int, solution_id: str, step: int, offset: int) -> dict[str, Any]:
        """Rollouts of a step's prefix, by completer and index, and how often each answer came.

        The reason of an answer is that of its first rollout.

        Raises:
            DataError: there is no such step.
        """
        _, table = self._rollouts(run, solution_id, step)
        ranked = _answers(table)
        reasons = {
            (row["prediction"], row["outcome"]): row["reason"]
            for row in reversed(table.select(["prediction", "outcome", "reason"]).to_pylist())
        }
        shown = table.slice(max(0, offset), MAX_ROLLOUTS).to_pylist()
        return {
            "total": table.num_rows,
            "offset": max(0, offset),
            "num_answers": len(ranked),
            "answers": [
                {
                    "answer": cut(answer[0], 500),
                    "outcome": answer[1],
                    "count": count,
                    "reason": reasons[answer],
                }
                for answer, count in ranked[:MAX_GRADED]
            ],
            "rows": [
                {
                    "completer": row["completer"],
                    "index": row["index"],
                    "text": cut(row["text"], MAX_ROLLOUT_TEXT),
                    "answer": cut(row["prediction"], 500),
                    "outcome": row["outcome"],
                    "reason": row["reason"],
                    "num_tokens": row["num_tokens"],
                }
                for row in shown
            ],
        }

    def grades(self, run: int, solution_id: str, step: int) -> dict[str, Any]:
        """Why the checker decided as it did: a rollout of each answer to a step, graded again.

        Returns:
            `checker`, its name and version, and one entry an answer in the order of `rollouts`;
            None where there was nothing to grade, or a function of somebody's own graded it, which
            is not called here.
        """
        row, table = self._rollouts(run, solution_id, step)
        ranked = [one for one, _ in _answers(table)[:MAX_GRADED]]
        config = claimed_config(self._index.runs[run].store, MANIFEST) or {}
        recorded = config.get("checker")
        kind = recorded.get("kind") if isinstance(recorded, Mapping) else default_checker().kind
        if not isinstance(kind, str) or kind not in CHECKERS:
            return {"checker": str(kind)[:MAX_NAME], "grades": [None] * len(ranked)}
        try:
            checker = make_checker(recorded_checker(recorded))
        except PydanticCustomError as error:
            raise DataError(
                f"the run's checker cannot be made: {error}. mclabel regrade with checker=math "
                "grades with another"
            ) from error
        texts = {
            (one["prediction"], one["outcome"]): one["text"] for one in reversed(table.to_pylist())
        }
        problem, prefix = problem_of(row), "".join(s["text"] for s in row["steps"][: step + 1])
        items = [
            GradeItem(problem=problem, completion=prefix + texts[one])
            for one in ranked
            if one[0] is not None
        ]
        grades = iter(asyncio.run(checker.grade(items, here)))
        return {
            "checker": f"{checker.name} {checker.version}",
            "grades": [None if answer is None else asdict(next(grades)) for answer, _ in ranked],
        }

    def texts(self, run: int, solution_id: str) -> tuple[str, list[str]]:
        """Problem and steps of a solution, whole."""
        _, row = self._row(run, solution_id)
        return row["problem"], [step["text"] for step in row["steps"]]

    def more(self, run: int, solution_id: str, place: str, offset: int) -> dict[str, Any]:
        """The part of a text from `offset` on.

        Args:
            run: index of the run.
            solution_id: in it.
            place: `problem`, `answer`, `prediction`, `step.3`, or `rollout.3.12` for the rollout
                of index 12 of step 3.
            offset: in characters.

        Raises:
            DataError: there is no such text.
        """
        kind, *numbers = place.split(".")
        if not all(map(is_number, numbers)):
            raise DataError(f"what={place[:80]!r}: no such text")
        match kind, [int(number) for number in numbers]:
            case "problem" | "answer" | "prediction", []:
                text = self._row(run, solution_id)[1][kind]
            case "step", [step]:
                text = _at(self._row(run, solution_id)[1]["steps"], step, place)["text"]
            case "rollout", [step, index]:
                _, table = self._rollouts(run, solution_id, step)
                rows = table.filter(pc.equal(table.column("index"), index)).to_pylist()
                text = _at(rows, 0, place)["text"]
            case _:
                raise DataError(f"what={place!r}: no such text")
        return cut((text or "")[max(0, offset) :]) | {"length": len(text or "")}  # type: ignore[operator]

    def _row(self, run: int, solution_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the index knows of a solution, and its row."""
        matches = self._index.query(
            f"SELECT id, shard, row, decided, truth, has_truth, key, {', '.join(GROUP_KEYS)} "
            "FROM solutions WHERE run = ? AND solution_id = ?",
            [run, solution_id],
        )
        if not matches:
            raise DataError(f"no solution {solution_id[:80]!r} in this run")
        table = self._table(run, matches[0]["shard"], "labels")
        return matches[0], table.slice(matches[0]["row"], 1).to_pylist()[0]

    def _rollouts(self, run: int, solution_id: str, step: int) -> tuple[dict[str, Any], pa.Table]:
        """The solution's row, and the rollouts of one step's prefix in order."""
        indexed, row = self._row(run, solution_id)
        prefix = _at(row["steps"], step, f"step={step}")["prefix_id"]
        name = self._rollouts_name(run, indexed["shard"])
        if name is None:
            raise DataError("this run has kept no rollouts (keep_rollouts=false)")
        table = self._table(run, name, "rollouts")
        same = pc.and_(
            pc.equal(table.column("prefix_id"), prefix),
            pc.equal(table.column("problem_id"), row["problem_id"]),
        )
        by = [("completer", "ascending"), ("index", "ascending")]
        return row, table.filter(same).sort_by(by)

    def _rollouts_name(self, run: int, shard: str) -> str | None:
        matches = self._index.query(
            "SELECT rollouts FROM shards WHERE run = ? AND name = ?", [run, shard]
        )
        name: str | None = matches[0]["rollouts"]
        return name

    def _table(self, run: int, name: str, kind: Any) -> pa.Table:
        store = self._index.runs[run].store
        return self._tables.get((run, name), lambda: read_shard(store, name, kind)[1])

    def _samples(self, run: int, problem_id: str) -> list[dict[str, Any]]:
        """All solutions of a problem, to be set side by side."""
        return self._index.query(
            "SELECT solution_id, sample_index, outcome, first_error, decided FROM solutions "
            f"WHERE run = ? AND problem_id = ? ORDER BY sample_index, id LIMIT {MAX_SAMPLES}",
            [run, problem_id],
        )

    def _others(self, run: int, key: int, own: int) -> list[dict[str, Any]]:
        """The same solution as other runs have labelled it."""
        return self._index.query(
            "SELECT run, solution_id, first_error, decided, vals, hard FROM solutions "
            "WHERE key = ? AND id <> ? AND run <> ? ORDER BY run LIMIT 8",
            [key, own, run],
        )


def _steps(row: Mapping[str, Any], offset: int) -> list[dict[str, Any]]:
    """Steps of a solution from `offset` on, with what is known of each."""
    steps, posterior = row["steps"], row["posterior"]
    texts = [Step(text=step["text"], end=step["end"]) for step in steps]
    places = places_by_step(consensus_of(row["consensus"]), texts)
    return [
        {
            "text": cut(steps[number]["text"]),
            **{name: steps[number][name] for name in _STEP_FIELDS},
            "chance": None if posterior is None else posterior[number],
            "by_completer": [completer["steps"][number] for completer in row["completers"]],
            "places": [asdict(place) for place in places.get(number, ())],
        }
        for number in range(max(0, offset), min(len(steps), max(0, offset) + MAX_STEPS))
    ]


def cut(text: str | None, limit: int = MAX_TEXT) -> dict[str, Any] | None:
    """The beginning of a text, and its whole length in characters."""
    return None if text is None else {"text": text[:limit], "length": len(text)}


def _told(consensus: Consensus) -> dict[str, Any]:
    """A consensus in words."""
    return {
        "rule": rule_name(consensus),
        "kept": consensus.kept,
        "word": kept_word(consensus),
        "opinions": [
            {"source": source, "words": words} for source, words in opinions_words(consensus)
        ],
    }


def _answers(table: pa.Table) -> list[tuple[tuple[str | None, str], int]]:
    """Answers with their outcomes, and how often they came, most often first."""
    pairs = zip(
        table.column("prediction").to_pylist(), table.column("outcome").to_pylist(), strict=True
    )
    return Counter(pairs).most_common()


def _at(rows: Sequence[Mapping[str, Any]], number: int, place: str) -> Mapping[str, Any]:
    if not 0 <= number < len(rows):
        raise DataError(f"{place}: there is none")
    return rows[number]
