"""A tiny, bounded interpreter for the subset of Python that pyarith solutions use.

Text from models can be hostile, so Python never executes it. The interpreter reads one line at a
time. It accepts only `def`, `for _ in range(...)`, assignments and `return`. Expressions consist of
whole numbers, + - * //, the inputs, and helper functions that return one operation. Any other line
is malformed. A program runs on several inputs at once, so each variable holds a *state*: one value
for each input.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mclabel.core.python_source import parse_python

State = tuple[int, ...]
"""Values of a quantity or variable: one value for each input."""

MAX_LINE, MAX_LINES = 200, 200
"""Maximum number of characters in a line, and maximum number of lines in a text."""
MAX_VALUE = 10**12
"""Largest absolute value of a number."""
MAX_WORK = 100_000
"""Maximum number of operations on numbers for one text."""
SOLVE = "solve"
"""Name of the function that a program must define."""

_OPERATIONS: Mapping[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
}


class MalformedError(Exception):
    """Raised for a text that the interpreter does not accept, or that exceeds its limits."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """The effect of one statement."""

    kind: str
    """`solve`, `helper`, `operation` (of a helper), `loop`, `assign`, `return`, or `nothing`."""
    state: State = ()
    """State that was assigned or returned. For a loop, its number of iterations on each input."""
    op: str = ""
    """Operator of a helper, or the outermost operator of an assignment outside of loops; empty for
    other statements."""
    operands: tuple[State, ...] = ()
    """States of the two operands of `op` in an assignment; empty for other statements."""
    is_copy: bool = False
    """True if the assigned expression is only a variable or a number."""


@dataclass
class _Loop:
    """A loop whose body is being read."""

    indent: int
    variable: str
    counts: State
    variables_before: dict[str, State]
    body: list[ast.Assign] = field(default_factory=list)


class LineInterpreter:
    """Interpreter that runs a program line by line, on several inputs at once."""

    def __init__(self, inputs: Sequence[Sequence[int]]) -> None:
        """Create an interpreter that has not read any line.

        Args:
            inputs: argument lists of the program's function `solve`, all of the same length.
        """
        self._inputs = inputs
        self._variables: dict[str, State] = {}
        self._helpers: dict[str, tuple[list[str], ast.expr]] = {}
        self._helper: tuple[str, list[str]] | None = None
        self._solve_indent: int | None = None
        self._body_indent: int | None = None
        self._loop: _Loop | None = None
        self._expects_body = False  # True after a function's header, which needs a body
        self._ended = False
        self._work = self._lines = 0

    def run_lines(self, text: str) -> Iterator[Event]:
        """Run further lines of the program, and yield the effect of each statement.

        Args:
            text: lines after those of earlier calls.

        Raises:
            MalformedError: a statement is not allowed, or exceeds a limit.
        """
        for line in text.split("\n"):
            self._lines += 1
            if len(line) > MAX_LINE or self._lines > MAX_LINES or not line.isprintable():
                raise MalformedError
            for indent, statement in _parse_statements(line):
                yield self._run_statement(statement, indent)

    def _run_statement(self, statement: ast.stmt, indent: int) -> Event:
        if self._ended:
            raise MalformedError
        if isinstance(statement, ast.FunctionDef):
            return self._run_definition(statement, indent)
        if self._helper is not None:
            return self._run_helper_body(statement, indent)
        self._check_indentation(indent)
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) if self._loop is None:
                return Event(kind="nothing")
            case ast.For() if self._loop is None:
                return self._begin_loop(statement, indent)
            case ast.Return(value=ast.expr() as value) if self._loop is None:
                self._ended = True
                return Event(kind="return", state=self._evaluate(value, self._variables))
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                value = ast.BinOp(left=ast.Name(id=name, ctx=ast.Load()), op=op, right=value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case _:
                raise MalformedError
        return self._run_assignment(ast.Assign(targets=[ast.Name(id=name)], value=value))

    def _run_definition(self, statement: ast.FunctionDef, indent: int) -> Event:
        names = _read_parameter_names(statement)
        used_names = {SOLVE, "range", *self._helpers}
        if (
            indent
            or self._expects_body
            or self._body_indent is not None
            or self._helper is not None
        ):
            raise MalformedError
        self._expects_body = True
        if statement.name == SOLVE and len(names) == len(self._inputs[0]):
            self._variables = dict(zip(names, zip(*self._inputs, strict=True), strict=True))
            self._body_indent = -1
            return Event(kind="solve")
        if statement.name in used_names:
            raise MalformedError
        self._helper = (statement.name, names)
        return Event(kind="helper")

    def _run_helper_body(self, statement: ast.stmt, indent: int) -> Event:
        assert self._helper is not None
        name, names = self._helper
        match statement:
            case ast.Return(value=ast.BinOp(left=left, op=op, right=right) as value) if indent:
                for operand in (left, right):
                    is_parameter = isinstance(operand, ast.Name) and operand.id in names
                    if not is_parameter and _read_number(operand) is None:
                        raise MalformedError
                op_sign, _ = _OPERATIONS.get(type(op), ("", None))
                self._helpers[name] = (names, value)
                self._helper, self._expects_body = None, False
                return Event(kind="operation", op=op_sign)
        raise MalformedError

    def _check_indentation(self, indent: int) -> None:
        """Check the indentation of a line in `solve`, and end the loop if the line is outside."""
        if self._body_indent is None or not indent:
            raise MalformedError
        if self._body_indent < 0:
            self._body_indent = indent
        elif self._loop is not None and not self._loop.body:
            if indent <= self._body_indent:
                raise MalformedError
            self._loop.indent = indent
        elif indent == self._body_indent:
            self._loop = None
        elif self._loop is None or indent != self._loop.indent:
            raise MalformedError
        self._expects_body = False

    def _begin_loop(self, statement: ast.For, indent: int) -> Event:
        match statement:
            case ast.For(
                target=ast.Name(id=name),
                iter=ast.Call(func=ast.Name(id="range"), args=[count], keywords=[]),
                orelse=[],
            ) if "range" not in self._variables:
                counts = self._evaluate(count, self._variables)
                self._loop = _Loop(
                    indent=indent,
                    variable=name,
                    counts=counts,
                    variables_before=dict(self._variables),
                )
                return Event(kind="loop", state=counts)
        raise MalformedError

    def _run_assignment(self, statement: ast.Assign) -> Event:
        name, value = _get_target_name(statement), statement.value
        op, operands = "", tuple[State, ...]()
        if self._loop is None:
            match value:
                case ast.BinOp(left=left, op=ast_operator, right=right) if (
                    type(ast_operator) in _OPERATIONS
                ):
                    op = _OPERATIONS[type(ast_operator)][0]
                    operands = tuple(
                        self._evaluate(operand, self._variables) for operand in (left, right)
                    )
            self._variables[name] = self._evaluate(value, self._variables)
        else:
            self._loop.body.append(statement)
            self._variables = self._compute_variables_after_loop(self._loop)
            if name not in self._variables:
                raise MalformedError  # the variable is unset for an input with no turns
        return Event(
            kind="assign",
            state=self._variables[name],
            op=op,
            operands=operands,
            is_copy=isinstance(value, ast.Name) or _read_number(value) is not None,
        )

    def _compute_variables_after_loop(self, loop: _Loop) -> dict[str, State]:
        """Run a loop with the body lines read so far, and return the variables after it."""
        results: list[dict[str, int]] = []
        for input_index, count in enumerate(loop.counts):
            variables = {
                name: state[input_index : input_index + 1]
                for name, state in loop.variables_before.items()
            }
            if count > MAX_WORK:
                raise MalformedError
            for turn in range(count):
                variables[loop.variable] = (turn,)
                for statement in loop.body:
                    variables[_get_target_name(statement)] = self._evaluate(
                        statement.value, variables
                    )
            results.append({name: state[0] for name, state in variables.items()})
        common_names = set.intersection(*map(set, results))
        return {name: tuple(result[name] for result in results) for name in common_names}

    def _evaluate(self, node: ast.expr, variables: Mapping[str, State]) -> State:
        """Return the state of an expression. The maximum line length bounds the recursion depth."""
        width = len(next(iter(variables.values())))
        self._work += width
        if self._work > MAX_WORK:
            raise MalformedError
        if (number := _read_number(node)) is not None:
            return (number,) * width
        match node:
            case ast.Name(id=name) if name in variables:
                return variables[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return tuple(-number for number in self._evaluate(operand, variables))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                _, compute = _OPERATIONS[type(op)]
                left_state, right_state = (
                    self._evaluate(left, variables),
                    self._evaluate(right, variables),
                )
                try:
                    results = tuple(map(compute, left_state, right_state))
                except ZeroDivisionError:
                    raise MalformedError from None
                if max(map(abs, results)) > MAX_VALUE:
                    raise MalformedError
                return results
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if (
                name in self._helpers
            ):
                names, body = self._helpers[name]
                if len(arguments) != len(names) or name in variables:
                    raise MalformedError
                states = [self._evaluate(argument, variables) for argument in arguments]
                return self._evaluate(body, dict(zip(names, states, strict=True)))
        raise MalformedError


def run_solve(text: str, inputs: Sequence[Sequence[int]]) -> State | None:
    """Return the results of a program's function `solve`, one for each input.

    The result is None if the program is malformed or has no `return`.

    Args:
        text: program that defines `solve`.
        inputs: argument lists of `solve`, all of the same length.
    """
    try:
        events = list(LineInterpreter(inputs).run_lines(text))
    except MalformedError:
        return None
    return events[-1].state if events and events[-1].kind == "return" else None


def _parse_statements(line: str) -> Iterator[tuple[int, ast.stmt]]:
    """Yield the indentation, in spaces, and the syntax tree of each statement in a line.

    If a statement and its body share the line, as in `for i in x: y = i`, the body counts as
    indented by one more space.

    Raises:
        MalformedError: the line is not valid Python.
    """
    text = line.strip(" ")
    if not text or text.startswith(("#", "```")):
        return
    try:
        statements, is_header = _parse_line(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise MalformedError from None
    indent = len(line) - len(line.lstrip(" "))
    for statement in statements:
        yield indent, statement
        if isinstance(statement, (ast.For, ast.FunctionDef)) and not is_header:
            yield from ((indent + 1, body_statement) for body_statement in statement.body)


def _parse_line(text: str) -> tuple[list[ast.stmt], bool]:
    """Return the statements of a line, and True if its statement has its body on later lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return parse_python(text).body, False
        except IndentationError:
            return parse_python(f"{text}\n pass").body, True


def _read_parameter_names(statement: ast.FunctionDef) -> list[str]:
    arguments = statement.args
    names = [argument.arg for argument in arguments.args]
    other_parameters = (
        arguments.vararg,
        arguments.kwarg,
        *arguments.kwonlyargs,
        *arguments.posonlyargs,
    )
    if any(other_parameters) or arguments.defaults or statement.decorator_list or not names:
        raise MalformedError
    if len(set(names)) < len(names):
        raise MalformedError
    return names


def _get_target_name(statement: ast.Assign) -> str:
    target = statement.targets[0]
    assert isinstance(target, ast.Name)
    return target.id


def _read_number(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value <= MAX_VALUE:
        return node.value
    return None
