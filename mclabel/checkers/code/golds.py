"""Parses the tests of a problem from its gold, in one of the forms of public data sets.

A gold is the reference by which a completion is graded; here it is a set of tests. Only the gold
decides whether the tests share a process with the program, so that a program cannot choose this
weaker isolation.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import symtable
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mclabel.checkers.code.testing import SUPPORTED
from mclabel.core.python_source import parse_python

MAX_TESTS = 10_000
"""Maximum number of pairs of input and output in a gold."""
MAX_SOURCE = 4 << 20
"""Maximum characters of a gold's test sources."""
OWN_MODULES = frozenset(
    {"solution", "main", "submission", "answer", "program", "my_module", "your_module"}
)
"""Module names under which tests may import the program."""


class BadGold(Exception):
    """A gold cannot be used. The text of the exception is the reason."""


@dataclass(frozen=True, kw_only=True)
class Gold:
    """The tests of a problem."""

    tests: tuple[str, ...] = ()
    """Sources of statements, each of which must run without an exception. Test functions and
    classes that they define are run as pytest runs them."""
    setup: str = ""
    """Source that runs before the tests."""
    checked_expression: str | None = None
    """Expression, such as a function's name, whose value is passed to the function `check` that the
    set-up defines; None if there is no such function."""
    test_context: str = ""
    """Source from the gold, such as its prompt, whose names the tests may use."""
    prompt: str = ""
    """Source that a completion may continue or depend on."""
    tested_names: tuple[str, ...] = ()
    """Names that the tests take from the program."""
    modules: tuple[str, ...] = ()
    """Modules that the tests use without importing them."""
    own_modules: tuple[str, ...] = ()
    """Names under which the tests import the program as a module."""
    imported_names: tuple[str, ...] = ()
    """Names that the tests import from the program."""
    calls: tuple[tuple[list[Any], Any], ...] = ()
    """Arguments and expected result of each call of the only function in `tested_names`."""
    is_wrapped: bool = False
    """True if every expected result is a list with one item. The item itself may then be the
    expected result, as in TACO."""
    script_runs: tuple[tuple[str, str], ...] = ()
    """Standard input and expected output of each run of a whole program."""
    examples: tuple[tuple[Any, ...], ...] = ()
    """Arguments of the problem's examples, with which the only function in `tested_names` is
    called."""
    shares_process: bool = False
    """True if the tests run in the program's process."""
    solution: str | None = None
    """A program known to be right; None if the gold has none."""


_FORMS: Mapping[str, frozenset[str]] = {
    "test": frozenset(
        {"entry_point", "prompt", "canonical_solution", "test_list", "test_imports", "code"}
    ),
    "test_list": frozenset({"test_setup_code", "test_imports", "code"}),
    "tests": frozenset({"test_setup_code", "test_imports", "code", "prompt"}),
    "inputs": frozenset({"outputs", "fn_name", "examples"}),
}
"""Keys of each form of a gold, by the key that identifies the form. `_COMMON` has further keys that
all forms may have."""
_COMMON = {"solution", "inside", "task_id"}
_ENTRY = re.compile(r"[A-Za-z_]\w*(?:\(\))?(?:\.[A-Za-z_]\w*)*")


def read_gold(gold_data: Any) -> Gold:
    """Parse the tests of a problem from its gold.

    Args:
        gold_data: source of tests, a list of inputs and outputs, or data in one of the forms of
            `docs/code.md`.

    Raises:
        BadGold: the gold has none of these forms, its tests cannot run, or they test nothing.
    """
    content = _parse_gold_text(gold_data) if isinstance(gold_data, str) else gold_data
    if isinstance(content, list):
        content = convert_cases_to_pairs(content)
    if not isinstance(content, Mapping):
        raise BadGold("the gold is neither a string, a list of inputs and outputs, nor an object")
    form = next((name for name in _FORMS if name in content), None)
    if form is None:
        raise BadGold(f"the gold has no tests: it must have one of the keys {', '.join(_FORMS)}")
    if unknown := sorted(map(str, set(content) - _FORMS[form] - _COMMON - {form})):
        raise BadGold(
            f"the gold has unknown keys beside {form}: {', '.join(unknown[:5])}. Remove or correct "
            "them"
        )
    try:
        if form == "inputs":
            return _make_gold_from_pairs(content)
        return (
            _make_gold_from_test_source(content)
            if form == "test"
            else _make_gold_from_statements(content, form)
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadGold(f"the tests do not parse ({type(error).__name__}: {error})") from error


def _parse_gold_text(text: str) -> Any:
    """Return the value of a JSON text, or a gold whose tests are the text itself.

    Data sets store inputs and outputs as JSON text, for example in the column `input_output`.
    """
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return {"tests": text}


def convert_cases_to_pairs(cases: list[Any]) -> dict[str, Any]:
    """Convert test cases with `input` and `output` to a gold with lists of inputs and outputs.

    LiveCodeBench has such test cases.

    Args:
        cases: test cases. If they are calls, they have `fn_name` or `metadata.func_name`, and their
            arguments are JSON, one per line.

    Raises:
        BadGold: the cases have another form, or mix calls and whole programs.
    """
    if not all(isinstance(case, Mapping) and {"input", "output"} <= {*case} for case in cases):
        raise BadGold("each test in a list must be an object with `input` and `output`")
    pairs = {key: [case[key.rstrip("s")] for case in cases] for key in ("inputs", "outputs")}
    kinds = {case.get("testtype") or case.get("type") or "stdin" for case in cases}
    if kinds <= {"stdin", "stdin_stdout"}:
        return pairs
    names = {case.get("fn_name") or (case.get("metadata") or {}).get("func_name") for case in cases}
    if len(names) != 1 or names == {None}:
        raise BadGold("all tests must name the same function, in metadata.func_name or fn_name")
    try:
        inputs = [_parse_call_arguments(lines) for lines in pairs["inputs"]]
        outputs = [
            json.loads(output) if isinstance(output, str) else output for output in pairs["outputs"]
        ]
    except ValueError as error:
        raise BadGold(
            "inputs and outputs of calls must be JSON, with one argument per line"
        ) from error
    return {"fn_name": names.pop(), "inputs": inputs, "outputs": outputs}


def _parse_call_arguments(lines: Any) -> list[Any]:
    if isinstance(lines, str):
        return [json.loads(line) for line in lines.splitlines() if line.strip()]
    return lines if isinstance(lines, list) else [lines]


def _make_gold_from_test_source(content: Mapping[str, Any]) -> Gold:
    """Parse a source of tests that defines `check(candidate)`, or that pytest or unittest run."""
    setup, entry = _read_text_field(content, "test"), _read_text_field(content, "entry_point", "")
    tree = parse_python(setup)
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
        rest = {key: content[key] for key in ("prompt", "test_imports") if key in content}
        rest |= {key: content[key] for key in ("inside", "task_id") if key in content}
        rest |= {"tests": setup, "solution": _find_reference_solution(content)}
        return _make_gold_from_statements(rest, "tests", required_name=_get_root_name(entry))
    if _ENTRY.fullmatch(entry) is None:
        raise BadGold(f"entry_point must name a function, such as add or Solution().add: {entry!r}")
    gold = Gold(
        setup=setup,
        checked_expression=entry,
        prompt=_read_text_field(content, "prompt", ""),
        solution=_find_reference_solution(content),
    )
    return _complete_gold_from_tests(
        gold, content, source=f"{setup}\ncheck({entry})\n", required_name=_get_root_name(entry)
    )


def _get_root_name(entry: str) -> str:
    return re.split(r"[.(]", entry)[0]


def _find_reference_solution(content: Mapping[str, Any]) -> str | None:
    solution, body = (
        _read_optional_text_field(content, "solution"),
        _read_optional_text_field(content, "canonical_solution"),
    )
    if solution is None and body is not None:
        return _read_text_field(content, "prompt", "") + body
    return solution or _read_optional_text_field(content, "code")


def _make_gold_from_statements(
    content: Mapping[str, Any], form: str, *, required_name: str = ""
) -> Gold:
    sources = content[form]
    if isinstance(sources, str):
        nodes = parse_python(sources).body
    elif isinstance(sources, Sequence) and all(isinstance(source, str) for source in sources):
        nodes = [node for source in sources for node in parse_python(source).body]
    else:
        raise BadGold(f"{form} is neither a string nor a list of strings")
    if not any(_may_detect_fault(node) for statement in nodes for node in ast.walk(statement)):
        raise BadGold("the gold has no tests: its source asserts nothing. Add assert statements")
    imports = content.get("test_imports") or []
    lines = [imports] if isinstance(imports, str) else list(map(str, imports))
    setup = "\n".join([*lines, _read_optional_text_field(content, "test_setup_code") or ""])
    tests = tuple(map(ast.unparse, nodes))
    gold = Gold(
        tests=tests,
        setup=setup,
        prompt=_read_text_field(content, "prompt", ""),
        solution=_find_reference_solution(content),
    )
    return _complete_gold_from_tests(
        gold, content, source="\n".join([setup, *tests]), required_name=required_name
    )


def _may_detect_fault(node: ast.AST) -> bool:
    """Return whether a node of tests may detect a fault of the program.

    Such a node asserts or raises, or its name begins with `assert`, `raises` or `fail`.
    """
    name = node.attr if isinstance(node, ast.Attribute) else ""
    return isinstance(node, ast.Assert | ast.Raise) or name.startswith(("assert", "raises", "fail"))


def _make_gold_from_pairs(content: Mapping[str, Any]) -> Gold:
    inputs, outputs = content["inputs"], content.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
        raise BadGold("the gold has no tests: inputs and outputs must be lists that are not empty")
    if len(inputs) != len(outputs):
        raise BadGold(
            f"the gold has {len(inputs)} inputs and {len(outputs)} outputs, but these numbers "
            "must be equal"
        )
    if len(inputs) > MAX_TESTS:
        raise BadGold(
            f"the gold has {len(inputs):,} tests, but must have at most {MAX_TESTS:,}. Remove some"
        )
    solution, name = (
        _read_optional_text_field(content, "solution"),
        _read_optional_text_field(content, "fn_name"),
    )
    if name is None:
        return Gold(
            script_runs=tuple(
                zip(map(_join_lines, inputs), map(_join_lines, outputs), strict=True)
            ),
            solution=solution,
        )
    if not name.isidentifier() or not all(isinstance(arguments, list) for arguments in inputs):
        raise BadGold("fn_name must be a name, and each of its inputs a list of arguments")
    return Gold(
        calls=tuple(zip(inputs, outputs, strict=True)),
        is_wrapped=all(isinstance(output, list) and len(output) == 1 for output in outputs),
        tested_names=(name,),
        solution=solution,
        examples=_read_examples(content),
    )


def _read_examples(content: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    examples = content.get("examples", [])
    if not isinstance(examples, list) or not all(
        isinstance(arguments, list) for arguments in examples
    ):
        raise BadGold("examples must be a list of lists of arguments")
    return tuple(tuple(arguments) for arguments in examples)


def _join_lines(lines: Any) -> str:
    if isinstance(lines, str):
        return lines
    if isinstance(lines, list) and all(isinstance(line, str) for line in lines):
        return "\n".join(lines)
    raise BadGold("inputs and outputs of whole programs must be strings, or lists of lines")


def _complete_gold_from_tests(
    gold: Gold, content: Mapping[str, Any], *, source: str, required_name: str = ""
) -> Gold:
    """Complete a gold by examining the source of its tests.

    Add the names that the tests take from the program, and whether the tests must run in the
    program's process.

    Args:
        gold: the gold without these fields.
        content: data that the gold was parsed from.
        source: source of all tests.
        required_name: name that the program must define, even if the prompt defines it, too; empty
            if there is none.
    """
    if len(source) > MAX_SOURCE:
        raise BadGold(
            f"the tests have {len(source):,} characters: they must have at most {MAX_SOURCE:,}. "
            "Shorten them"
        )
    tree = parse_python(source)
    before = _make_parsable_module(gold.prompt)
    free = _find_undefined_names(symtable.symtable(source, "tests", "exec")) - set(dir(builtins))
    free -= _list_assigned_names(before) - {required_name}
    bases = {
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    modules = {name for name in free & bases if name in sys.stdlib_module_names}
    own_modules = OWN_MODULES & set(_list_imported_packages(tree))
    imports = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in own_modules
        for name in node.names
    }
    names = free - modules
    if not names and not own_modules:
        raise BadGold(
            "the tests use no name of the program, so any program would pass. Call the program in "
            "them"
        )
    if strange := sorted(set(_find_pytest_names(tree)) - SUPPORTED):
        raise BadGold(
            f"the tests use pytest.{strange[0]}, which is not supported. Rewrite them without it"
        )
    inside = content.get("inside", False)
    if not isinstance(inside, bool):
        raise BadGold(f"inside must be true or false, is {inside!r}")
    inside = inside or must_share_process(tree, names)
    missing = sorted(
        set(_list_imported_packages(tree)) - sys.stdlib_module_names - OWN_MODULES - {"pytest"}
    )
    if inside and missing:
        raise BadGold(
            f"the tests import {missing[0]}, which is not in Python's standard library. Rewrite "
            "them without it"
        )
    return replace(
        gold,
        test_context=before,
        tested_names=tuple(sorted(names)),
        modules=tuple(sorted(modules)),
        own_modules=tuple(sorted(own_modules)),
        imported_names=tuple(sorted(imports)),
        shares_process=inside,
    )


_SHARED_MODULES = frozenset({
    "unittest.mock", "mock", "tempfile", "shutil", "subprocess", "logging", "warnings", "importlib",
    "inspect", "gc", "weakref", "builtins", "signal", "tracemalloc",
})  # fmt: skip
"""Modules with which tests change or inspect their own process. Tests that import one must run in
the program's process."""
_SHARED_NAMES = frozenset({
    "sys.stdout", "sys.stderr", "sys.stdin", "sys.argv", "sys.modules", "sys.setrecursionlimit",
    "random.seed", "decimal.getcontext", "decimal.localcontext", "os.environ", "os.chdir",
    "os.remove", "os.mkdir", "os.makedirs", "os.listdir", "os.unlink", "os.path.exists",
    "redirect_stdout", "redirect_stderr", "contextlib.redirect_stdout",
    "contextlib.redirect_stderr", "open", "input", "patch", "Mock", "MagicMock",
})  # fmt: skip
_CHANGING = frozenset({
    "append", "extend", "insert", "remove", "clear", "update", "pop", "add", "discard", "sort",
})  # fmt: skip
"""Methods that change a container in place."""


def must_share_process(tree: ast.AST, names: set[str]) -> bool:
    """Return whether tests must run in the program's process.

    Some uses of a program cannot be expressed by requests between processes: its output, its files,
    its interpreter, subclasses of its classes, and changes of containers in its objects.

    Args:
        tree: syntax tree of the tests.
        names: names that the tests take from the program.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and _SHARED_MODULES & {alias.name for alias in node.names}:
            return True
        if isinstance(node, ast.ImportFrom) and (
            node.module in _SHARED_MODULES
            or _SHARED_NAMES & {f"{node.module}.{alias.name}" for alias in node.names}
            or _SHARED_MODULES & {f"{node.module}.{alias.name}" for alias in node.names}
        ):
            return True
        if (
            isinstance(node, ast.Attribute | ast.Name)
            and _format_dotted_name(node) in _SHARED_NAMES
        ):
            return True
        if isinstance(node, ast.ClassDef) and names & {
            _format_dotted_name(base) for base in node.bases
        }:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            held = _format_dotted_name(node.func.value).removeprefix("self.")
            if node.func.attr in _CHANGING and "." in held:
                return True
    return False


def _format_dotted_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_format_dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _find_pytest_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of pytest that tests use."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _format_dotted_name(node.value) == "pytest":
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and node.module == "pytest":
            yield from (alias.name for alias in node.names)


def _make_parsable_module(prompt: str) -> str:
    """Return the start of a file as a module that parses; empty if there is none.

    If the last function lacks a body, a body is added.
    """
    wholes = (prompt, f"{prompt}\n    pass\n")
    return next((source for source in wholes if _is_parsable(source)), "")


def _list_imported_packages(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def _find_undefined_names(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a module uses and does not define."""
    defined_names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }
    used_names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    tables = list(table.get_children())
    while tables:
        inner = tables.pop()
        tables += inner.get_children()
        used_names |= {symbol.get_name() for symbol in inner.get_symbols() if symbol.is_global()}
    return used_names - defined_names


def _list_assigned_names(source: str) -> set[str]:
    table = symtable.symtable(source, "before", "exec")
    return {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }


def _is_parsable(source: str) -> bool:
    try:
        parse_python(source)
    except SyntaxError:
        return False
    return True


def _read_text_field(content: Mapping[str, Any], key: str, default: str | None = None) -> str:
    text = content.get(key, default)
    if not isinstance(text, str):
        raise BadGold(f"{key} must be a string")
    return text


def _read_optional_text_field(content: Mapping[str, Any], key: str) -> str | None:
    return None if content.get(key) is None else _read_text_field(content, key)
