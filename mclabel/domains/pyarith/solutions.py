"""Solutions written from a problem's hidden function: right ones, and ones that misread.

A solution is `def solve(...)`, a statement a node, and `return`. For training, some nodes take
other forms: a product is a loop that adds, a division goes through a helper. Misreadings are
arith's (`mclabel.domains.arith.misconceptions`): the same events at the same rates, by the same
kinds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from mclabel.domains.arith.misconceptions import (
    FLIPPED,
    MISCONCEPTIONS,
    MISUNDERSTOOD,
    OFTEN,
    SELDOM,
)
from mclabel.domains.arith.program import Operation, apply
from mclabel.domains.pyarith.problems import MAX_QUANTITY, Function

LOOP_RATE = 0.2
"""How often a product is written as a loop, in training text."""
HELPER_RATE = 0.25
"""How often a solution divides through a helper, in training text."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """A solution, and what is misread in it."""

    text: str
    nodes: tuple[int | None, ...]
    """By line: the index of the node that is complete with it, None for other lines."""
    misread: frozenset[int]
    """Indices of the nodes that were misread. A skipped one has no line."""


def reference(function: Function) -> str:
    """The solution in its plain form, one statement a node."""
    return write(function, rng=random.Random(0)).text


def write(
    function: Function, *, rng: random.Random, forms: bool = False, strength: float = 0.0
) -> Written:
    """A solution in which events are misread at their own rates.

    A misreading that leads out of the range of quantities on the story's own numbers is dropped.

    Args:
        function: the problem's hidden truth.
        rng: decides forms and misreadings.
        forms: whether to write some nodes as loops and calls.
        strength: factor on the rates of misreading; at 0 the solution is right.
    """
    for attempt in range(9):
        if written := _follow(function, rng, forms, strength if attempt < 8 else 0.0):
            return written
    raise AssertionError("a story's own numbers are valid")


def _follow(function: Function, rng: random.Random, forms: bool, strength: float) -> Written | None:
    values = dict(zip(function.parameters, function.story, strict=True))
    names: dict[int, str] = {}
    lines: list[tuple[str, int | None]] = []
    misread: set[int] = set()
    helper = forms and rng.random() < HELPER_RATE
    for index in function.needed():
        node, op = function.nodes[index], function.nodes[index].op
        left, right = (names[int(o[1:])] if o[0] == "#" else o for o in (node.left, node.right))
        rate = OFTEN if node.event in MISUNDERSTOOD else SELDOM
        if rng.random() < rate * strength:
            kind = MISCONCEPTIONS[node.event]
            others = [name for name in function.parameters if name not in (left, right)]
            if kind == "operand" and not others:
                return None
            misread.add(index)
            if kind == "skip":
                names[index] = right if node.right[0] == "#" and node.left[0] != "#" else left
                continue
            if kind == "flip":
                op = FLIPPED[op]
            elif node.left[0] == "#":
                right = rng.choice(others)
            else:
                left = rng.choice(others)
        # The exactness of a share is a matter of the story, not of what its reader writes.
        whole: Operation = "//" if op == "/" else op
        a, b = (values[o] if o in values else int(o) for o in (left, right))
        value = apply(whole, a, b, MAX_QUANTITY)
        if value is None:
            return None
        names[index], values[node.variable] = node.variable, value
        loop = forms and op == "*" and rng.random() < LOOP_RATE
        made = _statements(node.variable, whole, left, right, loop=loop, helper=helper)
        lines += [(line, None) for line in made[:-1]] + [(made[-1], index)]
    if not lines:
        return None
    head = [f"def solve({', '.join(function.parameters)}):"]
    if any("share(" in line for line, _ in lines):
        head = ["def share(n, k):", "    return n // k", *head]
    lines = [*((line, None) for line in head), *lines]
    lines.append((f"    return {names[function.target]}", None))
    return Written(
        text="\n".join(line for line, _ in lines),
        nodes=tuple(index for _, index in lines),
        misread=frozenset(misread),
    )


def _statements(
    name: str, op: Operation, left: str, right: str, *, loop: bool, helper: bool
) -> list[str]:
    if loop and name not in (left, right):
        header = f"    for _ in range({left}):"
        return [f"    {name} = 0", header, f"        {name} = {name} + {right}"]
    if helper and op == "//":
        return [f"    {name} = share({left}, {right})"]
    return [f"    {name} = {left} {op} {right}"]
