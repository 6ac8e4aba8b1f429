"""Math-Verify's functions on top of this checker, also in TRL's reward with one import changed."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from mclabel.answers import math_verify
from mclabel.answers.math_verify import (
    LatexExtractionConfig,
    StringExtractionConfig,
    parse,
    verdict,
    verify,
)
from tests.support.judged import read_cases

HOSTILE = (
    "\\boxed{" + "(" * 400 + "1" + ")" * 400 + "}",
    "\\boxed{" + "\\frac{1}{" * 3000 + "2" + "}" * 3000 + "}",
    "\\boxed{9^{9^{9^{9^{9}}}}}",
    "\\boxed{(2^{9999999})! \\bmod 7}",
    "\\boxed{" + "{" * 20_000,
    "\\boxed{\\int_0^1 x^{x^{x^{x}}} \\sin(e^{x^{99}}) dx}",
)


@pytest.mark.parametrize(
    ("gold", "completion", "expected"),
    [
        (r"\frac{1}{3}", r"My answer is \boxed{\frac{1}{3}}", "right"),
        ("$72$", "Natalia sold 48 + 24 = 72. #### 72", "right"),
        ("She sold 48 + 24 clips.\n#### 72", "The answer is 71.", "wrong"),
        ("The answer is 5.", "5", "right"),
        ("So we get 5 + 3 = 8.", r"\boxed{8}", "right"),
        ("5 km", "The answer is 5 m.", "wrong"),
        ("(1, 2)", "(2, 1)", "wrong"),
        (r"\{1, 2\}", r"\boxed{\{2, 1\}}", "right"),
        (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}", "right"),
        ("x^2+1", "I do not know.", "wrong"),
        ("proof", r"\boxed{1}", "unknown"),
        ("", r"\boxed{1}", "unknown"),
        ("1", r"\boxed{(2^{9999999})! \bmod 7}", "unknown"),
    ],
)
def test_three_verdicts(gold: str, completion: str, expected: str) -> None:
    assert verdict(parse(gold), parse(completion)) == expected
    assert verify(parse(gold), parse(completion)) is (expected == "right")


def test_judged_cases() -> None:
    """The texts do not say whether they are answers or solutions, and nearly all are read."""
    cases = [case for name in ("cases.txt", "holdout.txt") for case in read_cases(name)]
    right = [verify(parse(case.gold), parse(case.answer)) for case in cases]
    missed = [case for case, verdict in zip(cases, right, strict=True) if verdict != case.right]
    assert len(missed) <= 0.01 * len(cases)
    assert all(case.right for case in missed)


def test_what_extraction_is_told_to_take() -> None:
    unmarked = "She has 3 cats and 2 dogs."
    assert parse(unmarked) == ["2"]
    assert parse(unmarked, [LatexExtractionConfig(try_extract_without_anchor=False)]) == []
    assert parse("The answer is (B).", [StringExtractionConfig()]) == ["b"]
    assert parse("The answer is 7.", [StringExtractionConfig()]) == []
    assert parse(None) == []  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"pred=7: must be a text, is a int"):
        parse(7, raise_on_error=True)  # type: ignore[arg-type]


def test_answers_go_to_other_processes_whole() -> None:
    sent = pickle.loads(pickle.dumps(parse("Half of it.\n#### 72")))
    assert verify(sent, "72")


def test_signatures_are_those_of_math_verify() -> None:
    theirs = pytest.importorskip("math_verify")
    for name in ("parse", "verify"):
        ours, other = (inspect.signature(getattr(one, name)) for one in (math_verify, theirs))
        assert list(ours.parameters) == list(other.parameters)
        for key in set(other.parameters) - {"extraction_config"}:
            assert ours.parameters[key].default == other.parameters[key].default
    assert verify("2", parse("2", [theirs.LatexExtractionConfig(boxed_match_priority=0)]))


def reward_of_trl() -> Callable[..., list[float | None]]:
    """Return TRL's `accuracy_reward` with the two changes to its imports that the docs describe."""
    rewards = pytest.importorskip("trl.rewards")
    source = (Path(rewards.__file__).parent / "accuracy_rewards.py").read_text()
    for theirs, ours in (
        ("from math_verify import", "from mclabel.answers.math_verify import"),
        (
            "from ..import_utils import is_math_verify_available",
            "is_math_verify_available = lambda: True",
        ),
    ):
        assert source.count(theirs) == 1
        source = source.replace(theirs, ours)
    module = ModuleType("accuracy_rewards_with_mclabel")
    exec(compile(source, module.__name__, "exec"), module.__dict__)
    assert module.verify is verify
    reward: Callable[..., list[float | None]] = module.accuracy_reward
    return reward


def rewards_of(reward: Callable[..., list[float | None]]) -> list[float | None]:
    texts = [r"\boxed{\frac{1}{3}}", r"\boxed{\frac{1}{2}}", r"\boxed{1}", "no idea", *HOSTILE]
    texts += [r"\boxed{\int_0^1 x^2 dx}"]  # needs a worker
    golds = [r"\frac{1}{3}", r"\frac{1}{3}", "proof", "4", *["\\sqrt{2}"] * len(HOSTILE), "1/3"]
    return reward([[{"role": "assistant", "content": text}] for text in texts], golds)


EXPECTED = [1.0, 0.0, None, 0.0, *[0.0] * len(HOSTILE), 1.0]


@pytest.mark.parametrize("where", ["main thread", "other thread", "event loop"])
def test_the_reward_of_trl_with_one_import_changed(where: str) -> None:
    reward = reward_of_trl()

    async def on_loop() -> list[float | None]:
        return rewards_of(reward)

    if where == "event loop":
        assert asyncio.run(on_loop()) == EXPECTED
    elif where == "other thread":
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(rewards_of, reward).result(timeout=300) == EXPECTED
    else:
        assert rewards_of(reward) == EXPECTED
