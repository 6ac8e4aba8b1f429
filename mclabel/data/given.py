"""Checks the arguments of functions of the Python API: paths, texts, functions and rows.

Rows may be given as mappings, dataclass instances, data frames, data sets, generators or records of
this package, and become mappings with JSON values. Data frames are recognised by their methods, so
that pandas need not be imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

from mclabel.answers.golds import Gold, InvalidGold, read_gold
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import LabeledSolution, Problem

MAX_SHOWN = 100
"""Maximum number of characters of a value that an error message quotes."""


def require_path_or_url(value: Any, key: str) -> str:
    """Return a path or URL as text.

    Args:
        value: text or path object that names a folder, a file or a run.
        key: name of the argument, for messages.

    Raises:
        ConfigError: the value is neither a string nor a path, or a file cannot have that name.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise ConfigError(
            f"{key}={shorten_value(value)}: must be a string or a path, is a "
            f"{type(value).__name__}. Give a name or a path, such as {key}='runs/mine'"
        )
    if not is_valid_unicode(text) or "\0" in text:
        raise ConfigError(
            f"{key}={shorten_value(text)}: must be a name or a path, but holds characters that no "
            "file name can have. Remove the zero bytes and lone surrogates from it"
        )
    return text


def require_text(text: Any, key: str) -> str:
    """Return a text after checking that tokenizers and files accept it.

    Raises:
        DataError: the value is not a string, or not valid Unicode.
    """
    if not isinstance(text, str):
        raise DataError(
            f"{key}={shorten_value(text)}: must be a string, is a {type(text).__name__}. Give a str"
        )
    if not is_valid_unicode(text):
        raise DataError(_describe_lone_surrogates(key))
    return text


def require_callable(function: Any, key: str) -> Callable[..., Any]:
    """Return a function after checking that it can be called.

    Raises:
        ConfigError: the value is not callable.
    """
    if not callable(function):
        raise ConfigError(
            f"{key}={shorten_value(function)}: must be a function, is a {type(function).__name__}. "
            "Give a function, or omit the argument"
        )
    return function  # type: ignore[no-any-return]


def iterate_given_rows(rows: Any, key: str) -> Iterator[Any]:
    """Return an iterator over rows, for `convert_to_row`.

    Args:
        rows: a data frame, a data set, a mapping that is one row, or an iterable of rows.
        key: name of the argument, for messages.

    Raises:
        DataError: the value holds no rows.
    """
    if isinstance(rows, Mapping) and hasattr(rows, "column_names"):
        raise DataError(
            f"{key}: holds the splits {', '.join(map(str, rows))}, but only one set of rows can "
            f"be used. Give one split, such as {key}[{next(iter(rows), 'train')!r}]"
        )
    if isinstance(rows, Mapping):
        return iter([rows])
    if hasattr(rows, "itertuples"):
        return _iterate_frame_rows(rows)
    if isinstance(rows, str | bytes | type) or not isinstance(rows, Iterable):
        raise DataError(
            f"{key}={shorten_value(rows)}: must hold rows, is a {type(rows).__name__}. Give a list "
            "of mappings, records or dataclass instances, a data frame or a data set"
        )
    return iter(rows)


def convert_to_row(item: Any, row_name: str) -> dict[str, Any]:
    """Convert a row to a mapping of columns to JSON values.

    Args:
        item: a mapping, a dataclass instance, or a record.
        row_name: place of the row, for messages.

    Raises:
        DataError: the row has another type, or holds a value that JSON cannot represent.
    """
    try:
        content = json.dumps(
            _convert_item_to_columns(item, row_name),
            ensure_ascii=False,
            default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value),
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"{row_name}: holds a value that cannot be stored as JSON ({error}). Give texts, "
            "numbers, lists and mappings with texts as keys"
        ) from error
    if not is_valid_unicode(content):
        raise DataError(_describe_lone_surrogates(row_name))
    row: dict[str, Any] = json.loads(content)
    return row


def parse_gold(gold: Any) -> Gold:
    """Convert a reference answer to a `Gold`, which checkers compare answers with.

    Raises:
        DataError: the answer is missing or has an unknown form.
    """
    parsed_gold = read_gold(gold)
    if isinstance(parsed_gold, InvalidGold) and parsed_gold.reason == "no_gold":
        raise DataError(
            f"gold={shorten_value(gold)}: must be an answer, but this value means that no answer "
            "is known. Give the right answer as a string, a number, a list or a mapping"
        )
    if isinstance(parsed_gold, InvalidGold):
        raise DataError(
            f"gold={shorten_value(gold)}: must be a string, a number, a list or a mapping of JSON. "
            f"It {parsed_gold.detail}. Give the right answer in such a form"
        )
    require_text(parsed_gold.answer, "gold")
    return parsed_gold


def is_valid_unicode(text: str) -> bool:
    """Return whether a text is valid Unicode, without lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shorten_value(value: Any) -> str:
    """Return the text of a value for a message, cut after `MAX_SHOWN` characters."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _describe_lone_surrogates(row_name: str) -> str:
    return (
        f"{row_name}: a string is not valid Unicode, because it holds lone surrogates. Remove the "
        "surrogates with text.encode(errors='ignore').decode()"
    )


def _convert_item_to_columns(item: Any, row_name: str) -> dict[str, Any]:
    if isinstance(item, Problem):
        return {
            "id": item.id,
            "problem": item.text,
            "answer": item.gold,
            "meta": dict(item.meta),
        }
    if isinstance(item, LabeledSolution):
        return {
            "problem_id": item.problem.id,
            "problem": item.problem.text,
            "solution": item.solution.text,
        }
    if isinstance(item, Mapping):
        return {str(name): value for name, value in item.items()}
    if is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in fields(item)}
    raise DataError(
        f"{row_name}={shorten_value(item)}: must be a mapping with its columns, a dataclass "
        f"instance or a record, is a {type(item).__name__}. Give a mapping with problem and answer"
    )


def _iterate_frame_rows(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a pandas data frame; missing values become None."""
    names = [str(name) for name in frame.columns]
    whole = frame.astype(object)
    for row in whole.where(frame.notna(), None).itertuples(index=False, name=None):
        yield dict(zip(names, row, strict=True))


def join_steps(
    steps: Sequence[str], *, separator: str | None = None, whole: object = None
) -> list[str]:
    """Return the steps with separators, so that their concatenation is the solution.

    Each step but the last gets the separator at its end. Without a separator, a line break is used,
    unless the steps already join to `whole` or all have white space between them.

    Args:
        steps: texts of the steps, at least one.
        separator: text to insert between all steps; None follows the rule above.
        whole: text of the whole solution; None if it is unknown.
    """
    if separator is None:
        boundaries = [step[-1:] + following[:1] for step, following in pairwise(steps)]
        is_separated = all(any(map(str.isspace, boundary)) for boundary in boundaries)
        separator = "" if "".join(steps) == whole or is_separated else "\n"
    return [*(step + separator for step in steps[:-1]), steps[-1]]
