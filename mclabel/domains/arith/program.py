"""The hidden truth of a generated problem: what can be derived, and from what.

A program is a list of nodes `left op right = value`, each carrying the sentence (the *claim*) that
states it. The reference solution writes the nodes that the question needs, one a line, and boxes
the last value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
    """The kind of event told, such as `give` or `fewer` (misconceptions go by it)."""

    def text(self, equation: str | None = None) -> str:
        """The step that states this node, with another equation if one is given."""
        return self.claim.replace("{}", equation or self.equation)

    @property
    def equation(self) -> str:
        return f"{self.left} {self.op} {self.right} = {self.value}"


@dataclass(frozen=True, kw_only=True)
class Program:
    """The hidden truth of a problem: every derivable quantity and the one asked for."""

    nodes: tuple[Node, ...]
    target: int
    """Index of the node whose value is the answer."""

    @property
    def answer(self) -> int:
        return self.nodes[self.target].value

    def needed(self) -> list[int]:
        """Indices of the nodes that the target rests on, itself included, in story order."""
        return sorted(ancestors(self.nodes, self.target))

    def to_json(self) -> str:
        return json.dumps(
            {"nodes": [asdict(n) for n in self.nodes], "target": self.target},
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Program:
        raw = json.loads(text)
        nodes = tuple(Node(**{**n, "needs": tuple(n["needs"])}) for n in raw["nodes"])
        return cls(nodes=nodes, target=raw["target"])


def reference_solution(program: Program) -> str:
    """The worked solution: one step a line, the answer boxed on the last line."""
    lines = [program.nodes[i].text() for i in program.needed()]
    return "\n".join([*lines, answer_line(program.answer)])


def apply(op: Operation, left: int, right: int, most: int) -> int | None:
    """`left op right`; None if it is no quantity from 1 to `most`."""
    if op in ("/", "//"):
        if right == 0 or (op == "/" and left % right):
            return None
        value = left // right
    else:
        value = {"+": left + right, "-": left - right, "*": left * right}[op]
    return value if 1 <= value <= most else None


def answer_line(value: int) -> str:
    """The last line of a solution."""
    return f"The answer is \\boxed{{{value}}}."


def ancestors(nodes: Sequence[Node], target: int) -> set[int]:
    """Indices of the nodes that `target` rests on, itself included."""
    found, queue = {target}, [target]
    while queue:
        fresh = set(nodes[queue.pop()].needs) - found
        found |= fresh
        queue.extend(fresh)
    return found
