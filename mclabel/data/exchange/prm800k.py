"""The format of PRM800K (arXiv 2305.20050)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from mclabel.data.exchange.formats import LabeledTexts, labeled_texts

_RATINGS = {0.0: -1, 0.5: 0, 1.0: 1}
_VALUES = {-1: 0.0, 0: 0.5, 1: 1.0}
SOURCE = "prm800k"
"""Name, among what is kept of a solution, of the row that it was imported from, as JSON; of an
alternative, `ALTERNATIVE`."""
ALTERNATIVE = "alternative"


class Prm800k:
    """The format of PRM800K (arXiv 2305.20050)."""

    losses: ClassVar[str] = (
        "ratings are -1, 0 or 1 up to the first error: values, counts, intervals and ids "
        "are lost; the labels after the first error are lost"
    )
    is_cut: ClassVar[bool] = False

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """The row of a solution; None if the format cannot hold it.

        A row that was imported is written as it was, with all of its fields, unless the labels
        are others by now. Its alternatives are in it, and make no rows of their own.
        """
        kept = dict(texts.extra).get(SOURCE)
        if kept == ALTERNATIVE and _only_last(texts):
            return None
        if kept is not None and kept != ALTERNATIVE:
            row: dict[str, Any] = json.loads(kept)
            if _same(next(self.read(row)), texts):
                return row
        rated = []
        for step, rating in zip(texts.steps, texts.ratings, strict=True):
            if rating is None:
                break
            completion = {"text": step, "rating": _RATINGS[rating], "flagged": False}
            rated.append(
                {"completions": [completion], "human_completion": None, "chosen_completion": 0}
            )
            if rating == 0:
                rated[-1]["chosen_completion"] = None
                break
        if not rated:
            return None
        error = rated[-1]["chosen_completion"] is None
        ended = len(rated) == len(texts.steps)
        return {
            "labeler": "mclabel",
            "timestamp": None,
            "generation": None,
            "is_quality_control_question": False,
            "is_initial_screening_question": False,
            "question": {
                "problem": texts.problem,
                "ground_truth_solution": None,
                "ground_truth_answer": texts.answer,
                "pre_generated_steps": list(texts.steps),
                "pre_generated_answer": texts.prediction,
                "pre_generated_verifier_score": None,
            },
            "label": {
                "steps": rated,
                "total_time": 0,
                "finish_reason": "found_error" if error else "solution" if ended else "give_up",
            },
        }

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """The solution that was followed, and each alternative to one of its steps.

        Of an alternative only its last step is labelled: the steps before it are labelled where
        they were followed. Human completions are sound.
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
                        labeled_texts(
                            question["problem"],
                            [*path, completion["text"]],
                            [*unlabeled, _rating(completion)],
                            answer=answer,
                            extra=((SOURCE, ALTERNATIVE),),
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
        yield labeled_texts(
            question["problem"],
            [*path, *rest],
            [*ratings, *[None] * len(rest)],
            answer=answer,
            prediction=prediction,
            extra=((SOURCE, json.dumps(row)),),
        )
        yield from (other for other in others if other.ratings[-1] is not None)


def _same(one: LabeledTexts, other: LabeledTexts) -> bool:
    """Whether steps and labels are the same; a line's end is not of a step."""
    ends = [[step.removesuffix("\n") for step in texts.steps] for texts in (one, other)]
    return ends[0] == ends[1] and one.ratings == other.ratings


def _only_last(texts: LabeledTexts) -> bool:
    return all(rating is None for rating in texts.ratings[:-1])


def _rating(completion: Mapping[str, Any]) -> float | None:
    rating = completion.get("rating")
    return None if rating is None else _VALUES[rating]
