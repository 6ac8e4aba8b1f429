"""The hidden truth of a generated problem: what can be derived, and from what.

A program is a list of nodes `left op right = value`, each carrying the sentence (the *claim*) that
states it. The reference solution writes the nodes that the question needs, one a line, and boxes
the last value.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Operation = Literal["+", "-", "*", "/", "//"]


@dataclass(frozen=True, kw_only=True)
class Node:
    """One derived quantity of a problem's hidden program: `left op right = value`."""

    op: Operation
    """`/` divides exactly, `//` is the whole-number quotient."""
    left: int
    right: int
    value: int
    claim: str
    """The step's text with `{}` in place of the equation, without the line end."""
    needs: tuple[int, ...]
    """Indices of the nodes whose values are operands; the other operands are facts."""
    event: str
    """Kind of the event, such as `give` or `fewer` (misconceptions go by it)."""

    def text(self, equation: str | None = None) -> str:
        """Return the step that states this node, with another equation if one is given."""
        return self.claim.replace("{}", equation or self.equation)

    @property
    def equation(self) -> str:
        return f"{self.left} {self.op} {self.right} = {self.value}"


@dataclass(frozen=True, kw_only=True)
class Program:
    """The hidden truth of a problem: every derivable quantity and the quantity in question."""

    nodes: tuple[Node, ...]
    target: int
    """Index of the node whose value is the answer."""

    @property
    def answer(self) -> int:
        return self.nodes[self.target].value

    def needed(self) -> list[int]:
        """Return the indices of the nodes that the target rests on, itself included, in story
        order.
        """
        return sorted(ancestors(self.nodes, self.target))

    def to_json(self) -> str:
        return json.dumps(
            {"nodes": [vars(node) for node in self.nodes], "target": self.target},
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Program:
        raw = json.loads(text)
        nodes = tuple(Node(**{**n, "needs": tuple(n["needs"])}) for n in raw["nodes"])
        return cls(nodes=nodes, target=raw["target"])


def reference_solution(program: Program) -> str:
    """Return the worked solution: one step a line, the answer boxed on the last line."""
    lines = [program.nodes[i].text() for i in program.needed()]
    return "\n".join([*lines, answer_line(program.answer)])


def apply(op: Operation, left: int, right: int, most: int) -> int | None:
    """Return `left op right`; None if it is no quantity from 1 to `most`."""
    if op in ("/", "//"):
        if right == 0 or (op == "/" and left % right):
            return None
        value = left // right
    else:
        value = {"+": left + right, "-": left - right, "*": left * right}[op]
    return value if 1 <= value <= most else None


def answer_line(value: int) -> str:
    """Return the last line of a solution."""
    return f"The answer is \\boxed{{{value}}}."


def ancestors(nodes: Sequence[Node], target: int) -> set[int]:
    """Return the indices of the nodes that `target` rests on, itself included."""
    reached, queue = {target}, [target]
    while queue:
        fresh = set(nodes[queue.pop()].needs) - reached
        reached |= fresh
        queue.extend(fresh)
    return reached


MAX_VALUE = 199
"""Largest value of a quantity in a story; the least is 1."""

# fmt: off
PEOPLE = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gwen", "Hugo", "Iris", "Jon",
    "Kira", "Leo", "Mia", "Nora", "Omar", "Pia", "Raj", "Sara", "Tom", "Zoe",
)
THINGS = (
    "apples", "beads", "books", "cards", "coins", "cups", "eggs", "kites", "lamps",
    "marbles", "pens", "pies", "plums", "ropes", "shells", "stamps", "toys",
)
# fmt: on


class Infeasible(Exception):
    """Error of a draw that leads out of the range of quantities; draw again."""


@dataclass(frozen=True)
class Quantity:
    """An amount, and the node that derives it."""

    value: int
    node: int | None = None
    """None: a fact stated by the problem."""


class Story:
    """A problem under construction: its sentences, its program and what is asked."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sentences: list[str] = []
        self.nodes: list[Node] = []
        self.people = rng.sample(PEOPLE, 14)
        self.thing, self.other_thing = rng.sample(THINGS, 2)
        self.who = self.new_person()
        self.focus = Quantity(0)
        self.holding = "has {} " + self.thing
        self.holder = ""
        self.question = ""
        self.event = "start"

    def new_person(self) -> str:
        return self.people.pop()

    def number(self, low: int, high: int) -> int:
        if low > high:
            raise Infeasible
        return self.rng.randint(low, high)

    def factor(self, value: int, *, high: int = 9) -> int:
        """Return a multiplier that keeps `value` in range."""
        return self.number(2, min(high, MAX_VALUE // value))

    def divisor(self, value: int, *, low: int = 2, high: int = 9) -> int:
        choices = [d for d in range(low, high + 1) if value % d == 0 and value > d]
        if not choices:
            raise Infeasible
        return self.rng.choice(choices)

    def say(self, *variants: str) -> None:
        self.sentences.append(self.rng.choice(variants))

    def derive(self, left: Quantity, op: Operation, right: Quantity, claim: str) -> Quantity:
        a, b = left.value, right.value
        value = apply(op, a, b, MAX_VALUE)
        if value is None:
            raise Infeasible
        needs = tuple(q.node for q in (left, right) if q.node is not None)
        self.nodes.append(
            Node(op=op, left=a, right=b, value=value, claim=claim, needs=needs, event=self.event)
        )
        return Quantity(value, len(self.nodes) - 1)

    def hold(self, left: Quantity, op: Operation, right: Quantity) -> None:
        """Derive the new amount that the holder, or the person in focus, holds."""
        self.focus = self.derive(left, op, right, f"{self.holder or self.who} {self.holding}.")

    def depth(self) -> int:
        return 0 if self.focus.node is None else len(ancestors(self.nodes, self.focus.node))

    def program(self) -> Program:
        """Return the hidden truth of the problem that was told."""
        assert self.focus.node is not None
        return Program(nodes=tuple(self.nodes), target=self.focus.node)

    def text(self) -> str:
        """Return the text of the problem."""
        return " ".join([*self.sentences, self.question])
