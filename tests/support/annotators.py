"""Simulated annotators of solutions whose first errors are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.annotate.items import AnnotationSettings, Item, digest_texts
from mclabel.annotate.storage import write_folder
from tests.support.annotated import add_events, event

Ints = NDArray[np.int64]


def first_errors(rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
    """Return random first errors and numbers of steps.

    The number of steps stands for no error.
    """
    num_steps = rng.integers(3, 8, count)
    wrong = rng.random((count, 8)) < 0.12
    first = np.argmax(wrong, 1)
    return np.where(wrong.any(1) & (first < num_steps), first, num_steps), num_steps


def names(rng: np.random.Generator, accuracy: float, errors: Ints, num_steps: Ints) -> Ints:
    """Return first errors named by a person who is right with a chance of `accuracy`.

    Otherwise the person names a random other one.
    """
    others = (errors + rng.integers(1, num_steps + 1)) % (num_steps + 1)
    return np.where(rng.random(len(errors)) < accuracy, errors, others)


def ratings(named: int, steps: int) -> list[str | None]:
    """Return the ratings of a person who names a first error; `named=steps` means no error."""
    rated: list[str | None] = ["good"] * min(named, steps)
    return rated if named >= steps else [*rated, "bad", *[None] * (steps - named - 1)]


def rollouts(rng: np.random.Generator, errors: Ints, num_steps: Ints) -> NDArray[np.float64]:
    """Return chances of first errors that favour the truth seven times in ten."""
    chances = np.zeros((len(errors), int(num_steps.max()) + 1))
    for row, (error, steps) in enumerate(zip(errors, num_steps, strict=True)):
        seen = error if rng.random() < 0.7 else rng.integers(0, steps + 1)
        likely = np.full(steps + 1, 0.3 / (steps + 1))
        likely[seen] += 0.7
        usual = np.append(0.12 * 0.88 ** np.arange(steps), 0.88**steps)
        chances[row, : steps + 1] = usual * likely / (usual * likely).sum()
    return chances


def write_labelled(
    folder: Path, num_steps: Ints, named: Mapping[str, Ints], **settings: Any
) -> Sequence[str]:
    """Write a folder in which all people have labelled all solutions; return the solutions' ids."""
    folder.mkdir()
    people = tuple(named)
    items = [
        Item(
            id=f"s{n}", problem=f"p{n}", answer="1", steps=("x",) * int(steps), prediction=None,
            digest=digest_texts(f"p{n}", ("x",) * int(steps)), stratum="all", probability=1.0,
            people=people,
        )
        for n, steps in enumerate(num_steps)
    ]  # fmt: skip
    said = [
        event(
            n, id=f"{who:03d}-{n:08d}", person=person, solution=item.id, revision=1,
            ratings=(rated := ratings(int(named[person][n]), len(item.steps))),
            finish="found_error" if "bad" in rated else "solution", digest=item.digest,
        )
        for who, person in enumerate(people)
        for n, item in enumerate(items)
    ]  # fmt: skip
    chosen = AnnotationSettings(id="t", run="run", run_id="r", people=people, **settings)
    write_folder(folder, chosen, items)
    add_events(folder, said)
    return [item.id for item in items]
