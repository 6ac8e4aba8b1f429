"""Extracts the program from a completion: one of its fenced blocks, or the whole text."""

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
"""Maximum characters of a program."""
_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)([^`]*+)")
_PYTHON = ("python", "python3", "py")
_THINKING = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_OPEN_THINKING = re.compile(r"<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_READS = re.compile(r"\binput\b|\bstdin\b|\bopen\(0")
"""Names whose use shows that a program reads standard input."""


class NoCodeFound(Exception):
    """A completion has no program that can be run. The text of the exception is the reason."""


def extract_program(completion: str, gold: Gold) -> str:
    """Return the program of a completion, normally its last Python block that tests can call.

    The program is the fenced block that defines most of the names that the tests use, after earlier
    blocks whose names it uses. If there are no blocks, it is the content of `<answer>` or the whole
    text. The model's thinking is removed first. The gold's prompt is prepended to a function body,
    and to a whole program if both parse together, since the program may rely on the prompt's
    imports and definitions.

    Args:
        completion: text of a model.
        gold: names that the program must define, and the prompt that it may continue.

    Raises:
        NoCodeFound: there is no program (`no_code`), it is too long (`too_long`), or it does not
            parse (`syntax_error`).
    """
    text = _THINKING.split(completion)[-1]
    if _OPEN_THINKING.search(text) is not None:
        raise NoCodeFound("no_code")  # the thinking never ends
    blocks = _list_candidate_blocks(text)
    if not blocks:
        text = _extract_tagged_answer(text)
    program = _choose_block(blocks, gold) if blocks else text
    if not program.strip():
        raise NoCodeFound("no_code")
    if len(program) > MAX_CHARACTERS:
        raise NoCodeFound("too_long")
    prompt = gold.prompt
    if prompt and not _list_defined_names(program) & {*gold.tested_names, *gold.imported_names}:
        bodies = (program, textwrap.indent(textwrap.dedent(program), "    "))
        if (joined := _find_first_parsable([prompt + body for body in bodies])) is not None:
            return joined
    wholes = [f"{prompt}\n\n{textwrap.dedent(program)}"] if prompt else [textwrap.dedent(program)]
    if (whole := _find_first_parsable([*wholes, program])) is not None:
        return whole
    raise NoCodeFound("syntax_error" if blocks or prompt else "no_code")


def _extract_tagged_answer(text: str) -> str:
    """Return the content of the last `<answer>` of a text, or the whole text."""
    start = text.rfind("<answer>")
    return text if start < 0 else text[start + len("<answer>") :].partition("</answer>")[0]


def _list_candidate_blocks(text: str) -> list[str]:
    """Return the fenced blocks of Python, or, if there are none, those that name no language."""
    blocks = list(_iterate_fenced_blocks(text))
    named = [code for language, code in blocks if language in _PYTHON]
    return named or [code for language, code in blocks if not language]


def _choose_block(blocks: list[str], gold: Gold) -> str:
    """Return the block that defines most of the names that the tests use.

    If several define equally many, it is the last one. Earlier blocks whose names it uses are
    prepended. If the tests run whole programs, a block that reads standard input is preferred.
    """
    wanted = {*gold.tested_names, *gold.imported_names} - {"*"}
    defined = [_list_defined_names(block) for block in blocks]
    scores = (
        [2 * (_READS.search(block) is not None) + _is_program(block) for block in blocks]
        if gold.script_runs
        else [len(wanted & names) + ("Solution" in names) for names in defined]
    )
    last = max(range(len(blocks)), key=lambda at: (scores[at], at))
    needed = _find_used_globals(blocks[last]) - defined[last] - set(dir(builtins))
    before = [block for at, block in enumerate(blocks[:last]) if defined[at] & needed]
    return "\n\n".join([*before, blocks[last]])


def _is_program(block: str) -> bool:
    """Return whether a block has any effect, unlike sample output that happens to parse."""
    tree = _parse_module(textwrap.dedent(block))
    return tree is not None and any(
        not (isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call))
        for node in tree.body
    )


def _iterate_fenced_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the code of each fenced block, even if the last one is not closed.

    The language is in lower case, and empty if the block names none.
    """
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


def _find_first_parsable(sources: list[str]) -> str | None:
    return next((source for source in sources if _parse_module(source) is not None), None)


def _list_defined_names(source: str) -> set[str]:
    """Return the names that a source defines at module level."""
    tree = _parse_module(textwrap.dedent(source))
    return {
        name for node in (tree.body if tree is not None else ()) for name in _list_bound_names(node)
    }


def _list_bound_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _find_used_globals(source: str) -> set[str]:
    """Return the global names that a source uses."""
    if _parse_module(source) is None:
        return set()
    tables, names = [symtable.symtable(source, "program", "exec")], set[str]()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        names |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")
        }
    return names


def _parse_module(source: str) -> ast.Module | None:
    """Return the syntax tree of a module; None for other texts, such as a bare function body."""
    try:
        tree = parse_python(source)
        return None if _has_top_level_return(tree) else tree
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _has_top_level_return(node: ast.AST) -> bool:
    """Return whether a module has a `return` outside functions.

    The parser accepts it, but such a module cannot run.
    """
    return any(
        isinstance(child, ast.Return)
        or (
            not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            and _has_top_level_return(child)
        )
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)
    )
