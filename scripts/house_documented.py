"""Public functions and methods without a docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from house_modules import Function, Module


def undocumented(modules: Iterable[Module]) -> tuple[int, list[str]]:
    """The number of public functions and methods, and those that have no docstring."""

    def public(body: Sequence[ast.stmt], path: str) -> Iterator[tuple[str, Function]]:
        for node in body:
            if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
                continue
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{path}.{node.name}")
                continue
            decorators = [ast.unparse(one) for one in node.decorator_list]
            if not any(one.endswith(("overload", ".setter")) for one in decorators):
                yield f"{path}.{node.name}", node

    found = [
        (path, node) for module in modules for path, node in public(module.tree.body, module.name)
    ]
    return len(found), [path for path, node in found if not ast.get_docstring(node)]
