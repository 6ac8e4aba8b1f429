"""Parses Python source in one thread at a time, because several threads can fail in Python 3.11."""

from __future__ import annotations

import ast
import threading

_LOCK = threading.RLock()


def parse_python(source: str) -> ast.Module:
    """Parse the source of a module, in one thread at a time.

    Python 3.11 keeps one counter of the depth of syntax trees for all threads. If two threads build
    trees at once, one of them may raise a `SystemError` ("AST constructor recursion depth
    mismatch") for a source that is valid.

    Raises:
        SyntaxError: the source is not valid Python.
        ValueError: the source contains a null byte.
        RecursionError: the source is nested too deeply for the conversion to a tree.
        MemoryError: the source is nested too deeply for the parser.
    """
    with _LOCK:
        return ast.parse(source)
