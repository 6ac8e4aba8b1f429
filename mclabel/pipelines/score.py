"""Score a file of solutions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from mclabel.data.outputs import check_places, output_file
from mclabel.data.readers.problem_rows import text_of
from mclabel.data.readers.rows import LONE_SURROGATES, Fault, row_place, scan_rows
from mclabel.data.readers.solutions import solution_in
from mclabel.data.shards.rejects import Reject
from mclabel.errors import ConfigError, DataError
from mclabel.pipelines.provenance import server_address, weights_of, write_provenance


def score_file(
    prm: str,
    solutions: str,
    out: str | None,
    *,
    device: str,
    url: str | None = None,
    form: str = "mclabel",
    strict: bool = False,
    on_reject: Callable[[Reject], None] = lambda reject: None,
    trust_remote_code: bool = False,
) -> Iterator[str]:
    """The file's rows as JSON lines with `scores` and their aggregations, in order.

    Args:
        prm: folder of a PRM.
        solutions: file with `problem`, and `solution` or `steps`.
        out: written whole at the end, beside it rows left out (`OUT.rejects.jsonl`) and what
            scored (`OUT.provenance.json`); without it the lines are given back.
        device: torch device.
        url: of a server of the same PRM, which then computes the scores.
        form: of the PRM, a key of `mclabel.prm.scoring.scorer.FORMATS`.
        strict: whether a row that cannot be scored is an error; else it is left out.
        on_reject: called with each row that is left out, in order.
        trust_remote_code: run Python code that comes with the PRM.

    Raises:
        DataError: the file cannot be read, or none of its rows can be scored; if strict, one
            cannot.
        ConfigError: `out` is the file that is read.
        ShardError: `out` cannot be written.
    """
    from mclabel.prm.scoring.aggregate import AGGREGATIONS
    from mclabel.prm.scoring.score import check_scores
    from mclabel.prm.scoring.scorer import load_prm

    _check_out(out, solutions)
    rejects = _Rejects(solutions, strict=strict)
    rows = list(_rows(solutions, rejects))
    rejects.check_any_left(len(rows))
    scorer = load_prm(prm, form=form, url=url, device=device, trust_remote_code=trust_remote_code)
    kept, encoded = [], []
    for one in rows:
        try:
            encoded.append(scorer.encode(one.problem, one.steps, one.place))
            kept.append(one)
        except DataError as error:
            rejects.add_unreadable(one, error)
    rejects.check_any_left(len(kept))
    found = scorer.score_encoded(encoded)
    check_scores(prm, found, [one.place for one in kept])
    lines = []
    for one, scores in zip(kept, found, strict=True):
        row: dict[str, Any] = {**one.row, "scores": scores}
        for name, how in AGGREGATIONS.items():
            row[name] = how(scores)
        lines.append(json.dumps(row, ensure_ascii=False, default=str))
    for reject in rejects.in_order:
        on_reject(reject)
    if out is None:
        yield from lines
        return
    rejects.write(Path(f"{out}.rejects.jsonl"))
    partial = Path(f"{out}.partial")
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    partial.rename(out)
    write_provenance(
        Path(f"{out}.provenance.json"),
        prm=prm,
        weights=weights_of(prm),
        format=form,
        url=None if url is None else server_address(url),
        trust_remote_code=trust_remote_code,
    )
    yield f"{len(lines)} solutions scored, written to {out}"
    if left_out := len(rejects.in_order):
        yield f"{left_out} rows have no scores; the reasons: {out}.rejects.jsonl"


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A solution to score."""

    number: int
    place: str
    row: Mapping[str, Any]
    problem: str
    steps: str | list[str]


class _Rejects:
    """The rows of a file that cannot be scored."""

    def __init__(self, source: str, *, strict: bool) -> None:
        self._source, self._strict = source, strict
        self._found: list[Reject] = []

    @property
    def in_order(self) -> list[Reject]:
        """By row."""
        return sorted(self._found, key=lambda reject: reject.row or 0)

    def add(self, number: int, fault: Fault) -> None:
        """Leave out a row.

        Raises:
            DataError: if strict.
        """
        if self._strict:
            raise DataError(f"{row_place(self._source, number)}: {fault.detail}")
        self._found.append(
            Reject(row=number, source=self._source, reason=fault.reason, detail=fault.detail)
        )

    def add_unreadable(self, one: _Row, error: DataError) -> None:
        """Leave out a row that the scorer cannot encode; raises as `add`."""
        from mclabel.prm.examples.encode import TooLongError

        reason = "too_long" if isinstance(error, TooLongError) else "unreadable"
        self.add(one.number, Fault(reason, str(error).removeprefix(f"{one.place}: ")))

    def check_any_left(self, num_left: int) -> None:
        """Refuse a file of which nothing is left.

        Raises:
            DataError: names the first row that was left out.
        """
        if num_left:
            return
        if not self._found:
            raise DataError(f"{self._source}: holds no solutions")
        first = self.in_order[0]
        raise DataError(
            f"{self._source}: none of its {len(self._found)} rows can be scored; "
            f"{row_place(self._source, first.row or 0)}: {first.detail}"
        )

    def write(self, path: Path) -> None:
        """A line a row; without any there is no file."""
        if self._found:
            path.write_bytes(b"".join(reject.line() for reject in self.in_order))
        else:
            path.unlink(missing_ok=True)


def _check_out(out: str | None, solutions: str) -> None:
    if out is None:
        return
    path = Path(out)
    if path.exists() and Path(solutions).exists() and path.samefile(solutions):
        raise ConfigError(f"-o {out}: is the file that is read. Give another")
    suffixes = ("", ".partial", ".rejects.jsonl", ".provenance.json")
    check_places(str(path.parent), files=[f"{path.name}{suffix}" for suffix in suffixes])
    output_file(out, "-o ")


def _rows(solutions: str, rejects: _Rejects) -> Iterator[_Row]:
    for number, row in scan_rows(solutions):
        place = row_place(solutions, number)
        found = row if isinstance(row, Fault) else _row(number, place, row)
        if isinstance(found, Fault):
            rejects.add(number, found)
        else:
            yield found


def _row(number: int, place: str, row: Any) -> _Row | Fault:
    if not isinstance(row, Mapping):
        return Fault("not_an_object", "must be an object with a problem and a solution")
    problem = text_of(row.get("problem"), numbers=False)
    if isinstance(problem, Fault):
        return Fault("no_problem", f"needs a problem (text): it {problem.detail}")
    given = solution_in(row)
    if isinstance(given, Fault):
        return given
    if given.step_ends is None:
        steps: str | list[str] = given.text
    else:
        steps = [given.text[a:b] for a, b in pairwise((0, *given.step_ends))]
    try:
        f"{problem}{given.text}".encode()
    except UnicodeEncodeError:
        return Fault("not_utf8", LONE_SURROGATES)
    return _Row(number=number, place=place, row=row, problem=problem, steps=steps)
