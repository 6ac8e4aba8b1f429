"""Converts rows of any data set to problems, which are found by common names of columns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isnan
from typing import Any

from mclabel.answers.golds import Gold, InvalidGold, read_gold
from mclabel.core.errors import RejectReason, shorten_detail
from mclabel.core.plain_files import MAX_ROW
from mclabel.core.records import CHANCE, Problem
from mclabel.core.seeds import content_id
from mclabel.data.options import find_option_letters, is_missing_option
from mclabel.data.readers.code_rows import read_code_row
from mclabel.data.readers.rows import LONE_SURROGATES, read_field_text

PROBLEM_COLUMNS = ("problem", "question", "prompt", "text")
ANSWER_COLUMNS = ("answer", "final_answer", "solution", "reward_model")
ID_COLUMNS = ("id", "task_id")
MAX_ANSWER = 1 << 20
"""Maximum number of characters of a gold answer, or of a solution that ends with the answer."""
METADATA_TYPES = (str, int, float, Mapping)
"""Types of values that are kept in the problem's metadata if they are in further columns. A mapping
is stored as JSON text, and any other value as text."""

Columns = tuple[str | None, str | None]
"""Name of the problem's column and name of the answer's column. None takes the first column of
`PROBLEM_COLUMNS` or `ANSWER_COLUMNS` that the row has."""


def read_problem(row: Any, columns: Columns = (None, None)) -> Problem | RejectReason:
    """Return the problem of a row, or the reason why there is none.

    Args:
        row: a mapping; any other JSON value is rejected.
        columns: columns of the problem and the answer; None takes the first column of
            `PROBLEM_COLUMNS` or `ANSWER_COLUMNS` that the row has.
    """
    problem_column, answer_column = columns
    if not isinstance(row, Mapping):
        return RejectReason("not_an_object", "must be an object with a problem and an answer")
    code = read_code_row(row) if answer_column is None else None
    if isinstance(code, RejectReason):
        return code
    is_code_text = code is not None and problem_column is None
    text = (
        code.text if code is not None and is_code_text else _find_problem_text(row, problem_column)
    )
    if isinstance(text, RejectReason):
        return text
    gold = (
        _find_gold(row, answer_column) if code is None else read_row_gold(code.gold, "of its tests")
    )
    if isinstance(gold, RejectReason):
        return gold
    answer = gold.answer
    if len(text) > MAX_ROW:
        return RejectReason(
            "too_long",
            f"the problem has {len(text):,} characters: must have at most {MAX_ROW:,}. Shorten or "
            "remove the row",
        )
    if is_missing_option(answer, text):
        options = find_option_letters(text)
        return RejectReason(
            "no_such_option",
            f"the answer is {answer}, but the problem lists only the options {options[0]} to "
            f"{options[-1]}. Correct the answer or the options",
        )
    used = {"id", "meta", problem_column, answer_column, *PROBLEM_COLUMNS, *ANSWER_COLUMNS}
    used |= code.consumed_columns if code is not None else set()
    meta = {
        k: _convert_metadata_to_text(v)
        for k, v in row.items()
        if k not in used and isinstance(v, METADATA_TYPES)
    }
    if isinstance(row.get("meta"), Mapping):
        meta |= {str(k): str(v) for k, v in row["meta"].items()}
    meta.pop(CHANCE, None)  # only settings may set it
    identity = read_row_id(row)
    try:
        "".join([text, answer, identity or "", *map(str, meta), *meta.values()]).encode()
    except UnicodeEncodeError:
        return RejectReason("not_utf8", LONE_SURROGATES)
    return Problem(
        id=content_id("problem", text, answer) if identity is None else identity,
        text=text,
        answer=answer,
        meta=meta,
        answer_is_json=gold.is_json,
    )


def _convert_metadata_to_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(dict(value), ensure_ascii=False, default=str)
    return str(value)


def read_row_id(row: Any) -> str | None:
    """Return the id of a row's problem; None if the row has none."""
    for name in ID_COLUMNS if isinstance(row, Mapping) else ():
        identity = row.get(name)
        missing = identity in (None, "") or (isinstance(identity, float) and isnan(identity))
        if not missing:
            return str(identity)
    return None


def read_row_gold(value: Any, name: str) -> Gold | RejectReason:
    """Parse the gold (reference answer or tests) in a column, or return the reason why it is none.

    Args:
        value: value of the column.
        name: name of the column, for the message.
    """
    if isinstance(value, str) and len(value) > MAX_ANSWER:
        return RejectReason(
            "too_long",
            f"the answer in column {name!r} has {len(value):,} characters: must have at most "
            f"{MAX_ANSWER:,}. Shorten or remove the row",
        )
    gold = read_gold(value)
    if isinstance(gold, InvalidGold):
        return RejectReason(gold.reason, f"the answer in column {name!r} {gold.detail}")
    return gold


def _find_gold(row: Mapping[str, Any], column: str | None) -> Gold | RejectReason:
    name = _find_column(row, "answer", column, ANSWER_COLUMNS)
    return name if isinstance(name, RejectReason) else read_row_gold(row[name], name)


def _find_problem_text(row: Mapping[str, Any], column: str | None) -> str | RejectReason:
    name = _find_column(row, "problem", column, PROBLEM_COLUMNS)
    if isinstance(name, RejectReason):
        return name
    text = _extract_problem_text(row[name])
    if isinstance(text, RejectReason):
        reason = "no_problem" if text.reason == "empty" else text.reason
        return RejectReason(reason, f"the problem in column {name!r} {text.detail}")
    return text


def _extract_problem_text(content: Any) -> str | RejectReason:
    """Return a problem's text, or the text of its only message, as in rows of verl and DAPO.

    A row with a system message is rejected, because a problem has no field for the message, so its
    instructions would be lost silently.
    """
    content = content.tolist() if hasattr(content, "tolist") else content
    if not isinstance(content, list | tuple):
        return read_field_text(content)
    roles = [message.get("role") if isinstance(message, Mapping) else None for message in content]
    if "system" in roles:
        return RejectReason(
            "wrong_type",
            "has a system message, which a problem cannot have. Remove the message from the row, "
            "and set policy.system to its text",
        )
    if roles != ["user"]:
        shown_roles = ", ".join(shorten_detail(str(role)) for role in roles[:4]) or "none"
        return RejectReason(
            "wrong_type",
            f"must be a string, or one message with the role user; has the roles {shown_roles}",
        )
    return read_field_text(content[0].get("content"))


def _find_column(
    row: Mapping[str, Any], part: str, name: str | None, defaults: Iterable[str]
) -> str | RejectReason:
    """Return the column of the problem or the answer, or the reason why the row has none.

    Args:
        row: row of a data set.
        part: `problem` or `answer`, for the message.
        name: name of the column; None takes the first of `defaults` that the row has.
        defaults: names that the column may have.
    """
    column = next(
        (candidate for candidate in ([name] if name else defaults) if candidate in row), None
    )
    if column is not None:
        return column
    return RejectReason(
        "no_column",
        f"no {part}: looked for {name or ' or '.join(defaults)!s}, the row has "
        f"{', '.join(map(str, row)) or 'no columns'}. Set problems.{part}_column",
    )
