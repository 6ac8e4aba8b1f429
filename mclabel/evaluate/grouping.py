"""Groups problems or solutions by the problems' metadata, such as family, level or subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from mclabel.core.records import LabeledSolution

GROUP_KEYS = ("answer_type", "family", "level", "subject")
"""Fields of the problems' metadata by which solutions are grouped, and can be filtered."""
MIN_GROUP_PROBLEMS = 5
"""Minimum number of problems of a group in tables; smaller groups are left out."""
MAX_GROUPS = 40
"""Maximum number of groups per field. A field with more values, such as an id, is not used."""

T = TypeVar("T")


def get_solution_meta(row: LabeledSolution) -> Mapping[str, str]:
    """Return the metadata of a solution's problem."""
    return row.problem.meta


def group_by_meta(
    items: Iterable[T], key: str, get_meta: Callable[[T], Mapping[str, str]]
) -> dict[str, list[T]]:
    """Return lists of items by the value of a metadata field; the values are in alphabetical order.

    Items without this field are left out.

    Args:
        items: problems, solutions or other items with metadata.
        key: name of the field.
        get_meta: function that returns an item's metadata.
    """
    groups: dict[str, list[T]] = {}
    for item in items:
        if (name := get_meta(item).get(key)) is not None:
            groups.setdefault(name, []).append(item)
    return dict(sorted(groups.items()))


def group_by_dividing_fields(
    items: Sequence[T],
    get_meta: Callable[[T], Mapping[str, str]],
    *,
    keys: Iterable[str] = GROUP_KEYS,
    max_groups: int | None = MAX_GROUPS,
) -> dict[str, dict[str, list[T]]]:
    """Return the items by each metadata field that divides them into groups.

    A field with a single value, or with more than `max_groups` values, is left out.

    Args:
        items: problems, solutions or other items with metadata.
        get_meta: function that returns an item's metadata.
        keys: names of the fields.
        max_groups: maximum number of values of a field; None means no maximum.

    Returns:
        Items by name of the field, and then by value in alphabetical order.
    """
    by_key = {key: group_by_meta(items, key, get_meta) for key in keys}
    return {
        key: groups
        for key, groups in by_key.items()
        if len(groups) > 1 and (max_groups is None or len(groups) <= max_groups)
    }
