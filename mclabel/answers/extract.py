r"""The final answer of a completion: its last balanced `\boxed{}`, or what follows `####`."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_HASHES = re.compile(r"####[ \t]*(\S[^\n]*)")


def extract_answer(text: str) -> str | None:
    r"""The answer as the text writes it, or None if it gives none.

    The last balanced `\boxed{...}` or `\fbox{...}` wins; without one, the last line of the
    form `#### answer` (GSM8K).
    """
    for match in reversed(list(_BOX.finditer(text))):
        inside = _balanced(text, match.end())
        if inside is not None:
            return inside.strip()
    hashes = _HASHES.findall(text)
    return str(hashes[-1]).strip() if hashes else None


def _balanced(text: str, start: int) -> str | None:
    """The text from `start` to the brace that closes the one before it."""
    depth, i = 1, start
    while i < len(text):
        if text[i] == "\\":
            i += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start:i]
        i += 1
    return None
