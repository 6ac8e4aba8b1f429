"""The bundled policy writes functions, errs deliberately, and reads the same text as arith's."""

from __future__ import annotations

from collections import Counter

import pytest
from transformers import AutoTokenizer

from mclabel.domains import arith
from mclabel.domains.arith.verify import StepTruth
from mclabel.domains.pyarith import bundled_model
from mclabel.domains.pyarith.interpreter import run_solve
from mclabel.domains.pyarith.problems import Function, generate_problems
from mclabel.domains.pyarith.solutions import SolutionVerifier
from tests.arith.test_models import complete_problems

TOKENIZER = AutoTokenizer.from_pretrained(bundled_model("policy"))


def test_the_tokenizer_has_ariths_ids_first_and_one_for_an_indentation() -> None:
    old = AutoTokenizer.from_pretrained(arith.bundled_model("policy"))
    assert TOKENIZER.get_vocab().items() >= old.get_vocab().items()
    text = "Ada has 120 apples. It takes 7 // 2 = 3 \\boxed{3}"
    assert TOKENIZER(text)["input_ids"] == old(text)["input_ids"]
    ids = TOKENIZER("def solve(p):\n    ada = p")["input_ids"]
    pieces = ["def", " solve", "(", "p", ")", ":", "\n", "    ", "ada", " =", " p"]
    assert [TOKENIZER.decode([i]) for i in ids] == pieces


@pytest.mark.slow
def test_it_errs_by_misconception_and_not_always() -> None:
    problems = generate_problems(60, seed=11, split="test")
    completions = complete_problems("pyarith:policy", problems, 1, max_tokens=240)
    texts = [text for _, text in completions]
    right = [
        run_solve(text, p.gold["inputs"]) == tuple(p.gold["outputs"])
        for text, p in zip(texts, problems, strict=True)
    ]
    assert 0.2 < sum(right) / len(right) < 0.52
    truths = [
        SolutionVerifier(Function.from_json(p.meta["function"])).verify(text.splitlines(True))[-1]
        for text, p in zip(texts, problems, strict=True)
    ]
    # A wrong answer follows from a wrong step. A solution without a wrong step passes, unless it
    # was truncated.
    agree = [(t is StepTruth.RIGHT) == ok for t, ok in zip(truths, right, strict=True)]
    assert sum(agree) / len(agree) > 0.9
    assert Counter(truths)[StepTruth.LOGIC] > 0.6 * (len(truths) - sum(right))
