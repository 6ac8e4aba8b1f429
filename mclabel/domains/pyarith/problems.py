"""Programming problems whose every step can be checked exactly: arith's stories as functions.

A problem tells an arith story whose numbers are parameters, and asks for `solve`. The gold is a
set of hidden tests, as data: `{"fn_name": "solve", "inputs": [[2, 3], ...], "outputs": [6, ...]}`.
On the inputs of the tests all quantities are valid, and no constant, no parameter and no other
quantity of the story passes them all.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence

from mclabel.core.records import Problem
from mclabel.domains.arith.problems import (
    MAX_STEPS,
    MIN_STEPS,
    Split,
    chosen_families,
    split_of,
    stream,
)
from mclabel.domains.pyarith.function import Function, Inputs, function_of

NUM_TESTS, NUM_EXAMPLES, NUM_STATES = 6, 2, 4
MAX_DRAWS = 4000
"""Of inputs for one problem; few stories need more, and they are told again."""


def generate(
    count: int,
    *,
    seed: int,
    split: Split,
    families: Sequence[str] | None = None,
    num_steps: tuple[int, int] = (MIN_STEPS, MAX_STEPS),
) -> list[Problem]:
    """`count` distinct problems of a split.

    Args:
        count: how many.
        seed: problems are a function of (seed, split, families, num_steps) alone.
        split: decided by a hash of each problem's text: the three never share a problem.
        families: as of arith, with the same ones kept out of training.
        num_steps: as of arith.

    Returns:
        Problems whose `meta` holds `family`, `num_steps` and `function` (JSON, see
        `Function.from_json`). The gold's `examples` are the inputs of its first two tests.

    Raises:
        ValueError: an unknown family, or one kept out of training asked for in `train`.
    """
    problems: list[Problem] = []
    for text, function, meta, rng in _told(seed, split, families, num_steps):
        if len(problems) == count:
            break
        drawn = _draw(function, rng)
        if drawn is None:
            continue
        tests, states = drawn[:NUM_TESTS], drawn[NUM_TESTS:]
        kept = Function(
            nodes=function.nodes, target=function.target, story=function.story, states=states
        )
        inputs = [list(values) for values in tests]
        gold = {
            "fn_name": "solve",
            "inputs": inputs,
            "outputs": [_values(function, values)[function.target] for values in tests],
            "examples": inputs[:NUM_EXAMPLES],
        }
        problems.append(
            Problem(
                id="pyarith-" + hashlib.sha256(text.encode()).hexdigest()[:16],
                text=text,
                answer=json.dumps(gold),
                answer_is_json=True,
                meta={**meta, "function": kept.to_json()},
            )
        )
    return problems


def stories(
    seed: int, split: Split, families: Sequence[str] | None = None
) -> Iterator[tuple[str, Function]]:
    """Texts and functions without end and without tests, for training text."""
    return ((text, function) for text, function, _, _ in _told(seed, split, families))


def _told(
    seed: int,
    split: Split,
    families: Sequence[str] | None,
    num_steps: tuple[int, int] = (MIN_STEPS, MAX_STEPS),
) -> Iterator[tuple[str, Function, dict[str, str], random.Random]]:
    chosen = chosen_families(families, split)
    rng = random.Random(f"pyarith:{seed}:{split}:{chosen}")
    seen: set[str] = set()
    for problem in stream(rng, chosen, num_steps):
        found = function_of(problem)
        if found is None or split_of(found[0]) != split or found[0] in seen:
            continue
        seen.add(found[0])
        meta = {key: problem.meta[key] for key in ("family", "num_steps")}
        yield *found, meta, random.Random(f"pyarith:{found[0]}")


def _draw(function: Function, rng: random.Random) -> tuple[Inputs, ...] | None:
    """Inputs of the tests and of the hidden states, on which no two quantities are the same."""
    drawn: list[Inputs] = []
    for _ in range(MAX_DRAWS):
        inputs = tuple(rng.randint(max(2, n // 2), 2 * n + 2) for n in function.story)
        if inputs in drawn or function.values(inputs) is None:
            continue
        drawn.append(inputs)
        if len(drawn) == NUM_TESTS + NUM_STATES:
            if all(_tell_apart(function, p) for p in (drawn[:NUM_TESTS], drawn[NUM_TESTS:])):
                return tuple(drawn)
            drawn.clear()
    return None


def _tell_apart(function: Function, inputs: Sequence[Inputs]) -> bool:
    """Whether parameters and quantities all differ from each other, and none is constant."""
    rows = [(*one, *_values(function, one)) for one in inputs]
    columns = list(zip(*rows, strict=True))
    return len(set(columns)) == len(columns) and all(len(set(c)) > 1 for c in columns)


def _values(function: Function, inputs: Sequence[int]) -> list[int]:
    values = function.values(inputs)
    assert values is not None
    return values
