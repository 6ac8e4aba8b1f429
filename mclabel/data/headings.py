r"""Lines that say nothing by themselves: headings, and marks without a word.

"### Step 2", "**Step 2: Find x**", "Solution:", "---", "\[" and a lone "1." begin what follows and
are no step of their own; a lone "\]" or "\end{align}" ends what stands before it.
"""

from __future__ import annotations

import re

MAX_LABEL = 60
"""Characters of a heading that is no Markdown heading."""
MAX_LABELLED = 160
"""Characters of a heading in bold that begins with a numbered label."""
MAX_WORDS = 5
"""Words of a line with a colon at its end that is a heading."""
MAX_TITLE = 8
"""Words of a title in bold."""

_FRAME = " \t\r\n#>*_"
_COUNTED = (
    r"(?:step|part|case|method|approach|solution|option|question|problem|example|stage|phase|claim"
    r"|exercise|task|section|equation|proof|lemma)"
)
_NUMBER = r"\(?(?:\d{1,3}|[a-z]|[ivx]{1,5})\b\)?"
_LABEL = re.compile(rf"(?i)(?:{_COUNTED}[ \t]{{1,3}}{_NUMBER})[ \t]?[.:)-]?")
"""A numbered label and nothing else."""
_LABELLED = re.compile(rf"(?i){_COUNTED}[ \t]{{1,3}}{_NUMBER}[ \t]?(?:[.:)-]|$)")
"""A numbered label at the beginning of a line."""
_ITEM = re.compile(r"(?i)[-*+>\s]*(?:\(?(?:\d{1,3}[.)]|[a-z]\))|\([ivx]{1,5}\))")
"""The number or letter of an item; "A." may be an answer."""
_NAMED = frozenset(
    "answer|final answer|solution|proof|conclusion|explanation|summary|reasoning|verification|check"
    "|given|result|introduction|analysis|calculation|calculations|steps|note".split("|")
)
_CONCLUDES = frozenset("so then thus hence therefore yes no answer".split())
_MARKDOWN = re.compile(r"#{1,6}(?:[ \t]|$)")
_OPENING = re.compile(r"\\begin\{[a-zA-Z]+\*?\}(?:\{[^{}]*\})?")
_CLOSING = re.compile(r"\\end\{[a-zA-Z]+\*?\}[.,;]?|(?:\\[\])]|[\])}])[.,;]?|[.,;!?]")
_HALF_CLOSING = re.compile(r"\\(?:e|en|end(?:\{[a-zA-Z]*\*?)?)?")
_STATES = re.compile(r"[=≈<>]|\\boxed|\d[ \t]*[+*/×÷−-][ \t]*\d")
"""What a heading does not hold: a line with it states something."""


def is_heading(line: str) -> bool:
    """Whether a line is a heading or a mark, which belongs to what follows it.

    Blank lines are none.
    """
    bare = line.strip()
    if not bare or is_closing(bare):
        return False
    if not any(map(str.isalnum, bare[:MAX_LABEL])):
        return len(bare) <= MAX_LABEL and bare.isascii()
    if _MARKDOWN.match(bare):
        return _is_markdown_heading(bare)
    bare = bare.lstrip("> \t")
    inner = bare.strip(_FRAME)
    is_bold = bare.startswith(("**", "__")) and bare.rstrip(":.").endswith(("**", "__"))
    if _STATES.search(bare):
        return False
    if is_bold and len(bare) <= MAX_LABELLED and _LABELLED.match(inner):
        return True
    if len(bare) > MAX_LABEL:
        return False
    if _ITEM.fullmatch(bare) or _OPENING.fullmatch(bare):
        return True
    item = _ITEM.match(inner)
    name = inner[item.end() if item else 0 :].rstrip(":").rstrip(_FRAME).strip()
    if _LABEL.fullmatch(inner) and (inner[0].isupper() or not inner[-1].isalnum()):
        return True
    has_colon = inner.endswith(":") and not any(map(str.isdigit, name))
    if has_colon and len(name.split()) <= MAX_WORDS and "." not in name:
        return True
    if (is_bold or has_colon) and name.lower() in _NAMED:
        return True
    return is_bold and _is_title(name)


def _is_title(name: str) -> bool:
    """Whether words in bold are a title, and not a result."""
    words = name.lower().split()
    return (
        1 < len(words) <= MAX_TITLE
        and not any(map(str.isdigit, name))
        and name[-1].isalnum()
        and words[0].strip(",") not in _CONCLUDES
    )


def is_closing(line: str) -> bool:
    """Whether a line holds nothing but the end of a formula, a list or a bracket."""
    return _CLOSING.fullmatch(line.strip()) is not None


def may_become_closing(line: str) -> bool:
    r"""Whether a line that still grows may become a closing one, as "\e" may "\end{align}"."""
    return _HALF_CLOSING.fullmatch(line.strip()) is not None


def _is_markdown_heading(bare: str) -> bool:
    """A heading states nothing: "#### 72" and "## Answer: 5" do, "### 2." does not."""
    inner = bare.strip(_FRAME)
    if _STATES.search(inner):
        return False
    if _ITEM.fullmatch(inner):
        return True
    if not any(map(str.isalpha, inner)):
        return False
    label, colon, rest = inner.partition(":")
    return not (colon and rest.strip(_FRAME) and label.strip(_FRAME).lower() in _NAMED)
