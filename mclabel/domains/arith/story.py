"""A story under construction: what has been said, and the program that it derives."""

from __future__ import annotations

import random
from dataclasses import dataclass

from mclabel.domains.arith.program import Node, Operation, Program, ancestors

MAX_VALUE = 199
"""Of every quantity in a story; the least is 1."""

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
    """This draw leads out of the range of quantities; draw again."""


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
        self.question = ""
        self.event = "start"

    def new_person(self) -> str:
        return self.people.pop()

    def number(self, low: int, high: int) -> int:
        if low > high:
            raise Infeasible
        return self.rng.randint(low, high)

    def factor(self, value: int, *, high: int = 9) -> int:
        """A multiplier that keeps `value` in range."""
        return self.number(2, min(high, MAX_VALUE // value))

    def divisor(self, value: int, *, low: int = 2, high: int = 9) -> int:
        choices = [d for d in range(low, high + 1) if value % d == 0 and value > d]
        if not choices:
            raise Infeasible
        return self.rng.choice(choices)

    def say(self, *variants: str) -> None:
        self.sentences.append(self.rng.choice(variants))

    def fact(self, value: int) -> Quantity:
        return Quantity(value)

    def derive(self, left: Quantity, op: Operation, right: Quantity, claim: str) -> Quantity:
        a, b = left.value, right.value
        value = {"+": a + b, "-": a - b, "*": a * b}.get(op)
        if value is None:
            if b == 0 or (op == "/" and a % b):
                raise Infeasible
            value = a // b
        if not 1 <= value <= MAX_VALUE:
            raise Infeasible
        needs = tuple(q.node for q in (left, right) if q.node is not None)
        self.nodes.append(
            Node(op=op, left=a, right=b, value=value, claim=claim, needs=needs, event=self.event)
        )
        return Quantity(value, len(self.nodes) - 1)

    def hold(self, left: Quantity, op: Operation, right: Quantity) -> None:
        """Derive the new amount that the person in focus holds."""
        self.focus = self.derive(left, op, right, f"{self.who} {self.holding}.")

    def depth(self) -> int:
        return 0 if self.focus.node is None else len(ancestors(self.nodes, self.focus.node))

    def program(self) -> Program:
        """What was told, as the hidden truth of a problem."""
        assert self.focus.node is not None
        return Program(nodes=tuple(self.nodes), target=self.focus.node)

    def text(self) -> str:
        """The problem as it is told."""
        return " ".join([*self.sentences, self.question])
