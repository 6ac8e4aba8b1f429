"""The bundled models load anywhere without changes, and reach the figures in their cards."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as trials
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from mclabel.answers import grade_completion
from mclabel.core.records import Problem, Verdict
from mclabel.core.seeds import derive_sampling_seed
from mclabel.domains.arith import BUNDLED, bundled_model
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.arith.program import Program
from mclabel.domains.arith.tokenizer import STEP
from mclabel.domains.arith.verify import verify_trace_states
from mclabel.engines import PolicySettings
from mclabel.engines.hf import HfEngine

TOKENIZER = AutoTokenizer.from_pretrained(bundled_model("policy"))


@trials(deadline=None)
@given(st.text())
@example("<|end|><|step|><|pad|>")
@example("\\boxed{")
@example("  12  \t½\x00\u202e\U0001f600")
def test_the_tokenizer_gives_back_any_text_without_special_tokens(text: str) -> None:
    ids = TOKENIZER(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert TOKENIZER.decode(ids) == text
    assert not set(ids) & set(TOKENIZER.all_special_ids)


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_models_are_small_llamas_with_a_step_token(name: str) -> None:
    folder = bundled_model(name)
    assert (folder / "model.safetensors").stat().st_size <= 3 * 10**6
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert "pass@1" in (folder / "README.md").read_text()
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) <= model.config.vocab_size
    assert tokenizer.convert_tokens_to_ids(STEP) == tokenizer.step_token_id
    assert tokenizer.get_vocab().items() >= TOKENIZER.get_vocab().items()


def complete_problems(
    model: str, problems: list[Problem], per_problem: int, **settings: Any
) -> list[tuple[Problem, str]]:
    """Return each problem with the texts that the model wrote for it."""

    async def sample() -> list[tuple[Problem, str]]:
        policy = HfEngine(PolicySettings(model=model, engine="hf", **settings))
        await policy.start()
        try:
            work = [
                policy.sample(
                    policy.prompt_ids(p.text), (), seed=derive_sampling_seed(0, p.id, "solution", i)
                )
                for p in problems
                for i in range(per_problem)
            ]
            completions = await asyncio.gather(*work)
        finally:
            await policy.close()
        return [
            (problems[n // per_problem], completion.text)
            for n, completion in enumerate(completions)
        ]

    return asyncio.run(sample())


def is_right(problem: Problem, text: str) -> bool:
    return grade_completion(text, problem.answer)[1].verdict is Verdict.RIGHT


@pytest.mark.slow
def test_reflective_errs_and_repairs_some_of_it() -> None:
    problems = generate_problems(60, seed=11, split="test", num_steps=(4, 7))
    traces = complete_problems("arith:reflective", problems, 1, temperature=0.8, max_tokens=850)
    assert 0.25 < sum(map(is_right, *zip(*traces, strict=True))) / len(traces) < 0.6
    states: Counter[str] = Counter()
    for problem, text in traces:
        program = Program.from_json(problem.meta["program"])
        states.update(verify_trace_states(program, text.split("\n")))
    assert 0.25 < states["recovered"] / states["error"] < 0.6
