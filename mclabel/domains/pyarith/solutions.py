"""Solutions written from a problem's hidden function, and an exact check of their steps.

A solution consists of `def solve(...)`, one statement for each node, and `return`. In training
text, some nodes have other forms: a product can be a loop that adds, and a division can call a
helper function. Misreadings have the same events, rates and kinds as those of `arith`
(`mclabel.domains.arith.misconceptions`).

The verifier runs a program on a few hidden inputs at once. It judges each statement from this
statement and the ones before it:

- An assignment is right if its result equals a quantity of the problem on all inputs, whatever the
  expression. If the quantity was computed before, only its own operation is right: to add back an
  amount that was subtracted is a misreading. Copies of earlier variables, of constants of the
  problem and of zero are right; sums start from zero.
- The header of a loop is right if its number of turns is an operand of a product. Its body is right
  if the whole loop computes a quantity.
- A helper function is right if the problem needs its operation.
- `return` is right if it returns the target quantity. Nothing may follow it.

On the hidden inputs, no two quantities agree everywhere, so a wrong quantity is never accepted as
another one. A statement that the interpreter does not accept is malformed, and therefore wrong.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mclabel.core.records import StepState
from mclabel.domains.arith.misconceptions import (
    FLIPPED,
    MISCONCEPTIONS,
    MISUNDERSTOOD,
    OFTEN,
    SELDOM,
)
from mclabel.domains.arith.program import Operation, apply_operation
from mclabel.domains.arith.verify import StepTruth
from mclabel.domains.pyarith.interpreter import Event, LineInterpreter, MalformedError, State
from mclabel.domains.pyarith.problems import MAX_QUANTITY, Function

LOOP_RATE = 0.2
"""Share of products in training text that are written as loops."""
HELPER_RATE = 0.25
"""Share of solutions in training text that divide by calling a helper function."""


@dataclass(frozen=True, kw_only=True)
class WrittenSolution:
    """A generated solution, and the nodes of the problem that it gets wrong on purpose."""

    text: str
    nodes: tuple[int | None, ...]
    """For each line, the 0-based index of the node that the line completes; None if it completes
    none."""
    misread_nodes: frozenset[int]
    """0-based indices of the nodes that were replaced by a typical mistake: a wrong operand, the
    wrong operation, or a skipped node, which has no line."""


def write_solution(
    function: Function, *, rng: random.Random, varies_forms: bool = False, strength: float = 0.0
) -> WrittenSolution:
    """Write a solution in which some nodes of the function are misread, each at its event's rate.

    An attempt in which a quantity is out of range is discarded. The last attempt misreads nothing.

    Args:
        function: the problem's hidden function.
        rng: random generator for forms and misreadings.
        varies_forms: True to write some nodes as loops or as calls of helper functions.
        strength: factor by which the probabilities of misreadings are multiplied; at 0 the solution
            is right.
    """
    for attempt in range(9):
        if solution := _try_write_solution(
            function, rng, varies_forms, strength if attempt < 8 else 0.0
        ):
            return solution
    raise AssertionError("a right solution was discarded, but its quantities are valid")


def _try_write_solution(
    function: Function, rng: random.Random, varies_forms: bool, strength: float
) -> WrittenSolution | None:
    values = dict(zip(function.parameters, function.story, strict=True))
    names: dict[int, str] = {}
    lines: list[tuple[str, int | None]] = []
    misread_nodes: set[int] = set()
    uses_helper = varies_forms and rng.random() < HELPER_RATE
    for index in function.find_needed_nodes():
        node, op = function.nodes[index], function.nodes[index].op
        left, right = (
            names[int(operand[1:])] if operand[0] == "#" else operand
            for operand in (node.left, node.right)
        )
        rate = OFTEN if node.event in MISUNDERSTOOD else SELDOM
        if rng.random() < rate * strength:
            kind = MISCONCEPTIONS[node.event]
            other_parameters = [name for name in function.parameters if name not in (left, right)]
            if kind == "operand" and not other_parameters:
                return None
            misread_nodes.add(index)
            if kind == "skip":
                names[index] = right if node.right[0] == "#" and node.left[0] != "#" else left
                continue
            if kind == "flip":
                op = FLIPPED[op]
            elif node.left[0] == "#":
                right = rng.choice(other_parameters)
            else:
                left = rng.choice(other_parameters)
        # Only the story must divide without remainder; solutions always write `//`.
        written_op: Operation = "//" if op == "/" else op
        left_value, right_value = (
            values[operand] if operand in values else int(operand) for operand in (left, right)
        )
        value = apply_operation(written_op, left_value, right_value, MAX_QUANTITY)
        if value is None:
            return None
        names[index], values[node.variable] = node.variable, value
        statements = _write_statements(
            node.variable,
            written_op,
            left,
            right,
            writes_loop=varies_forms and op == "*" and rng.random() < LOOP_RATE,
            uses_helper=uses_helper,
        )
        lines += [(line, None) for line in statements[:-1]] + [(statements[-1], index)]
    if not lines:
        return None
    header_lines = [f"def solve({', '.join(function.parameters)}):"]
    if any("share(" in line for line, _ in lines):
        header_lines = ["def share(n, k):", "    return n // k", *header_lines]
    lines = [*((line, None) for line in header_lines), *lines]
    lines.append((f"    return {names[function.target]}", None))
    return WrittenSolution(
        text="\n".join(line for line, _ in lines),
        nodes=tuple(index for _, index in lines),
        misread_nodes=frozenset(misread_nodes),
    )


def _write_statements(
    name: str, op: Operation, left: str, right: str, *, writes_loop: bool, uses_helper: bool
) -> list[str]:
    if writes_loop and name not in (left, right):
        header = f"    for _ in range({left}):"
        return [f"    {name} = 0", header, f"        {name} = {name} + {right}"]
    if uses_helper and op == "//":
        return [f"    {name} = share({left}, {right})"]
    return [f"    {name} = {left} {op} {right}"]


class SolutionVerifier:
    """Verifier of the solutions of one problem."""

    def __init__(self, function: Function) -> None:
        """Compute the states of all quantities on the hidden inputs.

        Args:
            function: the problem's hidden function, with its hidden inputs `states`.
        """
        rows = [function.compute_values(inputs) for inputs in function.states]
        nodes: list[State] = [
            tuple(column) for column in zip(*(values or () for values in rows), strict=True)
        ]
        inputs: list[State] = list(zip(*function.states, strict=True))
        state_by_operand = {f"#{index}": state for index, state in enumerate(nodes)}
        state_by_operand |= dict(zip(function.parameters, inputs, strict=True))
        constants = {
            operand for node in function.nodes for operand in (node.left, node.right)
        } - set(state_by_operand)
        state_by_operand |= {operand: (int(operand),) * len(rows) for operand in {"0", *constants}}
        self._inputs = function.states
        self._nodes = set(nodes)
        self._copyable_states = set(state_by_operand.values()) - self._nodes
        self._operations: set[tuple[str, State, State]] = set()
        for node in function.nodes:
            left, right = state_by_operand[node.left], state_by_operand[node.right]
            op = "//" if node.op == "/" else node.op
            self._operations |= {(op, left, right), *([(op, right, left)] if op in "+*" else [])}
        self._target = nodes[function.target]

    def verify(self, steps: Sequence[str]) -> list[StepTruth]:
        """Return whether each step is right, or its kind of error, up to the first wrong step.

        Args:
            steps: texts of the steps, each of whole lines, in order.
        """
        interpreter = LineInterpreter(self._inputs)
        stated: set[State] = set()
        truths: list[StepTruth] = []
        for step in steps:
            try:
                events = interpreter.run_lines(step.removesuffix("\n"))
                is_right = all(self._is_right(event, stated) for event in events)
                truths.append(StepTruth.RIGHT if is_right else StepTruth.LOGIC)
            except MalformedError:
                truths.append(StepTruth.MALFORMED)
            if truths[-1] is not StepTruth.RIGHT:
                break
        return truths

    def _is_right(self, event: Event, stated: set[State]) -> bool:
        """Return whether a statement is right, and record the quantity that it computes.

        Args:
            event: effect of the statement.
            stated: values of quantities computed so far, to which the new quantity is added.
        """
        match event.kind:
            case "assign":
                if event.is_copy:
                    return event.state in self._copyable_states or event.state in stated
                if event.state not in self._nodes:
                    return False
                is_repeated = event.state in stated
                stated.add(event.state)
                return not is_repeated or (event.op, *event.operands) in self._operations
            case "loop":
                return any(op == "*" and event.state == left for op, left, _ in self._operations)
            case "operation":
                return any(op == event.op for op, _, _ in self._operations)
            case "return":
                return event.state == self._target
        return True


def has_hidden_function(meta: Mapping[str, str]) -> bool:
    """Return whether a problem belongs to this domain.

    Other problems may have a `function` field, too, so its content is parsed.
    """
    return "function" in meta and _parse_verifier(meta["function"]) is not None


def find_true_step_states(meta: Mapping[str, str], steps: Sequence[str]) -> list[StepState]:
    """Return the state of every step.

    All steps after the first error are `carried`: later lines cannot repair a function.

    Args:
        meta: metadata of the problem, for which `has_hidden_function` is true.
        steps: texts of the steps, each of whole lines, in order.
    """
    verifier = _parse_verifier(meta["function"])
    assert verifier is not None
    truths = verifier.verify(steps)
    states: list[StepState] = ["sound" if truth is StepTruth.RIGHT else "error" for truth in truths]
    states += ["carried"] * (len(steps) - len(states))
    return states


@lru_cache(maxsize=64)
def _parse_verifier(text: str) -> SolutionVerifier | None:
    try:
        return SolutionVerifier(Function.from_json(text))
    except (ValueError, KeyError, TypeError, IndexError):
        return None
