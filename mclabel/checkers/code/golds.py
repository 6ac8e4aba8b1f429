"""What a gold says: the tests of a problem, in one of the forms of public data sets.

Whether the tests share a process with the program is decided here, by the gold alone: a program
never chooses the weaker way.
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
MAX_SOURCE = 4 << 20
"""Characters of a gold's sources."""
OWN_MODULES = frozenset(
    {"solution", "main", "submission", "answer", "program", "my_module", "your_module"}
)
"""Names by which tests import the program."""


class BadGold(Exception):
    """A gold that cannot be used; its text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Gold:
    """The tests of a problem."""

    tests: tuple[str, ...] = ()
    """Sources of statements, of which each must run without an exception. Functions and classes of
    tests among them are run as pytest does."""
    setup: str = ""
    """Source before them."""
    check: str | None = None
    """Expression, such as the name of a function, that `check` in the set-up takes."""
    before: str = ""
    """Source whose names the tests may use, which is the gold's and not the program's."""
    prompt: str = ""
    """Source that a completion may continue or rely on."""
    names: tuple[str, ...] = ()
    """Names that the tests take from the program."""
    modules: tuple[str, ...] = ()
    """Modules that the tests use without importing them."""
    own_modules: tuple[str, ...] = ()
    """Names under which the tests import the program as a module."""
    imports: tuple[str, ...] = ()
    """Names that the tests import from it."""
    calls: tuple[tuple[list[Any], Any], ...] = ()
    """Arguments and results of calls of the one function of `names`."""
    is_wrapped: bool = False
    """Whether each result is a list of one, which may hold the result, as in TACO."""
    scripts: tuple[tuple[str, str], ...] = ()
    """Standard input and output of each run of a whole program."""
    examples: tuple[tuple[Any, ...], ...] = ()
    """Arguments that the problem shows, for the one function of `names`."""
    inside: bool = False
    """Whether the tests run in the program's process."""
    solution: str | None = None
    """A program that is known to be right."""


_FORMS: Mapping[str, frozenset[str]] = {
    "test": frozenset(
        {"entry_point", "prompt", "canonical_solution", "test_list", "test_imports", "code"}
    ),
    "test_list": frozenset({"test_setup_code", "test_imports", "code"}),
    "tests": frozenset({"test_setup_code", "test_imports", "code", "prompt"}),
    "inputs": frozenset({"outputs", "fn_name", "examples"}),
}
"""By the key that tells a form: the other keys that it may have."""
_COMMON = {"solution", "inside", "task_id"}
_ENTRY = re.compile(r"[A-Za-z_]\w*(?:\(\))?(?:\.[A-Za-z_]\w*)*")


def read_gold(found: Any) -> Gold:
    """Read a gold.

    Args:
        found: a text of tests, a list of inputs and outputs, or data in one of the forms of
            `docs/code.md`.

    Raises:
        BadGold: it is in none, or its tests cannot be run or test nothing.
    """
    content = _parsed(found) if isinstance(found, str) else found
    if isinstance(content, list):
        content = pairs_of_cases(content)
    if not isinstance(content, Mapping):
        raise BadGold("the gold is neither a text, a list of inputs and outputs, nor an object")
    form = next((name for name in _FORMS if name in content), None)
    if form is None:
        raise BadGold(f"no tests: the gold has none of the keys {', '.join(_FORMS)}")
    if unknown := sorted(map(str, set(content) - _FORMS[form] - _COMMON - {form})):
        raise BadGold(f"unknown keys {', '.join(unknown[:5])} beside {form}")
    try:
        if form == "inputs":
            return _pairs(content)
        return _human_eval(content) if form == "test" else _statements(content, form)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadGold(f"the tests do not parse ({type(error).__name__}: {error})") from error


def _parsed(text: str) -> Any:
    """A text as data: JSON, such as a column `input_output`, or statements of tests."""
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return {"tests": text}


def pairs_of_cases(cases: list[Any]) -> dict[str, Any]:
    """Lists of inputs and outputs from objects with `input` and `output`, as LiveCodeBench has.

    Args:
        cases: with `fn_name` or `metadata.func_name` if they are calls, whose arguments are JSON,
            one a line.

    Raises:
        BadGold: they are no such objects, or of two kinds.
    """
    if not all(isinstance(one, Mapping) and {"input", "output"} <= {*one} for one in cases):
        raise BadGold("each test of a list must be an object with input and output")
    pairs = {key: [one[key.rstrip("s")] for one in cases] for key in ("inputs", "outputs")}
    kinds = {one.get("testtype") or one.get("type") or "stdin" for one in cases}
    if kinds <= {"stdin", "stdin_stdout"}:
        return pairs
    names = {one.get("fn_name") or (one.get("metadata") or {}).get("func_name") for one in cases}
    if len(names) != 1 or names == {None}:
        raise BadGold("tests of a function must name it, in metadata.func_name or fn_name")
    try:
        inputs = [_arguments(one) for one in pairs["inputs"]]
        outputs = [json.loads(one) if isinstance(one, str) else one for one in pairs["outputs"]]
    except ValueError as error:
        raise BadGold("inputs and outputs of calls must be JSON, an argument a line") from error
    return {"fn_name": names.pop(), "inputs": inputs, "outputs": outputs}


def _arguments(lines: Any) -> list[Any]:
    if isinstance(lines, str):
        return [json.loads(line) for line in lines.splitlines() if line.strip()]
    return lines if isinstance(lines, list) else [lines]


def _human_eval(content: Mapping[str, Any]) -> Gold:
    """Read a source of tests: with `check(candidate)`, or as pytest or unittest run it."""
    setup, entry = _text(content, "test"), _text(content, "entry_point", "")
    tree = parse_python(setup)
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
        rest = {key: content[key] for key in ("prompt", "test_imports") if key in content}
        rest |= {key: content[key] for key in ("inside", "task_id") if key in content}
        rest |= {"tests": setup, "solution": _solution(content)}
        return _statements(rest, "tests", is_needed=_root(entry))
    if _ENTRY.fullmatch(entry) is None:
        raise BadGold(f"entry_point must name a function, such as add or Solution().add: {entry!r}")
    prompt = _text(content, "prompt", "")
    gold = Gold(setup=setup, check=entry, prompt=prompt, solution=_solution(content))
    return _resolved(gold, content, source=f"{setup}\ncheck({entry})\n", is_needed=_root(entry))


def _root(entry: str) -> str:
    return re.split(r"[.(]", entry)[0]


def _solution(content: Mapping[str, Any]) -> str | None:
    solution, body = _optional(content, "solution"), _optional(content, "canonical_solution")
    if solution is None and body is not None:
        return _text(content, "prompt", "") + body
    return solution or _optional(content, "code")


def _statements(content: Mapping[str, Any], form: str, *, is_needed: str = "") -> Gold:
    found = content[form]
    if isinstance(found, str):
        nodes = parse_python(found).body
    elif isinstance(found, Sequence) and all(isinstance(one, str) for one in found):
        nodes = [node for one in found for node in parse_python(one).body]
    else:
        raise BadGold(f"{form} is neither a text nor a list of texts")
    if not any(_checks(node) for one in nodes for node in ast.walk(one)):
        raise BadGold("no tests: nothing is asserted")
    imports = content.get("test_imports") or []
    lines = [imports] if isinstance(imports, str) else list(map(str, imports))
    setup = "\n".join([*lines, _optional(content, "test_setup_code") or ""])
    tests = tuple(map(ast.unparse, nodes))
    prompt = _text(content, "prompt", "")
    gold = Gold(tests=tests, setup=setup, prompt=prompt, solution=_solution(content))
    return _resolved(gold, content, source="\n".join([setup, *tests]), is_needed=is_needed)


def _checks(node: ast.AST) -> bool:
    """Whether a node may find a fault: it asserts or raises, or is named so."""
    name = node.attr if isinstance(node, ast.Attribute) else ""
    return isinstance(node, ast.Assert | ast.Raise) or name.startswith(("assert", "raises", "fail"))


def _pairs(content: Mapping[str, Any]) -> Gold:
    inputs, outputs = content["inputs"], content.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
        raise BadGold("no tests: inputs and outputs must be lists that are not empty")
    if len(inputs) != len(outputs):
        raise BadGold(f"{len(inputs)} inputs and {len(outputs)} outputs")
    if len(inputs) > MAX_TESTS:
        raise BadGold(f"{len(inputs):,} tests, more than {MAX_TESTS:,}")
    solution, name = _optional(content, "solution"), _optional(content, "fn_name")
    if name is None:
        scripts = tuple(zip(map(_joined, inputs), map(_joined, outputs), strict=True))
        return Gold(scripts=scripts, solution=solution)
    if not name.isidentifier() or not all(isinstance(one, list) for one in inputs):
        raise BadGold("fn_name must be a name, and each of its inputs a list of arguments")
    return Gold(
        calls=tuple(zip(inputs, outputs, strict=True)),
        is_wrapped=all(isinstance(one, list) and len(one) == 1 for one in outputs),
        names=(name,),
        solution=solution,
        examples=_examples(content),
    )


def _examples(content: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    found = content.get("examples", [])
    if not isinstance(found, list) or not all(isinstance(one, list) for one in found):
        raise BadGold("examples must be a list of lists of arguments")
    return tuple(tuple(one) for one in found)


def _joined(lines: Any) -> str:
    if isinstance(lines, str):
        return lines
    if isinstance(lines, list) and all(isinstance(one, str) for one in lines):
        return "\n".join(lines)
    raise BadGold("inputs and outputs of whole programs must be texts, or lists of lines")


def _resolved(gold: Gold, content: Mapping[str, Any], *, source: str, is_needed: str = "") -> Gold:
    """A gold with what its tests take from the program, and whether they share a process with it.

    Args:
        gold: that was read.
        content: it was read from.
        source: all of its tests.
        is_needed: a name that the program must define, whatever the prompt defines.
    """
    if len(source) > MAX_SOURCE:
        raise BadGold("the tests are too long")
    tree = parse_python(source)
    before = _whole(gold.prompt)
    free = _free(symtable.symtable(source, "tests", "exec")) - set(dir(builtins))
    free -= _defined(before) - {is_needed}
    bases = {
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    modules = {name for name in free & bases if name in sys.stdlib_module_names}
    own_modules = OWN_MODULES & set(_imported(tree))
    imports = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in own_modules
        for name in node.names
    }
    names = free - modules
    if not names and not own_modules:
        raise BadGold("the tests use nothing of the program: any constant would pass")
    if strange := sorted(set(_of_pytest(tree)) - SUPPORTED):
        raise BadGold(f"the tests use pytest.{strange[0]}, which is not there")
    inside = content.get("inside", False)
    if not isinstance(inside, bool):
        raise BadGold("inside must be true or false")
    inside = inside or shares_process(tree, names)
    missing = sorted(set(_imported(tree)) - sys.stdlib_module_names - OWN_MODULES - {"pytest"})
    if inside and missing:
        raise BadGold(f"the tests need {missing[0]}, which is not among Python's own modules")
    return replace(
        gold,
        before=before,
        names=tuple(sorted(names)),
        modules=tuple(sorted(modules)),
        own_modules=tuple(sorted(own_modules)),
        imports=tuple(sorted(imports)),
        inside=inside,
    )


_SHARED_MODULES = frozenset({
    "unittest.mock", "mock", "tempfile", "shutil", "subprocess", "logging", "warnings", "importlib",
    "inspect", "gc", "weakref", "builtins", "signal", "tracemalloc",
})  # fmt: skip
"""Modules by which tests reach into the program's process, or look for what it leaves there."""
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
"""Methods that change what an attribute of an object holds."""


def shares_process(tree: ast.AST, names: set[str]) -> bool:
    """Whether tests need more of the program than requests carry.

    They do if they look at its output, files or interpreter, derive from one of its classes, or
    change containers that its objects hold.

    Args:
        tree: of the tests.
        names: that they take from the program.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and _SHARED_MODULES & {one.name for one in node.names}:
            return True
        if isinstance(node, ast.ImportFrom) and (
            node.module in _SHARED_MODULES
            or _SHARED_NAMES & {f"{node.module}.{one.name}" for one in node.names}
            or _SHARED_MODULES & {f"{node.module}.{one.name}" for one in node.names}
        ):
            return True
        if isinstance(node, ast.Attribute | ast.Name) and _dotted(node) in _SHARED_NAMES:
            return True
        if isinstance(node, ast.ClassDef) and names & {_dotted(base) for base in node.bases}:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            held = _dotted(node.func.value).removeprefix("self.")
            if node.func.attr in _CHANGING and "." in held:
                return True
    return False


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _of_pytest(tree: ast.AST) -> Iterator[str]:
    """Names of pytest that tests use."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _dotted(node.value) == "pytest":
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and node.module == "pytest":
            yield from (one.name for one in node.names)


def _whole(prompt: str) -> str:
    """The start of a file as a whole module: its last function may lack a body."""
    wholes = (prompt, f"{prompt}\n    pass\n")
    return next((one for one in wholes if _parses(one)), "")


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def _free(table: symtable.SymbolTable) -> set[str]:
    """Names that a module's source uses and does not define."""
    own = {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}
    found = {one.get_name() for one in table.get_symbols() if one.is_referenced()}
    tables = list(table.get_children())
    while tables:
        inner = tables.pop()
        tables += inner.get_children()
        found |= {one.get_name() for one in inner.get_symbols() if one.is_global()}
    return found - own


def _defined(source: str) -> set[str]:
    table = symtable.symtable(source, "before", "exec")
    return {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}


def _parses(source: str) -> bool:
    try:
        parse_python(source)
    except SyntaxError:
        return False
    return True


def _text(content: Mapping[str, Any], key: str, default: str | None = None) -> str:
    found = content.get(key, default)
    if not isinstance(found, str):
        raise BadGold(f"{key} must be a text")
    return found


def _optional(content: Mapping[str, Any], key: str) -> str | None:
    found = content.get(key)
    return None if found is None else _text(content, key)
