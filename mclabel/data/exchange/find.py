"""Finds an exchange format, and reads its rows.

A row that is not of the format is a fault of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mclabel.core.boundary import Boundary, Guard, miscounted
from mclabel.core.components import find_component
from mclabel.core.errors import ComponentError, ConfigError
from mclabel.core.rejects import RejectReason
from mclabel.data.exchange.formats import Format, LabeledTexts

NOT_OF_THE_FORMAT = (LookupError, TypeError, ValueError, AttributeError)
"""What `read` raises of a row that is not of the format."""


def find_format(name: str) -> Format:
    """The format of a name: a built-in one, another package's, or `module:Class`.

    Raises:
        ConfigError: there is none of that name, or what it names is no format.
        ComponentError: it cannot be made.
    """
    found = find_component("formats", name)
    if not isinstance(found, type):
        raise ConfigError(
            f"{name}: is a {type(found).__name__}, must be a class with write, read, losses and "
            "is_cut (docs/extending-formats.md)"
        )
    missing = [part for part in ("write", "read", "losses", "is_cut") if not hasattr(found, part)]
    if missing:
        raise ConfigError(
            f"{name}: is not an exchange format, because it lacks {', '.join(missing)} "
            "(docs/extending-formats.md)"
        )
    around = Boundary("formats", name)
    made: Format = around.call("__init__", found)
    if around.ours:
        return made
    around.call("losses", lambda: made.losses, must=str)
    around.call("is_cut", lambda: made.is_cut, must=bool)
    return cast(Format, Guard(made, Format, around, {"read": _unrated}))


def read_row(
    format_: Format, row: Mapping[str, Any], name: str
) -> list[LabeledTexts | RejectReason]:
    """The solutions of a row of another format, or why they cannot be used.

    Of PRM800K a row has several: one that cannot be used leaves the others.

    Args:
        format_: that it is of.
        row: with the format's fields.
        name: of the format, for messages.
    """
    try:
        return [_blank(texts) or texts for texts in format_.read(row)]
    except (*NOT_OF_THE_FORMAT, ComponentError) as error:
        cause = error.__cause__ if isinstance(error, ComponentError) else error
        if not isinstance(cause, NOT_OF_THE_FORMAT):
            raise
        detail = (
            f"not a row of {name}: {type(cause).__name__} {cause}. docs/formats.md has what it "
            "must hold"
        )
        return [RejectReason("bad_row", detail)]


def _unrated(texts: LabeledTexts, before: object) -> str | None:
    if not texts.steps:
        return "gave a solution without steps, must give one at least"
    return miscounted("ratings of", texts.ratings, "step", len(texts.steps))


def _blank(texts: LabeledTexts) -> RejectReason | None:
    if not texts.problem.strip():
        return RejectReason("no_problem", "its problem is blank")
    blank = [number for number, step in enumerate(texts.steps, 1) if not step.strip()]
    if not blank:
        return None
    return RejectReason(
        "bad_solution", f"step {blank[0]} of {len(texts.steps)} is blank, so nothing can be judged"
    )
