r"""Finds the beginnings of steps in Python code, with or without fences, for `boundaries`.

A step is a logical line: a simple statement, or the header of a compound statement. Logical lines
are found by quotes, brackets and `#` in one forward pass. Python's parser is not used, because it
rejects incomplete or faulty code, and can be slow or crash. Its result may also change when text is
appended. A statement is open while its last line has not been read.
"""

# Decorators belong to the definition below them, a docstring to its header, comments and blank
# lines to the statement below them, and the lines of fences to the adjacent statements.

from __future__ import annotations

import re
from collections.abc import Sequence

from mclabel.data.blocks import MAX_CODE, Span

MAX_FIRST = 500
"""Maximum number of characters of the first line that are examined to decide whether it is code."""

_FENCE = re.compile(r"[ \t]*(?:[-*+>][ \t]+)?(```|~~~)[`~]*+([^`\n]*+)\n?")
_PYTHON = re.compile(r"(?i)(?:\{?[ \t]*+\.?(?:python|py)[\d.]*+(?!\w).*+)?")
"""Pattern of the text after an opening fence of Python or of an unnamed language."""
_MARKS = {
    "": re.compile(r"""(?s)\\(?:\r\n|.)|'''|\"""|['"#()\[\]{}]"""),
    **{quote: re.compile(rf"(?s)\\(?:\r\n|.)|{quote}") for quote in ("'", '"', "'''", '"""')},
}
"""Pattern of the next quote, bracket, comment or escape in a line of code, by the quote of the open
string; the key is empty outside strings."""
_DECORATOR = re.compile(r"\s*@")
_DEFINITION = re.compile(r"\s*(?:async[ \t]+def|def|class)\b")
_DOCSTRING = re.compile(r"\s*[rRuU]?['\"]")
_MAY_BE_OTHER = re.compile(r"\s*(?:[rRuU]|(?:[-*+>][ \t]*)?(?:[`~].*)?)")
"""Pattern of an incomplete line that may become a docstring or a fence."""
_OUTSIDE = re.compile(
    r"\s*(?:(?:def|class|import)[ \t]+\w|(?:return|raise|del|assert|global|while|try|pass|break"
    r"|continue|elif|except|finally)\b(?![ \t]*[=,.]))"
)
"""Pattern of the beginning of a statement that cannot be inside brackets."""
_BEGINS_CODE = re.compile(
    r"""(?x)
    (?:[ ]{2,}+|\t)\s*+(?![-*+>][ ]|\d+[.)][ ]|[A-Z][a-z]*[ ][a-z]+[ ])\S
    | @[A-Za-z_] | (?:async[ ]++)?def[ ]++\w++[ ]*+[(\[] | class[ ]++\w++[ ]*+[(\[:]
    | import[ ]++[\w.]++[ ]*+(?:$|[,#;]|as[ ]) | from[ ]++[\w.]++[ ]++(?:import\b|\\)
    | (?:for|while|if|elif|else|with|try|except|finally|match|case|async)\b
      .*[:(\[{\\][ ]*+(?:\#.*+)?$
    | (?:return|raise|assert|global|nonlocal|del|yield|await|pass|break|continue)\b(?!.*[.!?:]$)
    | [rRuU]?(?:'''|\""")
    | [A-Za-z_][\w.]*+(?:,[ ]*+\w++)*+(?:\(
      | (?:\[.*\])?(?:[ ]*+:[ ]*+\w[\w\[\], .|]*+)?[ ]*+[-+*/%|&^]*+=[^=])
    """
)
"""Pattern of a text's first line if the text begins with code without a fence."""


class PythonStatements:
    """Python code in a solution, and the beginnings of its steps."""

    def __init__(
        self, text: str, lines: Sequence[Span], *, is_complete: bool, functions: bool = False
    ) -> None:
        """Parse a text.

        Args:
            text: a solution, or a part of one.
            lines: spans of the text's lines.
            is_complete: True if the text is complete. In an incomplete text, beginnings that
                following text could undo are omitted.
            functions: True if a step is an outermost function or class, or the code between two of
                them. Otherwise a step is a statement.
        """
        self.places: list[int] = []
        """Character positions inside `spans` where steps begin."""
        self.spans: list[Span] = []
        """Spans of Python code with its fences, sorted and disjoint."""
        self.others: list[Span] = []
        """Spans of fenced blocks of other languages."""
        self.is_known = True
        """False if more text is needed to decide whether the text begins inside code."""
        self._text, self._lines, self._is_text_complete = text, lines, is_complete
        self._functions = functions
        self._record_code_spans()

    def _record_code_spans(self) -> None:
        beginning = self._find_first_line()
        if beginning is None:
            self.is_known = self._is_text_complete
            return
        number, is_code = beginning
        if is_code:
            number = _CodeBlock(self, number, None).read_block()
        while number < len(self._lines):
            fence = _FENCE.fullmatch(self._text, *self._lines[number])
            if fence is None:
                number += 1
            elif self._is_incomplete(number):
                # The line may turn out not to be a fence, or of any language.
                self.others.append((self._lines[number][0], len(self._text)))
                number += 1
            elif _PYTHON.fullmatch(fence[2].strip("~ \t\r")):
                number = _CodeBlock(self, number, fence[1]).read_block()
            else:
                number = self._record_block_of_other_language(number, fence[1])

    def _find_first_line(self) -> tuple[int, bool] | None:
        """Return the 0-based number of the first line to read, and True if that line is code.

        The continuation of a solution may begin inside code, even with the fence that ends the
        code. The result is None if more text is needed to decide this.
        """
        fence = None
        for number, (start, end) in enumerate(self._lines):
            line = self._text[start:end]
            if not _is_statement(line):
                continue
            if self._is_incomplete(number):
                return None
            if fence is None and _names_no_language(_FENCE.fullmatch(line)):
                fence = number
                continue
            is_code = _BEGINS_CODE.match(line[:MAX_FIRST].rstrip()) is not None
            if fence is None:
                return 0, is_code
            return 0 if is_code else fence + 1, False
        return None

    def _is_incomplete(self, number: int) -> bool:
        """Return whether more text may be appended to the line with a given 0-based number."""
        is_last = number == len(self._lines) - 1
        return is_last and not self._is_text_complete and not self._text.endswith("\n")

    def _record_block_of_other_language(self, number: int, mark: str) -> int:
        """Record a block of another language, and return the number of the line after it.

        Text of more than `MAX_CODE` characters after a fence is not a block.
        """
        start = self._lines[number][0]
        for below in range(number + 1, len(self._lines)):
            end = self._lines[below][1]
            if end - start > MAX_CODE:
                return below
            fence = _FENCE.fullmatch(self._text, *self._lines[below])
            if fence and fence[1] == mark and _names_no_language(fence):
                self.others.append((start, end - self._text.endswith("\n", start, end)))
                return below + 1
        if not self._is_text_complete and len(self._text) - start <= MAX_CODE:
            self.others.append((start, len(self._text)))
        return len(self._lines)


class _CodeBlock:
    """A block of Python code, from its first line to the fence that ends the block."""

    def __init__(self, statements: PythonStatements, number: int, mark: str | None) -> None:
        """Begin a block.

        Args:
            statements: code of the whole text, which receives the block.
            number: 0-based number of the block's first line.
            mark: mark of the opening fence on that line; None if the block has no opening fence.
        """
        self._statements, self._lines = statements, statements._lines
        self._start, self._mark = number, mark
        self._gap: int | None = None  # end of the previous statement
        self._is_decorated = self._has_header = False
        self._base = 0 if mark is None else None  # indentation of outermost statements
        self._in_function = mark is None
        self._begin_statement(None)

    def _begin_statement(self, first: int | None) -> None:
        self._first = first  # first line of the open statement
        self._fence: int | None = None  # line of the first fence inside its open string
        self._may_end = False  # whether that fence is the last so far and may end the block
        self._depth, self._quote = 0, ""

    def read_block(self) -> int:
        """Read the block and return the number of the line after it."""
        number = self._start + (self._mark is not None)
        while True:
            if number == len(self._lines):
                if self._first is None or not self._statements._is_text_complete:
                    break
                number = self._split_into_lines(number)
                continue
            line = self._get_line(number)
            fence = _FENCE.fullmatch(line)
            if fence and self._mark in (None, fence[1]):
                if self._statements._is_incomplete(number):
                    # The line may turn out not to be a fence.
                    return self._record_block(len(self._lines))
                if len(self._quote) < 3:
                    self._split_into_lines(number)
                    return self._record_block(number + _names_no_language(fence))
                if self._fence is None:
                    self._fence, self._may_end = number, _names_no_language(fence)
                elif self._may_end and not _names_no_language(
                    fence
                ):  # the earlier fence ended the block
                    number = self._split_into_lines(number)
                    continue
                else:
                    self._may_end = False
            if self._first is not None and self._shows_invalid_code(number, line):
                number = self._split_into_lines(number)
                continue
            self._read_line(number, line)
            number += 1
        return self._record_block(number)

    def _get_line(self, number: int) -> str:
        return self._statements._text[slice(*self._lines[number])]

    def _record_block(self, number: int) -> int:
        """Record the block, which ends before line `number`, and return `number`."""
        is_last = number == len(self._lines)
        end = len(self._statements._text) + 1 if is_last else self._lines[number][0]
        self._statements.spans.append((self._lines[self._start][0], end))
        return number

    def _shows_invalid_code(self, number: int, line: str) -> bool:
        """Return whether a line shows that the statement begun before it is not valid code."""
        assert self._first is not None
        if self._lines[number][1] - self._lines[self._first][0] > MAX_CODE:
            return True
        if not self._depth or self._quote or self._statements._is_incomplete(number):
            return False
        return _OUTSIDE.match(line) is not None

    def _split_into_lines(self, number: int) -> int:
        """Make each line of the open statement a step, and return the number of the next line."""
        stop = number if self._fence is None else self._fence
        if self._first is not None:
            self._is_decorated = self._has_header = False
            self._gap = self._lines[self._first][1]
            for other in range(self._first + 1, stop):
                line = self._get_line(other)
                if _is_statement(line):
                    self._begin_step(line)
                    self._gap = self._lines[other][1]
            self._begin_statement(None)
        return stop

    def _read_line(self, number: int, line: str) -> None:
        """Read a line of code, which begins a statement or continues the open statement."""
        if self._first is None:
            may_change = self._statements._is_incomplete(number) and _MAY_BE_OTHER.fullmatch(line)
            if may_change or not _is_statement(line):
                return
            self._begin_step(line)
            self._begin_statement(number)
        is_continued, has_colon = self._scan_line_marks(line)
        if len(self._quote) < 3:
            self._fence = None
        if self._depth or self._quote or is_continued or self._statements._is_incomplete(number):
            return
        assert self._first is not None
        first = self._get_line(self._first)
        self._is_decorated = _DECORATOR.match(first) is not None
        self._has_header = has_colon and _DEFINITION.match(first) is not None
        self._gap = self._lines[number][1]
        self._begin_statement(None)

    def _scan_line_marks(self, line: str) -> tuple[bool, bool]:
        """Count the brackets and quotes of a line of code.

        Return whether a backslash joins the next line to this one, and whether the line ends with a
        colon, apart from a comment.
        """
        at, end, is_continued = 0, len(line), False
        while match := _MARKS[self._quote].search(line, at):
            at, mark = match.end(), match[0]
            if mark[0] == "\\":
                is_continued = mark[-1] == "\n"
            elif self._quote:
                self._quote = ""
            elif mark == "#":
                end = match.start()
                break
            elif mark in "([{":
                self._depth += 1
            elif mark in ")]}":
                self._depth = max(0, self._depth - 1)
            else:
                self._quote = mark
        if len(self._quote) == 1 and not is_continued:
            self._quote = ""
        return is_continued, line[:end].rstrip().endswith(":")

    def _begin_step(self, line: str) -> None:
        """Record that a step begins with the statement in a line, unless it continues a step.

        A statement continues a step if it follows a decorator or is the docstring of a definition.
        """
        if self._continues_step(line):
            return
        joins = self._is_decorated or (self._has_header and _DOCSTRING.match(line))
        if self._gap is not None and not joins:
            self._statements.places.append(self._gap)

    def _continues_step(self, line: str) -> bool:
        """Return whether a statement continues the current step, if each function is one step.

        If each statement is a step, return False.
        """
        if not self._statements._functions:
            return False
        column = len(line[: len(line) - len(line.lstrip())].expandtabs())
        if self._base is None:
            self._base = column
        if column > self._base:
            return True
        was_function = self._in_function
        self._in_function = bool(_DEFINITION.match(line) or _DECORATOR.match(line))
        return not (was_function or self._in_function)


def _is_statement(line: str) -> bool:
    """Return whether a line of code is neither blank nor a comment."""
    bare = line.lstrip()
    return bool(bare) and bare[0] != "#"


def _names_no_language(fence: re.Match[str] | None) -> bool:
    """Return whether a line is a fence that names no language."""
    return fence is not None and not fence[2].strip("~ \t\r")
