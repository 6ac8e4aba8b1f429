"""Generated programming problems whose every step can be checked exactly.

A problem is an `arith` story with parameters in place of its numbers. It asks for a function
`solve` of these parameters. The gold answer is a set of hidden tests in JSON:
`{"fn_name": "solve", "inputs": [[2, 3], ...], "outputs": [6, ...]}`. All quantities are valid on
the inputs of the tests. No constant, no parameter and no other quantity passes all tests.

The hidden truth of a problem is a `Function`. It is made from the program of the `arith` story:
each node becomes a function of the parameters. Fractions that the story states in words (half, a
third) stay constants.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from mclabel.core.records import Problem
from mclabel.domains.arith.problems import (
    MAX_STEPS,
    MIN_STEPS,
    Split,
    assign_split,
    stream_problems,
    validate_families,
)
from mclabel.domains.arith.program import Operation, Program, apply_operation

NUM_TESTS, NUM_EXAMPLES, NUM_STATES = 6, 2, 4
"""Numbers of hidden tests per problem, of those whose inputs are given as examples, and of hidden
inputs on which the variables of a solution are compared with the problem's quantities."""
MAX_DRAWS = 4000
"""Maximum number of draws of inputs for one problem. The few stories that need more draws are
discarded."""


def generate_problems(
    count: int,
    *,
    seed: int,
    split: Split,
    families: Sequence[str] | None = None,
    num_steps: tuple[int, int] = (MIN_STEPS, MAX_STEPS),
) -> list[Problem]:
    """Draw `count` distinct problems of a split.

    Args:
        count: number of problems.
        seed: random seed. The problems depend only on (seed, split, families, num_steps).
        split: part of the problems: `train`, `validation` or `test`. A hash of a problem's text
            decides to which part it belongs, so the parts share no problem.
        families: families of stories in `arith`. None takes the families that training uses.
        num_steps: minimum and maximum steps of the `arith` story, without the answer line.

    Returns:
        Problems whose `meta` holds `family`, `num_steps` and `function` (JSON, see
        `Function.from_json`). The gold's `examples` are the inputs of its first two tests.

    Raises:
        ValueError: a family is unknown, or is kept out of training and the split is `train`.
    """
    problems: list[Problem] = []
    for text, function, meta, rng in _draw_functions(seed, split, families, num_steps):
        if len(problems) == count:
            break
        all_inputs = _draw_inputs(function, rng)
        if all_inputs is None:
            continue
        tests, states = all_inputs[:NUM_TESTS], all_inputs[NUM_TESTS:]
        stored_function = Function(
            nodes=function.nodes, target=function.target, story=function.story, states=states
        )
        inputs = [list(values) for values in tests]
        gold = {
            "fn_name": "solve",
            "inputs": inputs,
            "outputs": [_compute_values(function, values)[function.target] for values in tests],
            "examples": inputs[:NUM_EXAMPLES],
        }
        problems.append(
            Problem(
                id="pyarith-" + hashlib.sha256(text.encode()).hexdigest()[:16],
                text=text,
                answer=json.dumps(gold),
                answer_is_json=True,
                meta={**meta, "function": stored_function.to_json()},
            )
        )
    return problems


def stream_stories(
    seed: int, split: Split, families: Sequence[str] | None = None
) -> Iterator[tuple[str, Function]]:
    """Yield an endless sequence of pairs of a problem's text and its hidden function.

    The problems have no tests. Models are trained on them.
    """
    return ((text, function) for text, function, _, _ in _draw_functions(seed, split, families))


def _draw_functions(
    seed: int,
    split: Split,
    families: Sequence[str] | None,
    num_steps: tuple[int, int] = (MIN_STEPS, MAX_STEPS),
) -> Iterator[tuple[str, Function, dict[str, str], random.Random]]:
    drawn_families = validate_families(families, split)
    rng = random.Random(f"pyarith:{seed}:{split}:{drawn_families}")
    seen_texts: set[str] = set()
    for problem in stream_problems(rng, drawn_families, num_steps):
        text_and_function = convert_to_function(problem)
        if (
            text_and_function is None
            or assign_split(text_and_function[0]) != split
            or text_and_function[0] in seen_texts
        ):
            continue
        seen_texts.add(text_and_function[0])
        meta = {key: problem.meta[key] for key in ("family", "num_steps")}
        yield *text_and_function, meta, random.Random(f"pyarith:{text_and_function[0]}")


def _draw_inputs(function: Function, rng: random.Random) -> tuple[Inputs, ...] | None:
    """Draw the inputs of the tests, followed by the hidden inputs for states.

    On each of the two sets, all quantities differ from each other. Return None if no such inputs
    were found.
    """
    all_inputs: list[Inputs] = []
    for _ in range(MAX_DRAWS):
        inputs = tuple(
            rng.randint(max(2, number // 2), 2 * number + 2) for number in function.story
        )
        if inputs in all_inputs or function.compute_values(inputs) is None:
            continue
        all_inputs.append(inputs)
        if len(all_inputs) == NUM_TESTS + NUM_STATES:
            if all(
                _are_distinguishable(function, inputs_set)
                for inputs_set in (all_inputs[:NUM_TESTS], all_inputs[NUM_TESTS:])
            ):
                return tuple(all_inputs)
            all_inputs.clear()
    return None


def _are_distinguishable(function: Function, inputs: Sequence[Inputs]) -> bool:
    """Return whether all parameters and quantities are pairwise different, and none is constant."""
    rows = [(*arguments, *_compute_values(function, arguments)) for arguments in inputs]
    columns = list(zip(*rows, strict=True))
    return len(set(columns)) == len(columns) and all(len(set(column)) > 1 for column in columns)


def _compute_values(function: Function, inputs: Sequence[int]) -> list[int]:
    values = function.compute_values(inputs)
    assert values is not None
    return values


PARAMETERS = "pqrstuvwxyz"
"""Names of the parameters, in order of appearance in the story. They do not begin with `a`, which
would look like an article."""
MAX_QUANTITY = 999
"""Largest value of a quantity on the drawn inputs; the smallest value is 1."""

Inputs = tuple[int, ...]
"""Arguments of one call of `solve`."""

_NUMBER = re.compile(r"\d+")
_SUBJECT_AND_VERB = re.compile(r"(?:The )?(\w+) (\w+)")
_HOLDING_VERBS = ("has", "is", "hold")
_VARIABLE_REPLACEMENTS = {"all": "broken"}
"""Variable names that replace the second word of a claim if that word is not a verb."""


@dataclass(frozen=True, kw_only=True)
class FunctionNode:
    """One derived quantity, `left op right`, and the variable that stores it."""

    op: Operation
    """Operation: `/` has no remainder on valid inputs, `//` is the whole-number quotient. Solutions
    write `//` for both."""
    left: str
    """Operand: a parameter (`p`), a constant (`3`) or a node by its 0-based index (`#0`)."""
    right: str
    """Operand, in the same form as `left`."""
    variable: str
    """Name of the variable that solutions assign."""
    event: str
    """Name of the story's event, as in `mclabel.domains.arith.program.Node`."""

    @property
    def needs(self) -> tuple[int, ...]:
        """0-based indices of the nodes that are operands."""
        return tuple(
            int(operand[1:]) for operand in (self.left, self.right) if operand.startswith("#")
        )


@dataclass(frozen=True, kw_only=True)
class Function:
    """The hidden truth of a problem: all quantities as functions of the inputs, and the target."""

    nodes: tuple[FunctionNode, ...]
    target: int
    """0-based index of the node whose value is returned."""
    story: Inputs
    """Numbers of the original `arith` story, one for each parameter."""
    states: tuple[Inputs, ...] = ()
    """Hidden inputs on which the states of variables are compared with those of quantities."""

    @property
    def parameters(self) -> str:
        """Names of the parameters, one letter each."""
        return PARAMETERS[: len(self.story)]

    def find_needed_nodes(self) -> list[int]:
        """Return the 0-based indices of the target and of all nodes it needs, in story order."""
        indices = {self.target}
        for index in range(self.target, -1, -1):
            if index in indices:
                indices.update(self.nodes[index].needs)
        return sorted(indices)

    def compute_values(self, inputs: Sequence[int]) -> list[int] | None:
        """Return the value of every node for one call of `solve`.

        The result is None if a value is out of range or a `/` leaves a remainder.
        """
        value_by_parameter = dict(zip(self.parameters, inputs, strict=True))
        values: list[int] = []
        for node in self.nodes:
            left, right = (
                values[int(operand[1:])]
                if operand[0] == "#"
                else value_by_parameter[operand]
                if operand in value_by_parameter
                else int(operand)
                for operand in (node.left, node.right)
            )
            value = apply_operation(node.op, left, right, MAX_QUANTITY)
            if value is None:
                return None
            values.append(value)
        return values

    def to_json(self) -> str:
        """Return the function as JSON, the form in which a problem's `meta` stores it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Function:
        """Return the function that `to_json` wrote."""
        content = json.loads(text)
        return cls(
            nodes=tuple(FunctionNode(**node) for node in content["nodes"]),
            target=content["target"],
            story=tuple(content["story"]),
            states=tuple(tuple(inputs) for inputs in content["states"]),
        )


def convert_to_function(problem: Problem) -> tuple[str, Function] | None:
    """Turn an `arith` problem into a function.

    Returns:
        The text with parameters in place of numbers, and the hidden function. None if two numbers
        of the story are equal, if it has too many numbers, or if an operand is ambiguous.
    """
    numbers = _NUMBER.findall(problem.text)
    if len(set(numbers)) < len(numbers) or len(numbers) > len(PARAMETERS):
        return None
    parameter_by_number = dict(zip(numbers, PARAMETERS, strict=False))
    program = Program.from_json(problem.meta["program"])
    nodes: list[FunctionNode] = []
    for node in program.nodes:
        operands = [str(node.left), str(node.right)]
        if len(node.needs) == 2:
            operands = [f"#{index}" for index in node.needs]
        elif node.needs and node.left == node.right:
            return None
        else:
            # The story states this divisor in words, such as "a third".
            is_divisor_in_words = node.op == "/" and node.event != "keep_pile"
            node_by_value = {str(program.nodes[index].value): f"#{index}" for index in node.needs}
            operands = [
                node_by_value.get(operand)
                or (
                    operand
                    if is_divisor_in_words and operand == operands[1]
                    else parameter_by_number[operand]
                )
                for operand in operands
            ]
        match = _SUBJECT_AND_VERB.match(node.claim)
        assert match is not None
        subject, verb = match.groups()
        variable = (
            subject.lower() if verb in _HOLDING_VERBS else _VARIABLE_REPLACEMENTS.get(verb, verb)
        )
        nodes.append(
            FunctionNode(
                op=node.op, left=operands[0], right=operands[1], variable=variable, event=node.event
            )
        )
    function = Function(nodes=tuple(nodes), target=program.target, story=tuple(map(int, numbers)))
    text = _NUMBER.sub(lambda number: parameter_by_number[number[0]], problem.text)
    return f"{text} Write solve({', '.join(function.parameters)}).", function
