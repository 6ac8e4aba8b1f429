"""The bundled policy in a real vLLM on CPU: the same model as in transformers.

The two engines share neither kernels nor random numbers, so samples are compared as
distributions, and logits, which involve no chance, number by number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from mclabel.answers import grade_completion
from mclabel.arith import bundled_model
from mclabel.arith.problems import generate
from mclabel.arith.program import Program, reference_solution
from mclabel.engines import PolicySettings
from mclabel.engines.hf import HfEngine
from mclabel.engines.text import PolicyText
from mclabel.records import Problem, Verdict
from mclabel.seeds import prefix_id, sampling_seed
from tests.support.needs_vllm import NEEDS_VLLM

if TYPE_CHECKING:
    from vllm import LLM

pytestmark = NEEDS_VLLM

MODEL = str(bundled_model("policy"))
NUM_SAMPLES = 4  # of each problem
POLICY = PolicySettings(model=MODEL, temperature=0.8, max_tokens=200, engine="hf")
MAX_Z = 4.0  # a false alarm in 16,000 runs
MAX_LOGPROB_ERROR = 1e-3


@dataclass(frozen=True, kw_only=True)
class _Sampled:
    """What one engine sampled, [problems, NUM_SAMPLES]."""

    right: NDArray[np.float64]
    num_tokens: NDArray[np.float64]
    """End token not counted."""


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; has to be set on a CPU
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # other jobs may hold core 0
        patch.setenv("OMP_NUM_THREADS", "1")  # on busy cores two threads are six times as slow
        patch.setenv("VLLM_NO_USAGE_STATS", "1")
        from vllm import LLM

        engine = LLM(
            MODEL,
            dtype="float32",
            enforce_eager=True,  # compiling costs more than these tests take
            enable_chunked_prefill=False,  # a split prefill kills the CPU engine if seeded
            max_model_len=512,
        )
        yield engine
        engine.llm_engine.engine_core.shutdown()


@pytest.fixture(scope="module")
def text() -> PolicyText:
    return PolicyText.load(MODEL, revision=None, template=None, system=None)


def test_vllm_and_hf_engines_sample_alike(
    llm: LLM, text: PolicyText, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pass@1 and length agree within noise.

    Pass@1 alone would say nothing of a policy that solves nearly nothing or everything.
    """
    problems = generate(150, seed=7, split="test")
    ours = asyncio.run(_sample_hf(problems))
    theirs = _sample_vllm(llm, text, problems)
    z_right = _paired_z(ours.right, theirs.right)
    z_length = _paired_z(ours.num_tokens, theirs.num_tokens)
    with capsys.disabled():
        print(
            f"\npass@1: hf {ours.right.mean():.3f}, vllm {theirs.right.mean():.3f}, "
            f"z {z_right:+.2f}; tokens: hf {ours.num_tokens.mean():.1f}, "
            f"vllm {theirs.num_tokens.mean():.1f}, z {z_length:+.2f}"
        )
    assert abs(z_right) < MAX_Z
    assert abs(z_length) < MAX_Z


def test_vllm_logprobs_are_those_of_transformers(llm: LLM, text: PolicyText) -> None:
    """Every token of worked solutions, and the greedy choice after them cut in half."""
    import vllm

    sequences = [_worked(text, problem) for problem in generate(6, seed=8, split="test")]
    sequences += [ids[: len(ids) // 2] for ids in sequences]
    params = vllm.SamplingParams(
        temperature=0, max_tokens=1, prompt_logprobs=1, logprobs=1, detokenize=False
    )
    outputs = llm.generate(_prompts(sequences), params, use_tqdm=False)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    for ids, output in zip(sequences, outputs, strict=True):
        with torch.inference_mode():
            expected = model(torch.tensor([ids])).logits[0].log_softmax(-1)  # [tokens, vocabulary]
        # Position i scores token i + 1; the first token of a prompt has no score.
        for i, token in enumerate(ids[1:]):
            logprob = output.prompt_logprobs[i + 1][token].logprob
            assert logprob == pytest.approx(expected[i, token].item(), abs=MAX_LOGPROB_ERROR)
        choice = output.outputs[0].token_ids[0]
        logprob = output.outputs[0].logprobs[0][choice].logprob
        assert logprob == pytest.approx(expected[-1, choice].item(), abs=MAX_LOGPROB_ERROR)
        # The same top token, unless two of them are as good as tied.
        assert expected[-1, choice] >= expected[-1].max() - MAX_LOGPROB_ERROR


def _sample_vllm(llm: LLM, text: PolicyText, problems: Sequence[Problem]) -> _Sampled:
    """Ends by what vLLM reads from the model's folder: no stop tokens are given."""
    import vllm

    prompts, params = [], []
    for problem in problems:
        for seed in _seeds(problem):
            prompts.append(text.prompt_ids(problem.text))
            params.append(
                vllm.SamplingParams(
                    temperature=POLICY.temperature,
                    max_tokens=POLICY.max_tokens,
                    seed=seed,
                    detokenize=False,
                )
            )
    outputs = [o.outputs[0] for o in llm.generate(_prompts(prompts), params, use_tqdm=False)]
    ids = [o.token_ids[:-1] if o.finish_reason == "stop" else o.token_ids for o in outputs]
    return _graded(problems, [text.decode(i) for i in ids], [len(i) for i in ids])


async def _sample_hf(problems: Sequence[Problem]) -> _Sampled:
    policy = HfEngine(POLICY)
    await policy.start()
    try:
        completions = await asyncio.gather(
            *(
                policy.sample(policy.prompt_ids(problem.text), (), seed=seed)
                for problem in problems
                for seed in _seeds(problem)
            )
        )
    finally:
        await policy.close()
    return _graded(problems, [c.text for c in completions], [len(c.ids) for c in completions])


def _seeds(problem: Problem) -> list[int]:
    root = prefix_id(problem.id, ())
    return [sampling_seed(0, problem.id, root, index) for index in range(NUM_SAMPLES)]


def _graded(
    problems: Sequence[Problem], texts: Sequence[str], num_tokens: Sequence[int]
) -> _Sampled:
    gold = [problem.answer for problem in problems for _ in range(NUM_SAMPLES)]
    grades = [grade_completion(text, answer)[1] for text, answer in zip(texts, gold, strict=True)]
    shape = (len(problems), NUM_SAMPLES)
    return _Sampled(
        right=np.array([g.verdict is Verdict.RIGHT for g in grades], float).reshape(shape),
        num_tokens=np.array(num_tokens, float).reshape(shape),
    )


def _paired_z(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Mean difference in standard errors, by problem: samples of a problem go together."""
    difference = a.mean(1) - b.mean(1)
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return float(difference.mean() / error) if error > 0 else 0.0


def _worked(text: PolicyText, problem: Problem) -> tuple[int, ...]:
    solution = reference_solution(Program.from_json(problem.meta["program"]))
    return text.prompt_ids(problem.text) + text.encode(solution)


def _prompts(sequences: Sequence[Sequence[int]]) -> list[dict[str, list[int]]]:
    return [{"prompt_token_ids": list(ids)} for ids in sequences]
