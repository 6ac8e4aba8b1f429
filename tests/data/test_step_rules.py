r"""Steps of typical model texts: headings, displays, code, tables and sentences.

Texts are also split while they grow: added text may only change the last step.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from mclabel.data.blocks import MAX_CODE, MAX_FORMULA, is_heading
from mclabel.data.boundaries import may_step_end
from mclabel.data.steps import StepSplitter
from tests.data.test_steps import check_exact

Decode = Callable[[Sequence[int]], str]
ALL = ("line", "blank_line", "sentence", "step")
GROWING = (*ALL, "reflection", "code", "function")


def split(text: str, by: Any = "line", *, is_complete: bool = True, **more: Any) -> list[str]:
    """Return the steps of a text whose tokens are its characters."""
    rules = StepSplitter(by=by, **more)
    ids, decode = cast("Sequence[int]", text), cast("Decode", "".join)
    steps = rules.split(ids, text, decode, is_complete=is_complete)
    assert "".join(step.text for step in steps) == text
    return [step.text for step in steps]


@pytest.mark.parametrize(
    ("by", "steps"),
    [
        ("line", ["We have\n", "   x = 5\n", "\ty = 2\r\n \n", "  z"]),
        ("blank_line", ["a\n\n", "   b\n  c\n \n", " d"]),
        ("sentence", ["It is so.\n\n", "   Then this.", "  And that.\n", " Now."]),
    ],
)
def test_indentation_belongs_to_the_step_that_it_indents(by: str, steps: list[str]) -> None:
    assert split("".join(steps), by) == steps


def test_a_pattern_s_step_begins_with_its_line() -> None:
    text = "a\n   b; c\n\n  d"
    assert split(text, "pattern", pattern=r"\n\s*()") == ["a\n", "   b; c\n\n", "  d"]
    assert split(text, "pattern", pattern=r";\s*()") == ["a\n   b; ", "c\n\n  d"]


HEADINGS = [
    *("### Heading", "## 2. Divide", "Step 1:", "Step 2", "**Step 2: Find x**", "**Case (b).**"),
    *("---", "***", "* * *", r"\[", "$$", "1.", "(a)", "Solution:", "**Final Answer:**", "```"),
    *("**Find the total cost**", "Therefore, we have:", r"\begin{align*}", "> **Note:**"),
    *("and", "Thus,", "Where:", "For \\(n = 1\\):", "Second, for $x = 3$:", "- **Case 1 Area**"),
    *("**Case 1: \\( r = 1 \\)**", "#### The circle and the line $y = x$"),
    *("### 2. Solve $x^2 = 4$ for x", "For 0 < x < 5:", "**Case 2: 4x < 3**"),
]
STATEMENTS = [
    *(
        "#### 72",
        "### Answer: 5",
        "**Answer:** 12 apples",
        "**12**",
        "Step 1: 3 + 4 = 7",
        "x",
        "12",
    ),
    *(
        "So",
        "**Step 3: x = 5**",
        "it is 4",
        "- 3 apples",
        "The total of all of it comes to 5:",
        "½",
    ),
    *(
        r"\]",
        r"\end{align}",
        "**Monday**",
        "**So Ann wins the race**",
        "- ...",
        "For x = 0 we get:",
        "If x = 1, then y = 2:",
        "- **12**",
        "#### So \\(x = 5\\)",
        "Step 4. Add them up",
        "step 4",
        "For Monday 3 + 5 = 8:",
        "Case 1 \\boxed{5}:",
        "If x = 1 => y = 2:",
        "for some \\(k\\). This implies:",
        "**Case 1: x + 2 = 5, so x = 3**",
        "**Case 2: 3 + 4 = 7**",
        "### We get $x = 3$ and $y = 4$",
        "#### The final answer is \\(x = 5\\)",
        "- **Not possible**",
        "- **Bob wins the race**",
    ),
]


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_heading_belongs_to_what_follows(heading: str) -> None:
    assert split(f"Go on.\n{heading}\n\nx = 1\ny = 2") == [
        "Go on.\n",
        f"{heading}\n\nx = 1\n",
        "y = 2",
    ]
    assert split(f"{heading}\nx = 1") == [f"{heading}\nx = 1"]
    assert split(f"x = 1\n{heading}\n") == [f"x = 1\n{heading}\n"]  # no text follows the heading


@pytest.mark.parametrize("line", STATEMENTS)
def test_a_line_that_states_something_is_no_heading(line: str) -> None:
    assert not is_heading(line)


def test_headings_follow_one_another_under_every_rule() -> None:
    text = "So.\n\n---\n\n### Step 1\n\nSolution:\n\nIt is 5.\n\n---\n\n### Step 2\n\nIt is 6."
    first = "---\n\n### Step 1\n\nSolution:\n\nIt is 5.\n\n"
    for by in ALL:
        assert split(text, by) == ["So.\n\n", first, "---\n\n### Step 2\n\nIt is 6."]


def test_a_bracket_that_closes_alone_belongs_to_what_is_above() -> None:
    assert split("So\n\\[x\\]\n.\nthus\n") == ["So\n", "\\[x\\]\n.\n", "thus\n"]
    assert split("So\nx = 5\n\\]\nthus\n") == ["So\n", "x = 5\n\\]\n", "thus\n"]


@pytest.mark.parametrize(
    ("by", "steps"),
    [
        ("line", ["So 4.\n✅\n", "Now 3.\n**✅**\n\n", "Yes."]),
        ("line", ["✅\nSo 4.\n", "→\nNow 3.\n", "———\nYes.\n∎"]),
        ("blank_line", ["So 4.\n\n✅\n\n", "Now."]),
        ("sentence", ["So 4. ✅\n", "Now 3.", " ✅ Yes. ✅"]),
    ],
)
def test_a_symbol_alone_belongs_to_its_neighbour(by: str, steps: list[str]) -> None:
    assert split("".join(steps), by) == steps


@pytest.mark.parametrize("by", ["line", "blank_line", "sentence"])
def test_the_result_of_a_tool_is_no_step(by: str) -> None:
    call = '<tool_call>\n{"a": 1}\n</tool_call>\n'
    result = "<tool_response>\nIt is 5. It is so.\n\n6\n</tool_response>\n\n"
    steps = ["I ask.\n\n", call + result, "So 5.\n\n", "Done."]
    assert split("".join(steps), by) == steps


BLOCKS = [
    "<tool_call>\n{\n\n1. X\n}\n</tool_call>",
    "\\[\nx = 1\n\ty = 2\n\\]",
    "$$\nx = 1.\nY = 2\n$$",
    "\\begin{align}\na &= b \\\\[2ex]\nStep 2 &= d\n\\end{align}",
    "\\begin{cases}\n\\begin{array}{c}\nx\n\\end{array}\ny\n\\end{cases}",
    "```python\nx = 1\n\n\\[\nprint(x)\n```",
    "~~~\nx. Y.\n\n# Step 2\n~~~",
    "[asy]\ndraw(a);\n\ndraw(b);\n[/asy]",
    "| a | b |\n|---|:-:|\n| 1. X | 2 |\n| 3 | 4 |",
    "a | b\n--- | ---\n1 | 2",
]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("by", ALL)
def test_no_rule_cuts_what_belongs_together(by: str, block: str) -> None:
    after = "Step 3: it is so.\nAnd more."
    steps = split(f"Go on.\n\n{block}\n\n{after}", by)
    assert sum(block in step for step in steps) == 1
    assert any(step.startswith("Step 3") for step in steps)


def test_white_space_alone_is_no_step() -> None:
    for by in ALL:
        assert split("  \n\n ", by) == ["  \n\n "]
        assert split(" \n So.\n  \n   ", by) == [" \n So.\n  \n   "]


def test_a_token_of_two_lines_goes_where_its_words_are() -> None:
    rules = StepSplitter()

    def steps(*tokens: str) -> list[str]:
        parts = rules.split(cast("Sequence[int]", tokens), "".join(tokens), cast("Decode", "".join))
        return [step.text for step in parts]

    assert steps("a", "\n   ", "b") == ["a\n   ", "b"]
    assert steps("a", "\n  b", " c") == ["a", "\n  b c"]
    assert steps("a", "\n", " ", "\n b") == ["a\n ", "\n b"]
    assert steps("a.\n  b", " c") == [
        "a.\n  b",
        " c",
    ]  # one token has words on both sides of its line break


@pytest.mark.parametrize("opening", ["\\[", "$$", "\\begin{align}", "```", "[asy]", "\\("])
def test_a_block_that_never_closes_is_none(opening: str) -> None:
    assert split(f"a x\n{opening}\nb x\nc x\nd x") == [
        "a x\n",
        *([f"{opening}\nb x\n"] if opening != "[asy]" else ["[asy]\n", "b x\n"]),
        *("c x\n", "d x"),
    ]
    # the opened part may still be closed
    assert len(split(f"a x\n{opening} x\nb x\nc x", is_complete=False)) == 2
    far = "b x\n" * (max(MAX_CODE, MAX_FORMULA) // 4)
    assert len(split(f"{opening} x\n{far}", is_complete=False)) == far.count("\n") + 1


def test_a_formula_does_not_go_on_behind_a_blank_line() -> None:
    text = "\\[ x = 1\n\nSo y.\nz\n\\[ y \\]\n"
    assert split(text) == ["\\[ x = 1\n\n", "So y.\n", "z\n", "\\[ y \\]\n"]
    assert split("\\[\na\n\\[\nb\n\\]\n") == ["\\[\na\n", "\\[\nb\n\\]\n"]


@pytest.mark.parametrize(
    "steps",
    [
        ["We use e.g. Dr. Lee's 3.5 apples, i.e. No. 5 vs. Bob.", " Approx. 3 are left!"],
        ["J. K. Rowling and George W. Bush meet.", " Line AB ends at point B.", " Then it is 5."],
        ["1. Add 3 to it.", " 2. Subtract 5.", " 3) Go."],
        ["**Step 1.** Add.\n", "Step 2. Subtract.", " So what?", " Fine."],
        ["It costs $5.", " Then it costs $6 more.", " They pay $11."],
        ["Let $x = 5. Y$ be \\(a. B\\).", " So it is \\(x = 5.\\)", " Hence $y = 6.$", " Now go."],
        ["We get\n\\[ x = 1. Y \\]\n", "Then we get: \\[ y = 2 \\]", " Thus it is so."],
        ["He said “Stop.”", ' She said "Go."', " (See it there.)", " **Yes.**", " End."],
        ["It is there (see A. Then B.) and so on.", " See https://a.b/c.d?e=F.", " Go."],
        ["Wait...", " It is 1, 2, ... 10 of them.", " Hmm… that is odd."],
        ["Is 7 prime?", " Yes!", " Is 8?", " No.", " The U.S. Army is etc. etc."],
        ["The list goes\n", "- Three apples\n", "- two pears\n", "All is\nwell here."],
        ["x is\n= 5 and so\n", "It is.", " 5 of them go.", " `a. B. C`"],
    ],
)
def test_sentences(steps: list[str]) -> None:
    assert split("".join(steps), "sentence") == steps


@pytest.mark.parametrize(
    "steps",
    [
        [
            "We get 5.",
            " Wait, that is 6. So x.\n",
            "Hmm, 6?",
            " Let me check: 3 + 3.",
            " but wait, no.",
        ],
        [
            "It waits. Waiting helps.\nAwait it. I know, wait, no.\n",
            "wait, it is 5.\n\n",
            "  Hold on. Go",
        ],
        ["So it is 3. Hmm-like. Oh-so.\n", "Oops. Actually, wait. It is 4.", " **Wait** it is."],
        [
            "x = 2\n",
            "Alternatively, y = 3.\n- So the list.\n",
            "- Actually no.\n",
            "So the answer is 4.",
        ],
        ["得到五。", "等等，不对。再算一遍！不对称的。", "另外，它是六。\n", "所以答案是六。"],  # noqa: RUF001
        ["A (see B. Wait, no.) and $C. Wait$ and\n\\[\nx.\nWait\n\\]\nso.\n", "### Wait\nIt is."],
        ["No turn here.\nIt is so. Let me add 3. The answer is 5."],
        [
            "Hmm. Wait. Let me re-read it. So what.",
            " On second thought, fine.",
            " I made a mistake.",
        ],
    ],
)
def test_a_step_begins_where_the_trace_turns(steps: list[str]) -> None:
    assert split("".join(steps), "reflection") == steps


TURNS = (
    *("Wait", ", no", ". ", "\n", "Hm", "m", " let me", " check", "等等", "。", "a b", "(", "$"),
    *("```", "\\[", "\\]", "# ", "</think>", "x" * 50, "1.", ")", "So the", " answer"),
)


def test_a_long_step_that_grows_is_cut_before_its_end_is_known() -> None:
    """A text without sentence ends, such as a repetitive trace, also has bounded steps."""
    text = "Ab cd. " * 100
    whole = split(text, "blank_line", max_tokens=70)
    assert {len(step) for step in whole[:-2]} == {69, 70}
    begun = split(text, "blank_line", max_tokens=70, is_complete=False)
    assert len(whole) - 2 <= len(begun) <= len(whole)
    assert begun[:-1] == whole[: len(begun) - 1]
    circles = split("ab, " * 20_000, max_tokens=1000, is_complete=False)
    assert {len(step) for step in circles[:-1]} == {1000}
    assert len(circles) > 30


FRAGMENTS = (
    *("\\[", "\\]", "\\(", "\\)", "$$", "$", "\\\\", "```", "`", "\n", "\n", "\n\n", "   ", " "),
    *("| a |", "|---|", "Step 1:", "So x.", " Dr.", "e.g. ", "1.", "(", ")", "\\begin{align}"),
    *("\\end{align}", "word", "---", "A", "5", "...", "? ", "# ", "**", "[asy]", "[/asy]", "Then "),
    *("✅", "→", "—", "<tool_response>", "</tool_response>", "<tool_call>", "</tool_call>"),
    *("and", "so,", "For x = 1", ":", "**Case 1: x = 1**", "- **", "is", "# The line $y = x$"),
)


CODE_FRAGMENTS = (
    *("x = 1\n", "if x:\n", "    y\n", "else:\n", "    ", "\t", "\n", "\n\n", "\r\n", "# a\n", "#"),
    *("```", "```python\n", "```\n", "~~~\n", "```bash\n", "'''", '"""', "'", '"', "(", ")", "[\n"),
    *("]\n", "\\", "\\\n", "@d\n", "def f():\n", "class A:", "r", "return", " x", "So it is.\n"),
    *("\\[\n", "\\]\n", "| a |\n", "|---|\n", "### So\n", "Step 1:\n", "\f", "\0", "é", "- ", ";"),
)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=25)
    | st.lists(st.sampled_from(CODE_FRAGMENTS), max_size=30)
    | st.lists(st.sampled_from(TURNS), max_size=25),
    st.sampled_from(GROWING),
    st.fixed_dictionaries(
        {"region": st.sampled_from(["think", "answer"]), "min_tokens": st.integers(1, 4)},
        optional={"max_tokens": st.integers(4, 30)},
    )
    | st.just({}),
    st.data(),
)
def test_steps_of_a_text_stay_as_it_grows(
    parts: list[str], by: str, limits: dict[str, Any], data: st.DataObject
) -> None:
    opening = "<think>" if limits else ""
    text = opening + "".join(parts)
    whole, ended = split(text, by, is_complete=False, **limits), split(text, by, **limits)
    for at in data.draw(st.sets(st.integers(len(opening), len(text)), max_size=8)):
        begun = split(text[:at], by, is_complete=False, **limits)
        assert begun[:-1] == whole[: max(0, len(begun) - 1)]
        if not limits and len(ended) >= len(whole):  # the text does not end with a heading
            assert begun[:-1] == ended[: max(0, len(begun) - 1)]


TEXTS = (
    "### Step 1: Find the total\n\nWe have\n   3 + 4 = 7 apples, i.e. Dr. Lee's.\n\n"
    "**Step 2:**\n\n\\[\n   x = \\frac{7}{2} = 3.5\n\\]\n\nSo $x = 3.5.$ So?\n---\n\n1.\n Yes",
    "Let us see:\n\n   - 12 apples\n      - 3 pears\n\n```python\nprint(1)\n\nprint(2)\n```\n"
    "| day | sum |\n|-----|-----|\n| 1   | 2.5 |\n\nThe answer is 5 \u00bd \U0001f600. I hope! Bye",
    "\\begin{align}\na &= b \\\\\n  &= c\n\\end{align}\nThen\n\\[\nthis never closes\n   at all.\n"
    "\n\nSolution:\n\tx = 1; y = 2.\r\n\r\nDone. **Answer:** 12 apples",
)
"""Texts in the style of small real models."""


def byte_level(*, use_regex: bool = True) -> Tokenizer:
    """Return a tokenizer like GPT-2's in which line breaks and indentation are separate tokens.

    Without `use_regex`, a token may span a line end and the next word.
    """
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400 if use_regex else 500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(TEXTS * (2 if use_regex else 9), trainer)
    return made


whole_lines = partial(byte_level, use_regex=False)


def metaspace() -> Tokenizer:
    """Return a tokenizer like SentencePiece: spaces are `▁`, and unknown characters are bytes."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.pre_tokenizer = pre_tokenizers.Split("\n", behavior="isolated")
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    specials = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=500, special_tokens=specials))
    return made


@pytest.mark.parametrize("make", [byte_level, whole_lines, metaspace])
@pytest.mark.parametrize("by", GROWING)
def test_steps_under_tokenizers_of_every_kind(make: Callable[[], Tokenizer], by: Any) -> None:
    """Steps join to the text, end on tokens, keep words whole, and persist as the text grows."""
    rules, tokenizer = StepSplitter(by=by), make()

    def decode(ids: Sequence[int]) -> str:
        return cast("str", tokenizer.decode(list(ids)))

    for written in TEXTS:
        ids = tokenizer.encode(written).ids
        text = decode(ids)
        steps = rules.split(ids, text, decode)
        check_exact(ids, text, steps, decode)
        wanted = [part.strip() for part in split(text, by)]
        if make is not whole_lines:
            assert [step.text.strip() for step in steps] == wanted
        for end in range(1, len(ids)):
            begun = rules.split(ids[:end], decode(ids[:end]), decode, is_complete=False)
            assert tuple(begun[:-1]) == tuple(steps[: len(begun) - 1])


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("x = 1\n", True),
        ("\n  \n", False),
        ("Step 1:\n---\n", False),
        ("Step 1:\nx = 1\n", True),
        ("\\[\nx = 1\n", False),
        ("\\[\nx = 1\n\\]\n", True),
        ("```\nx\n\n", False),
        ("| a | b |\n|---|---|\n", False),
        ("| a | b |\n|---|---|\nSo\n", True),
    ],
)
def test_a_search_ends_a_step_only_where_one_may_end(text: str, ends: bool) -> None:
    assert may_step_end(text) is ends


def test_a_long_row_of_marks_is_read_at_once() -> None:
    """With time quadratic in the length of the row, this would take minutes."""
    script = (
        "from mclabel.data.boundaries import find_sentence_ends as ends; n = 150_000; "
        "texts = '.' * n + 'x', '.' + chr(34) * n + 'x', '(' * n, '# ' + chr(92) + '(' * n, "
        "'- ' * n + '**x**', 'for ' + 'a ' * n + ':', '# a b c ' + '$' * n; "
        "print(*(len(ends(text)) for text in texts))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.split() == ["1"] * 7
