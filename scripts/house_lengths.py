"""Functions and files that are too long."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from house_modules import Function, Module

MAX_FUNCTION_LINES, MAX_FILE_LINES = 80, 400


def functions(modules: Iterable[Module]) -> Iterator[tuple[Module, str, Function]]:
    """Every function and method, with the dotted name of its place."""

    def inside(node: ast.AST, path: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            below = f"{path}.{child.name}" if isinstance(child, Function | ast.ClassDef) else path
            if isinstance(child, Function):
                yield below, child
            if not isinstance(child, ast.expr):  # an expression holds no statement
                yield from inside(child, below)

    for module in modules:
        for path, node in inside(module.tree, module.name):
            yield module, path, node


def long_functions(modules: Iterable[Module]) -> list[str]:
    """Functions of more than `MAX_FUNCTION_LINES` lines."""
    lengths = {
        path: (node.end_lineno or node.lineno) - node.lineno + 1
        for _, path, node in functions(modules)
    }
    return [f"{path} ({lines})" for path, lines in lengths.items() if lines > MAX_FUNCTION_LINES]


def long_files(package: Path) -> list[str]:
    """Python files of more than `MAX_FILE_LINES` lines.

    Args:
        package: its folder; the folder `scripts` beside it is looked through, too.
    """
    checkout = package.resolve().parent
    paths = [*package.resolve().rglob("*.py"), *(checkout / "scripts").rglob("*.py")]
    lengths = {
        path.relative_to(checkout).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(paths)
    }
    return [f"{path} ({lines})" for path, lines in lengths.items() if lines > MAX_FILE_LINES]
