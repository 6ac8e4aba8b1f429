"""The bundled policy in a real vLLM on CPU: the same model as in transformers.

Logits, which involve no chance, are compared number by number; what is sampled is compared by whole
jobs (`test_engines_agree`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import AutoModelForCausalLM

from mclabel.core.records import Problem
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate
from mclabel.domains.arith.program import Program, reference_solution
from mclabel.engines.text import PolicyText
from tests.support.needs_vllm import NEEDS_VLLM

if TYPE_CHECKING:
    from vllm import LLM

pytestmark = NEEDS_VLLM

MODEL = str(bundled_model("policy"))
MAX_LOGPROB_ERROR = 1e-3


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


def _worked(text: PolicyText, problem: Problem) -> tuple[int, ...]:
    solution = reference_solution(Program.from_json(problem.meta["program"]))
    return text.prompt_ids(problem.text) + text.encode(solution)


def _prompts(sequences: Sequence[Sequence[int]]) -> list[dict[str, list[int]]]:
    return [{"prompt_token_ids": list(ids)} for ids in sequences]
