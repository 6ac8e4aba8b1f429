"""Records read back from files of ours: types, ranges and unknown keys are checked in one place.

The annotations of a dataclass say what a record may hold. A file that keeps its digest may still
have been written by another program, and what counts on its numbers would fail far from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from mclabel.core.faults import fault_text
from mclabel.core.settings.fields import MAX_TOTAL

T = TypeVar("T")

Count = Annotated[int, Field(ge=0, le=MAX_TOTAL)]
"""Type of a field that counts something, or is an index."""
Amount = Annotated[float, Field(ge=0)]
"""Type of a field that holds a finite number which is not negative, such as hours."""
MAX_GIVEN = 60
"""Characters of a wrong value that a message repeats."""


def read_record(kind: type[T], content: Any) -> T:
    """A record, from what JSON or a row of a table holds of it.

    Args:
        kind: a dataclass, or another type that pydantic knows.
        content: mappings, lists, texts, numbers, true, false and None.

    Raises:
        ValueError: names the first field that is wrong, its value and the rule.
    """
    try:
        found: tuple[T] = _adapter(cast("Any", kind)).validate_json(json.dumps([content]))
    except ValidationError as error:
        raise ValueError(_fault(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found[0]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # A dataclass takes these rules from what holds it alone: hence the tuple.
    rules = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    return TypeAdapter(tuple[kind], config=rules)


def _fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place, given = ".".join(map(str, first["loc"][1:])), first["input"]
    is_whole = isinstance(given, Mapping | list) or first["type"].startswith("missing")
    shown = "" if is_whole else f"={repr(given)[:MAX_GIVEN]}"
    return f"{place}{shown}: {fault_text(first)}" if place else fault_text(first)
