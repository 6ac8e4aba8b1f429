r"""Cuts a step into signs that know where they stand in its text, and holds what was read of them.

Plain text and LaTeX fall into one small alphabet: `\times`, `×` and `*` are one operator, `\[` and
`$` are delimiters. One regular expression without nested repetition reads the text, so that the
time is linear in its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

MAX_DIGITS = 40
"""Maximum number of digits of a number; longer ones are not read."""


class Kind(Enum):
    """Kind of a sign in a formula."""

    NUMBER = auto()
    OPERATOR = auto()
    OPEN = auto()
    CLOSE = auto()
    COMMAND = auto()
    """A command of LaTeX, followed by arguments."""
    CONSTANT = auto()
    RELATION = auto()
    """Equal or about equal."""
    WORD = auto()
    LETTER = auto()
    """A variable."""
    DELIMITER = auto()
    """Between a formula and the words around it."""
    STOP = auto()
    """The end of a sentence, a line, an item of a list; an inequality."""
    UNKNOWN = auto()
    """A sign that no formula here contains: nothing next to it is decided."""


@dataclass(slots=True)
class Sign:
    """One sign and its place."""

    kind: Kind
    text: str
    """In the one spelling."""
    start: int
    end: int
    glued: bool = False
    """Nothing stands between the sign before and this one."""
    math: bool = False
    """Stands inside of a LaTeX formula."""


_SIGN = re.compile(
    r"(?P<number>(?:[0-9]{1,3}(?:(?:,|\{,\}|,\\!|\\!,)[0-9]{3}){1,12}+(?![0-9])|[0-9]++)(?:\.[0-9]++)?+"
    r"|\.[0-9]++)"
    r"|(?P<written>\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname)\s*+"
    r"\{(?P<content>[^{}]{0,200}+)\})"
    r"|(?P<degree>\^\s?(?:\{\s?\\circ\s?\}|\\circ)|°|\\degree)"
    r"|(?P<short>\\[dt]?frac\s?(?P<top>[0-9])\s?(?P<bottom>[0-9])(?![0-9]))"
    r"|(?P<root>\\sqrt\s?\[\s?(?P<index>[0-9])\s?\])"
    r"|(?P<environment>\\(?:begin|end)\s?\{[^{}]{0,40}\})"
    r"|(?P<command>\\(?:[A-Za-z]++|\\|.))"
    r"|(?P<spelt>\b(?:plus|minus|times|(?:divided|multiplied) by)\b)"
    r"|(?P<word>[A-Za-z][A-Za-z0-9]*+(?:['’][a-z]++)?+)"
    r"|(?P<dots>\.\.\.++|…)"
    r"|(?P<line>[\r\n]\s*+)"
    r"|(?P<space>[^\S\r\n]++)"
    r"|(?P<compared>[<>!]=|=>|==|\*\*|\$\$)"
    r"|(?P<other>[\s\S])"
)
_OPERATORS = {
    "+": "+", "-": "-", "−": "-", "–": "-", "*": "*", "×": "*", "·": "*", "⋅": "*", "∗": "*",
    "/": "/", "÷": "/", "∕": "/", "⁄": "/", "^": "^", "%": "%", "!": "!", "\\times": "*",
    "\\cdot": "*", "\\ast": "*", "\\div": "/", "\\%": "%", "⨯": "*", "\\cdotp": "*",
}  # fmt: skip
_SUPERSCRIPTS = {"²": "2", "³": "3"}
_RELATIONS = {"=": "=", "≈": "≈", "\\approx": "≈", "\\simeq": "≈", "≃": "≈", "\\doteq": "≈"}
_COMMANDS = {
    "\\frac": "\\frac", "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac",
    "\\binom": "\\binom", "\\dbinom": "\\binom", "\\sqrt": "\\sqrt", "√": "\\sqrt",
}  # fmt: skip
_DELIMITERS = frozenset(("\\(", "\\)", "\\[", "\\]", "$", "$$"))
_STOPS = frozenset(
    (",", ";", ":", ".", "?", "<", ">", "≤", "≥", "≠", "<=", ">=", "!=", "=>", "—", "⇒", "→", "•",
     "\\implies", "\\Rightarrow", "\\to", "\\rightarrow", "\\therefore", "\\le", "\\leq", "\\ge",
     "\\geq", "\\ne", "\\neq", "\\lt", "\\gt", "\\quad", "\\qquad", "\\\\", "\\iff",
     "\\Longrightarrow", "\\Leftrightarrow", "\\item", "\\text", "\\because")
)  # fmt: skip
_NOTHING = frozenset(
    ("\\left", "\\right", "\\big", "\\Big", "\\bigl", "\\bigr", "\\Bigl", "\\Bigr", "\\bigg",
     "\\displaystyle", "\\boxed", "\\,", "\\ ", "\\!", "\\:", "\\>", "&", "\\$", "`", "\\;",
     "\\fbox", "\u200b", "**")
)  # fmt: skip
_BEFORE_LETTERS = (Kind.NUMBER, Kind.CLOSE, Kind.CONSTANT)
_SPELT = {
    "plus": "+", "minus": "-", "times": "*", "divided by": "/", "multiplied by": "*",
}  # fmt: skip
_BULLETS = frozenset("-*+•–")
ABBREVIATIONS = frozenset(
    "cm mm km kg mg ml mL ft mi lb lbs oz hr hrs min mins sec yd yds pt qt gal mph kph cc "
    "inches feet miles hours minutes pounds ounces cents dollars degrees".split()
)
"""Units that are written without a space behind a number."""
_SHORT_WORDS = frozenset(
    "of in to is so we he it or by as at on an if be do up us am pm go no my me ad tv pi".split()
)
"""Other pairs of letters are products: `ab`."""
_MATH_OPENS = frozenset(("\\(", "\\["))


def signs_of(text: str) -> list[Sign]:
    """The signs of a text, in order; white space is left out."""
    signs: list[Sign] = []
    math = False
    end = 0
    for match in _SIGN.finditer(text):
        group = match.lastgroup or "other"
        if group == "space":
            continue
        sign = _sign(match, group, math, signs)
        written = match[0]
        if written in _DELIMITERS:
            math = not math if written == "$$" else _opens(written, math)
        if sign is not None:
            sign.glued = match.start() == end
            sign.math = math
            _join_letters(signs, sign)
            signs.append(sign)
        end = match.end()
        if group == "other" and written in _SUPERSCRIPTS:
            signs.append(Sign(Kind.NUMBER, _SUPERSCRIPTS[written], match.start(), end, True, math))
    return signs


def _opens(delimiter: str, math: bool) -> bool:
    """Return whether a formula is open behind a delimiter; a `$` may be a dollar and changes
    nothing.
    """
    return math if delimiter == "$" else delimiter in _MATH_OPENS


def _sign(match: re.Match[str], group: str, math: bool, before: list[Sign]) -> Sign | None:
    """Return what was found; None where it means nothing."""
    text = match[0]
    start, end = match.span()
    match group:
        case "number":
            digits = text.replace("{,}", "").replace("\\!", "").replace(",", "")
            kind = Kind.NUMBER if len(digits) <= MAX_DIGITS else Kind.UNKNOWN
            return Sign(kind, digits, start, end)
        case "content" | "written":
            return _written(match["content"], start, end)
        case "degree":
            return Sign(Kind.WORD, "degrees", start, end)
        case "bottom" | "short":
            spelt = f"\\frac{{{match['top']}}}{{{match['bottom']}}}"
            return Sign(Kind.CONSTANT, spelt, start, end)
        case "index" | "root":
            return Sign(Kind.COMMAND, f"\\sqrt[{match['index']}]", start, end)
        case "spelt":
            return Sign(Kind.OPERATOR, _SPELT[text], start, end)
        case "environment":
            return Sign(Kind.STOP, "\\\\", start, end)
        case "word":
            return _word(text, start, end, math)
        case "line":
            blank = math and "\n\n" not in text
            return None if blank else Sign(Kind.STOP, "\n", start, end)
    if group in ("other", "compared") and text in _BULLETS and _is_bullet(match, math, before):
        return Sign(Kind.STOP, "\n", start, end)
    return _mark(text, start, end)


def _mark(text: str, start: int, end: int) -> Sign | None:
    """A single character or a command."""
    if text in _NOTHING:
        return None
    if text in _OPERATORS:
        return Sign(Kind.OPERATOR, _OPERATORS[text], start, end)
    if text in _SUPERSCRIPTS:
        return Sign(Kind.OPERATOR, "^", start, end)
    if text in _RELATIONS:
        return Sign(Kind.RELATION, _RELATIONS[text], start, end)
    if text in "([{":
        return Sign(Kind.OPEN, text, start, end)
    if text in ")]}":
        return Sign(Kind.CLOSE, text, start, end)
    if text in _COMMANDS:
        return Sign(Kind.COMMAND, _COMMANDS[text], start, end)
    if text in ("\\pi", "π"):
        return Sign(Kind.CONSTANT, "π", start, end)
    if text in _DELIMITERS:
        return Sign(Kind.DELIMITER, text, start, end)
    if text in _STOPS:
        return Sign(Kind.STOP, text, start, end)
    return Sign(Kind.UNKNOWN, text, start, end)


def _written(content: str, start: int, end: int) -> Sign:
    """Words inside of a formula; what is more than words is not read."""
    plain = content.strip().strip("().,")
    if len(plain) == 1 and plain.isalpha():
        return Sign(Kind.LETTER, plain, start, end)
    if plain.replace(" ", "").replace("-", "").replace("/", "").replace("'", "").isalpha():
        return Sign(Kind.WORD, plain, start, end)
    if not plain:
        return Sign(Kind.WORD, "unit", start, end)
    return Sign(Kind.UNKNOWN, content, start, end)


def _word(text: str, start: int, end: int, math: bool) -> Sign:
    if len(text) == 1 and (math or text not in "aAI"):
        return Sign(Kind.LETTER, text, start, end)
    has_digits = not text.isalpha() and "'" not in text and "’" not in text
    if has_digits or (len(text) > 1 and text.isupper()):
        return Sign(Kind.UNKNOWN, text, start, end)
    if len(text) == 2 and text not in ABBREVIATIONS and text.lower() not in _SHORT_WORDS:
        return Sign(Kind.UNKNOWN, text, start, end)
    if text == "equals":
        return Sign(Kind.RELATION, "=", start, end)
    return Sign(Kind.WORD, text, start, end)


def _is_bullet(match: re.Match[str], math: bool, before: list[Sign]) -> bool:
    """Return whether a sign opens an item of a list: it begins a line of text, with a space
    behind.
    """
    if math or not match.string[match.end() : match.end() + 1].isspace():
        return False
    return not before or before[-1].text == "\n"


def _join_letters(signs: list[Sign], sign: Sign) -> None:
    """Letters right behind a number are a unit that is known, one variable, or not read."""
    if not (signs and sign.glued and signs[-1].kind in _BEFORE_LETTERS):
        return
    if sign.text == "degrees" or sign.kind is Kind.LETTER:
        return
    if sign.kind is Kind.WORD and not sign.text.startswith("unit"):
        bare = sign.end - sign.start == len(sign.text)
        if bare and sign.text not in ABBREVIATIONS:
            sign.kind = Kind.UNKNOWN


@dataclass(slots=True)
class Side:
    """One side of an equality, in the alphabet of the answers' reader of expressions."""

    start: int
    end: int
    """Characters of the step's text."""
    text: str = ""
    decimals: list[str] = field(default_factory=list)
    """Numbers with a decimal point, as written."""
    literal: str | None = None
    """The side where it is one number (with a sign or a percent sign)."""
    units: set[str] = field(default_factory=set)
    operations: int = 0
    has_percent: bool = False
    has_sum: bool = False
    mixed: str | None = None
    """Another way to read a side with a mixed number: as a product, or without the number before
    the fraction, which may belong to the words."""
    vague: bool = False
    """Has a way to be read that is not followed here: false is then not decided."""
    letters: set[str] = field(default_factory=set)
    signs_used: int = 0
