"""Check the docstrings of the finished packages; CI runs it.

    python scripts/prose.py

It fails if an entry of `Args` begins with "of" or "as of", or a docstring with a fragment, and
lists the places. A string under a constant or a field counts as its docstring.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "mclabel"
FINISHED = (
    "annotate",
    "answers",
    "checkers",
    "cli",
    "core",
    "data",
    "domains",
    "engines",
    "evaluate",
    "judge",
    "labeling",
    "prm",
    "quickstart",
    "report",
    "rl",
    "run",
    "search",
    "select",
    "serving",
    "show",
)
"""Packages that follow the rules."""
FRAGMENT = re.compile(r"\s*(Of|What|That|By|Who|Whether|As|How|Where|When)\b")
"""A first word that makes a docstring a fragment."""
SECTION = re.compile(r"^ *Args:\n(.*?)(?=^ *\w[\w ]*:\n|\Z)", re.MULTILINE | re.DOTALL)
"""The `Args` section of a docstring, up to the next section."""
ELLIPTIC_ENTRY = re.compile(r"^ *\**\w+: +(?:as +)?of\b.*$", re.MULTILINE | re.IGNORECASE)
"""An entry of `Args` that begins with "of" or "as of"."""


def list_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, including those of constants and fields."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


def find_faults(docstring: str) -> Iterator[str]:
    """Yield the parts of a docstring that break a rule."""
    if FRAGMENT.match(docstring):
        yield docstring.split("\n")[0]
    for section in SECTION.finditer(docstring):
        for entry in ELLIPTIC_ENTRY.finditer(section[1]):
            yield entry[0].strip()


def main() -> int:
    """Print each fault with its place, and return the exit status."""
    status = 0
    for path in sorted(path for name in FINISHED for path in (PACKAGE / name).rglob("*.py")):
        for line, docstring in list_docstrings(ast.parse(path.read_text())):
            for fault in find_faults(docstring):
                print(f"{path.relative_to(PACKAGE.parent)}:{line}: {fault}")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
