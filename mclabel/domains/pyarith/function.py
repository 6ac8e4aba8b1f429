"""The hidden truth of a problem as a function of its inputs.

An arith story whose numbers become parameters: every node of its program is then a function of the
inputs. Shares that the story tells in words (half, a third) stay constants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mclabel.core.records import Problem
from mclabel.domains.arith.program import Operation, Program, apply

PARAMETERS = "pqrstuvwxyz"
"""Names of the inputs in order of appearance. `a` would be read as an article."""
MAX_QUANTITY = 999
"""Of every quantity on the inputs that are drawn; the least is 1."""

Inputs = tuple[int, ...]

_NUMBER = re.compile(r"\d+")
_SUBJECT_AND_VERB = re.compile(r"(?:The )?(\w+) (\w+)")
_HOLDS = ("has", "is", "hold")
_NO_NAMES = {"all": "broken"}
"""Second words of claims that name nothing."""


@dataclass(frozen=True, kw_only=True)
class FunctionNode:
    """One derived quantity, `left op right`, and the variable that holds it."""

    op: Operation
    """`/` is exact on valid inputs, `//` is the whole-number quotient; both are written `//`."""
    left: str
    """A parameter (`p`), a constant (`3`) or a node by its index (`#0`)."""
    right: str
    variable: str
    event: str
    """As in `mclabel.domains.arith.program.Node`."""

    @property
    def needs(self) -> tuple[int, ...]:
        """Indices of the nodes that are operands."""
        return tuple(int(o[1:]) for o in (self.left, self.right) if o.startswith("#"))


@dataclass(frozen=True, kw_only=True)
class Function:
    """The hidden truth of a problem: quantities as functions of the inputs, and the one asked."""

    nodes: tuple[FunctionNode, ...]
    target: int
    """Index of the node whose value is returned."""
    story: Inputs
    """The numbers of the story that it was made from: one for each parameter."""
    states: tuple[Inputs, ...] = ()
    """Hidden inputs on which the states of variables are compared."""

    @property
    def parameters(self) -> str:
        """Names of the inputs, a letter each."""
        return PARAMETERS[: len(self.story)]

    def needed(self) -> list[int]:
        """Indices of the nodes that the target rests on, itself included, in story order."""
        found = {self.target}
        for index in range(self.target, -1, -1):
            if index in found:
                found.update(self.nodes[index].needs)
        return sorted(found)

    def values(self, inputs: Sequence[int]) -> list[int] | None:
        """The value of every node, None where a quantity leaves its range or a share is broken."""
        known = dict(zip(self.parameters, inputs, strict=True))
        values: list[int] = []
        for node in self.nodes:
            left, right = (
                values[int(o[1:])] if o[0] == "#" else known[o] if o in known else int(o)
                for o in (node.left, node.right)
            )
            value = apply(node.op, left, right, MAX_QUANTITY)
            if value is None:
                return None
            values.append(value)
        return values

    def to_json(self) -> str:
        """As `meta` of a problem carries it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Function:
        """What `to_json` wrote."""
        raw = json.loads(text)
        return cls(
            nodes=tuple(FunctionNode(**node) for node in raw["nodes"]),
            target=raw["target"],
            story=tuple(raw["story"]),
            states=tuple(tuple(inputs) for inputs in raw["states"]),
        )


def function_of(problem: Problem) -> tuple[str, Function] | None:
    """An arith problem as a function: its text with parameters, and the hidden truth.

    Returns:
        None where two numbers of the story are the same, or an operand could be either of two
        quantities.
    """
    numbers = _NUMBER.findall(problem.text)
    if len(set(numbers)) < len(numbers) or len(numbers) > len(PARAMETERS):
        return None
    names = dict(zip(numbers, PARAMETERS, strict=False))
    program = Program.from_json(problem.meta["program"])
    nodes: list[FunctionNode] = []
    for node in program.nodes:
        operands = [str(node.left), str(node.right)]
        if len(node.needs) == 2:
            operands = [f"#{index}" for index in node.needs]
        elif node.needs and node.left == node.right:
            return None
        else:
            shared = node.op == "/" and node.event != "keep_pile"  # in words: a third
            held = {str(program.nodes[index].value): f"#{index}" for index in node.needs}
            operands = [
                held.get(o) or (o if shared and o == operands[1] else names[o]) for o in operands
            ]
        found = _SUBJECT_AND_VERB.match(node.claim)
        assert found is not None
        subject, verb = found.groups()
        variable = subject.lower() if verb in _HOLDS else _NO_NAMES.get(verb, verb)
        nodes.append(
            FunctionNode(
                op=node.op, left=operands[0], right=operands[1], variable=variable, event=node.event
            )
        )
    function = Function(nodes=tuple(nodes), target=program.target, story=tuple(map(int, numbers)))
    text = _NUMBER.sub(lambda number: names[number[0]], problem.text)
    return f"{text} Write solve({', '.join(function.parameters)}).", function
