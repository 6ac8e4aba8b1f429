"""The hidden program of a generated problem: all quantities that can be derived from its facts.

A program is a list of nodes `left op right = value`. Each node has a sentence that states it, its
*claim*. The reference solution writes the nodes that the question needs, one node a line, and
boxes the last value.
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
    """Operation: `/` divides without remainder, `//` is the whole-number quotient."""
    left: int
    right: int
    value: int
    claim: str
    """Text of the step with `{}` in place of the equation, without the line end."""
    needs: tuple[int, ...]
    """0-based indices of the nodes whose values are operands; other operands are facts of the
    problem."""
    event: str
    """Name of the event, such as `give` or `fewer`. It determines the kind of misreading."""

    def write_step(self, equation: str | None = None) -> str:
        """Return the text of this node's step, without the line end.

        Args:
            equation: equation in the step; None for the true one.
        """
        return self.claim.replace("{}", equation or self.equation)

    @property
    def equation(self) -> str:
        """The true equation, such as `2 + 3 = 5`."""
        return f"{self.left} {self.op} {self.right} = {self.value}"


@dataclass(frozen=True, kw_only=True)
class Program:
    """The hidden program of a problem: all derivable quantities, and the one that is asked for."""

    nodes: tuple[Node, ...]
    target: int
    """0-based index of the node whose value is the answer."""

    @property
    def answer(self) -> int:
        """The value of the target node."""
        return self.nodes[self.target].value

    def find_needed_nodes(self) -> list[int]:
        """Return the 0-based indices of the target and of all nodes it needs, in story order."""
        return sorted(find_ancestors(self.nodes, self.target))

    def to_json(self) -> str:
        """Return the program as JSON, the form in which a problem's `meta` stores it."""
        return json.dumps(
            {"nodes": [vars(node) for node in self.nodes], "target": self.target},
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Return the program that `to_json` wrote."""
        content = json.loads(text)
        return cls(
            nodes=tuple(
                Node(**{**node_fields, "needs": tuple(node_fields["needs"])})
                for node_fields in content["nodes"]
            ),
            target=content["target"],
        )


def write_reference_solution(program: Program) -> str:
    """Return the worked solution: one step a line, and the boxed answer on the last line."""
    lines = [program.nodes[index].write_step() for index in program.find_needed_nodes()]
    return "\n".join([*lines, write_answer_line(program.answer)])


def apply_operation(op: Operation, left: int, right: int, max_value: int) -> int | None:
    """Return the result of `left op right`.

    It is None if the result is not a whole number from 1 to `max_value`.
    """
    if op in ("/", "//"):
        if right == 0 or (op == "/" and left % right):
            return None
        value = left // right
    else:
        value = {"+": left + right, "-": left - right, "*": left * right}[op]
    return value if 1 <= value <= max_value else None


def write_answer_line(value: int) -> str:
    """Return the last line of a solution, which boxes the answer."""
    return f"The answer is \\boxed{{{value}}}."


def find_ancestors(nodes: Sequence[Node], target: int) -> set[int]:
    """Return the index `target` and the indices of all nodes that it needs."""
    ancestors, queue = {target}, [target]
    while queue:
        new_indices = set(nodes[queue.pop()].needs) - ancestors
        ancestors |= new_indices
        queue.extend(new_indices)
    return ancestors


MAX_VALUE = 199
"""Largest value of a quantity in a story; the smallest value is 1."""

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


class InfeasibleDraw(Exception):
    """Raised if random draws give a quantity out of range; the story must be drawn again."""


@dataclass(frozen=True)
class Quantity:
    """An amount, and the program node that derives it."""

    value: int
    node: int | None = None
    """0-based index of the node; None if the problem states the amount as a fact."""


class Story:
    """A problem under construction: its sentences, its program and its question.

    `focus` is the tracked quantity, which the question will ask for. `person` is the name of the
    current person. `owner` is the name of the quantity's owner if that is not the person, else
    empty. `holding_clause` states the owner's amount, with `{}` in place of the number.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sentences: list[str] = []
        self.nodes: list[Node] = []
        self.people = rng.sample(PEOPLE, 14)
        self.thing, self.other_thing = rng.sample(THINGS, 2)
        self.person = self.draw_person()
        self.focus = Quantity(0)
        self.holding_clause = "has {} " + self.thing
        self.owner = ""
        self.question = ""
        self.event = "start"

    def draw_person(self) -> str:
        """Return the name of a person that is not in the story yet."""
        return self.people.pop()

    def draw_number(self, low: int, high: int) -> int:
        """Draw a number from `low` to `high`.

        Raises:
            InfeasibleDraw: `low` is larger than `high`.
        """
        if low > high:
            raise InfeasibleDraw
        return self.rng.randint(low, high)

    def draw_factor(self, value: int, *, high: int = 9) -> int:
        """Draw a multiplier from 2 to `high` that keeps `value` in range."""
        return self.draw_number(2, min(high, MAX_VALUE // value))

    def draw_divisor(self, value: int, *, low: int = 2, high: int = 9) -> int:
        """Draw a divisor of `value` from `low` to `high`, other than `value` itself.

        Raises:
            InfeasibleDraw: there is no such divisor.
        """
        divisors = [
            divisor for divisor in range(low, high + 1) if value % divisor == 0 and value > divisor
        ]
        if not divisors:
            raise InfeasibleDraw
        return self.rng.choice(divisors)

    def add_sentence(self, *variants: str) -> None:
        """Add a sentence to the problem, in a randomly drawn wording."""
        self.sentences.append(self.rng.choice(variants))

    def derive_quantity(
        self, left: Quantity, op: Operation, right: Quantity, claim: str
    ) -> Quantity:
        """Add the node `left op right` to the program, and return its quantity.

        Raises:
            InfeasibleDraw: the value is not a whole number from 1 to MAX_VALUE.
        """
        left_value, right_value = left.value, right.value
        value = apply_operation(op, left_value, right_value, MAX_VALUE)
        if value is None:
            raise InfeasibleDraw
        self.nodes.append(
            Node(
                op=op,
                left=left_value,
                right=right_value,
                value=value,
                claim=claim,
                needs=tuple(
                    quantity.node for quantity in (left, right) if quantity.node is not None
                ),
                event=self.event,
            )
        )
        return Quantity(value, len(self.nodes) - 1)

    def update_holding(self, left: Quantity, op: Operation, right: Quantity) -> None:
        """Derive the owner's new amount, `left op right`, and track it."""
        self.focus = self.derive_quantity(
            left, op, right, f"{self.owner or self.person} {self.holding_clause}."
        )

    def count_needed_nodes(self) -> int:
        """Return the number of nodes that the tracked quantity needs, with its own node."""
        return 0 if self.focus.node is None else len(find_ancestors(self.nodes, self.focus.node))

    def build_program(self) -> Program:
        """Return the hidden program of the finished problem."""
        assert self.focus.node is not None
        return Program(nodes=tuple(self.nodes), target=self.focus.node)
