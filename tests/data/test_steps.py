from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mclabel.core.records import Step
from mclabel.data.boundaries import check_pattern, find_newline_ends, find_thinking_end
from mclabel.data.lengths import split_steps
from mclabel.data.steps import StepSplitter
from mclabel.domains.arith import bundled_model
from mclabel.engines.chat import PromptParts
from mclabel.engines.text import PolicyText

Decode = Callable[[Sequence[int]], str]


def decode(ids: Sequence[bytes]) -> str:
    """Decode as a byte-level tokenizer does; the ids are the byte pieces themselves."""
    return b"".join(ids).decode("utf-8", errors="replace")


def split(pieces: list[str], **rules: Any) -> list[str]:
    ids = [piece.encode() for piece in pieces]
    opened = rules.pop("starts_in_thinking", False)
    steps = StepSplitter(**rules).split(ids, "".join(pieces), decode, starts_in_thinking=opened)  # type: ignore[arg-type]
    check_exact(ids, "".join(pieces), steps, decode)  # type: ignore[arg-type]
    return [s.text for s in steps]


def check_exact(ids: Sequence[int], text: str, steps: Sequence[Step], decode: Decode) -> None:
    """Check that the steps join to the text and that each ends where its token ids decode to."""
    joined, end = "", 0
    for step in steps:
        joined += step.text
        assert step.end > end
        end = step.end
        assert decode(ids[:end]) == joined
    assert joined == text
    assert end == len(ids) or not text


def words(text: str) -> list[str]:
    """Split a text into words, each with the space before it, and newlines."""
    return [
        word if i == 0 else " " + word
        for line in text.splitlines(keepends=True)
        for i, word in enumerate(line.split(" "))
        if word or i
    ]


@pytest.mark.parametrize(
    ("pieces", "steps"),
    [
        (["a", " b", "\n", "c", "\n", "d"], ["a b\n", "c\n", "d"]),
        (["a", "\n", "\n", "b", "\n\n"], ["a\n\n", "b\n\n"]),
        (["a", ".\nb", " c", "\n", "d"], ["a.\nb", " c\n", "d"]),  # a boundary inside a token
        ([], []),
        (["\n"], ["\n"]),
    ],
)
def test_lines_are_steps_that_end_on_tokens(pieces: list[str], steps: list[str]) -> None:
    assert split(pieces) == steps


@pytest.mark.parametrize(
    ("rules", "text", "steps"),
    [
        ({"by": "blank_line"}, "a\nb\n \nc\n\n\nd", ["a\nb\n \n", "c\n\n\n", "d"]),
        (
            {"by": "step"},
            "So.\nStep 1: a\nb\n**Step 2.** c\n### step 3\nIn step 4 no",
            ["So.\n", "Step 1: a\nb\n", "**Step 2.** c\n", "### step 3\nIn step 4 no"],
        ),
        ({"by": "step"}, "Step 1: a\nStep 2: b", ["Step 1: a\n", "Step 2: b"]),
        ({"by": "step"}, "no steps\nat all", ["no steps\nat all"]),
        ({"by": "pattern", "pattern": ";( ?)"}, "a; b; c", ["a;", " b;", " c"]),
        ({"by": "pattern", "pattern": r"(?m)^\d+\."}, "1. a\n2. b", ["1. a\n", "2. b"]),
        ({"min_tokens": 2}, "a\nb c d\ne\nf", ["a\nb c d\n", "e\nf"]),
        ({"min_tokens": 3}, "a b c\nd", ["a b c\nd"]),
        ({"min_tokens": 99}, "a\nb\nc", ["a\nb\nc"]),
        ({"max_steps": 2}, "a\nb\nc\nd\ne", ["a\nb\n", "c\nd\ne"]),
        ({"max_steps": 3}, "a\nb\nc\nd", ["a\n", "b\nc\n", "d"]),
        ({"max_steps": 2}, "a\nb\nc\nd e f g", ["a\nb\nc\n", "d e f g"]),  # steps of 3 and 4 tokens
        ({"max_steps": 3}, "a b c d e f\ng\nh\ni", ["a b c d e f\n", "g\n", "h\ni"]),
        ({"max_tokens": 3}, "a b. C d. E f.\ng", ["a b.", " C d.", " E f.\n", "g"]),
        ({"max_tokens": 4}, "a b. C d. E f.\ng", ["a b. C d.", " E f.\n", "g"]),
        ({"max_tokens": 2, "by": "blank_line"}, "a\nb\nc d e f", ["a\nb\n", "c d", " e f"]),
        ({"max_tokens": 3, "by": "step"}, "a b c d e f g", ["a b c", " d e f", " g"]),
        ({"max_tokens": 3, "min_tokens": 2}, "a\nb\nc d e\nf", ["a\nb\n", "c d e\n", "f"]),
        ({"max_tokens": 4, "min_tokens": 2}, "a\nb\nc d e\nf", ["a\nb\n", "c d e\nf"]),
        ({"max_tokens": 2, "max_steps": 2}, "a b c d e f", ["a b", " c d e f"]),
        ({"max_steps": 9}, "a\nb", ["a\n", "b"]),
    ],
)
def test_rules(rules: dict[str, Any], text: str, steps: list[str]) -> None:
    assert split(words(text), **rules) == steps


THOUGHT = "<think>\nhm\nyes\n</think>\n\nSo\nit is 4"


@pytest.mark.parametrize(
    ("region", "steps"),
    [
        ("all", ["<think>\n", "hm\n", "yes\n", "</think>\n\n", "So\n", "it is 4"]),
        ("think", ["<think>\n", "hm\n", "yes\n", "</think>\n\n", "So\nit is 4"]),
        ("answer", ["<think>\nhm\nyes\n</think>\n\n", "So\n", "it is 4"]),
    ],
)
def test_regions_of_a_reasoning_model(region: str, steps: list[str]) -> None:
    assert split(words(THOUGHT), region=region) == steps
    inside = THOUGHT.removeprefix("<think>\n")  # the prompt opened the thinking part
    assert split(words(inside), region=region, starts_in_thinking=True)[-1] == steps[-1]


CUT = "<think>\na\nb"
LONG = "<think>\na b c d\n</think>\n\ne f g h"
LONG_CUT = ["<think>\n", "a b", " c d\n", "</think>\n\n"]


@pytest.mark.parametrize(
    ("text", "rules", "steps"),
    [
        (CUT, {"region": "answer"}, [CUT]),
        (CUT, {"region": "think"}, ["<think>\n", "a\n", "b"]),
        ("a\nb", {"region": "think"}, ["a\nb"]),
        ("a\nb", {"region": "answer"}, ["a\n", "b"]),
        ("a\nb", {"region": "think", "starts_in_thinking": True}, ["a\n", "b"]),
        (
            LONG,
            {"region": "answer", "max_tokens": 2},
            ["<think>\na b c d\n</think>\n\n", "e f", " g h"],
        ),
        (LONG, {"region": "think", "max_tokens": 2}, [*LONG_CUT, "e f g h"]),
        (LONG, {"max_tokens": 2}, [*LONG_CUT, "e f", " g h"]),
        (
            THOUGHT,
            {"region": "answer", "max_steps": 1},
            ["<think>\nhm\nyes\n</think>\n\n", "So\nit is 4"],
        ),
        (
            THOUGHT,
            {"region": "think", "max_steps": 2, "min_tokens": 2},
            ["<think>\nhm\n", "yes\n</think>\n\n", "So\nit is 4"],
        ),
    ],
)
def test_limits_apply_to_the_region_alone(
    text: str, rules: dict[str, Any], steps: list[str]
) -> None:
    """Limits also apply where the thinking part was cut or is missing."""
    assert split(words(text), **rules) == steps


UNCLOSED = "<think>\nIt is. Wait, 4?\n\n**Final Answer**\n\n\\boxed{4}"


@pytest.mark.parametrize("opened", [False, True])
def test_thinking_that_an_answer_follows_without_a_mark_is_all_thinking(opened: bool) -> None:
    text = UNCLOSED.removeprefix("<think>\n") if opened else UNCLOSED
    marks = {"by": "reflection", "starts_in_thinking": opened}
    assert split(words(text), region="answer", **marks) == [text]
    for region in ("think", "all"):
        assert split(words(text), region=region, **marks)[1:] == [
            " Wait, 4?\n\n",
            "**Final Answer**\n\n\\boxed{4}",
        ]
    limits = {"max_tokens": 2, "max_steps": 3}
    assert split(words(text), region="answer", starts_in_thinking=opened, **limits) == [
        text
    ]  # the text has no answer


def test_only_the_first_close_ends_the_thinking() -> None:
    think = ("<think>", "</think>")
    assert find_thinking_end("a</think> b</think>", think, starts_in_thinking=True) == len(
        "a</think> "
    )
    assert find_thinking_end("a</think>\nb", think, starts_in_thinking=False) == len("a</think>\n")
    rules = StepSplitter()
    assert rules.prompt_opens_thinking("<|assistant|>\n<think>\n")
    assert not rules.prompt_opens_thinking("Explain <think> to me.\n")
    assert rules.is_thinking_after("a\n", prompt_opens_thinking=True)
    assert not rules.is_thinking_after("a\n</think>\n", prompt_opens_thinking=True)
    assert rules.is_thinking_after("<think>\na\n", prompt_opens_thinking=False)
    assert not rules.is_thinking_after("a\n", prompt_opens_thinking=False)


@pytest.mark.parametrize("pattern", ["(a+)+$", r"(\w+\s*)+:", "(?:a|a)*b", "(.*,)*x$"])
def test_no_pattern_hangs(pattern: str) -> None:
    """A backtracking matcher would take longer than the age of the universe for each pattern."""
    check_pattern(pattern)
    text = "a" * 20_000 + "\x00\n"
    assert split(words(text), by="pattern", pattern=pattern) == [text]


def test_a_pattern_counts_characters_and_knows_lines() -> None:
    text = "é: so\nStep 1 é\nstep 2 \U0001f600\nSTEP 3"
    parts = split(words(text), by="pattern", pattern="(?im)^step \\d")
    assert parts == ["é: so\n", "Step 1 é\n", "step 2 \U0001f600\n", "STEP 3"]


@pytest.mark.parametrize("pattern", ["(", r"(?=Step)", r"(a)\1", "(?<!x)y"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(
        ValueError, match=r"not a valid regular expression in RE2 syntax: .*first group"
    ):
        check_pattern(pattern)


PIECES = st.lists(st.text(alphabet="a \n\u00e9\U0001f600.;", min_size=1, max_size=4), max_size=30)
RULES = st.builds(
    StepSplitter,
    by=st.sampled_from(["line", "blank_line", "sentence", "step", "reflection"]),
    region=st.sampled_from(["all", "think", "answer"]),
    think=st.just(("a", ".")),
    min_tokens=st.integers(1, 5),
    max_tokens=st.none() | st.integers(5, 9),
    max_steps=st.none() | st.integers(1, 4),
)


@given(PIECES, RULES, st.booleans())
@example(
    [".", " ;", "\n", "a"], StepSplitter(region="answer", think=("a", "."), max_steps=1), False
)
def test_steps_join_to_the_text_and_end_on_tokens(
    pieces: list[str], rules: StepSplitter, opened: bool
) -> None:
    ids: Any = [piece.encode() for piece in pieces]
    text = "".join(pieces)
    steps = rules.split(ids, text, decode, starts_in_thinking=opened)  # type: ignore[arg-type]
    check_exact(ids, text, steps, decode)  # type: ignore[arg-type]
    if rules.max_steps is not None:
        assert len(steps) <= rules.max_steps + (rules.region != "all")
    elif rules.max_tokens is not None and rules.region == "all" and text.isascii():
        ends = (0, *(step.end for step in steps))
        assert all(b - a <= rules.max_tokens for a, b in itertools.pairwise(ends))


@given(st.lists(st.binary(min_size=1, max_size=3), max_size=30))
def test_bytes_that_are_no_text_are_split_exactly(pieces: list[bytes]) -> None:
    """Tokens of broken characters among newlines, which a policy may sample."""
    ids: Any = [piece.replace(b"\x00", b"\n") for piece in pieces]
    text = decode(ids)
    steps = split_steps(ids, text, find_newline_ends(text), decode)  # type: ignore[arg-type]
    assert "".join(step.text for step in steps) == text
    assert not steps or steps[-1].end == len(ids)


@pytest.mark.parametrize(
    "num_tokens", [10_000, 30_000, pytest.param(120_000, marks=pytest.mark.slow)]
)
def test_work_is_linear_in_the_length(num_tokens: int) -> None:
    """With 500 steps in 30,000 tokens, at most 25 tokens are decoded per token."""
    rng = random.Random(1)
    policy = str(bundled_model("policy"))
    text = PolicyText.load(policy, PromptParts())
    line = text.encode("Then 12 + 30 = 42 apples are left in the box .")
    newline = text.encode("\n")
    ids: list[int] = []
    while len(ids) < num_tokens:
        ids += [*(rng.choice(line) for _ in range(59)), *newline]
    work = 0

    def decode_and_count(part: Sequence[int]) -> str:
        nonlocal work
        work += len(part)
        return text.decode(part)

    whole = text.decode(ids)
    assert len(StepSplitter().split(ids, whole, decode_and_count)) == len(ids) // 60
    assert work < 25 * len(ids)
    for by in ("sentence", "reflection", "blank_line"):
        work = 0
        cut = StepSplitter(by=by, max_tokens=50).split(ids, whole, decode_and_count)  # type: ignore[arg-type]
        assert len(cut) > len(ids) // 60
        assert work < 60 * len(ids)
