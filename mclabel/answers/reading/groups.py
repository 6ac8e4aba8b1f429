"""Parser of answers with several items: tuples, lists, sets, alternatives and matrices.

The argument `read_part` of the functions parses one item of the text.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import pairwise
from typing import Literal as OneOf

from mclabel.answers.reading.expression import read_expression
from mclabel.answers.reading.splitting import (
    split_at_list_commas,
    split_enclosing_brackets,
    split_outside_brackets,
)
from mclabel.answers.reading.words import is_prose
from mclabel.answers.values import algebra
from mclabel.answers.values.forms import (
    ClosedForm,
    Equation,
    Form,
    ItemCollection,
    Matrix,
    Number,
    PartReader,
    SpecialValue,
    UnparsedText,
    add_matrices,
    get_cell_values,
    get_closed_value,
    multiply_matrices,
    scale_matrix,
)
from mclabel.answers.values.literals import Literal

MAX_ITEMS = 100

_BRACKETS = (
    ("(", ")"), ("\\{", "\\}"), ("{", "}"), ("[", "]"), ("\\langle", "\\rangle"),
)  # fmt: skip
_CHOICES = re.compile(r"([CP]) ?\( ?(\d{1,3}) ?, ?(\d{1,2}) ?\)")
_AND = re.compile(r",? (?:and|&) ")
_OR = re.compile(r",? or ")
_SEMICOLON = re.compile(r";")
_SUCH_THAT = re.compile(r"\||:|\\mid|such that")
_MATRIX = re.compile(
    r"\\begin\s*\{(?P<kind>[pbvBV]?matrix|smallmatrix|array|cases|aligned)\}(?:\s*\{[lcr| ]*\})?"
    r"(?P<body>(?:[^\\]|\\(?!begin|end))*+)\\end\s*\{(?P=kind)\}"
)
_ROWS, _CELLS = re.compile(r"\\\\|\\cr\b"), re.compile(r"&")
_TRANSPOSED = re.compile(r"\^\s*+\{?+\s*+(?:T|\\top|\\intercal|t)\s*+\}?+")
_DECIMAL_COMMA = re.compile(r"-?\d++,\d++(?! ?\d)[^\d,;=<>≤≥]{0,20}+")
_INDIAN = re.compile(r"-?\d{1,2}(?:,\d{2}){1,5},\d{3}(?:\.\d+)?")
"""An Indian number with groups of two digits before the last three: 12,34,567."""
_AND_SO_ON = frozenset(("...", "\\ldots", "\\dots", "\\cdots", "…"))
_AROUND = (("", ""), ("(", ")"), ("[", "]"), ("\\{", "\\}"), ("|", "|"))


def read_item_group(text: str, read_part: PartReader) -> Form | None:
    """Parse items in brackets, or separated by commas, "and" or "or".

    Return None for a text without several items.

    Args:
        text: normalised text.
        read_part: function that parses one item.
    """
    if text[-1] == ")":
        counted = _read_combinations(text)
        if counted is not None:
            return counted
    inside = split_enclosing_brackets(text, _BRACKETS)
    if inside is not None:
        opening, content, _ = inside
        if opening in ("\\{", "{"):
            return _read_braced_set(content, read_part, latex=opening == "\\{")
        items = split_at_list_commas(content)
        if len(items) > MAX_ITEMS:
            return None
        if len(items) > 1:
            return _make_matrix_or_sequence(opening, tuple(read_part(item) for item in items))
        return read_part(content) if opening == "(" and not is_prose(content) else None
    if text.count(",") + text.count(";") > MAX_ITEMS:
        return None
    if ";" in text or " or " in text or " and " in text:
        rows = _read_assignment_rows(text, read_part)
        if rows is not None:
            return rows
    if " or " in text:
        items = _split_at_separators_and_commas(text, _OR)
        if len(items) > 1 and (not is_prose(text) or all(len(i.split()) < 4 for i in items)):
            return ItemCollection("alternatives", tuple(read_part(item) for item in items))
    if any(mark in text for mark in (",", ";", " and ", " & ")):
        items = _split_at_separators_and_commas(text, _AND)
        if len(items) > 1 and not any(len(item.split()) > 4 and is_prose(item) for item in items):
            if len(items) > 2 and items[-1] in _AND_SO_ON:
                return ItemCollection("list", tuple(map(read_part, items[:-1])), is_ordered=True)
            return ItemCollection(
                "list",
                tuple(read_part(item) for item in items),
                _read_list_as_number(text, read_part),
            )
    return None


def _read_list_as_number(text: str, read_part: PartReader) -> Form | None:
    """Parse a list that may also be a single number, such as `2,74` or `12,34,567`.

    Return the number, or None for any other list.
    """
    if _INDIAN.fullmatch(text):
        return read_part(text.replace(",", ""))
    return read_part(text.replace(",", ".")) if _DECIMAL_COMMA.fullmatch(text) else None


def _read_combinations(text: str) -> ItemCollection | None:
    """Parse `C(10, 3)` and `P(5, 2)`; return None for any other text.

    They may be points named C and P, or numbers of combinations and permutations.
    """
    match = _CHOICES.fullmatch(text)
    n, k = (int(match[2]), int(match[3])) if match else (0, 1)
    if match is None or k > n:
        return None
    number = math.comb(n, k) if match[1] == "C" else math.perm(n, k)
    items = (Number(Literal(Fraction(n))), Number(Literal(Fraction(k))))
    return ItemCollection("tuple", items, single_value=Number(Literal(Fraction(number))))


def _read_assignment_rows(text: str, read_part: PartReader) -> Form | None:
    """Parse `p = 5, q = 2; p = 7, q = 2` as a list of tuples.

    Return None for any other text, for example if the rows do not have the same names.
    """
    for joint in (_SEMICOLON, _OR, _AND):
        rows = [
            split_at_list_commas(row) for row in split_outside_brackets(text, joint) if row.strip()
        ]
        if len(rows) < 2 or min(map(len, rows)) < 2:
            continue
        names = {tuple(item.partition("=")[0].strip() for item in row) for row in rows}
        if len(names) == 1 and all("=" in item for row in rows for item in row):
            return ItemCollection(
                "list",
                tuple(
                    ItemCollection(
                        "tuple", tuple(read_part(item.partition("=")[2].strip()) for item in row)
                    )
                    for row in rows
                ),
            )
    return None


def _split_at_separators_and_commas(text: str, separator: re.Pattern[str]) -> list[str]:
    return [
        item
        for piece in split_outside_brackets(text, separator)
        for item in split_at_list_commas(piece)
        if item
    ]


def _make_matrix_or_sequence(opening: str, items: tuple[Form, ...]) -> Form:
    rows = [
        item.items for item in items if isinstance(item, ItemCollection) and item.kind == "bracket"
    ]
    if opening == "[" and len(rows) == len(items) and len({len(row) for row in rows}) == 1:
        return Matrix(tuple(rows))
    return ItemCollection("bracket" if opening == "[" else "tuple", items)


def _read_braced_set(content: str, read_part: PartReader, *, latex: bool) -> Form | None:
    if not content:
        return SpecialValue("no solution")
    builder = split_outside_brackets(content, _SUCH_THAT)
    if len(builder) == 2 and any(c in builder[1] for c in "<>≤≥≠∈="):
        return read_part(builder[1])
    items = split_at_list_commas(content)
    if len(items) > MAX_ITEMS:
        return None
    if len(items) == 1 and not latex:
        return read_part(content)
    kind: OneOf["set", "list"] = "set" if latex else "list"
    return ItemCollection(kind, tuple(read_part(item) for item in items))


def read_matrix(text: str, read_part: PartReader) -> Form | None:
    """Parse a matrix, perhaps with a name, brackets or a numeric factor, or lines of cases.

    The result is None if the text contains anything else.

    Args:
        text: normalised text.
        read_part: function that parses one entry.
    """
    match = _MATRIX.search(text)
    if match is None or "\\begin" in match["body"]:
        return None
    if "\\begin" in text[match.end() :]:
        return _read_matrix_formula(text, read_part)
    before, after = text[: match.start()].strip(), text[match.end() :].strip()
    determinant = match["kind"] in ("vmatrix", "Vmatrix") or (before, after) == ("|", "|")
    rows = [
        split_outside_brackets(row, _CELLS)
        for row in split_outside_brackets(match["body"], _ROWS)
        if row.strip(" \\")
    ]
    is_braced = before.endswith("\\{") and not after
    if match["kind"] in ("cases", "aligned") or is_braced:
        is_piecewise = (match["kind"] == "cases" or is_braced) and all(map(_is_piecewise_row, rows))
        lines = tuple(
            _read_piecewise_row(row, read_part) if is_piecewise else read_part("".join(row))
            for row in rows
        )
        if len(lines) == 1 and not is_piecewise and not after:
            return lines[0]
        return ItemCollection("list", lines) if lines and not after else None
    if not rows or len({len(row) for row in rows}) != 1 or len(rows) * len(rows[0]) > MAX_ITEMS:
        return None
    if [*map(len, rows)] == [1] and match["kind"] in _PLAIN_GRIDS and not (before or after):
        return read_part(rows[0][0])
    matrix = Matrix(tuple(tuple(read_part(cell) for cell in row) for row in rows), determinant)
    if _TRANSPOSED.fullmatch(after):
        matrix, after = Matrix(tuple(zip(*matrix.rows, strict=True)), determinant), ""
    if (before, after) in _AROUND:
        return matrix
    if after or not before:
        return None
    if before.endswith("="):
        return Equation(UnparsedText(before[:-1]), matrix, before[:-1].strip())
    return _multiply_matrix(before.rstrip("* "), matrix)


_PLAIN_GRIDS = ("array", "matrix", "smallmatrix")
"""Environments without brackets. Such an environment with a single cell stands for the cell."""


def _is_piecewise_row(row: list[str]) -> bool:
    """Return whether a row of cases consists of a value and its condition."""
    if len(row) != 2 or not row[0].strip(" ,;"):
        return False
    condition = row[1].strip(" ,.;").lower()
    return condition in _OTHERWISE or any(c in condition for c in "<>≤≥≠=∈")


def _read_piecewise_row(row: list[str], read_part: PartReader) -> Form:
    condition = _IF.sub("", row[1].strip(" ,.;"))
    if condition.lower() in _OTHERWISE:
        condition = "otherwise"
    return ItemCollection("tuple", (read_part(row[0].strip(" ,;")), read_part(condition)))


_OTHERWISE = frozenset(("otherwise", "else", "if otherwise", "elsewhere", "其他", "其它"))
_IF = re.compile(r"^(?:(?:if|when|for|where|当|若|si|wenn|если) ?)", re.IGNORECASE)


def _read_matrix_formula(text: str, read_part: PartReader) -> Form | None:
    """Parse and evaluate sums, differences and products of matrices whose entries are formulas.

    Return None for any other text.
    """
    matches = [*_MATRIX.finditer(text)]
    gaps = [text[a.end() : b.start()].strip() for a, b in pairwise(matches)]
    around = text[: matches[0].start()].strip() + text[matches[-1].end() :].strip()
    if around or len(matches) > _MAX_MATRICES or not set(gaps) <= {"+", "-", "*", ""}:
        return None
    grids = []
    for match in matches:
        matrix = read_matrix(match[0], read_part)
        grid = (
            get_cell_values(matrix)
            if isinstance(matrix, Matrix) and not matrix.is_determinant
            else None
        )
        if grid is None:
            return None
        grids.append(grid)
    terms = [grids[0]]
    for gap, grid in zip(gaps, grids[1:], strict=True):
        if gap in ("*", ""):
            terms[-1] = multiply_matrices(terms[-1], grid)
        else:
            terms.append(grid if gap == "+" else scale_matrix(algebra.make_number_value(-1), grid))
    total = terms[0]
    for term in terms[1:]:
        total = add_matrices(total, term)
    return Matrix(tuple(tuple(ClosedForm(value) for value in row) for row in total))


_MAX_MATRICES = 6


def _multiply_matrix(factor: str, matrix: Matrix) -> Form | None:
    number = algebra.make_number_value(-1) if factor == "-" else read_expression(factor)
    rows = []
    for row in matrix.rows:
        values = [value for cell in row if (value := get_closed_value(cell)) is not None]
        if len(values) < len(row):
            return None
        rows.append(tuple(ClosedForm(algebra.multiply(number, value)) for value in values))
    return Matrix(tuple(rows), matrix.is_determinant)
