"""Generated multi-step word problems whose every step can be checked exactly.

A problem is a short story about named people and things, built together with a hidden
program: a list of nodes `left op right = value`, each carrying the sentence (the *claim*)
that states it. The reference solution writes the nodes that the question needs, one a
line, and boxes the last value. Because the program is known, the truth of every step of
any sampled solution is known too (`mclabel.domains.arith.verify`).

Design choices, all made so that a language model of about a million parameters can learn
the domain on two CPU cores and still err in interesting ways:

- Every quantity is an integer in [1, 199].
- Families are stories with their own events. Two are kept out of training: `gifts` mixes
  the events of two training families, `riddles` states comparisons in reverse order.
- About one problem in ten ends in a whole-number quotient between 1 and 5 ("how many full
  trays?"). There a wrong step often leads to the right answer, as with multiple choice.
- A problem belongs to train, validation or test by the hash of its text, so the splits
  are disjoint whatever the seeds.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from typing import Literal

from mclabel.core.records import Problem
from mclabel.domains.arith.program import Infeasible, Story
from mclabel.domains.arith.stories import (
    FAMILIES,
    HELD_OUT_FAMILIES,
    TRAIN_FAMILIES,
    ask_full_trays,
)

Split = Literal["train", "validation", "test"]

MIN_STEPS, MAX_STEPS = 3, 8
MOST_STEPS = 10
"""The most that every family can tell."""
SMALL_ANSWER_RATE = 0.1


def generate(
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
        seed: problems are a function of (seed, split, families, num_steps) alone.
        split: decided by a hash of each problem's text: the three never share a problem.
        families: drawn from uniformly, one named twice twice as often; by default the
            families that training uses.
        num_steps: fewest and most steps of a reference solution, the answer line not counted.

    Returns:
        Problems whose `meta` holds `family`, `answer_type` ("integer" or "small"),
        `num_steps` and `program` (JSON, see `Program.from_json`).

    Raises:
        ValueError: a family is unknown, or is kept out of training and the split is `train`.
    """
    chosen = chosen_families(families, split)
    problems: list[Problem] = []
    seen: set[str] = set()
    rng = random.Random(f"arith:{seed}:{split}:{chosen}")
    for problem in stream(rng, chosen, num_steps):
        if len(problems) == count:
            break
        if split_of(problem.text) == split and problem.text not in seen:
            seen.add(problem.text)
            problems.append(problem)
    return problems


def chosen_families(families: Sequence[str] | None, split: Split) -> tuple[str, ...]:
    """Return the families to draw from; by default those that training uses.

    Raises:
        ValueError: a family is unknown, or is kept out of training and the split is `train`.
    """
    chosen = tuple(families or TRAIN_FAMILIES)
    if unknown := [f for f in chosen if f not in FAMILIES]:
        raise ValueError(f"families={unknown}: must be among {sorted(FAMILIES)}")
    if split == "train" and (held := [f for f in chosen if f in HELD_OUT_FAMILIES]):
        raise ValueError(f"families={held}: kept out of training; use split='test'")
    return chosen


def split_of(text: str) -> Split:
    """Return the split a problem text belongs to: 80% train, 10% validation, 10% test."""
    bucket = hashlib.sha256(text.encode()).digest()[0] % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def stream(
    rng: random.Random, families: Sequence[str], bounds: tuple[int, int]
) -> Iterator[Problem]:
    """Yield the problems without end, of any split.

    Args:
        rng: decides them all.
        families: as in `generate`.
        bounds: `num_steps` of `generate`.
    """
    while True:
        family = rng.choice(families)
        num_steps = rng.randint(*bounds)
        small = num_steps > 1 and rng.random() < SMALL_ANSWER_RATE
        story = None
        while story is None:
            story = _draw(rng, family, num_steps, small)
        yield _problem(story, family, num_steps, small)


def _draw(rng: random.Random, family: str, num_steps: int, small: bool) -> Story | None:
    """Return one attempt at a story whose answer rests on exactly `num_steps` nodes."""
    story = Story(rng)
    try:
        FAMILIES[family](story, num_steps - small)
        if small:
            ask_full_trays(story)
    except Infeasible:
        return None
    return story if story.depth() == num_steps else None


def _problem(story: Story, family: str, num_steps: int, small: bool) -> Problem:
    program, text = story.program(), story.text()
    return Problem(
        id="arith-" + hashlib.sha256(text.encode()).hexdigest()[:16],
        text=text,
        answer=str(program.answer),
        meta={
            "family": family,
            "answer_type": "small" if small else "integer",
            "num_steps": str(num_steps),
            "program": program.to_json(),
        },
    )
