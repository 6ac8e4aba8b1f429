"""What exports to and imports from other people's formats share.

In these formats steps are separate texts without their line ends; here they join to the solution.
An exported step loses one closing line break, an imported one but the last gains it. An imported
label is what the file has: its `source` is `given`, counts are zero, intervals unknown. There are
no token ids: a scorer's tokenizer reads the texts. A row that is not of the format is a fault of
the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

from mclabel.core.boundary import Boundary, Guard, miscounted
from mclabel.core.components import component_names, find_component
from mclabel.core.errors import ComponentError, ConfigError, DataError, RejectReason
from mclabel.core.records import (
    Chance,
    Counts,
    LabeledSolution,
    Many,
    Outcome,
    Problem,
    Solution,
    Step,
    StepLabel,
)
from mclabel.core.seeds import content_id, text_prefix_ids

_STEP_MARK = re.compile(r"Step \d+: ")
_FIRST_STEP = re.compile(r"Step 1: ")
_SENTENCE_ENDS = tuple(".?!:;)]}$\n")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_QUESTION = re.compile(r"\?\s+")


@dataclass(frozen=True, kw_only=True)
class LabeledTexts:
    """A problem and the steps of a solution, with the labels of another format."""

    problem: str
    """Text of the problem."""
    steps: Many[str]
    """Texts of the steps, without line ends."""
    ratings: Many[Chance | None]
    """One a step: 0 is wrong, 0.5 neutral, 1 sound; None is no label."""
    answer: str = ""
    """The gold answer, empty if the format has none."""
    prediction: str | None = None
    """The solution's answer; None if the format does not have it."""
    right: bool | None = None
    """True if the solution"""
    extra: tuple[tuple[str, str], ...] = ()
    """Other fields of the format that are kept: name and text."""
    id: str = ""
    """Id of the solution, unique in its run; empty if the format has none."""

    @property
    def labeled_head(self) -> list[tuple[str, bool]]:
        """Steps and whether they are sound, up to the first without a label; neutral is sound."""
        head: list[tuple[str, bool]] = []
        for step, rating in zip(self.steps, self.ratings, strict=True):
            if rating is None:
                break
            head.append((step, rating > 0))
        return head


class Format(Protocol):
    """Other people's labelled solutions, an object a row.

    A class without constructor arguments. One that can only be written raises ConfigError in
    `read`, one that can only be read in `write`.
    """

    losses: ClassVar[str]
    """What the format cannot hold: a clause for the data set's card, such as "ids are lost"."""
    is_cut: ClassVar[bool]
    """True if a solution is written up to its first step without a label, and no further."""

    def write(self, texts: LabeledTexts) -> Mapping[str, Any] | None:
        """The row of a solution, with JSON values; None if the format cannot hold it.

        Raises:
            DataError: a text contains what the format uses as a mark.
        """

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """The solutions of a row, one or more.

        Raises:
            ValueError: the row is not of the format. LookupError and TypeError mean the same.
        """


def format_names() -> list[str]:
    """Names of all formats: the built-in ones, then those of other packages."""
    return component_names("formats")


def labeled_texts(
    problem: str,
    steps: Sequence[str],
    ratings: Sequence[float | None],
    *,
    answer: str = "",
    prediction: str | None = None,
    right: bool | None = None,
    extra: tuple[tuple[str, str], ...] = (),
) -> LabeledTexts:
    """What a row holds, checked: as many labels as steps, and all of them texts.

    Raises:
        ValueError: they are not.
    """
    texts = (problem, *steps)
    if isinstance(steps, str):
        raise ValueError("the steps are one text, must be a list of texts")
    if not steps or len(steps) != len(ratings) or not all(isinstance(t, str) for t in texts):
        raise ValueError(
            f"{len(steps)} steps for {len(ratings)} labels, or a step that is not a text"
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


def numbered_head(texts: LabeledTexts, *marks: str) -> list[tuple[str, bool]]:
    """Labelled steps, each with its `Step i: ` before it, which divides the problem from step 1.

    Args:
        texts: of a solution.
        marks: of the format, which no text may contain.

    Raises:
        DataError: a text contains a mark.
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
        for number, (step, label) in enumerate(texts.labeled_head, 1)
    ]


def split_problem(text: str, *, may_lack_mark: bool = False) -> tuple[str, str]:
    """The problem and the first step, which begins with `Step 1: `.

    A problem may speak of a "Step 1: " itself: the last one that begins a sentence counts. Without
    any, the first step follows the problem's last blank line, else its last question.

    Args:
        text: of both.
        may_lack_mark: whether the format has steps without their numbers.

    Raises:
        ValueError: nothing divides them.
    """
    marks = list(_FIRST_STEP.finditer(text))
    if marks:
        begins = [one for one in marks if _begins_sentence(text, one.start())]
        mark = (begins or marks)[-1]
        return text[: mark.start()].removesuffix(" "), text[mark.end() :]
    if may_lack_mark:
        for divides in (_BLANK_LINE, _QUESTION):
            places = [one.end() for one in divides.finditer(text)]
            if places and text[: places[-1]].strip() and text[places[-1] :].strip():
                return text[: places[-1]].rstrip(), text[places[-1] :]
        raise ValueError(
            "nothing divides the problem from its first step: no 'Step 1: ', blank line or "
            "question. Write 'Step 1: ' before the first step"
        )
    raise ValueError("no 'Step 1: ' divides the problem from its first step")


def _begins_sentence(text: str, place: int) -> bool:
    before = text[max(0, place - 2) : place].rstrip(" ")
    return before.endswith(_SENTENCE_ENDS) if before else place <= 2


def unnumbered(step: str) -> str:
    """A step without the `Step i: ` before it."""
    found = _STEP_MARK.match(step)
    return step[found.end() :] if found else step


def sign(label: str) -> float:
    """The rating that `+` or `-` stands for.

    Raises:
        ValueError: the label is neither.
    """
    if label not in ("+", "-"):
        raise ValueError(f"a label is {label!r}, must be + or -")
    return float(label == "+")


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


_EXTRAS = ("task", "id", "generator", "prm800k")
"""Fields of a problem's metadata that other formats have, too."""


def solution_texts(row: LabeledSolution) -> LabeledTexts:
    """The part of a labelled solution that other formats can hold."""
    meta = dict(row.problem.meta)
    right = {Outcome.RIGHT: True, Outcome.WRONG: False}.get(row.solution.outcome)
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
        right=right,
        extra=tuple(sorted((key, meta[key]) for key in _EXTRAS if key in meta)),
        id=_imported_id(row) or row.solution.id,
    )


def _imported_id(row: LabeledSolution) -> str | None:
    """The id that the solution had in the file it was imported from; None if it was not.

    An `id` that other problems have in their metadata is shared by their solutions.
    """
    imported = any(step.source == "given" for step in row.steps)
    return row.problem.meta.get("id") if imported else None


def labeled_solution(
    texts: LabeledTexts, *, sample_index: int, outcome: Outcome
) -> LabeledSolution:
    """A solution of another format as a labelled one.

    Args:
        texts: what the format has of the solution.
        sample_index: number of the solution among those of its problem.
        outcome: verdict on its answer.
    """
    last = len(texts.steps) - 1
    steps = [step if i == last else f"{step}\n" for i, step in enumerate(texts.steps)]
    problem = Problem(
        id=content_id("problem", texts.problem, texts.answer),
        text=texts.problem,
        answer=texts.answer,
        meta=dict(texts.extra),
    )
    prefixes = text_prefix_ids(problem.id, steps)
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
