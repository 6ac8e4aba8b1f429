"""A critic: prompts that no text can break, strict reading of answers, settings that fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mclabel.core.errors import ConfigError, DataError
from mclabel.judge.critic import (
    FIRST_INDEX,
    TEMPLATES,
    CriticSettings,
    Vote,
    fill_critic_prompt,
    hash_template,
    make_user_template,
    parse_output,
)
from mclabel.judge.critic.parse import MAX_CHARACTERS

_FILE = Path(__file__).with_name("critic_outputs.jsonl")
CASES = [SimpleNamespace(**json.loads(line)) for line in _FILE.read_text().splitlines()]
"""Answers of critics with their votes. `why` is the reason of an unknown vote, or the property that
the case tests."""
PARSERS = sorted(FIRST_INDEX)


@pytest.mark.parametrize("case", CASES, ids=[f"{case.parser}: {case.name}" for case in CASES])
def test_answers_are_read_as_people_read_them(case: SimpleNamespace) -> None:
    vote = parse_output(case.text, case.parser, case.num_steps, case.truncated)
    assert vote == Vote(case.first_error, case.is_known, "" if case.is_known else case.why)


@pytest.mark.parametrize("case", [case for case in CASES if case.truncated and not case.is_known])
def test_a_cut_answer_is_never_no_error(case: SimpleNamespace) -> None:
    for end in range(len(case.text)):
        vote = parse_output(case.text[:end], case.parser, case.num_steps, truncated=True)
        assert not (vote.is_known and vote.first_error is None)


PIECES = st.sampled_from(
    (
        *("\\boxed{", "}", "{", "-1", "0", "3", "7", "correct", "incorrect", "\\text{", "\\"),
        *("<think>", "</think>", "<analysis_", "</analysis_2>", "<conclusion>", "</conclusion>"),
        *("Correct", "Incorrect", "\nStep ", "1", ":", " ", "\n", "-", "paragraph_", "<", ">"),
        *("Is the solution correct? ", "yes", "no", "\uff12", "\u7b2c", "\u6b65", "\u00b2", "/"),
    )
)


@given(
    st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=200),
    st.sampled_from(PARSERS),
    st.integers(1, 6),
    st.booleans(),
)
def test_any_text_gives_a_vote_within_the_steps(
    text: str, parser: str, num_steps: int, truncated: bool
) -> None:
    vote = parse_output(text, parser, num_steps, truncated)
    assert vote.is_known == (vote.reason == "")
    assert len(vote.reason) < 100
    if vote.first_error is not None:
        assert vote.is_known and 0 <= vote.first_error < num_steps


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        *("\\boxed{", "\\boxed{1}", "\\boxed", "{", "<think>", "</think>", "<", "< ", " ", "\n"),
        *("<analysis_1>", "<analysis_", "<conclusion>", "<conclusion>Incorrect", "</", "9", "-"),
        *("#", "Step 1", "Step 1: \\boxed{correct}\n", "\\", "\ufdfa", "Is the solution correct?"),
    ],
)
@pytest.mark.parametrize("parser", PARSERS)
def test_the_longest_texts_are_read_to_their_end(piece: str, parser: str) -> None:
    text = (piece * (MAX_CHARACTERS // len(piece)))[: MAX_CHARACTERS - 20] + "\n"
    parse_output(text, parser, 5, truncated=False)
    too_long = parse_output(text + "\\boxed{1}" * 3, parser, 5, truncated=False)
    assert too_long == Vote(None, is_known=False, reason="longer than 1,000,000 characters")


PROCESSBENCH_STEPS = """[Solution]

<paragraph_0>
3 + 4 = 7
</paragraph_0>

<paragraph_1>
7 * 2 = 15
</paragraph_1>

Examine"""
LESSONS_STEPS = PROCESSBENCH_STEPS.replace("_1>", "_2>").replace("_0>", "_1>")
VERDICTS_STEPS = "[Solution]\n\nStep 1: 3 + 4 = 7\nStep 2: 7 * 2 = 15\n\nExamine"


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("processbench", PROCESSBENCH_STEPS),
        ("lessons", LESSONS_STEPS),
        ("step_verdicts", VERDICTS_STEPS),
    ],
)
def test_a_prompt_holds_problem_steps_and_reference(name: str, steps: str) -> None:
    solution = ["3 + 4 = 7", "7 * 2 = 15\n"]
    plain = fill_critic_prompt(TEMPLATES[name], " What is (3 + 4) * 2? ", solution)
    shown = fill_critic_prompt(TEMPLATES[name], " What is (3 + 4) * 2? ", solution, "It is 14.")
    section = shown[shown.index("[Reference]") : shown.index("[Solution]")]
    assert shown.replace(section, "") == plain
    assert steps in plain and "\n\n[Problem]\n\nWhat is (3 + 4) * 2?\n\n[Solution]" in plain
    assert section.startswith("[Reference]\n\nIt is 14.\n\n")
    assert not re.search(r"\{\w+\}", plain.replace("{correct}", "").replace("{incorrect}", ""))
    assert "\\\n" not in plain


HOSTILE = st.lists(
    st.sampled_from(
        (
            *("<paragraph_1>", "</paragraph_0>", "< / Paragraph_2 >", "<", ">", "paragraph_0>"),
            *("\nStep 3: ", "Step 1:", "**Step 2:** ", "\n", "{steps}", "{problem}", "{}", "{0}"),
            *("<|im_end|>", "<think>", "</conclusion>", "{reference}", "\\1", "x < 3", "&lt;"),
        )
    ),
    max_size=8,
).map("".join)


@given(st.sampled_from(PARSERS), HOSTILE, st.lists(HOSTILE, min_size=1, max_size=4), HOSTILE)
def test_no_text_can_add_or_end_a_step(
    name: str, problem: str, steps: list[str], reference: str
) -> None:
    def find_marks(prompt: str) -> list[str]:
        tag = r"<\s*/?\s*(?:paragraph|analysis|conclusion|think)[^<>]*>|<\|\w+\|>"
        tag += r"|^Step \d+:" if name == "step_verdicts" else ""
        return re.findall(tag, prompt, re.IGNORECASE | re.MULTILINE)

    prompt = fill_critic_prompt(TEMPLATES[name], problem, steps, reference)
    harmless = fill_critic_prompt(TEMPLATES[name], "p", ["s"] * len(steps), "r")
    if name == "step_verdicts":
        prompt = prompt[prompt.rindex("[Solution]") :]
        harmless = harmless[harmless.rindex("[Solution]") :]
    assert find_marks(prompt) == find_marks(harmless)


def test_texts_are_put_in_literally_and_once() -> None:
    template = make_user_template("{problem}|{steps}|{answer}|{reference}", "lessons")
    prompt = fill_critic_prompt(template, "{steps} {0}", ["\\g<0> {problem} a<b"], "{steps}")
    assert prompt == (
        "{steps} {0}|<paragraph_1>\n\\g<0> {problem} a<b\n</paragraph_1>|{answer}|{steps}"
    )


def test_headings_of_the_solution_itself_give_way_to_those_of_the_prompt() -> None:
    steps = ["## Step 1: Add.\nstep 2) Then", "Step 7: Multiply.", "Stepping 3: on"]
    prompt = fill_critic_prompt(TEMPLATES["step_verdicts"], "p", steps)
    assert "\nStep 1: Add.\n[step 2] Then\nStep 2: Multiply.\nStep 3: Stepping 3: on\n" in prompt


BARE = make_user_template("{problem} {steps}", "lessons")
REFERRING = make_user_template("{problem} {steps} {reference}", "lessons")


@pytest.mark.parametrize(
    ("error", "message", "make", "arguments"),
    [
        (ConfigError, r"lacks \{problem\} and \{steps\}: it must contain", make_user_template,
         ("Find the error.", "lessons")),
        (ConfigError, "parser='xml': there is no such parser", make_user_template,
         ("{problem} {steps}", "xml")),
        (ConfigError, r"has no \{reference\}, but a reference was given", fill_critic_prompt,
         (BARE, "p", ["s"], "r")),
        (DataError, r"the problem has no reference\. Give one", fill_critic_prompt,
         (REFERRING, "p", ["s"])),
        (DataError, "the solution has no steps", fill_critic_prompt, (BARE, "p", [])),
    ],
)  # fmt: skip
def test_faults_of_templates_name_what_is_missing(
    error: type[Exception], message: str, make: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(error, match=message):
        make(*arguments)


def test_hashes_are_stable_and_change_with_the_wording() -> None:
    assert {name: hash_template(template) for name, template in TEMPLATES.items()} == {
        "processbench": "17d9fbb840ccb437",
        "lessons": "17b8f6cffbe895e0",
        "step_verdicts": "cda868a53b57fec0",
        "thinkprm": "ceaac6a8ed47650f",
    }
    first = TEMPLATES["processbench"]
    others = [
        replace(first, text=first.text.replace("first paragraph", "earliest paragraph")),
        replace(first, parser="lessons"),
        replace(first, reference_section="{reference}"),
        replace(first, reference_section=None),
    ]
    assert len({hash_template(template) for template in (first, *others)}) == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prompt": "lesons"}, "prompt='lesons': is neither a built-in prompt nor a template"),
        ({"prompt": "{problem}", "parser": "lessons"}, r"prompt: the template lacks \{steps\}"),
        ({"prompt": "{problem} {steps}"}, "parser=null: a template of your own needs a parser"),
        ({"parser": "lessons"}, "parser=lessons: applies to a template of your own"),
        ({"least_votes": 9}, "least_votes=9: must be at most most_votes=8"),
        ({"most_votes": 5_000}, "must be at most 1,024, not 5,000"),
        (
            {"prompt": "{problem} {steps}", "parser": "lessons", "use_reference": True},
            r"use_reference=true: your own template has no \{reference\}",
        ),
        (
            {"prompt": "{problem} {steps} {reference}", "parser": "lessons"},
            r"use_reference=false: your own template contains \{reference\}",
        ),
    ],
)
def test_settings_that_do_not_fit_together(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CriticSettings.model_validate(values)
