"""The program in a completion."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

MAX_CHARACTERS = 1 << 18
"""Of a program."""
_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)([^`]*+)")
_LANGUAGES = ("python", "python3", "py", "")


class NoCode(Exception):
    """A completion without a program that can be run; its text is the reason."""


def program_in(completion: str, *, prompt: str = "", name: str | None = None) -> str:
    """The program of a completion: its last block of Python, or all of it.

    A body that continues the prompt is put behind it. A whole program is too where the two parse
    together: it may rely on what the prompt imports and defines.

    Args:
        completion: text of a model.
        prompt: start of a file.
        name: of the function that the program must define.

    Raises:
        NoCode: there is none (`no_code`), it is too long, or it does not parse (`syntax_error`).
    """
    blocks = [code for language, code in _blocks(completion) if language in _LANGUAGES]
    found = blocks[-1] if blocks else completion
    if not found.strip():
        raise NoCode("no_code")
    if len(found) > MAX_CHARACTERS:
        raise NoCode("too_long")
    if prompt and (name is None or not _defines(found, name)):
        bodies = (found, textwrap.indent(textwrap.dedent(found), "    "))
        if (joined := _first([prompt + body for body in bodies])) is not None:
            return joined
    wholes = [f"{prompt}\n\n{textwrap.dedent(found)}"] if prompt else [textwrap.dedent(found)]
    if (whole := _first([*wholes, found])) is not None:
        return whole
    raise NoCode("syntax_error" if blocks or prompt else "no_code")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and code of each fenced block; the last may be open."""
    mark, language, lines = "", "", list[str]()
    for line in text.splitlines(keepends=True):
        fence = _FENCE.fullmatch(line.rstrip())
        if not mark and fence:
            mark, language, lines = fence[1], fence[2].strip().lower(), []
        elif mark and line.lstrip(" \t").startswith(mark):
            yield language, "".join(lines)
            mark = ""
        else:
            lines.append(line)
    if mark:
        yield language, "".join(lines)


def _first(sources: list[str]) -> str | None:
    return next((one for one in sources if _tree(one) is not None), None)


def _defines(source: str, name: str) -> bool:
    tree = _tree(textwrap.dedent(source))
    return tree is not None and any(name in _names(node) for node in tree.body)


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _tree(source: str) -> ast.Module | None:
    """The syntax tree of a whole module: None if it is none, as a body that stands alone."""
    try:
        tree = ast.parse(source)
        return None if _returns(tree) else tree
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _returns(node: ast.AST) -> bool:
    """Whether there is a `return` outside of functions, which the parser does not mind."""
    return any(
        isinstance(one, ast.Return)
        or (not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and _returns(one))
        for one in ast.iter_child_nodes(node)
        if isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case)
    )
