r"""Splits the text of a step into the tokens of formulas, with their positions.

Plain text and LaTeX are mapped to one small alphabet: `\times`, `×` and `*` are the same operator,
`\[` and `$` are delimiters. A single regular expression without nested repetition reads the text,
so the time is linear in its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

MAX_DIGITS = 40
"""Maximum number of digits of a number; longer numbers are not read."""


class TokenKind(Enum):
    """Kind of a token in a formula."""

    NUMBER = auto()
    OPERATOR = auto()
    OPEN = auto()
    CLOSE = auto()
    COMMAND = auto()
    """LaTeX command with arguments."""
    CONSTANT = auto()
    """The number pi, or a short LaTeX fraction such as `\\frac12`."""
    RELATION = auto()
    """Token for "equal" or "about equal"."""
    WORD = auto()
    LETTER = auto()
    """Variable."""
    DELIMITER = auto()
    """Token between a formula and the words around it."""
    STOP = auto()
    """End of a sentence, a line or a list item, or a sign of inequality."""
    UNKNOWN = auto()
    """Unsupported token. Formulas next to it are not decided."""


@dataclass(slots=True)
class Token:
    """One token of a step's text."""

    kind: TokenKind
    text: str
    """Text of the token in its canonical spelling."""
    start: int
    """Index of the token's first character in the step's text."""
    end: int
    """Index after the token's last character."""
    is_glued: bool = False
    """True if there is no text between the previous token and this one."""
    is_in_formula: bool = False
    """True if the token is inside of a LaTeX formula."""


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
_BEFORE_LETTERS = (TokenKind.NUMBER, TokenKind.CLOSE, TokenKind.CONSTANT)
_SPELT = {
    "plus": "+", "minus": "-", "times": "*", "divided by": "/", "multiplied by": "*",
}  # fmt: skip
_BULLETS = frozenset("-*+•–")
ABBREVIATIONS = frozenset(
    "cm mm km kg mg ml mL ft mi lb lbs oz hr hrs min mins sec yd yds pt qt gal mph kph cc "
    "inches feet miles hours minutes pounds ounces cents dollars degrees".split()
)
"""Units that may follow a number without a space."""
_SHORT_WORDS = frozenset(
    "of in to is so we he it or by as at on an if be do up us am pm go no my me ad tv pi".split()
)
"""English words of two letters. Other pairs of letters, such as `ab`, are read as products of
variables."""
_MATH_OPENS = frozenset(("\\(", "\\["))


def tokenize(text: str) -> list[Token]:
    """Split a text into tokens (numbers, words, operators and so on), without white space."""
    tokens: list[Token] = []
    math = False
    end = 0
    for match in _SIGN.finditer(text):
        group = match.lastgroup or "other"
        if group == "space":
            continue
        token = _make_token(match, group, math, tokens)
        written = match[0]
        if written in _DELIMITERS:
            math = not math if written == "$$" else _is_formula_open(written, math)
        if token is not None:
            token.is_glued = match.start() == end
            token.is_in_formula = math
            _reject_unknown_word_after_number(tokens, token)
            tokens.append(token)
        end = match.end()
        if group == "other" and written in _SUPERSCRIPTS:
            tokens.append(
                Token(TokenKind.NUMBER, _SUPERSCRIPTS[written], match.start(), end, True, math)
            )
    return tokens


def _is_formula_open(delimiter: str, was_open: bool) -> bool:
    """Return whether a LaTeX formula is open after a delimiter.

    A `$` may be a dollar sign, so it does not change the state.

    Args:
        delimiter: text of the delimiter.
        was_open: True if a formula was open before the delimiter.
    """
    return was_open if delimiter == "$" else delimiter in _MATH_OPENS


def _make_token(
    match: re.Match[str], group: str, is_in_formula: bool, earlier_tokens: list[Token]
) -> Token | None:
    """Return the token of a match, by the name of the matched group; None if it has no meaning."""
    text = match[0]
    start, end = match.span()
    match group:
        case "number":
            digits = text.replace("{,}", "").replace("\\!", "").replace(",", "")
            kind = TokenKind.NUMBER if len(digits) <= MAX_DIGITS else TokenKind.UNKNOWN
            return Token(kind, digits, start, end)
        case "content" | "written":
            return _make_text_token(match["content"], start, end)
        case "degree":
            return Token(TokenKind.WORD, "degrees", start, end)
        case "bottom" | "short":
            spelt = f"\\frac{{{match['top']}}}{{{match['bottom']}}}"
            return Token(TokenKind.CONSTANT, spelt, start, end)
        case "index" | "root":
            return Token(TokenKind.COMMAND, f"\\sqrt[{match['index']}]", start, end)
        case "spelt":
            return Token(TokenKind.OPERATOR, _SPELT[text], start, end)
        case "environment":
            return Token(TokenKind.STOP, "\\\\", start, end)
        case "word":
            return _make_word_token(text, start, end, is_in_formula)
        case "line":
            blank = is_in_formula and "\n\n" not in text
            return None if blank else Token(TokenKind.STOP, "\n", start, end)
    if (
        group in ("other", "compared")
        and text in _BULLETS
        and _is_list_bullet(match, is_in_formula, earlier_tokens)
    ):
        return Token(TokenKind.STOP, "\n", start, end)
    return _make_symbol_token(text, start, end)


def _make_symbol_token(text: str, start: int, end: int) -> Token | None:
    """Return the token of a single character or a command; None if it has no meaning."""
    if text in _NOTHING:
        return None
    if text in _OPERATORS:
        return Token(TokenKind.OPERATOR, _OPERATORS[text], start, end)
    if text in _SUPERSCRIPTS:
        return Token(TokenKind.OPERATOR, "^", start, end)
    if text in _RELATIONS:
        return Token(TokenKind.RELATION, _RELATIONS[text], start, end)
    if text in "([{":
        return Token(TokenKind.OPEN, text, start, end)
    if text in ")]}":
        return Token(TokenKind.CLOSE, text, start, end)
    if text in _COMMANDS:
        return Token(TokenKind.COMMAND, _COMMANDS[text], start, end)
    if text in ("\\pi", "π"):
        return Token(TokenKind.CONSTANT, "π", start, end)
    if text in _DELIMITERS:
        return Token(TokenKind.DELIMITER, text, start, end)
    if text in _STOPS:
        return Token(TokenKind.STOP, text, start, end)
    return Token(TokenKind.UNKNOWN, text, start, end)


def _make_text_token(text_in_formula: str, start: int, end: int) -> Token:
    r"""Return the token of a text inside of a formula, such as `\text{apples}`.

    Its kind is UNKNOWN if the text contains something else than words.
    """
    plain = text_in_formula.strip().strip("().,")
    if len(plain) == 1 and plain.isalpha():
        return Token(TokenKind.LETTER, plain, start, end)
    if plain.replace(" ", "").replace("-", "").replace("/", "").replace("'", "").isalpha():
        return Token(TokenKind.WORD, plain, start, end)
    if not plain:
        return Token(TokenKind.WORD, "unit", start, end)
    return Token(TokenKind.UNKNOWN, text_in_formula, start, end)


def _make_word_token(text: str, start: int, end: int, is_in_formula: bool) -> Token:
    if len(text) == 1 and (is_in_formula or text not in "aAI"):
        return Token(TokenKind.LETTER, text, start, end)
    has_digits = not text.isalpha() and "'" not in text and "’" not in text
    if has_digits or (len(text) > 1 and text.isupper()):
        return Token(TokenKind.UNKNOWN, text, start, end)
    if len(text) == 2 and text not in ABBREVIATIONS and text.lower() not in _SHORT_WORDS:
        return Token(TokenKind.UNKNOWN, text, start, end)
    if text == "equals":
        return Token(TokenKind.RELATION, "=", start, end)
    return Token(TokenKind.WORD, text, start, end)


def _is_list_bullet(match: re.Match[str], is_in_formula: bool, earlier_tokens: list[Token]) -> bool:
    """Return whether a sign is a bullet: it begins a line of text, and a space follows it."""
    if is_in_formula or not match.string[match.end() : match.end() + 1].isspace():
        return False
    return not earlier_tokens or earlier_tokens[-1].text == "\n"


def _reject_unknown_word_after_number(tokens: list[Token], token: Token) -> None:
    """Mark a word right after a number as UNKNOWN, unless it is a known unit or a variable."""
    if not (tokens and token.is_glued and tokens[-1].kind in _BEFORE_LETTERS):
        return
    if token.text == "degrees" or token.kind is TokenKind.LETTER:
        return
    if token.kind is TokenKind.WORD and not token.text.startswith("unit"):
        bare = token.end - token.start == len(token.text)
        if bare and token.text not in ABBREVIATIONS:
            token.kind = TokenKind.UNKNOWN


@dataclass(slots=True)
class Side:
    """One side of an equality, as a formula that the answer checker can read."""

    start: int
    """Index of the side's first character in the step's text."""
    end: int
    """Index after the side's last character."""
    text: str = ""
    """Formula in the syntax of the answer checker's `read_expression`."""
    decimals: list[str] = field(default_factory=list)
    """Numbers with a decimal point, as written."""
    single_number: str | None = None
    """The number as written if the side is a single number; else None."""
    units: set[str] = field(default_factory=set)
    """Words of the units after numbers."""
    num_operations: int = 0
    """Number of operations."""
    has_percent: bool = False
    has_sum: bool = False
    mixed_number_reading: str | None = None
    """Another reading of a side with a mixed number such as `2 1/2`: a product, or only the
    fraction if the number before it may belong to the preceding words. None without a mixed
    number."""
    is_ambiguous: bool = False
    """True if the side has another possible reading. Its equality then never counts as false."""
    letters: set[str] = field(default_factory=set)
    """Variables of the side."""
    num_tokens: int = 0
    """Number of tokens of the side."""
