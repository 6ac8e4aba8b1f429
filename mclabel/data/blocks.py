r"""Finds the blocks of a solution inside which no step ends, and lines that cannot be a step alone.

Blocks are displayed formulas, environments, fenced code and tables. Headings and opening marks
belong to the step after them. Closing marks, such as "\end{align}", belong to the step before them.
`boundaries` places the ends of steps accordingly.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

MAX_FORMULA = 4_096
"""Maximum number of characters of a displayed formula or an environment. A formula that does not
close within this length and before the next blank line is not a block. Otherwise a missing closing
mark would join all later steps into one."""
MAX_CODE = 16_384
"""Maximum number of characters of a fenced block, an `[asy]` drawing, a table, a tool call or the
tool result."""

Span = tuple[int, int]
"""Start and exclusive end of a part of a text, as character positions."""

_LINE = re.compile(r"[^\n]+\n?|\n")
_FENCE = re.compile(r"[ \t]*(?:[-*+>][ \t]+)?(```|~~~)")
_MARK = re.compile(
    r"\\\\|\\[\[\]()]|\$\$|\[/?asy\]|</?tool_(?:call|response)>"
    r"|\\(?:begin|end)\{(?:align(?:ed|at|edat)?|gather(?:ed)?|equation|eqnarray|multline|flalign"
    r"|split|array|[a-zA-Z]?matrix|smallmatrix|d?cases|tabular|tikzpicture|verbatim|lstlisting)"
    r"\*?\}"
    r"|\n[^\S\n]*(?=\n)"
)
"""Pattern of a mark that opens or closes a block outside code, of a line break in LaTeX, or of a
blank line."""
_TOOLS = {f"</tool_{kind}>": f"<tool_{kind}>" for kind in ("call", "response")}
_TOOL_RESULT = "<tool_response>"
_CLOSES = {"\\]": "\\[", "\\)": "\\(", "[/asy]": "[asy]", **_TOOLS}
_OPENS = frozenset(_CLOSES.values())
_LONG = frozenset(("[asy]", *_TOOLS.values()))
"""Opening marks of blocks that may contain blank lines and be as long as code."""


def find_line_spans(text: str) -> list[Span]:
    """Return the spans of the lines of a text. The span of a line includes its line break."""
    return [match.span() for match in _LINE.finditer(text)]


def find_blocks(
    text: str,
    lines: Sequence[Span],
    *,
    is_complete: bool,
    fenced: Sequence[Span] | None = None,
    splittable_code: Sequence[Span] = (),
) -> list[Span]:
    """Return the spans of the blocks of a text, sorted and disjoint.

    Args:
        text: a solution, or a part of one.
        lines: spans of the text's lines.
        is_complete: True if the text is complete. In an incomplete text, a block that is still open
            counts as a block.
        fenced: spans of the fenced code of the text, which are blocks. None searches the text.
        splittable_code: spans of code inside which steps may end. A block that overlaps them is
            left out.
    """
    fenced = list(_find_code_spans(text, lines, is_complete)) if fenced is None else fenced
    code = sorted([*fenced, *splittable_code])
    candidates = [
        *_find_marked_spans(text, code, is_complete),
        *_find_table_spans(text, lines, is_complete),
    ]
    return merge_spans(
        [*fenced, *(span for span in candidates if not overlaps_any(span, splittable_code))]
    )


def is_inside(position: int, spans: Sequence[Span]) -> bool:
    """Return whether a character position lies inside a span, after its start.

    Args:
        position: character position in the text.
        spans: sorted, disjoint spans.
    """
    return find_surrounding_span(position, spans) is not None


def find_surrounding_span(position: int, spans: Sequence[Span]) -> Span | None:
    """Return the span inside which a position lies, after its start; None if there is none.

    Args:
        position: character position in the text.
        spans: sorted, disjoint spans.
    """
    at = bisect_left(spans, (position,)) - 1
    return spans[at] if at >= 0 and position < spans[at][1] else None


def overlaps_any(span: Span, others: Sequence[Span]) -> bool:
    """Return whether a span overlaps any of the other spans, which are sorted and disjoint."""
    at = bisect_left(others, (span[1],)) - 1
    return at >= 0 and span[0] < others[at][1]


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Merge overlapping spans, and return sorted, disjoint spans that cover the same positions."""
    disjoint_spans: list[Span] = []
    for start, end in sorted(spans):
        if disjoint_spans and start < disjoint_spans[-1][1]:
            disjoint_spans[-1] = disjoint_spans[-1][0], max(end, disjoint_spans[-1][1])
        else:
            disjoint_spans.append((start, end))
    return disjoint_spans


def _find_code_spans(text: str, lines: Sequence[Span], is_complete: bool) -> Iterator[Span]:
    """Yield the spans of fenced code. A closing fence must be alone on its line.

    If `is_complete` is false, the text is incomplete, and code without a closing fence counts.
    """
    opened: tuple[int, str] | None = None
    for start, end in lines:
        if opened is not None and end - opened[0] > MAX_CODE:
            opened = None
        if (match := _FENCE.match(text, start, end)) is None:
            continue
        alone = not text[match.end() : end].strip("`~ \t\r\n")
        if opened is None:
            opened = start, match[1]
        elif alone and match[1] == opened[1]:
            yield opened[0], end - text.endswith("\n", start, end)
            opened = None
    if opened is not None and not is_complete and len(text) - opened[0] <= MAX_CODE:
        yield opened[0], len(text)


def _find_marked_spans(text: str, code: Sequence[Span], is_complete: bool) -> Iterator[Span]:
    """Yield the spans of blocks with opening and closing marks, outside code.

    These are displayed and multi-line formulas, environments, drawings and tool calls. If
    `is_complete` is false, the text is incomplete, and a block without a closing mark counts.
    """
    opened: dict[str, list[int]] = {}
    for match in _MARK.finditer(text):
        mark, start, end = match[0], match.start(), match.end()
        if mark == "\\\\" or is_inside(start, code):
            continue
        if mark[0] == "\n":
            opened = {kind: places for kind, places in opened.items() if kind in _LONG}
            continue
        if mark == "$$":
            opener, closes = mark, bool(opened.get(mark))
        elif mark.startswith("\\end"):
            opener, closes = "\\begin" + mark[4:], True
        else:
            opener, closes = _CLOSES.get(mark, mark), mark in _CLOSES
        places = opened.setdefault(opener, [])
        limit = MAX_CODE if opener in _LONG else MAX_FORMULA
        if closes and places and end - (place := places.pop()) <= limit:
            yield place, end
        elif not mark.startswith(("\\end", *_CLOSES)):
            if mark == "$$" or mark in _OPENS:
                places.clear()  # these marks do not nest, so an earlier open mark never closes
            places.append(start)
    if not is_complete:
        for opener, places in opened.items():
            limit = MAX_CODE if opener in _LONG else MAX_FORMULA
            yield from ((at, len(text)) for at in places if len(text) - at <= limit)


def _find_table_spans(text: str, lines: Sequence[Span], is_complete: bool) -> Iterator[Span]:
    """Yield the spans of Markdown tables: a header line, a line of dashes, and rows.

    If `is_complete` is false, the text is incomplete, and its last line may become a part of a
    table.
    """
    at = 1
    while at < len(lines):
        (start, end), below = lines[at - 1], text[slice(*lines[at])]
        is_last = at == len(lines) - 1
        # A line of dashes, or an incomplete line that may become a line of dashes.
        is_rule = not below.strip("|:- \t\r\n") and (
            ("|" in below and "-" in below)
            or (is_last and not is_complete and not below.endswith("\n"))
        )
        has_heads = "|" in text[start:end]
        at += 1
        if not (has_heads and is_rule):
            continue
        while at < len(lines) and _is_table_row(
            text[slice(*lines[at])], at == len(lines) - 1, is_complete
        ):
            at += 1
        end = lines[at - 1][1]
        yield start, min(end - text.endswith("\n", start, end), start + MAX_CODE)
        at += 1


def _is_table_row(line: str, is_last: bool, is_complete: bool) -> bool:
    """Return whether a line continues a table, or may do so once it is complete.

    Args:
        line: line below a row of the table.
        is_last: True if the line is the last line of the text.
        is_complete: True if the text is complete.
    """
    return (is_last and not is_complete and not line.endswith("\n")) or "|" in line


MAX_LABEL = 60
"""Maximum number of characters of a heading that is not a Markdown heading."""
MAX_LABELLED = 160
"""Maximum number of characters of a bold heading that begins with a numbered label."""
MAX_WORDS = 5
"""Maximum number of words of a heading that ends with a colon."""
MAX_TITLE = 8
"""Maximum number of words of a bold title."""

_FRAME = " \t\r\n#>*_"
_COUNTED = (
    r"(?:step|part|case|method|approach|solution|option|question|problem|example|stage|phase|claim"
    r"|exercise|task|section|equation|proof|lemma)"
)
_NUMBER = r"\(?(?:\d{1,3}|[a-z]|[ivx]{1,5})\b\)?"
_LABEL = re.compile(rf"(?i)(?:{_COUNTED}[ \t]{{1,3}}{_NUMBER})[ \t]?[.:)-]?")
"""Pattern of a whole numbered label, such as "Step 2:"."""
_LABELLED = re.compile(rf"(?i){_COUNTED}[ \t]{{1,3}}{_NUMBER}[ \t]?(?:[.:)-]|$)")
"""Pattern of a numbered label at the beginning of a line."""
_ITEM = re.compile(r"(?i)[-*+>\s]*(?:\(?(?:\d{1,3}[.)]|[a-z]\))|\([ivx]{1,5}\))")
"""Pattern of an item's number or lower-case letter. "A." does not match, as it may be an answer."""
_NAMED = frozenset(
    "answer|final answer|solution|proof|conclusion|explanation|summary|reasoning|verification|check"
    "|given|result|introduction|analysis|calculation|calculations|steps|note".split("|")
)
_CONCLUDES = frozenset("so then thus hence therefore yes no answer".split())
_MARKDOWN = re.compile(r"#{1,6}(?:[ \t]|$)")
_OPENING = re.compile(r"\\begin\{[a-zA-Z]+\*?\}(?:\{[^{}]*\})?")
_CLOSING = re.compile(r"\\end\{[a-zA-Z]+\*?\}[.,;]?|(?:\\[\])]|[\])}])[.,;]?|[.,;!?]")
_POINTS_ON = re.compile(r"[‐-―←-⇿∴─-╿⟵-⟿•👇-👉\s*_>#:-]+")
"""Pattern of a line of arrows, dashes and similar symbols, which belongs to the text after it."""
_HALF_CLOSING = re.compile(r"\\(?:e|en|end(?:\{[a-zA-Z]*\*?)?)?")
_STATES = re.compile(r"[=≈<>]|\\boxed|\d[ \t]*[+*/×÷−-][ \t]*\d")
"""Pattern of a formula or computation, which a heading does not contain."""
_CASE = re.compile(rf"(?i)case[ \t]{{1,3}}{_NUMBER}[ \t]?[:.)-]")
"""Pattern of the label of a case, such as "Case 1:". The condition of the case may follow it."""
_MATHS = re.compile(r"\\[()]|\$")
"""Pattern of the marks of an inline formula."""
_BULLET = re.compile(r"[-*+][ \t]+(?=\*\*|__)")
"""Pattern of a list mark before bold words."""
_JOINS = re.compile(
    r"(?i)(?:and|or|but|so|thus|hence|then|therefore|where|that is|now|finally|similarly|also)[,:]"
    r"|and|or"
)
"""Pattern of a line that is only a connecting word."""
_CONDITION = re.compile(
    r"(?i)(?:[-*+][ \t]+)?"
    r"(?:(?:and|first|second|third|fourth|fifth|next|then|now|finally|similarly|also),?[ \t]+)?"
    r"(?:for|when|if|case)[ \t][^,;:]+:"
)
"""Pattern of a line that only introduces a condition, such as "For n = 1:". An equality in it is
part of the condition; `_asserts_formula` finds conclusions."""
_RESULT = re.compile(
    r"\\boxed|=>|[⇒⟹]|\\implies|\\Rightarrow|(?:[a-z]{2}|\\\)|\$)[.!?][ \t]"
    r"|\d[ \t]*[+*/×÷−-][ \t]*\d[^=≈]{0,20}[=≈]"
)
"""Pattern of a conclusion, a computation with its result, or the end of a sentence."""
_WORD = re.compile(r"[a-z]+")
_VERBS = frozenset(
    "we is are was has have get gets gives must becomes equals need needs yields makes holds"
    " follows then so thus hence therefore".split()
)


def is_heading(line: str) -> bool:
    r"""Return whether a line is a heading or an opening mark, which belongs to the text after it.

    Examples are "### Step 2", "**Step 2: Find x**", "Solution:", "---", "\[" and a lone "1.".
    Blank lines are not headings.
    """
    stripped = line.strip()
    if not stripped or belongs_to_preceding_text(stripped):
        return False
    if not any(map(str.isalnum, stripped[:MAX_LABEL])):
        return (
            len(stripped) <= MAX_LABEL and _belongs_to_next_text(stripped) and "..." not in stripped
        )
    if _MARKDOWN.match(stripped):
        return _is_markdown_heading(stripped)
    if len(stripped) <= MAX_LABEL and _JOINS.fullmatch(stripped):
        return True
    if len(stripped) <= MAX_LABEL and _CONDITION.fullmatch(stripped):
        return not _asserts_formula(stripped)
    stripped = stripped.lstrip("> \t")
    bullet = _BULLET.match(stripped)
    stripped = stripped[bullet.end() :] if bullet else stripped
    if stripped.startswith(("**", "__")) and stripped.rstrip(":.").endswith(("**", "__")):
        return _is_bold_heading(stripped, in_list=bullet is not None)
    return len(stripped) <= MAX_LABEL and not _STATES.search(stripped) and _is_short_label(stripped)


def _is_bold_heading(stripped: str, *, in_list: bool) -> bool:
    """Return whether a bold line is a case, a numbered label, a title or a name in `_NAMED`.

    Args:
        stripped: bold line without surrounding white space.
        in_list: True if a list mark precedes the line.
    """
    inner = stripped.strip(_FRAME)
    if _STATES.search(stripped):
        case = _CASE.match(inner) if len(stripped) <= MAX_LABEL else None
        return case is not None and not _asserts_formula(inner[case.end() :])
    if len(stripped) > MAX_LABEL:
        return len(stripped) <= MAX_LABELLED and _LABELLED.match(inner) is not None
    name = _extract_label_words(inner)
    is_title = _is_section_title(name) and (not in_list or _LABEL.match(name) is not None)
    is_labelled = _LABELLED.match(inner) is not None
    return is_labelled or is_title or name.lower() in _NAMED or _is_short_label(stripped)


def _is_short_label(stripped: str) -> bool:
    """Return whether a short line is an item's number, a numbered label, or words with a colon.

    Args:
        stripped: line without surrounding white space.
    """
    inner = stripped.strip(_FRAME)
    if _ITEM.fullmatch(stripped) or _OPENING.fullmatch(stripped):
        return True
    if _LABEL.fullmatch(inner) and (inner[0].isupper() or not inner[-1].isalnum()):
        return True
    name = _extract_label_words(inner)
    if not inner.endswith(":") or any(map(str.isdigit, name)):
        return False
    return (len(name.split()) <= MAX_WORDS and "." not in name) or name.lower() in _NAMED


def _extract_label_words(inner: str) -> str:
    """Return the words of a label without the number before them and the colon after them."""
    item = _ITEM.match(inner)
    return inner[item.end() if item else 0 :].rstrip(":").rstrip(_FRAME).strip()


def _asserts_formula(line: str) -> bool:
    """Return whether a line with a formula states a conclusion, and not only a condition or topic.

    It does if it has a verb, a computation with its result, or the end of a sentence.
    """
    words = _WORD.findall(line.lower())
    return _RESULT.search(line) is not None or not _VERBS.isdisjoint(words)


def _is_section_title(name: str) -> bool:
    """Return whether bold words are a title and not a result."""
    label = _LABEL.match(name)
    words = name.lower().split()
    return (
        1 < len(words) <= MAX_TITLE
        and not any(map(str.isdigit, name[label.end() if label else 0 :]))
        and name[-1].isalnum()
        and words[0].strip(",") not in _CONCLUDES
    )


def belongs_to_preceding_text(line: str) -> bool:
    """Return whether a line belongs to the text before it.

    Such a line closes a formula, list or bracket, is a lone symbol such as "✅", or begins the
    tool result, which the model did not write.
    """
    stripped = line.strip()
    if _CLOSING.fullmatch(stripped) or is_first_line_of_tool_result(stripped):
        return True
    is_symbol = len(stripped) <= MAX_LABEL and not any(map(str.isalnum, stripped))
    return is_symbol and not _belongs_to_next_text(stripped)


def may_belong_to_preceding_text(line: str) -> bool:
    r"""Return whether an incomplete line, such as "\e", may become a closing line."""
    stripped = line.strip()
    if not any(map(str.isalnum, stripped)) or _TOOL_RESULT.startswith(stripped):
        return True
    return _HALF_CLOSING.fullmatch(stripped) is not None


def is_first_line_of_tool_result(line: str) -> bool:
    """Return whether a line is the first line of a tool result."""
    return line.lstrip().startswith(_TOOL_RESULT)


def _belongs_to_next_text(stripped: str) -> bool:
    """Return whether a line without letters and digits belongs to the text after it.

    Lines of ASCII symbols, arrows or dashes do. Lines of other symbols, such as "✅", do not.
    """
    return stripped.isascii() or _POINTS_ON.fullmatch(stripped) is not None


def _is_markdown_heading(stripped: str) -> bool:
    """Return whether a line with Markdown's heading mark is a heading and does not state a result.

    "### 2." is a heading. "#### 72" and "## Answer: 5" state results. A formula among three or more
    words is the topic of a heading, unless the words assert the formula.
    """
    inner = stripped.strip(_FRAME)
    words = " ".join(_MATHS.split(inner)[::2])
    if _STATES.search(words):
        return False
    if (
        words != inner
        and _STATES.search(inner)
        and (len(words.split()) < 3 or _asserts_formula(words))
    ):
        return False
    if _ITEM.fullmatch(inner):
        return True
    if not any(map(str.isalpha, inner)):
        return False
    label, colon, rest = inner.partition(":")
    return not (colon and rest.strip(_FRAME) and label.strip(_FRAME).lower() in _NAMED)
