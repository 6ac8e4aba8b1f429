"""What a caller hands over in Python: places, texts and rows, checked before anything uses them.

Rows come as mappings, dataclass instances, data frames, data sets, generators or records, and go on
as mappings of what JSON can hold. No library of tables is imported: a data frame is known by its
methods.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

from mclabel.answers.golds import Gold, NoGold, read_gold
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import LabeledSolution, Problem

MAX_SHOWN = 100
"""Characters of a value in a message."""


def place_of(place: Any, key: str) -> str:
    """A folder, file, URL or run as text.

    Args:
        place: text, or an object that stands for a path.
        key: its name, for messages.

    Raises:
        ConfigError: it is neither, or no file can have that name.
    """
    text = os.fspath(place) if isinstance(place, os.PathLike) else place
    if not isinstance(text, str):
        raise ConfigError(
            f"{key}={shown(place)}: must be a text or a path, is a {type(place).__name__}. Give "
            f"a name or a path, such as {key}='runs/mine'"
        )
    if not is_valid(text) or "\0" in text:
        raise ConfigError(
            f"{key}={shown(text)}: holds characters that no file name can have. Remove the zero "
            "bytes and lone surrogates from it"
        )
    return text


def text_of(text: Any, key: str) -> str:
    """A text that tokenizers and files take.

    Raises:
        DataError: it is no text, or not valid Unicode.
    """
    if not isinstance(text, str):
        raise DataError(
            f"{key}={shown(text)}: must be a text, is a {type(text).__name__}. Give a str"
        )
    if not is_valid(text):
        raise DataError(_lone_surrogates(key))
    return text


def call_of(function: Any, key: str) -> Callable[..., Any]:
    """A function that is to be called with progress.

    Raises:
        ConfigError: it cannot be called.
    """
    if not callable(function):
        raise ConfigError(
            f"{key}={shown(function)}: must be a function, is a {type(function).__name__}. Give "
            "one, or leave it out"
        )
    return function  # type: ignore[no-any-return]


def given_items(given: Any, what: str) -> Iterator[Any]:
    """The rows of whatever holds rows, one after another, for `row_of`.

    Args:
        given: a data frame, a data set, a mapping that is one row, or an iterable of rows.
        what: its name, for messages.

    Raises:
        DataError: it holds no rows.
    """
    if isinstance(given, Mapping) and hasattr(given, "column_names"):
        raise DataError(
            f"{what}: holds the splits {', '.join(map(str, given))}, but only one set of rows can "
            f"be used. Give one of them, such as {what}[{next(iter(given), 'train')!r}]"
        )
    if isinstance(given, Mapping):
        return iter([given])
    if hasattr(given, "itertuples"):
        return _frame_rows(given)
    if isinstance(given, str | bytes | type) or not isinstance(given, Iterable):
        raise DataError(
            f"{what}={shown(given)}: must hold rows, is a {type(given).__name__}. Give a list of "
            "mappings, records or dataclass instances, a data frame or a data set"
        )
    return iter(given)


def row_of(item: Any, place: str) -> dict[str, Any]:
    """One row as JSON holds it: columns and values.

    Args:
        item: a mapping, a dataclass instance, or a record.
        place: of the row, for messages.

    Raises:
        DataError: it is none of these, or holds what JSON cannot.
    """
    try:
        content = json.dumps(_columns(item, place), ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"{place}: holds a value that cannot be stored as JSON ({error}). Give texts, "
            "numbers, lists and mappings with texts as keys"
        ) from error
    if not is_valid(content):
        raise DataError(_lone_surrogates(place))
    row: dict[str, Any] = json.loads(content)
    return row


def gold_of(gold: Any) -> Gold:
    """A known answer as a problem holds it.

    Raises:
        DataError: nothing is known, or it is not understood.
    """
    found = read_gold(gold)
    if isinstance(found, NoGold) and found.reason == "no_gold":
        raise DataError(
            f"gold={shown(gold)}: a gold must be an answer, and this means that none is known. "
            "Give the right answer as a text, a number, a list or a mapping"
        )
    if isinstance(found, NoGold):
        raise DataError(
            f"gold={shown(gold)}: must be a text, a number, a list or a mapping, as JSON holds "
            f"them. It {found.detail}. Give the right answer as one of these"
        )
    text_of(found.answer, "gold")
    return found


def is_valid(text: str) -> bool:
    """Return whether a text is valid Unicode, which has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any) -> str:
    """A value as messages show it: in part where it is long."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _lone_surrogates(place: str) -> str:
    return (
        f"{place}: a text is not valid Unicode, because it holds lone surrogates. Remove them, as "
        "text.encode(errors='ignore').decode() does"
    )


def _columns(item: Any, place: str) -> dict[str, Any]:
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
        f"{place}={shown(item)}: must be a mapping with its columns, a dataclass instance or a "
        f"record, is a {type(item).__name__}. Give one with problem and answer"
    )


def _frame_rows(frame: Any) -> Iterator[dict[str, Any]]:
    """The rows of a data frame as pandas has it; what is missing is None."""
    names = [str(name) for name in frame.columns]
    whole = frame.astype(object)
    for row in whole.where(frame.notna(), None).itertuples(index=False, name=None):
        yield dict(zip(names, row, strict=True))


def _plain(value: Any) -> Any:
    """What JSON holds of a value that it does not know: an array's or a scalar's own, else text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def joined_steps(
    steps: Sequence[str], *, separator: str | None = None, whole: object = None
) -> list[str]:
    """Append to each step but the last the separator that follows it, so that all join to a text.

    Steps that join to the whole text, and steps that all have white space between them, are left
    as they are. Otherwise the separator is a line break.

    Args:
        steps: texts of the steps, at least one.
        separator: text between all steps; None follows the rule above.
        whole: text of the solution, where it is known.
    """
    if separator is None:
        boundaries = [step[-1:] + following[:1] for step, following in pairwise(steps)]
        is_separated = all(any(map(str.isspace, boundary)) for boundary in boundaries)
        separator = "" if "".join(steps) == whole or is_separated else "\n"
    return [*(step + separator for step in steps[:-1]), steps[-1]]
