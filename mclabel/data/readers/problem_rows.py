"""Problems in the rows of other people's data sets, whatever their columns are called."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isinf, isnan
from typing import Any

from mclabel.answers import reference_answer
from mclabel.data.limits import MAX_ROW
from mclabel.data.readers.rows import LONE_SURROGATES, RejectReason
from mclabel.records import Problem
from mclabel.seeds import content_id

PROBLEM_COLUMNS = ("problem", "question", "prompt", "text")
ANSWER_COLUMNS = ("answer", "final_answer", "solution")
MAX_ANSWER = 1 << 20
"""Characters of a gold, or of the solution that it is the end of."""

Columns = tuple[str | None, str | None]
"""Names of the columns of problem and answer; None for the usual ones."""


def problem_in(row: Any, columns: Columns = (None, None)) -> Problem | RejectReason:
    """The problem that a row holds, or why it holds none.

    Args:
        row: a mapping; any other JSON value is rejected.
        columns: of the problem and of the answer; None takes the first of `PROBLEM_COLUMNS` and
            of `ANSWER_COLUMNS` that is there.
    """
    problem_column, answer_column = columns
    if not isinstance(row, Mapping):
        return RejectReason("not_an_object", "must be an object with a problem and an answer")
    text = _column(row, "problem", problem_column, PROBLEM_COLUMNS)
    if isinstance(text, RejectReason):
        return text
    given = _column(row, "answer", answer_column, ANSWER_COLUMNS)
    if isinstance(given, RejectReason):
        return given
    if len(text) > MAX_ROW or len(given) > MAX_ANSWER:
        return RejectReason(
            "too_long",
            f"the problem has {len(text):,} characters and the answer {len(given):,}: at most "
            f"{MAX_ROW:,} and {MAX_ANSWER:,} are taken. Shorten or remove the row",
        )
    structured = isinstance(_value(row, answer_column, ANSWER_COLUMNS), Mapping | list)
    answer = given if structured else reference_answer(given)
    used = {"id", "meta", problem_column, answer_column, *PROBLEM_COLUMNS, *ANSWER_COLUMNS}
    meta = {k: str(v) for k, v in row.items() if k not in used and isinstance(v, str | int | float)}
    if isinstance(row.get("meta"), Mapping):
        meta |= {str(k): str(v) for k, v in row["meta"].items()}
    identity = given_id(row)
    try:
        "".join([text, answer, identity or "", *map(str, meta), *meta.values()]).encode()
    except UnicodeEncodeError:
        return RejectReason("not_utf8", LONE_SURROGATES)
    return Problem(
        id=content_id("problem", text, answer) if identity is None else identity,
        text=text,
        answer=answer,
        meta=meta,
        answer_is_json=structured,
    )


def given_id(row: Any) -> str | None:
    """The id that a row gives to its problem; None if it gives none."""
    identity = row.get("id") if isinstance(row, Mapping) else None
    missing = identity in (None, "") or (isinstance(identity, float) and isnan(identity))
    return None if missing else str(identity)


def _value(row: Mapping[str, Any], name: str | None, defaults: Iterable[str]) -> Any:
    """The value of a column, by its name or the first of the usual ones; None if none is there."""
    return next((row[one] for one in ([name] if name else defaults) if one in row), None)


def _column(
    row: Mapping[str, Any], what: str, name: str | None, defaults: Iterable[str]
) -> str | RejectReason:
    names = [name] if name else [d for d in defaults if d in row]
    missing = "no_gold" if what == "answer" else "no_problem"
    if not names or names[0] not in row:
        return RejectReason(
            missing,
            f"no {what}: looked for {name or ' or '.join(defaults)!s}, the row has "
            f"{', '.join(map(str, row)) or 'no columns'}. Set problems.{what}_column",
        )
    value = row[names[0]]
    if what == "answer" and isinstance(value, Mapping | list) and value:
        found = _json_of(value)
    else:
        found = text_of(value, numbers=what == "answer")
    if isinstance(found, RejectReason):
        reason = missing if found.reason == "empty" else found.reason
        return RejectReason(reason, f"the {what} in column {names[0]!r} {found.detail}")
    return found


def _json_of(content: Mapping[str, Any] | list[Any]) -> str | RejectReason:
    """An object or a list as JSON, or why it is none."""
    try:
        return json.dumps(content, ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return RejectReason("wrong_type", f"holds a value that JSON cannot store ({error})")


def text_of(content: Any, *, numbers: bool) -> str | RejectReason:
    """A field of a row as text, or why it cannot be used as one.

    Python's JSON, Parquet and pandas store NaN for a missing value. It is not a text, even if it
    was converted to one ("nan").

    Args:
        content: of a field of the row.
        numbers: whether a finite number stands for its text.

    Returns:
        The text, or a `RejectReason` with the code `empty` or `wrong_type`. Its detail lacks a
        subject: the caller puts the column before it.
    """
    if content is None or (isinstance(content, str) and not content.strip()):
        return RejectReason("empty", "is empty. Remove the row")
    nothing = isinstance(content, str) and content.strip().casefold() == "nan"
    if nothing or (isinstance(content, float) and isnan(content)):
        return RejectReason(
            "empty", "is NaN, which stands for a missing value. Fill it in or remove the row"
        )
    if isinstance(content, str):
        return content
    if isinstance(content, float) and isinf(content):
        return RejectReason(
            "wrong_type", f"is {content}: must be finite, or a text such as '\\infty'"
        )
    if numbers and isinstance(content, int | float) and not isinstance(content, bool):
        return str(content)
    wanted = "a text or a number" if numbers else "a text"
    return RejectReason("wrong_type", f"must be {wanted}, is a {type(content).__name__}")
