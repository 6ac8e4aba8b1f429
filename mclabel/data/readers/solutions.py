"""Reads the solutions that a user provides for labelling, and the manifest that selects among them.

`mclabel select` writes the manifest, and `mclabel label --select` reads it. The manifest is one
Parquet file with a digest. It has one row per selected solution with its selection probability, and
metadata about the selection.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.core.errors import DataError, RejectReason, shorten_detail
from mclabel.core.records import GivenSolution, Problem, Selection
from mclabel.core.seeds import content_id
from mclabel.data.given import join_steps
from mclabel.data.readers.rows import (
    LONE_SURROGATES,
    describe_row_place,
    download_if_url,
    is_unicode,
    scan_rows,
)
from mclabel.run.parquet import read_whole_table
from mclabel.run.shards.digest import check_parquet_digest, encode_parquet_with_digest
from mclabel.run.shards.rejects import Reject


@dataclass(frozen=True, kw_only=True)
class GivenSolutions:
    """Solutions to be labelled, and the rows that could not be used."""

    by_problem: Mapping[str, tuple[GivenSolution, ...]]
    """Solutions by problem id, in the order of the file; no entry is empty."""
    rejects: tuple[Reject, ...]
    """Rows that cannot be used, and problems without a solution."""


def read_solutions(
    path: str,
    problems: Iterable[Problem],
    *,
    selected: SelectionManifest | None = None,
    strict: bool = False,
) -> GivenSolutions:
    """Read the solutions that a user provides, by problem id.

    Args:
        path: `.jsonl`, `.json`, `.parquet` or `.csv` file, or the URL of one. A row has
            `problem_id`, or the problem's text as `problem` (both must mean the same problem). It
            also has `solution` (text, split at newlines), or `steps` (list of strings; see
            `join_steps`).
        problems: problems that the solutions answer.
        selected: selection of rows by their numbers; None for all rows. With a selection, problems
            without a solution are not reported as rejects.
        strict: True if a row that cannot be used, or a problem without a solution, is an error.

    Raises:
        DataError: the file cannot be read, no problem has a solution, the selected rows have
            changed, or `strict` forbids a fault.
    """
    texts = {problem.id: problem.text for problem in problems}
    by_text = {text: identity for identity, text in texts.items()}
    given: dict[str, list[GivenSolution]] = defaultdict(list)
    left_out = RowRejects(path, strict=strict)
    num_given: Counter[str] = Counter()
    names: list[str] = []
    for number, row in scan_rows(path):
        is_wanted = selected is None or str(number) in selected.text_hashes
        if not isinstance(row, Mapping):
            if is_wanted:
                left_out.add(row if isinstance(row, RejectReason) else _NO_OBJECT, number)
            continue
        given_problem_id = row.get("problem_id")
        identity = (
            by_text.get(str(row.get("problem")))
            if given_problem_id in (None, "")
            else str(given_problem_id)
        )
        solution = _match_solution(row, identity, texts)
        if isinstance(solution, RejectReason):
            if is_wanted:
                left_out.add(solution, number, identity)
            continue
        assert identity is not None  # else the problem is unknown
        if selected is not None:
            solution = replace(solution, index=num_given[identity])
            num_given[identity] += 1
            if not is_wanted:
                continue
            name = str(number)
            selected.check_text(name, str(row.get("problem")), solution.text)
            solution = replace(solution, selection=selected.get_selection(name))
            names.append(name)
        given[identity].append(solution)
    if selected is not None:
        names += [str(reject.row) for reject in left_out.found]  # present, but rejected
        selected.check_none_missing(names, path)
    for identity in texts:
        if identity not in given and selected is None:
            left_out.add(
                RejectReason("no_solution", f"no solution for problem {identity!r}"), None, identity
            )
    if not given:
        raise DataError(
            f"{path}: no solution for any of {len(texts)} problems; {left_out.found[0].detail}"
        )
    num_separated = sum(
        solution.is_separated for solutions in given.values() for solution in solutions
    )
    warn_about_inserted_breaks(path, num_separated)
    return GivenSolutions(
        by_problem={identity: tuple(solutions) for identity, solutions in given.items()},
        rejects=tuple(left_out.found),
    )


def _match_solution(
    row: Mapping[str, Any], identity: str | None, texts: Mapping[str, str]
) -> GivenSolution | RejectReason:
    """Return the solution in a row, or the reason why the row cannot be used.

    Args:
        row: row of the file.
        identity: id of the row's problem; None if the row has no id and its problem's text is
            unknown.
        texts: texts of the problems, by id.
    """
    if not is_unicode(row):
        return RejectReason("not_utf8", LONE_SURROGATES)
    if identity is None or identity not in texts:
        return RejectReason(
            "unknown_problem",
            f"answers no known problem (problem_id={row.get('problem_id')!r}). Give problem_id, or "
            "problem with the exact text of a problem in problems.source",
        )
    problem_text = row.get("problem")
    if isinstance(problem_text, str) and problem_text.split() != texts[identity].split():
        return RejectReason(
            "other_problem",
            f"problem_id={identity!r} has another text in problems.source than in this row. Give "
            "the id of the problem that the solution answers, or omit problem_id",
        )
    return read_solution(row)


_NO_OBJECT = RejectReason("not_an_object", "must be an object with a problem and a solution")


def require_solution(row: Mapping[str, Any], place: str) -> GivenSolution:
    """Return the solution of a row with `solution` or `steps`.

    Args:
        row: row of a file.
        place: place of the row, for messages.

    Raises:
        DataError: the row has neither field, or its field is empty.
    """
    solution = read_solution(row)
    if isinstance(solution, RejectReason):
        raise DataError(f"{place}: {solution.detail}")
    return solution


def read_solution(row: Mapping[str, Any]) -> GivenSolution | RejectReason:
    """Return the solution of a row with `solution` or `steps`, or the reason for its rejection."""
    steps = row.get("steps")
    if steps is not None:
        if not isinstance(steps, list) or not steps or not all(isinstance(s, str) for s in steps):
            return RejectReason("bad_solution", "steps must be a list of strings, at least one")
        separator = row.get("step_separator")
        if not isinstance(separator, str | None):
            return RejectReason(
                "bad_solution", f"step_separator must be a string, is a {type(separator).__name__}"
            )
        joined = join_steps(steps, separator=separator, whole=row.get("solution"))
        return GivenSolution(
            text="".join(joined),
            step_ends=tuple(accumulate(map(len, joined))),
            is_separated=separator is None and joined != steps,
        )
    text = row.get("solution")
    if not isinstance(text, str) or not text.strip():
        return RejectReason("bad_solution", "needs a solution (string) or steps (list of strings)")
    return GivenSolution(text=text)


def warn_about_inserted_breaks(source: str, count: int) -> None:
    """Warn that line breaks were inserted between the steps of some solutions.

    Args:
        source: file of the solutions.
        count: number of solutions with inserted line breaks; 0 logs nothing.
    """
    if count:
        logger.warning(
            "%s: a line break was put between the steps of %s solutions, because not all of their "
            "steps have white space between them. Give the column step_separator to choose another "
            'text, or "" to join them as they are',
            source,
            f"{count:,}",
        )


logger = logging.getLogger(__name__)
VERSION = 1
_KEY = b"mclabel.select"
SCHEMA = pa.schema(
    [
        pa.field("problem_id", pa.string(), nullable=False),
        pa.field("solution_id", pa.string(), nullable=False),
        pa.field("text_id", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("rank", pa.int32()),
        pa.field("key", pa.float64()),
        pa.field("score", pa.float64()),
        pa.field("probability", pa.float64(), nullable=False),
    ]
)
"""Columns of a manifest, which docs/select.md explains."""
_MAKE = "Make one with `mclabel select`"


def hash_solution_text(problem: str, solution: str) -> str:
    """Return a hash of the texts of a problem and a solution, which identifies the solution."""
    return content_id("text", problem, solution)


@dataclass(frozen=True, kw_only=True)
class SelectionManifest:
    """Solutions that a manifest lists, chosen by `mclabel select` from a pool.

    The pool is the file or run that had all solutions among which the selection was made.
    """

    place: str
    """File or URL of the manifest."""
    about: Mapping[str, Any]
    """Metadata of the selection, such as its pool and rule."""
    text_hashes: Mapping[str, str]
    """Hash of the texts of the problem and the solution (`hash_solution_text`), by solution id."""
    probabilities: Mapping[str, float]
    setting_name: str = "solutions.select"
    """Setting that names the manifest, for messages."""

    def get_selection(self, solution_id: str) -> Selection:
        """Return the probability of a solution's selection, and whether its content mattered.

        Args:
            solution_id: id of a solution in the manifest.
        """
        by_content: bool = self.about["by_content"]
        return Selection(probability=self.probabilities[solution_id], by_content=by_content)

    def check_text(self, solution_id: str, problem: str, solution: str) -> None:
        """Check that a solution is unchanged since it was selected.

        Raises:
            DataError: the text of the solution or its problem has changed.
        """
        if hash_solution_text(problem, solution) != self.text_hashes[solution_id]:
            raise self._make_other_pool_error(f"solution {solution_id} has another text")

    def check_none_missing(self, ids: Iterable[str], pool: str) -> None:
        """Check that every solution of the manifest is among the solutions that were read.

        Args:
            ids: ids of the solutions that were read.
            pool: file or run from which they were read, for messages.

        Raises:
            DataError: a solution of the manifest is missing.
        """
        if missing := sorted(self.text_hashes.keys() - set(ids)):
            raise self._make_other_pool_error(
                f"{pool} lacks {len(missing):,} of its {len(self.text_hashes):,} solutions, such "
                f"as {missing[0]}"
            )

    def _make_other_pool_error(self, reason: str) -> DataError:
        return DataError(
            f"{self.setting_name}={self.place!r}: is a selection from another pool "
            f"({self.about['pool']['place']}): {reason}. Give that pool unchanged, or select anew"
        )


def build_manifest(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> bytes:
    """Return the content of a manifest file.

    Args:
        rows: one row per selected solution, with the columns of `SCHEMA`.
        about: JSON-serialisable metadata of the selection.
    """
    stamp = {"version": VERSION, **about}
    ordered = sorted(rows, key=lambda row: str(row["solution_id"]))
    table = pa.Table.from_pylist(ordered, schema=SCHEMA)
    table = table.replace_schema_metadata({_KEY: json.dumps(stamp, sort_keys=True).encode()})
    return encode_parquet_with_digest(table, compression="zstd")


def read_selected(place: str, setting_name: str = "solutions.select") -> SelectionManifest:
    """Read a manifest, which `mclabel select` has written.

    Args:
        place: file or URL of the manifest.
        setting_name: setting that names the manifest, for messages.

    Raises:
        DataError: the file is not a manifest, or is damaged.
    """
    table, about = _open_manifest(place, f"{setting_name.rstrip()}={place!r}")
    ids = table["solution_id"].to_pylist()
    return SelectionManifest(
        place=place,
        about=about,
        text_hashes=dict(zip(ids, table["text_id"].to_pylist(), strict=True)),
        probabilities=dict(zip(ids, table["probability"].to_pylist(), strict=True)),
        setting_name=setting_name,
    )


def _open_manifest(place: str, shown_name: str) -> tuple[pa.Table, dict[str, Any]]:
    path = download_if_url(place)
    try:
        content = path.read_bytes()
        table = read_whole_table(pq.ParquetFile(pa.BufferReader(content)))
        about = json.loads((table.schema.metadata or {})[_KEY])
        table = table.select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise DataError(f"{shown_name}: is not a selection manifest ({error}). {_MAKE}") from error
    if about.get("version") != VERSION:
        raise DataError(
            f"{shown_name}: has version {about.get('version')}, but this mclabel reads {VERSION}. "
            f"{_MAKE}"
        )
    if check_parquet_digest(content) != "sound":
        raise DataError(f"{shown_name}: is damaged: its content does not match its digest. {_MAKE}")
    return table, about


class RowRejects:
    """Collection of the rejected rows of one file, in the order of the file."""

    def __init__(self, source: str, *, strict: bool = False) -> None:
        """Create an empty collection.

        Args:
            source: path or URL of the file.
            strict: True to raise an error for the first row that is added.
        """
        self.source, self._strict = source, strict
        self.found: list[Reject] = []

    def add(
        self, reason: RejectReason, number: int | None = None, problem_id: str | None = None
    ) -> None:
        """Add a rejected row.

        Args:
            reason: reason for the rejection.
            number: number of the row, as in `scan_rows`; None for a fault of the whole file.
            problem_id: id of the row's problem; None if it is unknown.

        Raises:
            DataError: the collection is strict, so any rejected row is an error.
        """
        if self._strict:
            place = self.source if number is None else describe_row_place(self.source, number)
            raise DataError(f"{place}: {shorten_detail(reason.detail)}")
        self.found.append(
            Reject(
                problem_id=None if problem_id is None else shorten_detail(problem_id),
                row=number,
                source=self.source,
                reason=reason.reason,
                detail=shorten_detail(reason.detail),
            )
        )

    def describe_lack_of_usable_rows(self) -> str:
        """Return the message for a file without usable rows; it says why the first was rejected."""
        if not self.found:
            return f"{self.source}: holds no rows"
        first = self.found[0]
        return (
            f"{self.source}: none of its {len(self.found)} rows can be used; "
            f"{describe_row_place(self.source, first.row or 0)}: {first.detail}"
        )
