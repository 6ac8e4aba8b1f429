"""The exact truth of a solution's steps, by the states of its variables.

A program is run on a few hidden inputs at once, and every statement is judged as it is reached, by
what is known up to it:

- an assignment is right if the state that it leaves is that of a quantity of the problem, whatever
  form computes it. To compute a quantity a second time is right only by its own operation: to add
  what was taken before is a misreading, even if it leads back. Copies of variables, of constants of
  the problem and of zero, with which sums begin, are right;
- the header of a loop is right if its count is an operand of a product, and its body if the whole
  loop leaves a quantity;
- a helper is right if its operation is one that the problem needs;
- `return` is right if it returns the quantity asked for. Nothing may follow it.

All inputs are drawn so that no two quantities agree on all of them, so a wrong statement cannot
pass for a right one. Anything that the interpreter does not take is malformed, hence wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from mclabel.core.records import StepState
from mclabel.domains.arith.verify import StepTruth
from mclabel.domains.pyarith.interpreter import Event, Machine, MalformedError, State
from mclabel.domains.pyarith.problems import Function


class Judge:
    """What is true of one problem: the states that its statements may leave."""

    def __init__(self, function: Function) -> None:
        """Compute the states of all quantities.

        Args:
            function: the problem's hidden truth, with its hidden inputs.
        """
        rows = [function.values(inputs) for inputs in function.states]
        nodes: list[State] = [
            tuple(column) for column in zip(*(r or () for r in rows), strict=True)
        ]
        inputs: list[State] = list(zip(*function.states, strict=True))
        by_name = {f"#{index}": state for index, state in enumerate(nodes)}
        by_name |= dict(zip(function.parameters, inputs, strict=True))
        constants = {o for n in function.nodes for o in (n.left, n.right)} - set(by_name)
        by_name |= {o: (int(o),) * len(rows) for o in {"0", *constants}}
        self._inputs = function.states
        self._nodes = set(nodes)
        self._known = set(by_name.values()) - self._nodes
        self._forms: set[tuple[str, State, State]] = set()
        for node in function.nodes:
            left, right = by_name[node.left], by_name[node.right]
            op = "//" if node.op == "/" else node.op
            self._forms |= {(op, left, right), *([(op, right, left)] if op in "+*" else [])}
        self._target = nodes[function.target]

    def verify(self, steps: Sequence[str]) -> list[StepTruth]:
        """The truth of the steps up to the first wrong one.

        Args:
            steps: texts of whole lines, which join to the solution.
        """
        machine = Machine(self._inputs)
        stated: set[State] = set()
        truths: list[StepTruth] = []
        for step in steps:
            try:
                events = machine.feed(step.removesuffix("\n"))
                is_right = all(self._is_right(event, stated) for event in events)
                truths.append(StepTruth.RIGHT if is_right else StepTruth.LOGIC)
            except MalformedError:
                truths.append(StepTruth.MALFORMED)
            if truths[-1] is not StepTruth.RIGHT:
                break
        return truths

    def _is_right(self, event: Event, stated: set[State]) -> bool:
        """Judge what a statement did; a quantity that it leaves is added to `stated`."""
        match event.kind:
            case "assign":
                if event.is_copy:
                    return event.state in self._known or event.state in stated
                if event.state not in self._nodes:
                    return False
                again = event.state in stated
                stated.add(event.state)
                return not again or (event.op, *event.operands) in self._forms
            case "loop":
                return any(op == "*" and event.state == left for op, left, _ in self._forms)
            case "operation":
                return any(op == event.op for op, _, _ in self._forms)
            case "return":
                return event.state == self._target
        return True


def carries_truth(meta: Mapping[str, str]) -> bool:
    """Whether a problem is of this domain. Others may have a field `function` of their own."""
    return "function" in meta and _judge(meta["function"]) is not None


def true_first_error(meta: Mapping[str, str], steps: Sequence[str]) -> int | None:
    """The first wrong step of a solution, from 0; None for none.

    Raises:
        KeyError: the problem is not of this domain.
    """
    if (judge := _judge(meta["function"])) is None:
        raise KeyError("function")
    truths = judge.verify(steps)
    return len(truths) - 1 if truths and truths[-1] is not StepTruth.RIGHT else None


def true_states(meta: Mapping[str, str], steps: Sequence[str]) -> list[StepState]:
    """The state of every step: a function that went wrong is not repaired by what follows.

    Raises:
        KeyError: the problem is not of this domain.
    """
    error = true_first_error(meta, steps)
    if error is None:
        return ["sound" for _ in steps]
    return [
        "sound" if i < error else "carried" if i > error else "error" for i in range(len(steps))
    ]


@lru_cache(maxsize=64)
def _judge(text: str) -> Judge | None:
    try:
        return Judge(Function.from_json(text))
    except (ValueError, KeyError, TypeError, IndexError):
        return None
