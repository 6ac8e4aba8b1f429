"""Groups of problems or solutions, by the problems' metadata: family, level, subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from mclabel.core.records import LabeledSolution

GROUP_KEYS = ("answer_type", "family", "level", "subject")
"""Fields of the problems' metadata by which solutions are grouped, and can be filtered."""
FEW = 5
"""Problems under which tables leave a group out."""
MAX_GROUPS = 40
"""Number of values of a field above which it groups nothing, as an id would."""

T = TypeVar("T")


def solution_meta(row: LabeledSolution) -> Mapping[str, str]:
    """Return the metadata of a solution's problem."""
    return row.problem.meta


def by_meta(
    items: Iterable[T], key: str, meta: Callable[[T], Mapping[str, str]]
) -> dict[str, list[T]]:
    """Return the items by a field of their metadata, groups sorted by name; items without it are
    left out.

    Args:
        items: problems, solutions or whatever has metadata.
        key: the field.
        meta: gives an item's metadata.
    """
    groups: dict[str, list[T]] = {}
    for item in items:
        if (name := meta(item).get(key)) is not None:
            groups.setdefault(name, []).append(item)
    return dict(sorted(groups.items()))


def groups_by_key(
    items: Sequence[T],
    meta: Callable[[T], Mapping[str, str]],
    *,
    keys: Iterable[str] = GROUP_KEYS,
    max_groups: int | None = MAX_GROUPS,
) -> dict[str, dict[str, list[T]]]:
    """Return the items by each field that divides them: one with a single value does not, nor one
    with many.

    Args:
        items: problems, solutions or whatever has metadata.
        meta: gives an item's metadata.
        keys: the fields.
        max_groups: number of values up to which a field counts; None is any.

    Returns:
        By field, and by its value in alphabetical order.
    """
    by_key = {key: by_meta(items, key, meta) for key in keys}
    return {
        key: groups
        for key, groups in by_key.items()
        if len(groups) > 1 and (max_groups is None or len(groups) <= max_groups)
    }
