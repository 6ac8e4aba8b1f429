"""What a gold says: the tests of a problem, whichever of four forms it has, and how they are run.

How tests are run, split from the solution or in one process with it, is decided here, by the gold
alone: a solution never chooses the weaker way.
"""

from __future__ import annotations

import ast
import builtins
import json
import symtable
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MAX_TESTS = 10_000
MAX_SOURCE = 4 << 20
"""Characters of a gold's sources."""


class BadGold(Exception):
    """A gold that cannot be used; its text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Gold:
    """The tests of a problem."""

    tests: tuple[str, ...] = ()
    """Sources of tests, of which each must run without an exception."""
    setup: str = ""
    """Source before them."""
    check: str | None = None
    """Name of the function that `check` in the set-up takes."""
    before: str = ""
    """Source whose names the tests may use, which is the gold's and not the solution's."""
    prompt: str = ""
    """Source that a completion may continue or rely on."""
    names: tuple[str, ...] = ()
    """Functions of the solution that the tests use."""
    modules: tuple[str, ...] = ()
    """Modules that the tests use without importing them."""
    scripts: tuple[tuple[str, str], ...] = ()
    """Standard input and output of each run of a whole program."""
    examples: tuple[tuple[Any, ...], ...] = ()
    """Arguments that the problem shows, for the one function of `names`."""
    inside: bool = False
    """Whether the tests run in the solution's process."""
    solution: str | None = None
    """A solution that is known to be right."""


_FORMS: Mapping[str, frozenset[str]] = {
    "test": frozenset({"entry_point", "prompt", "canonical_solution"}),
    "test_list": frozenset({"test_setup_code", "test_imports", "code"}),
    "tests": frozenset({"test_setup_code", "test_imports", "code"}),
    "inputs": frozenset({"outputs", "fn_name", "examples"}),
}
"""By the key that tells a form: the other keys that it may have."""
_COMMON = {"solution", "inside", "task_id"}


def read_gold(found: Any) -> Gold:
    """Read a gold.

    Args:
        found: a text of lines with assertions, or data in one of the forms of `docs/code.md`.

    Raises:
        BadGold: it is in none, or its tests cannot be run or test nothing.
    """
    content = _parsed(found) if isinstance(found, str) else found
    if not isinstance(content, Mapping):
        raise BadGold("the gold is neither a text nor an object")
    form = next((name for name in _FORMS if name in content), None)
    if form is None:
        raise BadGold(f"no tests: the gold has none of the keys {', '.join(_FORMS)}")
    if unknown := sorted(map(str, set(content) - _FORMS[form] - _COMMON - {form})):
        raise BadGold(f"unknown keys {', '.join(unknown[:5])} beside {form}")
    try:
        if form == "test":
            return _human_eval(content)
        return _pairs(content) if form == "inputs" else _assertions(content, form)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadGold(f"the tests do not parse ({type(error).__name__}: {error})") from error


def _parsed(text: str) -> Any:
    """A text as data: an object as JSON, such as a column `input_output`, or lines of tests."""
    if text.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return {"tests": text}


def _human_eval(content: Mapping[str, Any]) -> Gold:
    setup, name = _text(content, "test"), _text(content, "entry_point")
    prompt = _text(content, "prompt", "")
    before = prompt if not prompt or _parses(prompt) else f"{prompt}\n    pass\n"
    if not _parses(before):
        before = ""
    tree = ast.parse(setup)
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
        raise BadGold("test has no function check")
    if not name.isidentifier():
        raise BadGold("entry_point is no name")
    body = _optional(content, "canonical_solution")
    solution = _optional(content, "solution")
    if solution is None and body is not None:
        solution = prompt + body
    return _judged(
        Gold(setup=setup, check=name, before=before, prompt=prompt, solution=solution),
        content,
        source=f"{setup}\ncheck({name})\n",
        given=before,
    )


def _assertions(content: Mapping[str, Any], form: str) -> Gold:
    found = content[form]
    if isinstance(found, str):
        tree = ast.parse(found)
        tests = tuple(ast.get_source_segment(found, node) or "" for node in tree.body)
    elif isinstance(found, Sequence) and all(isinstance(one, str) for one in found):
        tests = tuple(found)
    else:
        raise BadGold(f"{form} is neither a text nor a list of texts")
    if not any(isinstance(node, ast.Assert) for one in tests for node in ast.walk(ast.parse(one))):
        raise BadGold("no tests: nothing is asserted")
    imports = content.get("test_imports") or []
    lines = [imports] if isinstance(imports, str) else list(map(str, imports))
    setup = "\n".join([*lines, _optional(content, "test_setup_code") or ""])
    solution = _optional(content, "solution") or _optional(content, "code")
    gold = Gold(tests=tests, setup=setup, solution=solution)
    return _judged(gold, content, source="\n".join([setup, *tests]), given="")


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
    tests = tuple(
        f"assert _plain({name}(*{given!r})) == {wanted!r}"
        for given, wanted in zip(inputs, outputs, strict=True)
    )
    if any(isinstance(one, float) and one != one for one in outputs):
        raise BadGold("an output is NaN, which equals nothing")
    setup = (
        "inf = float('inf')\nnan = float('nan')\n"
        "def _plain(value):\n"
        "    if isinstance(value, (list, tuple)):\n"
        "        return [_plain(one) for one in value]\n"
        "    return value\n"
    )
    return Gold(
        tests=tests, setup=setup, names=(name,), solution=solution, examples=_examples(content)
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


def _judged(gold: Gold, content: Mapping[str, Any], *, source: str, given: str) -> Gold:
    """A gold with what its tests take from the solution, and whether they can be split from it.

    Args:
        gold: that was read.
        content: it was read from.
        source: all of its tests.
        given: source that stands before the tests, and whose names they may use.
    """
    if len(source) > MAX_SOURCE:
        raise BadGold("the tests are too long")
    tree = ast.parse(source)
    for module in _imported(tree):
        if module not in sys.stdlib_module_names:
            raise BadGold(f"the tests import {module}, which is not there: Python's own alone is")
    defined = _defined(given) - ({gold.check} if gold.check else set())
    free = _free(symtable.symtable(source, "tests", "exec")) - defined - set(dir(builtins))
    bases = {
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    modules = {name for name in free & bases if name in sys.stdlib_module_names}
    names = free - modules
    if not names or (gold.check and gold.check not in names):
        raise BadGold("the tests use nothing of the solution: any constant would pass")
    inside = content.get("inside", False)
    if not isinstance(inside, bool):
        raise BadGold("inside must be true or false")
    return Gold(
        **{
            **vars(gold),
            "names": tuple(sorted(names)),
            "modules": tuple(sorted(modules)),
            "inside": inside or _needs_objects(tree, names, bases | _classes(gold.solution)),
        }
    )


def _needs_objects(tree: ast.AST, names: set[str], bases: set[str]) -> bool:
    """Whether tests take more from the solution than functions of plain data."""
    if names & bases:
        return True
    functions = {*names, *_parameters(tree)} | _functions(tree)
    given = {*names, *_parameters(tree)}
    uses, handed = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            uses.add(node.id)
        if not isinstance(node, ast.Call):
            continue
        values = [*node.args, *(one.value for one in node.keywords)]
        handed |= {one.id for one in values if isinstance(one, ast.Name)}
        if isinstance(node.func, ast.Name):
            handed.add(node.func.id)
            if node.func.id in given and any(map(_object_in(functions, names), values)):
                return True
    return bool(uses - handed)


def _object_in(functions: set[str], names: set[str]) -> Any:
    def found(value: ast.AST) -> bool:
        """Whether an argument is, or holds, a function, a class or an object of the solution's."""
        if isinstance(value, ast.Lambda):
            return True
        if isinstance(value, ast.Name):
            return value.id in functions or isinstance(getattr(builtins, value.id, None), type)
        if isinstance(value, ast.Call):  # by its name of a class; else data, as is seen when sent
            name = value.func.id if isinstance(value.func, ast.Name) else ""
            return name in names and name[:1].isupper()
        return any(found(one) for one in ast.iter_child_nodes(value))

    return found


def _parameters(tree: ast.AST) -> set[str]:
    """The name by which `check` has the solution's function."""
    return {
        one.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "check"
        for one in node.args.args[:1]
    }


def _functions(tree: ast.AST) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    found = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return found


def _classes(source: str | None) -> set[str]:
    """Classes that a solution which is known defines."""
    nodes = ast.walk(ast.parse(source or ""))
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


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
        ast.parse(source)
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
