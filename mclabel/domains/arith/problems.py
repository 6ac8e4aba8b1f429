"""Generated multi-step word problems whose every step can be checked exactly.

A problem is a short story about named people and things. It is built together with a hidden
program: a list of nodes `left op right = value`. Each node has a sentence that states it, its
*claim*. The reference solution writes the nodes that the question needs, one node a line, and
boxes the last value. The program determines the truth of every step of any sampled solution
(`mclabel.domains.arith.verify`).

These design choices let a language model of about a million parameters learn the domain on two CPU
cores, and still make interesting errors:

- Every quantity is an integer in [1, 199].
- Each *family* of stories has its own events. Two families are kept out of training: `gifts` mixes
  the events of two training families, and `riddles` states comparisons in reverse order.
- About one problem in ten ends in a whole-number quotient from 1 to 5 ("how many full trays?").
  For such problems a wrong step often leads to the right answer, as with multiple choice.
- The hash of a problem's text decides whether it belongs to train, validation or test. So the
  splits are disjoint for all seeds.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from typing import Literal

from mclabel.core.records import Problem
from mclabel.domains.arith.program import InfeasibleDraw, Story
from mclabel.domains.arith.stories import (
    FAMILIES,
    HELD_OUT_FAMILIES,
    TRAIN_FAMILIES,
    add_tray_question,
)

Split = Literal["train", "validation", "test"]

MIN_STEPS, MAX_STEPS = 3, 8
MAX_STORY_STEPS = 10
"""Largest number of steps for which every family can generate a story."""
SMALL_ANSWER_RATE = 0.1
"""Share of problems that end in a quotient from 1 to 5."""


def generate_problems(
    count: int,
    *,
    seed: int,
    split: Split,
    families: Sequence[str] | None = None,
    num_steps: tuple[int, int] = (MIN_STEPS, MAX_STEPS),
) -> list[Problem]:
    """Draw `count` distinct problems of a split.

    Args:
        count: number of problems.
        seed: random seed. The problems depend only on (seed, split, families, num_steps).
        split: part of the problems: `train`, `validation` or `test`. A hash of a problem's text
            decides to which part it belongs, so the parts share no problem.
        families: families of stories, drawn uniformly; repeat a name to draw it more often. None
            takes the families that training uses.
        num_steps: minimum and maximum steps of a reference solution, without the answer line.

    Returns:
        Problems whose `meta` holds `family`, `answer_type` ("integer" or "small"),
        `num_steps` and `program` (JSON, see `Program.from_json`).

    Raises:
        ValueError: a family is unknown, or is kept out of training and the split is `train`.
    """
    drawn_families = validate_families(families, split)
    problems: list[Problem] = []
    seen_texts: set[str] = set()
    rng = random.Random(f"arith:{seed}:{split}:{drawn_families}")
    for problem in stream_problems(rng, drawn_families, num_steps):
        if len(problems) == count:
            break
        if assign_split(problem.text) == split and problem.text not in seen_texts:
            seen_texts.add(problem.text)
            problems.append(problem)
    return problems


def validate_families(families: Sequence[str] | None, split: Split) -> tuple[str, ...]:
    """Check the families to draw from, and return them; None gives the families of training.

    Raises:
        ValueError: a family is unknown, or is kept out of training and the split is `train`.
    """
    drawn_families = tuple(families or TRAIN_FAMILIES)
    if unknown := [family for family in drawn_families if family not in FAMILIES]:
        raise ValueError(f"families={unknown}: must be among {sorted(FAMILIES)}")
    if split == "train" and (
        held_out := [family for family in drawn_families if family in HELD_OUT_FAMILIES]
    ):
        raise ValueError(f"families={held_out}: kept out of training; use split='test'")
    return drawn_families


def assign_split(text: str) -> Split:
    """Return the split to which a problem with this text belongs.

    80% of problems belong to `train`, 10% to `validation` and 10% to `test`.
    """
    bucket = hashlib.sha256(text.encode()).digest()[0] % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def stream_problems(
    rng: random.Random, families: Sequence[str], bounds: tuple[int, int]
) -> Iterator[Problem]:
    """Yield an endless sequence of problems of all splits.

    Args:
        rng: random generator that determines all problems.
        families: families of stories to draw from.
        bounds: minimum and maximum steps of a reference solution, without the answer line.
    """
    while True:
        family = rng.choice(families)
        num_steps = rng.randint(*bounds)
        has_small_answer = num_steps > 1 and rng.random() < SMALL_ANSWER_RATE
        story = None
        while story is None:
            story = _try_draw_story(rng, family, num_steps, has_small_answer)
        yield _make_problem(story, family, num_steps, has_small_answer)


def _try_draw_story(
    rng: random.Random, family: str, num_steps: int, has_small_answer: bool
) -> Story | None:
    """Try once to draw a story whose answer needs exactly `num_steps` nodes; None if it fails.

    If `has_small_answer` is true, the answer is a quotient from 1 to 5.
    """
    story = Story(rng)
    try:
        FAMILIES[family](story, num_steps - has_small_answer)
        if has_small_answer:
            add_tray_question(story)
    except InfeasibleDraw:
        return None
    return story if story.count_needed_nodes() == num_steps else None


def _make_problem(story: Story, family: str, num_steps: int, has_small_answer: bool) -> Problem:
    program, text = story.build_program(), " ".join([*story.sentences, story.question])
    return Problem(
        id="arith-" + hashlib.sha256(text.encode()).hexdigest()[:16],
        text=text,
        answer=str(program.answer),
        meta={
            "family": family,
            "answer_type": "small" if has_small_answer else "integer",
            "num_steps": str(num_steps),
            "program": program.to_json(),
        },
    )
