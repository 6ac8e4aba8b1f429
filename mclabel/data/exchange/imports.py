"""Other people's labelled solutions as ours: the way back from `exports`.

A label is what the file has: its `source` is `given`, counts are zero, intervals unknown. There are
no token ids: a scorer's tokenizer reads the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mclabel.data.exchange.formats import SHEPHERD_TAG, Format, LabeledTexts
from mclabel.errors import DataError
from mclabel.records import (
    Counts,
    LabeledSolution,
    Outcome,
    Problem,
    Solution,
    Step,
    StepLabel,
)
from mclabel.seeds import content_id

_VALUES = {-1: 0.0, 0: 0.5, 1: 1.0}
_STEP_MARK = re.compile(r"Step \d+: ")
_TAGGED = re.compile(rf" ?{SHEPHERD_TAG}(?:\n|$)")


def import_row(row: Mapping[str, Any], source: Format, place: str) -> Iterator[LabeledTexts]:
    """The solutions of one row of another format; of PRM800K there may be several.

    Raises:
        DataError: the row is not of that format; `place` is named.
    """
    try:
        yield from _IMPORTS[source](row)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(
            f"{place}: not a row of {source}: {type(error).__name__} {error}. docs/formats.md "
            "says what it must hold"
        ) from error


def labeled_solution(
    texts: LabeledTexts, *, sample_index: int, outcome: Outcome
) -> LabeledSolution:
    """A row of a labels shard.

    Args:
        texts: the solution.
        sample_index: counts the solutions of the problem.
        outcome: of its answer.
    """
    last = len(texts.steps) - 1
    steps = [step if i == last else f"{step}\n" for i, step in enumerate(texts.steps)]
    problem = Problem(
        id=content_id("problem", texts.problem, texts.answer),
        text=texts.problem,
        answer=texts.answer,
        meta=dict(texts.extra),
    )
    prefixes = ["".join(steps[: i + 1]) for i in range(len(steps))]
    labels = tuple(
        StepLabel(
            prefix_id=content_id("text prefix", problem.id, prefix),
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


def _trl(row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
    steps, labels = row["completions"], row["labels"]
    if not all(isinstance(label, bool) for label in labels):
        raise ValueError("labels must be booleans")
    yield _texts(row["prompt"], steps, [float(label) for label in labels])


def _math_shepherd(row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
    parts = _TAGGED.split(row["input"])
    labels, start = [], 0
    for part in parts[:-1]:
        start = row["label"].index(part, start) + len(part)
        labels.append(row["label"][start : start + 2].strip()[:1])
    if parts[-1].strip() or not labels:
        raise ValueError(f"a step of the input does not end in {SHEPHERD_TAG!r}")
    problem, first = _split_problem(parts[0])
    steps = [_unnumbered(step) for step in (first, *parts[1:-1])]
    extra = (("task", str(row["task"])),) if "task" in row else ()
    yield _texts(problem, steps, [_sign(label) for label in labels], extra=extra)


def _rlhflow(row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
    turns = row["conversations"]
    roles = [turn["role"] for turn in turns]
    if roles != ["user", "assistant"] * (len(turns) // 2):
        raise ValueError("turns must alternate between user and assistant")
    problem, first = _split_problem(turns[0]["content"])
    steps = [first, *(turn["content"] for turn in turns[2::2])]
    signs = [_sign(turn["content"].strip()) for turn in turns[1::2]]
    yield _texts(problem, [_unnumbered(step) for step in steps], signs)


def _split_problem(text: str) -> tuple[str, str]:
    """The problem and the first step, which begins with `Step 1: `."""
    problem, mark, first = text.partition("Step 1: ")
    if not mark:
        raise ValueError("no 'Step 1: ' tells the problem from its first step")
    return problem.removesuffix(" "), first


def _unnumbered(step: str) -> str:
    found = _STEP_MARK.match(step)
    return step[found.end() :] if found else step


def _sign(label: str) -> float:
    if label not in ("+", "-"):
        raise ValueError(f"a label is {label!r}, must be + or -")
    return float(label == "+")


def _prm800k(row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
    """The solution that was followed, and each alternative to one of its steps.

    Of an alternative only its last step is labelled: the steps before it are labelled where they
    were followed. Human completions are sound.
    """
    question, rated = row["question"], row["label"]["steps"]
    answer = question.get("ground_truth_answer") or ""
    path: list[str] = []
    ratings: list[float | None] = []
    others: list[LabeledTexts] = []
    for step in rated:
        completions, chosen = step["completions"] or [], step["chosen_completion"]
        if chosen is None and not step.get("human_completion"):
            chosen = 0 if completions else None
        for index, completion in enumerate(completions):
            if index != chosen:
                unlabeled: list[float | None] = [None] * len(path)
                others.append(
                    _texts(
                        question["problem"],
                        [*path, completion["text"]],
                        [*unlabeled, _rating(completion)],
                        answer=answer,
                    )
                )
        if chosen is not None:
            path.append(completions[chosen]["text"])
            ratings.append(_rating(completions[chosen]))
        elif human := step.get("human_completion"):
            path.append(human["text"])
            ratings.append(1.0)
    given = question.get("pre_generated_steps") or []
    whole = list(given[: len(path)]) == path
    rest = list(given[len(path) :]) if whole else []
    prediction = question.get("pre_generated_answer") if whole else None
    yield _texts(
        question["problem"],
        [*path, *rest],
        [*ratings, *[None] * len(rest)],
        answer=answer,
        prediction=prediction,
    )
    yield from (other for other in others if other.ratings[-1] is not None)


def _rating(completion: Mapping[str, Any]) -> float | None:
    rating = completion.get("rating")
    return None if rating is None else _VALUES[rating]


def _processbench(row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
    steps, label = row["steps"], row["label"]
    if not -1 <= label < len(steps):
        raise ValueError(f"label {label} for {len(steps)} steps")
    ratings: list[float | None] = [1.0] * len(steps)
    if label >= 0:
        ratings[label:] = [0.0, *[None] * (len(steps) - label - 1)]
    extra = tuple((key, str(row[key])) for key in ("generator", "id") if key in row)
    yield _texts(row["problem"], steps, ratings, right=row["final_answer_correct"], extra=extra)


def _texts(
    problem: str,
    steps: Sequence[str],
    ratings: Sequence[float | None],
    *,
    answer: str = "",
    prediction: str | None = None,
    right: bool | None = None,
    extra: tuple[tuple[str, str], ...] = (),
) -> LabeledTexts:
    texts = (problem, *steps)
    if not steps or len(steps) != len(ratings) or not all(isinstance(t, str) for t in texts):
        raise ValueError(f"{len(steps)} steps for {len(ratings)} labels, or a text that is none")
    return LabeledTexts(
        problem=problem,
        steps=tuple(steps),
        ratings=tuple(ratings),
        answer=str(answer),
        prediction=prediction,
        right=right,
        extra=extra,
    )


_IMPORTS: Mapping[Format, Callable[[Mapping[str, Any]], Iterator[LabeledTexts]]] = {
    "trl": _trl,
    "math-shepherd": _math_shepherd,
    "rlhflow": _rlhflow,
    "prm800k": _prm800k,
    "processbench": _processbench,
}
