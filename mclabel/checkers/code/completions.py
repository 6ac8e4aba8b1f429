"""The program in a completion: one of its fenced blocks, or all of it."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import textwrap
from collections.abc import Iterator

from mclabel.checkers.code.golds import Gold
from mclabel.core.python_source import parse_python

MAX_CHARACTERS = 1 << 18
"""Of a program."""
_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)([^`]*+)")
_PYTHON = ("python", "python3", "py")
_THINKING = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THINKS = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_READS = re.compile(r"\binput\b|\bstdin\b|\bopen\(0")
"""What a program that reads standard input has."""


class NoCode(Exception):
    """A completion without a program that can be run; its text is the reason."""


def program_in(completion: str, gold: Gold) -> str:
    """The program of a completion: its last block of Python that defines what the tests use.

    Thinking is left out. Without blocks it is the whole text, or what `<answer>` holds. A block
    that uses functions of earlier blocks follows them. A body that continues the gold's prompt is
    put behind it. A whole program is too where the two parse together: it may rely on what the
    prompt imports and defines.

    Args:
        completion: text of a model.
        gold: says what the program must define, and what it may continue.

    Raises:
        NoCode: there is none (`no_code`), it is too long, or it does not parse (`syntax_error`).
    """
    text = _THINKING.split(completion)[-1]
    if _THINKS.search(text) is not None:
        raise NoCode("no_code")  # it thinks to the end
    blocks = _candidates(text)
    if not blocks:
        text = _tagged(text)
    found = _chosen(blocks, gold) if blocks else text
    if not found.strip():
        raise NoCode("no_code")
    if len(found) > MAX_CHARACTERS:
        raise NoCode("too_long")
    prompt = gold.prompt
    if prompt and not _defined(found) & {*gold.names, *gold.imports}:
        bodies = (found, textwrap.indent(textwrap.dedent(found), "    "))
        if (joined := _first([prompt + body for body in bodies])) is not None:
            return joined
    wholes = [f"{prompt}\n\n{textwrap.dedent(found)}"] if prompt else [textwrap.dedent(found)]
    if (whole := _first([*wholes, found])) is not None:
        return whole
    raise NoCode("syntax_error" if blocks or prompt else "no_code")


def _tagged(text: str) -> str:
    """What the last `<answer>` of a text holds; all of it if there is none."""
    start = text.rfind("<answer>")
    return text if start < 0 else text[start + len("<answer>") :].partition("</answer>")[0]


def _candidates(text: str) -> list[str]:
    """The blocks of Python, or those without a language if there are none."""
    blocks = list(_blocks(text))
    named = [code for language, code in blocks if language in _PYTHON]
    return named or [code for language, code in blocks if not language]


def _chosen(blocks: list[str], gold: Gold) -> str:
    """The last block that defines most of what the tests use, behind those that it needs."""
    wanted = {*gold.names, *gold.imports} - {"*"}
    defined = [_defined(block) for block in blocks]
    if gold.scripts:
        scores = [2 * (_READS.search(block) is not None) + _is_program(block) for block in blocks]
    else:
        scores = [len(wanted & names) + ("Solution" in names) for names in defined]
    last = max(range(len(blocks)), key=lambda at: (scores[at], at))
    needed = _used(blocks[last]) - defined[last] - set(dir(builtins))
    before = [block for at, block in enumerate(blocks[:last]) if defined[at] & needed]
    return "\n\n".join([*before, blocks[last]])


def _is_program(block: str) -> bool:
    """Whether a block does something, unlike an output that happens to parse."""
    tree = _tree(textwrap.dedent(block))
    return tree is not None and any(
        not (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call))
        for node in tree.body
    )


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and code of each fenced block; the last may be open."""
    mark, language, lines = "", "", list[str]()
    for line in text.splitlines(keepends=True):
        fence = _FENCE.fullmatch(line.rstrip())
        if not mark and fence:
            words = fence[2].strip().lower().strip("{}.").split()
            mark, language, lines = fence[1], words[0] if words else "", []
        elif mark and line.lstrip(" \t").startswith(mark):
            yield language, "".join(lines)
            mark = ""
        else:
            lines.append(line)
    if mark:
        yield language, "".join(lines)


def _first(sources: list[str]) -> str | None:
    return next((one for one in sources if _tree(one) is not None), None)


def _defined(source: str) -> set[str]:
    """Names that a source defines at its top."""
    tree = _tree(textwrap.dedent(source))
    return {name for node in (tree.body if tree is not None else ()) for name in _names(node)}


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _used(source: str) -> set[str]:
    """Global names that a source uses."""
    if _tree(source) is None:
        return set()
    tables, found = [symtable.symtable(source, "program", "exec")], set[str]()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        found |= {
            one.get_name()
            for one in table.get_symbols()
            if one.is_referenced() and (one.is_global() or table.get_type() == "module")
        }
    return found


def _tree(source: str) -> ast.Module | None:
    """The syntax tree of a whole module: None if it is none, as a body that stands alone."""
    try:
        tree = parse_python(source)
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
