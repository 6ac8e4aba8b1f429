"""The protocol of exchange formats, and the conversion between their rows and labelled solutions.

In these formats, steps are separate texts without final line breaks. An export removes one final
line break per step, and an import adds it again. Imported labels have the source `given`, and no
counts, intervals or token ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

from mclabel.core.boundary import Boundary, Guard, check_item_count
from mclabel.core.components import find_component, list_component_names
from mclabel.core.errors import ComponentError, ConfigError, DataError, RejectReason
from mclabel.core.records import (
    Counts,
    LabeledSolution,
    Outcome,
    Probability,
    Problem,
    Solution,
    Step,
    StepLabel,
    TupleOf,
)
from mclabel.core.seeds import content_id, hash_text_prefixes

_STEP_MARK = re.compile(r"Step \d+: ")
_FIRST_STEP = re.compile(r"Step 1: ")
_SENTENCE_ENDS = tuple(".?!:;)]}$\n")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_QUESTION = re.compile(r"\?\s+")


@dataclass(frozen=True, kw_only=True)
class LabeledTexts:
    """Problem, steps and labels of a solution, in the common form of all exchange formats."""

    problem: str
    """Text of the problem."""
    steps: TupleOf[str]
    """Texts of the steps, without trailing line breaks."""
    ratings: TupleOf[Probability | None]
    """Rating of each step: 0 for wrong, 0.5 for neutral, 1 for sound; None without a label."""
    answer: str = ""
    """Gold answer; empty if the format has none."""
    prediction: str | None = None
    """Answer of the solution; None if the format has none."""
    right: bool | None = None
    """True if the solution's answer is right; None if the format has no such information."""
    extra: tuple[tuple[str, str], ...] = ()
    """Further fields of the row that an export writes again, as pairs of a name and a text."""
    id: str = ""
    """Id of the solution, unique in its run; empty if the format has none."""

    @property
    def leading_labeled_steps(self) -> list[tuple[str, bool]]:
        """The steps before the first step without a label, as pairs of a step's text and a flag.

        The flag is True if the step is sound or neutral, and False if it is wrong.
        """
        head: list[tuple[str, bool]] = []
        for step, rating in zip(self.steps, self.ratings, strict=True):
            if rating is None:
                break
            head.append((step, rating > 0))
        return head


class Format(Protocol):
    """Exchange format with one JSON object per row.

    The class takes no constructor arguments. A format that can only be written raises ConfigError
    in `read`. A format that can only be read raises ConfigError in `write`.
    """

    lost_information: ClassVar[str]
    """Clause for the data set's card that names the lost information, such as "ids are lost"."""
    stops_at_unlabeled_step: ClassVar[bool]
    """True if a solution is written only up to its first step without a label, because the format
    needs a label for each step."""

    def write(self, texts: LabeledTexts) -> Mapping[str, Any] | None:
        """Return the row of a solution, with JSON values; None if the format cannot represent it.

        Raises:
            DataError: a text contains a mark that the format uses to separate steps.
        """

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """Yield the solutions of a row, at least one.

        Raises:
            ValueError: the row does not have this format. A LookupError or a TypeError has the same
                meaning.
        """


def list_format_names() -> list[str]:
    """Return the names of all formats: built-in ones first, then those of other packages."""
    return list_component_names("formats")


def make_labeled_texts(
    problem: str,
    steps: Sequence[str],
    ratings: Sequence[float | None],
    *,
    answer: str = "",
    prediction: str | None = None,
    right: bool | None = None,
    extra: tuple[tuple[str, str], ...] = (),
) -> LabeledTexts:
    """Check the steps and the ratings of a row, and return them as a `LabeledTexts`.

    The arguments are the fields of `LabeledTexts`.

    Raises:
        ValueError: there are no steps, the numbers of steps and ratings differ, or a step or the
            problem is not a string.
    """
    texts = (problem, *steps)
    if isinstance(steps, str):
        raise ValueError("steps must be a list of strings, not a single string")
    if not steps or len(steps) != len(ratings) or not all(isinstance(t, str) for t in texts):
        raise ValueError(
            f"steps must be strings, with one label per step. Found {len(steps)} steps and "
            f"{len(ratings)} labels"
        )
    return LabeledTexts(
        problem=problem,
        steps=tuple(steps),
        ratings=tuple(ratings),
        answer=str(answer),
        prediction=prediction,
        right=right,
        extra=extra,
    )


def number_labeled_steps(texts: LabeledTexts, *marks: str) -> list[tuple[str, bool]]:
    """Return the steps before the first step without a label, each with the prefix `Step i: `.

    The items are pairs of a step's text and a flag, which is True if the step is sound or neutral.
    The prefix of the first step separates it from the problem.

    Args:
        texts: solution with its labels.
        marks: marks of the format, which neither the problem nor a step may contain.

    Raises:
        DataError: the problem or a step contains a mark or `Step 1: `.
    """
    for text in (texts.problem, *texts.steps):
        for mark in (*marks, "Step 1: "):
            if mark in text:
                raise DataError(
                    f"problem {texts.problem[:60]!r}: contains {mark!r}, which the format uses as "
                    "a mark. Choose another format"
                )
    return [
        (f"Step {number}: {step}", label)
        for number, (step, label) in enumerate(texts.leading_labeled_steps, 1)
    ]


def split_problem(text: str, *, may_lack_mark: bool = False) -> tuple[str, str]:
    """Split a text into the problem and the first step, without the step's prefix `Step 1: `.

    The problem may itself contain "Step 1: ", so the last occurrence that begins a sentence counts.

    Args:
        text: text of the problem followed by the first step.
        may_lack_mark: True if the text may lack the prefix. The first step then follows the last
            blank line, or the last question mark if there is no blank line.

    Raises:
        ValueError: nothing separates the problem from the step.
    """
    marks = list(_FIRST_STEP.finditer(text))
    if marks:
        begins = [mark for mark in marks if _begins_sentence(text, mark.start())]
        mark = (begins or marks)[-1]
        return text[: mark.start()].removesuffix(" "), text[mark.end() :]
    if may_lack_mark:
        for divides in (_BLANK_LINE, _QUESTION):
            places = [match.end() for match in divides.finditer(text)]
            if places and text[: places[-1]].strip() and text[places[-1] :].strip():
                return text[: places[-1]].rstrip(), text[places[-1] :]
        raise ValueError(
            "no 'Step 1: ', blank line or question separates the problem from its first step. "
            "Write 'Step 1: ' before the first step"
        )
    raise ValueError("no 'Step 1: ' separates the problem from its first step")


def _begins_sentence(text: str, place: int) -> bool:
    before = text[max(0, place - 2) : place].rstrip(" ")
    return before.endswith(_SENTENCE_ENDS) if before else place <= 2


def strip_step_number(step: str) -> str:
    """Return a step without its prefix `Step i: `."""
    prefix = _STEP_MARK.match(step)
    return step[prefix.end() :] if prefix else step


def parse_rating_sign(label: str) -> float:
    """Return the rating of a step's label: 1 for `+` and 0 for `-`.

    Raises:
        ValueError: the label is neither.
    """
    if label not in ("+", "-"):
        raise ValueError(f"a label is {label!r}, must be + or -")
    return float(label == "+")


NOT_OF_THE_FORMAT = (LookupError, TypeError, ValueError, AttributeError)
"""Exceptions that `Format.read` raises for a row that does not have the format."""


def find_format(name: str) -> Format:
    """Return an instance of the format with a given name.

    Args:
        name: name of a built-in format or of another package's format, or `module:Class`.

    Raises:
        ConfigError: nothing has this name, or the object with this name is not a format.
        ComponentError: the format cannot be constructed.
    """
    target = find_component("formats", name)
    if not isinstance(target, type):
        raise ConfigError(
            f"{name}: is a {type(target).__name__}, must be a class with write, read, "
            "lost_information and stops_at_unlabeled_step (docs/extending-formats.md)"
        )
    missing = [
        part
        for part in ("write", "read", "lost_information", "stops_at_unlabeled_step")
        if not hasattr(target, part)
    ]
    if missing:
        raise ConfigError(
            f"{name}: is not an exchange format, because it lacks {', '.join(missing)} "
            "(docs/extending-formats.md)"
        )
    around = Boundary("formats", name)
    exchange_format: Format = around.call("__init__", target)
    if around.is_built_in:
        return exchange_format
    around.call("lost_information", lambda: exchange_format.lost_information, result_type=str)
    around.call(
        "stops_at_unlabeled_step", lambda: exchange_format.stops_at_unlabeled_step, result_type=bool
    )
    return cast(Format, Guard(exchange_format, Format, around, {"read": _find_ratings_fault}))


def read_row(
    format_: Format, row: Mapping[str, Any], name: str
) -> list[LabeledTexts | RejectReason]:
    """Return one item per solution of a row: its texts, or the reason why it cannot be used.

    A row of PRM800K has several solutions, and some may be usable while others are not. If the row
    does not have the fields of the format, the list holds a single rejection reason.

    Args:
        format_: format of the row.
        row: mapping with the format's fields.
        name: name of the format, for messages.
    """
    try:
        return [_reject_blank_texts(texts) or texts for texts in format_.read(row)]
    except (*NOT_OF_THE_FORMAT, ComponentError) as error:
        cause = error.__cause__ if isinstance(error, ComponentError) else error
        if not isinstance(cause, NOT_OF_THE_FORMAT):
            raise
        detail = (
            f"not a row of {name}: {type(cause).__name__} {cause}. docs/formats.md describes the "
            "fields of such a row"
        )
        return [RejectReason("bad_row", detail)]


def _find_ratings_fault(texts: LabeledTexts, before: object) -> str | None:
    if not texts.steps:
        return "gave a solution without steps, must give at least one step"
    return check_item_count("ratings of", texts.ratings, "step", len(texts.steps))


def _reject_blank_texts(texts: LabeledTexts) -> RejectReason | None:
    if not texts.problem.strip():
        return RejectReason("no_problem", "the problem is blank. Give the problem a text")
    blank = [number for number, step in enumerate(texts.steps, 1) if not step.strip()]
    if not blank:
        return None
    return RejectReason(
        "bad_solution", f"step {blank[0]} of {len(texts.steps)} is blank. Give each step a text"
    )


_EXTRAS = ("task", "id", "generator", "prm800k")
"""Fields of a problem's metadata that exchange formats keep in `LabeledTexts.extra`."""


def convert_to_labeled_texts(row: LabeledSolution) -> LabeledTexts:
    """Return the part of a labelled solution that other formats can represent."""
    meta = dict(row.problem.meta)
    return LabeledTexts(
        problem=row.problem.text,
        steps=tuple(step.text.removesuffix("\n") for step in row.solution.steps),
        ratings=tuple(
            None
            if label.hard is None
            else 0.5
            if label.source == "given" and label.value == 0.5
            else float(label.hard)
            for label in row.steps
        ),
        answer=row.problem.answer,
        prediction=row.solution.prediction,
        right={Outcome.RIGHT: True, Outcome.WRONG: False}.get(row.solution.outcome),
        extra=tuple(sorted((key, meta[key]) for key in _EXTRAS if key in meta)),
        id=find_imported_id(row) or row.solution.id,
    )


def find_imported_id(row: LabeledSolution) -> str | None:
    """Return the id that an imported solution had in its file; None if it was not imported.

    The import keeps that id as `id` in the problem's metadata. In other runs, this `id` belongs to
    the problem and is shared by all its solutions, so it is not returned.
    """
    imported = any(step.source == "given" for step in row.steps)
    return row.problem.meta.get("id") if imported else None


def convert_to_solution(
    texts: LabeledTexts, *, sample_index: int, outcome: Outcome
) -> LabeledSolution:
    """Convert a solution of another format to a labelled solution.

    Args:
        texts: texts and ratings of the solution.
        sample_index: 0-based index of the solution among the solutions of its problem.
        outcome: whether the solution's answer is right, as read from the other format.
    """
    last = len(texts.steps) - 1
    steps = [step if i == last else f"{step}\n" for i, step in enumerate(texts.steps)]
    problem = Problem(
        id=content_id("problem", texts.problem, texts.answer),
        text=texts.problem,
        answer=texts.answer,
        meta=dict(texts.extra),
    )
    prefixes = hash_text_prefixes(problem.id, steps)
    labels = tuple(
        StepLabel(
            prefix_id=prefix,
            counts=Counts(),
            source="none" if rating is None else "given",
            hard=None if rating is None else rating > 0,
            value=rating,
            low=None,
            high=None,
        )
        for prefix, rating in zip(prefixes, texts.ratings, strict=True)
    )
    return LabeledSolution(
        problem=problem,
        solution=Solution(
            id=content_id("solution", problem.id, sample_index),
            problem_id=problem.id,
            sample_index=sample_index,
            text="".join(steps),
            ids=(),
            steps=tuple(Step(text=step, end=0) for step in steps),
            finish_reason="stop",
            origin="given",
            prediction=texts.prediction,
            outcome=outcome,
        ),
        prompt_ids=(),
        steps=labels,
        first_error=next((i for i, r in enumerate(texts.ratings) if r == 0), None),
        root=Counts(),
        siblings=Counts(),
    )
