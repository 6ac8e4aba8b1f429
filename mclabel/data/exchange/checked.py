"""Finds an exchange format, and checks what somebody's own gives.

A row that is not of the format is a fault of the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mclabel.boundary import Boundary, given_by, misfit
from mclabel.components import find_component
from mclabel.data.exchange.formats import Format, LabeledTexts
from mclabel.data.readers.checked import not_one_by_one, not_plain
from mclabel.data.readers.rows import RejectReason
from mclabel.errors import ConfigError

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
    boundary = Boundary.named("formats", name)
    made: Format = boundary.call("__init__", found)
    return made if boundary.ours else CheckedFormat(made, boundary)


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
    except NOT_OF_THE_FORMAT as error:
        detail = (
            f"not a row of {name}: {type(error).__name__} {error}. docs/formats.md has what it "
            "must hold"
        )
        return [RejectReason("bad_row", detail)]


def _blank(texts: LabeledTexts) -> RejectReason | None:
    if not texts.problem.strip():
        return RejectReason("no_problem", "its problem is blank")
    blank = [number for number, step in enumerate(texts.steps, 1) if not step.strip()]
    if not blank:
        return None
    return RejectReason(
        "bad_solution", f"step {blank[0]} of {len(texts.steps)} is blank, so nothing can be judged"
    )


class CheckedFormat(Format):
    """A format whose rows and solutions are checked."""

    def __init__(self, made: Format, around: Boundary) -> None:
        """Stand before a format.

        Args:
            made: the format.
            around: its boundary.

        Raises:
            ComponentError: what it says of itself is of the wrong type.
        """
        self._format, self._around = made, around
        self.losses = around.call("losses", lambda: made.losses, must=str)
        self.is_cut = around.call("is_cut", lambda: made.is_cut, must=bool)

    def write(self, texts: LabeledTexts) -> Mapping[str, Any] | None:
        """The row of a solution; see `Format`."""
        row = self._around.call("write", self._format.write, texts, rule=not_plain)
        return self._around.call("write", lambda: row, must=given_by(Format.write))

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """The solutions of a row; see `Format`."""
        try:
            found = self._format.read(row)
            if fault := not_one_by_one(found):
                raise self._around.broken("read", fault)
            for texts in found:
                if fault := misfit(texts, LabeledTexts) or _fault(texts):
                    raise self._around.broken("read", fault)
                yield texts
        except NOT_OF_THE_FORMAT:
            raise  # so says the protocol
        except (Exception, SystemExit) as error:
            raise self._around.raised("read", error) from error


def _fault(texts: LabeledTexts) -> str | None:
    if texts.steps and len(texts.steps) == len(texts.ratings):
        return None
    return (
        f"gave {len(texts.ratings)} ratings of {len(texts.steps)} steps, must give one of each, "
        "and one step at least"
    )
