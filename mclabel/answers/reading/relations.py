"""Parser of intervals, unions of intervals and inequalities as sets of real numbers."""

from __future__ import annotations

import re

from mclabel.answers.reading.expression import read_expression
from mclabel.answers.reading.splitting import (
    has_balanced_brackets,
    split_enclosing_brackets,
    split_outside_brackets,
)
from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import RationalExpression
from mclabel.answers.values.forms import (
    Equation,
    Form,
    Interval,
    ItemCollection,
    PartReader,
    Reals,
    Relation,
    Words,
    get_closed_value,
)
from mclabel.answers.values.monomials import NotClosed
from mclabel.answers.values.reals import (
    ALL,
    intersection,
    make_interval,
    make_reals_except,
    solve_relation,
    union,
)

_UNION, _MEET = re.compile(r"∪| U "), re.compile(r"∩")
_PAIRS = tuple((o, c) for o in "([" for c in ")]")
_OUTWARD = re.compile(
    r"([\[\](])(?:([^\[\]();]*),([^\[\](),;]*+)|([^\[\]();]*);([^\[\]();]*+))([\[\])])"
)
_SIGN = re.compile(r"[<>≤≥≠]")
_OR, _AND = re.compile(r",? or "), re.compile(r",? and ")
_FLIPPED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤", "≠": "≠"}
_INFINITE = {"∞": 1, "+∞": 1, "-∞": -1, "- ∞": -1, "infinity": 1, "-infinity": -1}
_APPLIED = re.compile(r"^([a-zA-Z])\s?\([a-z]\)$")
_MAX_PIECES = 40
_MAX_SIGNS = 6
_SIZE = re.compile(r"\|([^|]*+)\|")
_REALS = frozenset(("ℝ", "R", "\\mathbb{R}"))
_MINUS = re.compile(r"\\setminus(?![A-Za-z])|\\backslash(?![A-Za-z])|[\\-](?=[ ]?\\?\{)")
_ALL_BUT = re.compile(
    r"(?:x (?:can be|is) )?(?:all|any) real(?: numbers?| values?)?(?: (?:of )?[a-z])?,? "
    r"(?:except|but|other than|not equal to)(?: for)? (?P<words>.*)"
)
_COMMA = re.compile(r",")
_MEMBER = re.compile(r"\s*\\?[A-Za-z]{1,7}(?:_\{?\w{1,3}\}?)?\s*|\s*[a-z](?:,\s*[a-z]){1,3}\s*")
"""The left side of ∈: a name or a few letters."""


def read_interval_union(text: str) -> Reals | None:
    """Parse intervals joined by ∪ or ∩; return None if the text may be something else.

    For example, (1, 2) alone may also be a point.

    Raises:
        NotClosed: an end of an interval is not a real number.
    """
    but = _ALL_BUT.fullmatch(text)
    if but:
        points = _split_excluded_numbers(but["words"])
        return _intersect_all([make_reals_except(read_expression(point)) for point in points])
    parts = split_outside_brackets(text, _MINUS)
    if 1 < len(parts) <= _MAX_PIECES and all(parts):
        sets = [_read_real_set(part, only_unambiguous=False) for part in parts]
        first = sets[0]
        return (
            None
            if first is None or None in sets
            else _subtract_set(first, union(filter(None, sets[1:])))
        )
    parts = split_outside_brackets(text, _UNION)
    if "∪" in text and not has_balanced_brackets(text):  # ]0, 1[ ∪ ]2, 3[
        parts = text.split("∪")
    if len(parts) > _MAX_PIECES:
        raise NotClosed("too many pieces")
    if len(parts) > 1:
        sets = [_read_real_set(part, only_unambiguous=False) for part in parts]
        return union([s for s in sets if s is not None]) if None not in sets else None
    parts = split_outside_brackets(text, _MEET)
    if len(parts) > 1:
        sets = [_read_real_set(part, only_unambiguous=False) for part in parts]
        common = ALL
        for reals in sets:
            if reals is None:
                return None
            common = intersection(common, reals)
        return common
    return _read_real_set(text, only_unambiguous=True)


def convert_pair_to_interval(form: Form) -> Reals | None:
    """Convert a pair (a, b) or [a, b] to an interval; return None for any other form."""
    if not isinstance(form, ItemCollection) or len(form.items) != 2:
        return None
    if form.kind not in ("tuple", "bracket"):
        return None
    low, high = (get_closed_value(item) for item in form.items)
    if low is None or high is None:
        return None
    try:
        return make_interval(low, high, are_ends_closed=(form.kind == "bracket",) * 2)
    except NotClosed:
        return None


def read_relation(text: str, read_part: PartReader) -> Form | None:
    """Parse an inequality, a chain or list of inequalities, or membership in a set.

    Return None for any other text.

    Args:
        text: normalised text.
        read_part: function that parses one part of the text.

    Raises:
        NotClosed: the inequality is not linear in one variable.
    """
    if "∉" in text:
        return _read_complement(text, read_part)
    if "∈" in text and not _SIGN.search(text):
        member, _, rest = text.partition("∈")
        if not _MEMBER.fullmatch(member):
            return None
        form = read_part(rest)
        return convert_pair_to_interval(form) or form
    if not _SIGN.search(text):
        return None
    for separator, combine in ((_OR, union), (_AND, _intersect_all)):
        parts = split_outside_brackets(text, separator)
        if len(parts) > 1:
            named = _read_same_variable_sets([read_part(piece) for piece in parts])
            return combine(named) if named is not None else None
    parts = split_outside_brackets(text, _COMMA)
    if len(parts) > 1:
        named = _read_same_variable_sets([read_part(piece) for piece in parts])
        return _intersect_or_unite_sets(named) if named is not None else None
    return _read_inequality_chain(text)


def _read_complement(text: str, read_part: PartReader) -> Form | None:
    """Parse `x ∉ S`; return None for any other text.

    For a set of reals, the result is its complement. For any other set, it is a tuple of the words
    "no member" and the two sides.
    """
    member, _, rest = (side.strip() for side in text.partition("∉"))
    if not member or not rest or "∈" in rest or "∉" in rest:
        return None
    if len(member) == 1 and member.islower():
        try:
            taken = _read_real_set(rest, only_unambiguous=False)
        except NotClosed:
            taken = None
        if taken is not None:
            return _subtract_set(ALL, taken)
    return ItemCollection("tuple", (Words(("no member",)), read_part(member), read_part(rest)))


def _intersect_or_unite_sets(sets: list[Reals]) -> Reals:
    """Return the set that inequalities separated by commas describe.

    It is the intersection of their solutions, or the union if the intersection is empty.
    """
    all_hold = _intersect_all(sets)
    return all_hold if all_hold.pieces else union(sets)


def _subtract_set(whole: Reals, taken: Reals) -> Reals:
    """Return the difference of two sets, `whole` without `taken`."""
    rest = whole
    for piece in taken.pieces:
        below = Reals((Interval(None, False, piece.low, not piece.is_low_closed),))
        above = Reals((Interval(piece.high, not piece.is_high_closed, None, False),))
        outside = [
            side for side, end in ((below, piece.low), (above, piece.high)) if end is not None
        ]
        rest = intersection(rest, union(outside))
    return rest


def _split_excluded_numbers(text: str) -> list[str]:
    """Return the texts of the numbers after an exclusion, as in `2`, `x = 2` or `1 and 2`."""
    parts = re.split(r",? and |, ?", text)
    return [part.rpartition("=")[2].strip() for part in parts if part.strip()]


def _intersect_all(sets: list[Reals]) -> Reals:
    common = ALL
    for reals in sets:
        common = intersection(common, reals)
    return common


def _read_same_variable_sets(forms: list[Form]) -> list[Reals] | None:
    sets = []
    for form in forms:
        if isinstance(form, Equation):
            value = get_closed_value(form.right)
            if value is None:
                return None
            form = make_interval(value, value, are_ends_closed=(True, True))
        if not isinstance(form, Reals):
            return None
        sets.append(form)
    return sets if len({s.variable for s in sets if s.variable}) < 2 else None


def _read_inequality_chain(text: str) -> Reals | Relation | ItemCollection:
    """Parse one inequality or a chain such as `1 < x < 2`.

    A chain with several variables becomes the set of its single inequalities.
    """
    signs = _SIGN.findall(text)
    sides = _SIGN.split(text)
    if len(signs) > _MAX_SIGNS or not all(side.strip() for side in sides):
        raise NotClosed("not a chain of inequalities")
    combined: Reals | Relation | None = None
    links = []
    for left, sign, right in zip(sides, signs, sides[1:], strict=False):
        relation = _read_inequality(left.strip(), sign, right.strip())
        if relation is None:
            continue
        links.append(relation)
        if combined is None:
            combined = relation
        elif (
            isinstance(combined, Reals)
            and isinstance(relation, Reals)
            and combined.variable == relation.variable
        ):
            combined = Reals(intersection(combined, relation).pieces, combined.variable)
        else:
            combined = Relation(algebra.make_number_value(0), is_strict=False)
    if combined is None:
        return ALL
    if len(links) > 1 and not isinstance(combined, Reals):
        return ItemCollection("set", tuple(links))
    return combined


def _read_inequality(left: str, sign: str, right: str) -> Reals | Relation | None:
    """Parse one inequality.

    Return None if a side is infinite, because such an inequality adds no condition.
    """
    if left in _INFINITE or right in _INFINITE:
        return None
    left, right = _APPLIED.sub(r"\1", left), _APPLIED.sub(r"\1", right)
    if right.startswith("|"):
        left, sign, right = right, _FLIPPED[sign], left
    inside = _SIZE.fullmatch(left)
    if inside and sign != "≠":
        return _solve_absolute_inequality(read_expression(inside[1]), sign, read_expression(right))
    return solve_relation(read_expression(left), sign, read_expression(right))


def _solve_absolute_inequality(
    inside: RationalExpression, sign: str, bound: RationalExpression
) -> Reals:
    """Return the set of solutions of an inequality such as |x - 2| < 3, in its only variable.

    Args:
        inside: content of the absolute value.
        sign: one of < > ≤ ≥.
        bound: right side of the inequality.

    Raises:
        NotClosed: the inequality does not have exactly one variable, or is not supported.
    """
    beyond = sign in (">", "≥")
    first = solve_relation(inside, sign, bound)
    second = solve_relation(inside, _FLIPPED[sign], algebra.negate(bound))
    if not isinstance(first, Reals) or not isinstance(second, Reals) or len(first.pieces) != 1:
        raise NotClosed("a bound on this absolute value is not supported")
    both = union((first, second)) if beyond else intersection(first, second)
    return Reals(both.pieces, first.variable)


def _read_real_set(text: str, *, only_unambiguous: bool) -> Reals | None:
    text = text.strip()
    if text in _REALS:
        return None if only_unambiguous else ALL
    if text.startswith("ℝ") and not only_unambiguous:
        return None
    braces = split_enclosing_brackets(text, (("\\{", "\\}"), ("{", "}")))
    if braces and not only_unambiguous:
        points = [read_expression(item) for item in split_outside_brackets(braces[1], _COMMA)]
        return union(make_interval(p, p, are_ends_closed=(True, True)) for p in points)
    match = _OUTWARD.fullmatch(text)
    if match and (match[1] == "]" or match[6] == "["):
        closed = (match[1] == "[", match[6] == "]")
        low, high = match[2], match[3]
        if match[4] is not None:  # if a semicolon separates the ends, commas are decimal commas
            low, high = match[4].replace(",", "."), match[5].replace(",", ".")
        return make_interval(
            _parse_interval_end(low, -1), _parse_interval_end(high, 1), are_ends_closed=closed
        )
    inside = split_enclosing_brackets(text, _PAIRS)
    if inside is None:
        return None
    opening, content, closing = inside
    ends = split_outside_brackets(content, re.compile(",|;"))
    if len(ends) != 2:
        return None
    infinite = any(end.replace(" ", "") in _INFINITE for end in ends)
    if only_unambiguous and not infinite and (opening + closing) in ("()", "[]"):
        return None
    closed = (opening == "[", closing == "]")
    return make_interval(
        _parse_interval_end(ends[0], -1), _parse_interval_end(ends[1], 1), are_ends_closed=closed
    )


def _parse_interval_end(text: str, side_sign: int) -> RationalExpression | None:
    """Parse an end of an interval; return None if it is infinite.

    Args:
        text: text of the end.
        side_sign: -1 for the lower end, 1 for the upper end. An infinite end must have this sign.
    """
    infinite = _INFINITE.get(text.strip())
    if infinite is None:
        return read_expression(text.strip())
    if infinite != side_sign:
        raise NotClosed("an interval from infinity or to minus infinity")
    return None
