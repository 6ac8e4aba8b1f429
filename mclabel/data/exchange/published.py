"""The exchange formats of Math-Shepherd, PRM800K, ProcessBench, RLHFlow and TRL.

`Format` explains the class attributes `lost_information` and `stops_at_unlabeled_step`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar

from mclabel.core.seeds import content_id
from mclabel.data.exchange.formats import (
    LabeledTexts,
    make_labeled_texts,
    number_labeled_steps,
    parse_rating_sign,
    split_problem,
    strip_step_number,
)
from mclabel.data.readers.judged import parse_answer_right, parse_first_error

SHEPHERD_TAG = "ки"
"""Mark after each step in the field `input`. In the field `label`, `+` or `-` replaces it."""
_TAGGED = re.compile(rf" ?{SHEPHERD_TAG}[ \t]*(?:\r?\n|$)")


class MathShepherd:
    """The format of Math-Shepherd (arXiv 2312.08935), one solution per row.

    `input` is the problem and its numbered steps, each followed by a mark. `label` is the same text
    with `+` or `-` in place of each mark.
    """

    lost_information: ClassVar[str] = (
        "labels are + or -: values, counts, intervals, the gold answer, the outcome and ids "
        "are lost; the first step without a label and all later steps are left out"
    )
    stops_at_unlabeled_step: ClassVar[bool] = True

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """Return the row of a solution; None if the format cannot represent it."""
        head = number_labeled_steps(texts, SHEPHERD_TAG)
        if not head:
            return None
        marked = "\n".join(f"{step} {SHEPHERD_TAG}" for step, _ in head)
        labels = "\n".join(f"{step} {'+' if label else '-'}" for step, label in head)
        return {
            "input": f"{texts.problem} {marked}",
            "label": f"{texts.problem} {labels}",
            "task": dict(texts.extra).get("task", "mclabel"),
        }

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """Yield the solution of a row."""
        parts = _TAGGED.split(row["input"])
        labels, start = [], 0
        for part in parts[:-1]:
            start = row["label"].index(part, start) + len(part)
            labels.append(row["label"][start : start + 2].strip()[:1])
        if parts[-1].strip() or not labels:
            raise ValueError(f"a step of input does not end in {SHEPHERD_TAG!r}, but each must")
        problem, first = split_problem(parts[0])
        steps = [strip_step_number(step) for step in (first, *parts[1:-1])]
        yield make_labeled_texts(
            problem,
            steps,
            [parse_rating_sign(label) for label in labels],
            extra=(("task", str(row["task"])),) if "task" in row else (),
        )


_RATINGS: Mapping[float | None, int] = {0.0: -1, 0.5: 0, 1.0: 1}
_VALUES = {-1: 0.0, 0: 0.5, 1: 1.0}
SOURCE = "prm800k"
"""Name of the extra field that holds the imported row as JSON, or the text `ALTERNATIVE`."""
ALTERNATIVE = "alternative"
"""Text of the extra field `SOURCE` for a solution that ends in an alternative step."""


class Prm800k:
    """The format of PRM800K (arXiv 2305.20050), one solution per row.

    People rated each step 1, 0 or -1, up to the first step rated -1. A step may have alternatives,
    which are rated, too.
    """

    lost_information: ClassVar[str] = (
        "ratings are -1, 0 or 1 up to the first error: values, counts, intervals and ids "
        "are lost; the labels after the first error are lost"
    )
    stops_at_unlabeled_step: ClassVar[bool] = False

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """Return the row of a solution; None if the format cannot represent it.

        A row that was imported is written unchanged with all of its fields, unless its labels have
        changed. Such a row contains the alternatives to its steps, so a solution that was imported
        from an alternative step gets no row of its own.
        """
        kept = dict(texts.extra).get(SOURCE)
        if kept == ALTERNATIVE and all(rating is None for rating in texts.ratings[:-1]):
            return None
        if kept is not None and kept != ALTERNATIVE:
            row: dict[str, Any] = json.loads(kept)
            if _have_same_steps_and_labels(next(self.read(row)), texts):
                return row
        rated = takewhile(lambda rating: rating is not None, texts.ratings)
        ratings = [_RATINGS[rating] for rating in rated]
        if not ratings:
            return None
        ended = len(ratings) == len(texts.steps)
        return make_prm800k_row(
            problem=texts.problem,
            answer=texts.answer,
            steps=texts.steps,
            prediction=texts.prediction,
            ratings=ratings,
            finish_reason="found_error" if -1 in ratings else "solution" if ended else "give_up",
        )

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """Yield the chosen solution, and a solution for each alternative to one of its steps.

        A solution with an alternative step ends with that step, and only that step has a label. The
        chosen solution has the labels of the earlier steps. Steps written by people count as sound.
        """
        question, rated = row["question"], row["label"]["steps"]
        answer = question.get("ground_truth_answer") or ""
        path: list[str] = []
        ratings: list[float | None] = []
        alternatives: list[LabeledTexts] = []
        for step in rated:
            completions, chosen = step["completions"] or [], step["chosen_completion"]
            if chosen is None and not step.get("human_completion"):
                chosen = 0 if completions else None
            for index, completion in enumerate(completions):
                if index != chosen:
                    unlabeled: list[float | None] = [None] * len(path)
                    alternatives.append(
                        make_labeled_texts(
                            question["problem"],
                            [*path, completion["text"]],
                            [*unlabeled, _read_rating(completion)],
                            answer=answer,
                            extra=((SOURCE, ALTERNATIVE),),
                        )
                    )
            if chosen is not None:
                path.append(completions[chosen]["text"])
                ratings.append(_read_rating(completions[chosen]))
            elif human := step.get("human_completion"):
                path.append(human["text"])
                ratings.append(1.0)
        pregenerated_steps = question.get("pre_generated_steps") or []
        is_pregenerated = list(pregenerated_steps[: len(path)]) == path
        rest = list(pregenerated_steps[len(path) :]) if is_pregenerated else []
        yield make_labeled_texts(
            question["problem"],
            [*path, *rest],
            [*ratings, *[None] * len(rest)],
            answer=answer,
            prediction=question.get("pre_generated_answer") if is_pregenerated else None,
            extra=((SOURCE, json.dumps(row)),),
        )
        yield from (
            alternative for alternative in alternatives if alternative.ratings[-1] is not None
        )


def make_prm800k_row(
    *,
    problem: str,
    answer: str,
    steps: Sequence[str],
    prediction: str | None,
    ratings: Sequence[int | None],
    finish_reason: str,
    labeler: str = "mclabel",
    timestamp: str | None = None,
    total_time: int = 0,
    is_control: bool = False,
) -> dict[str, Any]:
    """Return a row of PRM800K without alternatives to its steps.

    Args:
        problem: text of the problem.
        answer: gold answer.
        steps: texts of all steps of the solution.
        prediction: answer of the solution.
        ratings: ratings of the first steps. Those after the first -1 are left out.
        finish_reason: reason why the rating ended, such as `found_error`.
        labeler: name of the person or program that rated the steps.
        timestamp: time of the rating in ISO format; None if it is unknown.
        total_time: duration of the rating in milliseconds.
        is_control: True if the solution is a gold solution.
    """
    rated = ratings[: ratings.index(-1) + 1] if -1 in ratings else ratings
    return {
        "labeler": labeler,
        "timestamp": timestamp,
        "generation": None,
        "is_quality_control_question": is_control,
        "is_initial_screening_question": False,
        "question": {
            "problem": problem,
            "ground_truth_solution": None,
            "ground_truth_answer": answer,
            "pre_generated_steps": list(steps),
            "pre_generated_answer": prediction,
            "pre_generated_verifier_score": None,
        },
        "label": {
            "steps": [
                {
                    "completions": [{"text": text, "rating": rating, "flagged": False}],
                    "human_completion": None,
                    "chosen_completion": None if rating == -1 else 0,
                }
                for text, rating in zip(steps, rated, strict=False)
            ],
            "total_time": total_time,
            "finish_reason": finish_reason,
        },
    }


def _have_same_steps_and_labels(first: LabeledTexts, second: LabeledTexts) -> bool:
    """Return whether two records have equal labels, and equal steps except for line breaks."""
    steps = [[step.removesuffix("\n") for step in texts.steps] for texts in (first, second)]
    return steps[0] == steps[1] and first.ratings == second.ratings


def _read_rating(completion: Mapping[str, Any]) -> float | None:
    rating = completion.get("rating")
    return None if rating is None else _VALUES[rating]


class ProcessBench:
    """The format of ProcessBench (arXiv 2412.06559), one solution per row.

    Its label is the 0-based index of the first wrong step, or -1 if no step is wrong.
    """

    lost_information: ClassVar[str] = (
        "labels are the first error of each solution: values, counts, intervals and the gold "
        "answer are lost; the labels after the first error are lost; solutions without an outcome, "
        "and solutions without an error in which some step has no label, are left out"
    )
    stops_at_unlabeled_step: ClassVar[bool] = False

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """Return the row of a solution; None if the format cannot represent it."""
        head = [label for _, label in texts.leading_labeled_steps]
        error = head.index(False) if False in head else None
        if texts.right is None or (error is None and len(head) < len(texts.steps)):
            return None
        extra = dict(texts.extra)
        return {
            "id": texts.id or content_id("solution", texts.problem, texts.steps),
            "generator": extra.get("generator", "mclabel"),
            "problem": texts.problem,
            "steps": list(texts.steps),
            "final_answer_correct": texts.right,
            "label": -1 if error is None else error,
        }

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """Yield the solution of a row."""
        steps = row["steps"]
        error = parse_first_error(row["label"], len(steps))
        ratings: list[float | None] = [1.0] * len(steps)
        if error is not None:
            ratings[error:] = [0.0, *[None] * (len(steps) - error - 1)]
        yield make_labeled_texts(
            row["problem"],
            steps,
            ratings,
            right=parse_answer_right(row["final_answer_correct"]),
            extra=tuple((key, str(row[key])) for key in ("generator", "id") if key in row),
        )


class Rlhflow:
    """The format of RLHFlow, one solution per row.

    It is a conversation in which the user states the steps, and the assistant answers each with `+`
    or `-`. The first message begins with the problem.
    """

    lost_information: ClassVar[str] = (
        "labels are + or -: values, counts, intervals, the gold answer, the outcome and ids "
        "are lost; the first step without a label and all later steps are left out"
    )
    stops_at_unlabeled_step: ClassVar[bool] = True

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """Return the row of a solution; None if the format cannot represent it."""
        head = number_labeled_steps(texts)
        if not head:
            return None
        turns = []
        for index, (step, label) in enumerate(head):
            content = f"{texts.problem} {step}" if index == 0 else step
            turns.append({"role": "user", "content": content})
            turns.append({"role": "assistant", "content": "+" if label else "-"})
        return {"conversations": turns}

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """Yield the solution of a row. The steps may lack their numbers."""
        turns = row["conversations"]
        roles = [turn["role"] for turn in turns]
        if roles != ["user", "assistant"] * (len(turns) // 2):
            raise ValueError("the turns must alternate between user and assistant")
        problem, first = split_problem(turns[0]["content"], may_lack_mark=True)
        steps = [first, *(turn["content"] for turn in turns[2::2])]
        signs = [parse_rating_sign(turn["content"].strip()) for turn in turns[1::2]]
        yield make_labeled_texts(problem, [strip_step_number(step) for step in steps], signs)


class Trl:
    """The format of TRL's stepwise supervision, one solution per row.

    `completions` are the texts of the steps, and `labels` are true for sound steps. An export ends
    a solution before its first step without a label.
    """

    lost_information: ClassVar[str] = (
        "labels are booleans: values, counts, intervals, the gold answer, the outcome and "
        "ids are lost; the first step without a label and all later steps are left out"
    )
    stops_at_unlabeled_step: ClassVar[bool] = True

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """Return the row of a solution; None if the format cannot represent it."""
        head = texts.leading_labeled_steps
        if not head:
            return None
        return {
            "prompt": texts.problem,
            "completions": [step for step, _ in head],
            "labels": [label for _, label in head],
        }

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """Yield the solution of a row."""
        steps, labels = row["completions"], row["labels"]
        if not all(isinstance(label, bool) for label in labels):
            raise ValueError("the labels must be booleans")
        yield make_labeled_texts(row["prompt"], steps, [float(label) for label in labels])
