"""Finds an exchange format, and checks what somebody's own gives.

What the protocol does not allow ends in a `ComponentError` that names the format, the method and
what it gave (`mclabel.boundary`). A row that is not of the format is a fault of the row.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mclabel.boundary import Boundary, shown
from mclabel.components import find_component
from mclabel.data.exchange.formats import Format, LabeledTexts
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
    with boundary.calling("__init__"):
        made: Format = found()
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

    def __init__(self, made: Format, boundary: Boundary) -> None:
        """Stand around a format.

        Args:
            made: the format.
            boundary: of it.

        Raises:
            ComponentError: what it says of itself is of the wrong type.
        """
        self._format, self._boundary = made, boundary
        if not isinstance(made.losses, str):
            raise boundary.broken("losses", f"is {shown(made.losses)}, must be a clause")
        if type(made.is_cut) is not bool:
            raise boundary.broken("is_cut", f"is {shown(made.is_cut)}, must be True or False")
        self.losses, self.is_cut = made.losses, made.is_cut

    def write(self, texts: LabeledTexts) -> Mapping[str, Any] | None:
        """The row of a solution; see `Format`."""
        with self._boundary.calling("write"):
            row = self._format.write(texts)
        _see_that_it_is_plain("write", row, self._boundary)
        if row is not None and not (isinstance(row, Mapping) and all(map(_is_text, row))):
            fault = f"gave {shown(row)}, must give a mapping of names to JSON values, or None"
            raise self._boundary.broken("write", fault)
        return row

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """The solutions of a row; see `Format`."""
        try:
            found = self._format.read(row)
            _see_that_it_is_plain("read", found, self._boundary)
            if not isinstance(found, Iterable) or isinstance(found, str | bytes | Mapping):
                fault = f"gave {shown(found)}, must give LabeledTexts, one after the other"
                raise self._boundary.broken("read", fault)
            for texts in found:
                if (wrong := _fault(texts)) is not None:
                    raise self._boundary.broken("read", wrong)
                yield texts
        except NOT_OF_THE_FORMAT:
            raise  # so says the protocol
        except (Exception, SystemExit) as error:
            with self._boundary.calling("read"):
                raise error


def _see_that_it_is_plain(method: str, found: object, boundary: Boundary) -> None:
    if inspect.iscoroutine(found):
        found.close()
        raise boundary.broken(method, f"gave a coroutine, must be a plain method (def {method})")


def _fault(texts: object) -> str | None:
    """What is wrong with a solution, as a predicate; None if nothing is."""
    if not isinstance(texts, LabeledTexts):
        return f"gave {shown(texts)}, must give LabeledTexts"
    for text in (texts.problem, texts.answer, texts.id, *texts.steps):
        if not _is_text(text):
            return f"gave {shown(text)} where a text must stand"
    if not texts.steps or len(texts.steps) != len(texts.ratings):
        return (
            f"gave {len(texts.ratings)} ratings of {len(texts.steps)} steps, must give one of "
            "each, and one step at least"
        )
    for rating in texts.ratings:
        if rating is not None and not (
            isinstance(rating, int | float) and not isinstance(rating, bool) and 0 <= rating <= 1
        ):
            return f"gave rating {shown(rating)}, must give a number in [0, 1], or None"
    if texts.prediction is not None and not _is_text(texts.prediction):
        return f"gave prediction={shown(texts.prediction)}, must give a text, or None"
    if texts.right is not None and type(texts.right) is not bool:
        return f"gave right={shown(texts.right)}, must give True, False or None"
    return None


def _is_text(value: object) -> bool:
    return isinstance(value, str)
