"""Parses a normalised answer to a `Form`: first the whole text, then its parts.

The argument `read_part` of the functions parses one part of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

from mclabel.answers.effort import spend_work
from mclabel.answers.reading.dates import read_date
from mclabel.answers.reading.expression import read_expression
from mclabel.answers.reading.groups import read_item_group, read_matrix
from mclabel.answers.reading.numerals import parse_leading_number, parse_number_in_words
from mclabel.answers.reading.relations import read_interval_union, read_relation
from mclabel.answers.reading.remarks import read_limit_arrow, read_value_with_remark, remove_remark
from mclabel.answers.reading.scalars import (
    read_based_number,
    read_choice,
    read_compound_quantity,
    read_number_with_magnitude_letter,
    read_ordinal_share_or_remainder,
    read_quantity,
    read_ratio,
    read_time_of_day,
)
from mclabel.answers.reading.splitting import (
    has_balanced_brackets,
    split_enclosing_brackets,
    split_outside_brackets,
)
from mclabel.answers.reading.tokens import FUNCTIONS
from mclabel.answers.reading.truth import read_truth_value
from mclabel.answers.reading.words import SPECIAL, is_prose, split_words_without_leading_fillers
from mclabel.answers.values import algebra
from mclabel.answers.values.forms import (
    ApproximatedForm,
    ClosedForm,
    Equation,
    Form,
    ItemCollection,
    Name,
    Number,
    PartReader,
    Quantity,
    SpecialValue,
    UnparsedText,
    Words,
)
from mclabel.answers.values.literals import Literal, read_literal
from mclabel.answers.values.monomials import NotClosed

MAX_DEPTH = 12
"""Maximum depth of nested collections."""
MAX_LENGTH = 800
"""Maximum number of characters of a text that is parsed. A longer text that is not a number becomes
an `UnparsedText`."""

_JUNK = re.compile(r"^(?:[=:≈,;\s]|\.(?!\d))++|(?<![\s,;:=])[\s,;:=]++$|\s[-+*/]$|(?<!\.)\.$")
_LEAD = re.compile(
    r"(?:(?:hence|therefore|thus|so),? )?(?:(?:the|our|my) )?(?:(?:final|correct|right) )?"
    r"(?:answer|solution|option|choice|result|value)(?:s)?(?:(?: is| are|:| =| would be)+ *|"
    r" +(?=[\d(-]))",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    r"(?:both |all of |only )?(\(?[A-J]\)?(?:(?:, | and |, and | & )\(?[A-J]\)?){1,6})"
    r"(?: (?:only|together)| (?:are|is)(?: both| all)?(?: the)?"
    r" (?:correct|true|right)(?: (?:options|choices|answers|statements))?)?"
)
"""Several option letters, perhaps with a remark that they are correct."""
_ABOUT = re.compile(
    r"(?:approximately|approx\.?|about|roughly|around|nearly|almost|exactly) (?=[-$€£\d.\\])",
    re.IGNORECASE,
)
_ALMOST = re.compile(r"≈")
_DIGITS = re.compile(r"\d[\dA-Fa-f]{0,40}+")
_EQUALS = re.compile(r"(?<![<>≤≥≠!=])=(?!=)|≈")
_GROUPS = re.compile(r"[()\[\]]|(?<![\d,.(\[])[1-9]\d{0,2}+(?:,\d{3})++(?!\d|,\d)")
_IN_RATIO = re.compile(r"[\d.]+(?: to [\d.]+)+")
_AFFIRMED = re.compile(
    r"(yes|no|true|false)[,.;:] ?(?=[A-Za-z])(?!(?:yes|no|true|false|[tfyn])\b)", re.IGNORECASE
)
_CONDITION = re.compile(
    r"(?<=\S)[,;]? ?(?:\((?:for |where )?|for |where |with )?(?:any |all |some )?"
    r"(?:integers? )?([a-z]) ?"
    r"(?:∈ ?(?P<range>\\mathbb ?\{? ?[ZN] ?\}?\^?\+?)|is an? (?:positive |any )?integer)\)?$"
)
_PARAMETER = re.compile(
    r"(?<=\S)(?:[,;] ?(?:for |where |with )?|[,;]? ?(?:\(|for |where |with ))"
    r"(?:any |all |some |every )?(?:(?:real |arbitrary )*(?:constants?|numbers?|scalars?) )?"
    r"(\\?[A-Za-z]{1,6}) ?"
    r"(?P<told>∈ ?ℝ|is an? (?:real |arbitrary |any )*(?:constant|number|scalar|parameter)"
    r"(?: of integration)?|\)?(?=$))\)?$"
)
"""A condition after a family of functions: a letter is an arbitrary number."""
_CONSTANT_WORDS = ("constant", "ℝ", "number", "scalar", "parameter")
_FREE_LETTERS = frozenset("abcdkmCKABD")
_PRODUCT = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{1,3}(?![A-Za-z])")
_FOR_ALL = re.compile(
    r",? for (?:all|any|every) (?:real (?:numbers? )?|positive )?(?:integers? )?[a-z](?: ?∈ ?ℝ)?$"
)
_ARROW = re.compile(r"\\to(?![A-Za-z])")
_COMMAS = re.compile(r",(?: or| and)?| or | and ")
_GEOMETRY = re.compile(
    r"(\\(?:angle|triangle|overline|overrightarrow|odot)|(?:triangle|angle|segment|line|arc|"
    r"quadrilateral|rectangle|square|point)(?= ))[ {]{0,2}([A-Z]{2,6})\}?"
)
_CONGRUENCE = re.compile(
    r"(?:([a-z]) ?)?\\equiv ?([^≡()\\]{1,60}) ?\(? ?\\?(?:p?mod|bmod) ?\{? ?(\w{1,12}) ?\}? ?\)?"
)
_SENTENCE = re.compile(r"[A-Za-z][A-Za-z ]{0,60}? (?:is|are|equals?|was|were) ([^\d\n]*+\d.*+)")
_BRACES = (("\\{", "\\}"), ("{", "}"))
_SETS = re.compile(
    r"[<>≤≥≠∈∉∪∩∞ℝ]| U |real |[\[(][^\[\](),]*+,[^\[\]()]*+[)\]]|"
    r"\][^\[\],;]*+[,;][^\[\]]*+[\[\]]|\[[^\[\],;]*+[,;][^\[\]]*+\["
)


def read_form(text: str, depth: int = 0) -> Form:
    """Parse a normalised text to its form; return `UnparsedText` if no other form fits.

    Args:
        text: the text as `normalize` returns it.
        depth: number of collections that enclose the text.
    """
    spend_work(20 + len(text) // 4)
    text = _strip_words_around_value(text)
    if not any(c.isalnum() or c in "∞∅ℝπ{" for c in text):
        return SpecialValue("empty text")
    literal = read_literal(text)
    if literal is not None:
        return Number(literal)
    special = SPECIAL.get(text.lower())
    if special is not None:
        return SpecialValue(special)
    if depth >= MAX_DEPTH or len(text) > MAX_LENGTH:
        return UnparsedText(text)
    date = read_date(text)
    if date is not None:
        return date
    numeral = _read_number_in_words(text, depth)
    if numeral is not None:
        return numeral
    truth = read_truth_value(text) if text[-1].isalpha() or " " in text else None
    if truth is not None:
        return Words((truth,))
    try:
        form = _read_most_specific_form(text, lambda piece: read_form(piece, depth + 1))
    except NotClosed:
        form = None
    return (
        form
        or _read_counted_things(text, depth)
        or _read_prose(text)
        or _read_value_in_sentence(text, depth)
        or UnparsedText(text)
    )


def _strip_words_around_value(text: str) -> str:
    text = _JUNK.sub("", text.strip()).strip()
    lead = _LEAD.match(text)
    text = text[lead.end() :] if lead and lead.end() < len(text) else text
    about = _ABOUT.match(text) if text[:1].isalpha() else None
    text = text[about.end() :] if about else text
    if " " not in text:
        return text
    text = remove_remark(text)
    chosen = _CHOSEN.fullmatch(text) if text[0] in "bao(ABCDEFGHIJ" else None
    return chosen[1] if chosen else text


def _read_number_in_words(text: str, depth: int) -> Form | None:
    """Parse a number in words, or a text that begins with one, such as `two and a half hours`.

    The "and" of such a number does not separate items.
    """
    number = parse_number_in_words(text) if text[0].isalpha() else None
    if number is not None:
        return Number(Literal(number))
    return _read_counted_things(text, depth) if " and " in text else None


def _read_prose(text: str) -> Form | None:
    return Words(split_words_without_leading_fillers(text)) if is_prose(text) else None


def _read_value_in_sentence(text: str, depth: int) -> Form | None:
    """Parse the value that a sentence such as `the area is 12` states.

    Return None for any other text.
    """
    match = _SENTENCE.fullmatch(text)
    if not match:
        return None
    form = read_form(match[1], depth + 1)
    return None if isinstance(form, UnparsedText | Words) else form


def _read_counted_things(text: str, depth: int) -> Form | None:
    """Parse counted things such as `five apples` or `two and a half hours`.

    Return None for other texts, such as `two of them` or `half past three`.
    """
    counted = parse_leading_number(text) if text[0].isalpha() else None
    if counted is None or counted[1].partition(" ")[0].lower() in _NOT_COUNTED:
        return None
    form = read_form(f"{counted[0]} {counted[1]}", depth + 1)
    return form if isinstance(form, Quantity) else None


_NOT_COUNTED = frozenset("of in out past to as or and more less fewer times plus minus".split())
"""Words after which a number does not count the following things."""


def _read_most_specific_form(text: str, read_part: PartReader) -> Form | None:
    """Parse a text as the first kind of form that fits, from the most to the least specific."""
    affirmed = _AFFIRMED.match(text)
    if affirmed:
        return Words((affirmed[1].lower(),))
    text = _remove_condition(text)
    for read in _READERS_WITH_COMMAS:
        form = read(text, read_part)
        if form is not None:
            return form
    text = _remove_thousands_commas(text) if "," in text else text
    text = text.replace(" to ", ":") if _IN_RATIO.fullmatch(text) else text
    for read in _READERS:
        form = read(text, read_part)
        if form is not None:
            return form
    return _read_scalar(text)


def _read_remarked_if_spaced(text: str, read_part: PartReader) -> Form | None:
    return read_value_with_remark(text, read_part) if " " in text else None


def _read_geometric_figure_name(text: str, read_part: PartReader) -> Form | None:
    if not (text[-1].isupper() or text.endswith("}")):
        return None
    named = _GEOMETRY.fullmatch(text)
    return _read_name_or_product(named[2]) if named else None


def _read_limit_or_arrow_chain(text: str, read_part: PartReader) -> Form | None:
    r"""Parse `x \to 3` or `A \to B \to C`."""
    steps = split_outside_brackets(text, _ARROW) if "\\to" in text and "\\lim" not in text else []
    if len(steps) < 2 or not all(steps):
        return None
    return read_limit_arrow(steps, read_part) or ItemCollection(
        "tuple", tuple(map(read_part, steps))
    )


def _read_dotted_sum(text: str, read_part: PartReader) -> Form | None:
    total = sum_dotted_progression(text) if "..." in text else None
    return None if total is None else Number(Literal(Fraction(total)))


def _read_text_of_letters(text: str, read_part: PartReader) -> Form | None:
    """Parse a text that consists only of letters; return None for any other text."""
    if not text.isalpha():
        return None
    if len(text) == 1:
        return ClosedForm(read_expression(text))
    return _read_prose(text) if is_prose(text) else _read_name_or_product(text)


def _read_braced_group(text: str, read_part: PartReader) -> Form | None:
    if text[0] not in "{\\" or not split_enclosing_brackets(text, _BRACES):
        return None
    return _require_form(read_item_group(text, read_part))


def _read_real_set_or_relation(text: str, read_part: PartReader) -> Form | None:
    return (
        read_interval_union(text) or read_relation(text, read_part) if _SETS.search(text) else None
    )


def _require_form(form: Form | None) -> Form:
    """Return a form. If it is None, raise `NotClosed`, so that no later reader is tried."""
    if form is None:
        raise NotClosed
    return form


def _remove_condition(text: str) -> str:
    """Remove a condition such as `, k ∈ Z`, and rename the integer to n."""
    if " for " in text:
        text = _FOR_ALL.sub("", text)
    if any(map(text.__contains__, _CONSTANT_WORDS)):
        text = _remove_constant_condition(text)
    match = _CONDITION.search(text) if "∈" in text or "integer" in text else None
    if match is None:
        return text
    rest = text[: match.start()]
    return re.sub(rf"(?<![A-Za-z\\]){match[1]}(?![A-Za-z])", "n", rest) if match[1] else rest


def _remove_constant_condition(text: str) -> str:
    """Remove a condition such as `, where a is any constant`, and rename the constant to c or t."""
    match = _PARAMETER.search(text)
    if match is None or not any(word in match[0] for word in _CONSTANT_WORDS):
        return text
    rest, letter = text[: match.start()], match[1]
    if letter in ("x", "y", "z") or (len(letter) > 1 and letter[0] != "\\"):
        return rest if len(letter) == 1 else text
    name = "c" if letter in _FREE_LETTERS else "t"
    if letter[0] == "\\":
        return rest.replace(letter, name)

    def rename_constant(run: re.Match[str]) -> str:
        return run[0] if run[0] in FUNCTIONS else run[0].replace(letter, name)

    return _PRODUCT.sub(rename_constant, rest)


def find_integer_set_name(text: str) -> str:
    """Return `Z` or `N` if a normalised text ends with `n ∈ Z` or `n ∈ N`; empty otherwise."""
    match = _CONDITION.search(text) if "∈" in text else None
    names = re.findall("[ZN]", match["range"] or "") if match else []
    return "N" if match and "+" in match[0] else "".join(names)


def _read_congruence(text: str, read_part: PartReader) -> Form | None:
    """Parse `x ≡ 2 (mod 3)` as a pair of the modulus, in words, and the remainders."""
    match = _CONGRUENCE.fullmatch(text) if "\\equiv" in text else None
    if match is None:
        return None
    modulus = read_expression(match[3]).rational
    if modulus is None or modulus.denominator != 1 or modulus < 2:
        raise NotClosed
    residues = []
    for item in split_outside_brackets(match[2], _COMMAS):
        residue = read_expression(item).rational
        if residue is None or residue.denominator != 1:
            raise NotClosed
        residues.append(Number(Literal(residue % modulus)))
    name = Words((f"congruence modulo {modulus}",))
    rest = residues[0] if len(residues) == 1 else ItemCollection("set", tuple(residues))
    return ItemCollection("tuple", (name, rest))


def _remove_thousands_commas(text: str) -> str:
    """Write 1,234 as 1234, unless the number is inside brackets: (1,234) is a pair."""
    pieces, end, enclosed = [], len(text), False
    for match in reversed([*_GROUPS.finditer(text)]):
        if len(match[0]) == 1:
            enclosed = match[0] in ")]"
        elif not enclosed:
            pieces += [text[match.end() : end], match[0].replace(",", "")]
            end = match.start()
    return "".join([text[:end], *reversed(pieces)])


def _read_name_or_product(text: str) -> Form:
    """Parse letters that may be a name or a product of variables, or that spell a constant."""
    try:
        value = read_expression(text)
    except NotClosed:
        return Name(text, None)
    if any(
        len(name) > 1 for name in algebra.get_free_symbols(value)
    ) or not algebra.get_free_symbols(value):
        return ClosedForm(value)
    return Name(text, value)


def _read_scalar(text: str) -> Form | None:
    """Parse a single number, formula or quantity; return None for words."""
    based = read_based_number(text)
    if based is not None:
        return based
    magnitude = read_number_with_magnitude_letter(text)
    if magnitude is not None:
        digits = text.upper() if _DIGITS.fullmatch(text) else ""
        return ClosedForm(read_expression(text), digits, magnitude)
    if is_prose(text):
        return None
    quantity = read_quantity(text, read_form)
    if quantity is not None:
        return quantity
    digits = text.upper() if text.isalnum() and _DIGITS.fullmatch(text) else ""
    return ClosedForm(read_expression(text), digits)


_NEXT_NAME = re.compile(r"[\\ ]{1,4}+(?=[A-Za-z](?:_\{?\w\}?)? ?=)")
_NAMED = re.compile(r"\s*+[A-Za-z](?:_\{?\w\}?)? ?=")
"""Start of an equation, for lists of equations separated only by spaces: `x = 3 y = 4`."""
_NAME = re.compile(
    r"\\(?:d?dot|bar|hat|vec|tilde)\{?[A-Za-z]\}?|"
    r"\\?[A-Za-zπ]+(?:_\{?[A-Za-z\d]+\}?)?'?\s*(?:\([A-Za-z](?:,\s*[A-Za-z])*\))?|"
    r"[A-Za-z](?:'|\^\{-1\})\s*\([A-Za-z]\)|[A-Za-z]\^\{-1\}\([A-Za-z]\)|"
    r"(?:m\s*)?\\(?:angle|overline|triangle)\s*\{?[A-Z]{1,3}\}?|"
    r"\([A-Za-z](?:,\s*[A-Za-z])+\)|[A-Za-z][A-Za-z ,'-]+"
)


def _read_equation(text: str, read_part: PartReader) -> Form | None:
    """Parse an equation such as `x = 5` or `x + y = 5`; return None for any other text.

    The right side of a chain of equalities is its last member.
    """
    if "=" not in text and "≈" not in text:
        return None
    if not has_balanced_brackets(text):
        raise NotClosed
    if "≈" in text:
        return _require_form(_read_approximation(text, read_part))
    sides = [side for side in split_outside_brackets(text, _EQUALS) if side]
    if len(sides) > 2:
        named = split_outside_brackets(text, _NEXT_NAME)
        if len(named) == len(sides) - 1 and all(_NAMED.match(segment) for segment in named):
            return ItemCollection("list", tuple(map(read_part, named)))
    if len(sides) == 1:
        return (
            read_part(sides[0]) if len(sides[0]) < len(text) else _require_form(_read_scalar(text))
        )
    left, right = sides[0], sides[-1]
    if _NAME.fullmatch(left):
        return Equation(read_part(left), read_part(right), left)
    if _NAME.fullmatch(right):
        return Equation(read_part(right), read_part(left), right)
    return Equation(read_part(left), read_part(right), "")


def _read_approximation(text: str, read_part: PartReader) -> Form | None:
    """Parse `x ≈ 3.14` as an equation, and `2√3 ≈ 3.46` as an approximated value."""
    sides = [side for side in split_outside_brackets(text, _ALMOST) if side]
    if len(sides) < 2 or sides[0] == sides[-1]:
        return read_part(sides[0]) if sides and sides[0] != text else None
    head, tail = sides[0], sides[-1]
    if not any(c.isalnum() or c in "π∞" for c in head):
        return None
    if _NAME.fullmatch(head):
        return Equation(read_part(head), read_part(tail), head)
    return ApproximatedForm(read_part(head), read_part(tail))


def _read_plus_minus(text: str, read_part: PartReader) -> Form | None:
    """Parse a text with ± as a list of two values, one for each sign."""
    if "±" not in text and "∓" not in text:
        return None
    upper = read_part(text.replace("±", "+").replace("∓", "-"))
    lower = read_part(text.replace("±", "-").replace("∓", "+"))
    if isinstance(upper, UnparsedText) or isinstance(lower, UnparsedText):
        raise NotClosed
    return ItemCollection("list", (upper, lower))


# Sums of progressions with dots, such as `1 + 2 + ... + 100`.

_SUM = re.compile(r"\d{1,6}(?: ?\+ ?\d{1,6}){1,9} ?\+ ?\.\.\. ?\+ ?\d{1,9}")
_MAX_TERMS = 200
"""Maximum number of terms of a geometric progression."""


def sum_dotted_progression(text: str) -> int | None:
    """Return the sum of a progression that is written with dots; None for any other text.

    It is an arithmetic progression, or a geometric one with at least three terms before the dots.
    """
    if not _SUM.fullmatch(text):
        return None
    *terms, last = [int(part) for part in re.split(r"[+. ]+", text)]
    steps = {b - a for a, b in pairwise(terms)}
    if len(steps) == 1:
        (step,) = steps
        if step > 0 and last > terms[-1] and (last - terms[0]) % step == 0:
            count = (last - terms[0]) // step + 1
            return count * (terms[0] + last) // 2
        return None
    return _sum_geometric_terms(terms, last) if len(terms) > 2 else None


def _sum_geometric_terms(terms: list[int], last: int) -> int | None:
    first, second = terms[:2]
    if first == 0 or second % first or second <= first:
        return None
    ratio = second // first
    if any(b != a * ratio for a, b in pairwise(terms)):
        return None
    total, term = 0, first
    for _ in range(_MAX_TERMS):
        total += term
        if term >= last:
            return total if term == last else None
        term *= ratio
    return None


_READERS_WITH_COMMAS: tuple[Callable[[str, PartReader], Form | None], ...] = (
    _read_remarked_if_spaced,
    _read_geometric_figure_name,
    _read_congruence,
    _read_limit_or_arrow_chain,
    _read_dotted_sum,
    lambda text, read_part: read_time_of_day(text),
    read_choice,
    lambda text, read_part: read_ordinal_share_or_remainder(text),
    _read_text_of_letters,
    read_matrix,
    _read_braced_group,
)
"""Readers of texts whose numbers may still have commas between thousands, in the order in which
they are tried. A reader returns None if the text is of another kind. It raises `NotClosed` if the
text is of its kind but has no form, so that no later reader is tried."""
_READERS: tuple[Callable[[str, PartReader], Form | None], ...] = (
    _read_real_set_or_relation,
    lambda text, read_part: read_compound_quantity(text),
    read_item_group,
    read_ratio,
    _read_equation,
    _read_plus_minus,
)
"""Readers of texts without commas between thousands, in the order in which they are tried."""
