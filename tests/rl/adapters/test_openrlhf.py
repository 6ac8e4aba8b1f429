"""The reward function for OpenRLHF, and OpenRLHF's executor where the package is installed."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mclabel.domains.arith import bundled_model
from mclabel.rl import client
from mclabel.rl.adapters.openrlhf import make_reward_func
from mclabel.rl.client import RewardClient, RewardError, StepRewards
from tests.support.reward_server import RewardServer

PROMPT = "<|im_start|>user\n2 + 3?<|im_end|>\n<|im_start|>assistant\n"


def test_completions_are_cut_out_of_queries() -> None:
    with RewardServer() as server:
        reward_func = make_reward_func(
            RewardClient(server.url),
            problem_of=lambda prompt: prompt.split("user\n")[1].split("<|im_end|>")[0],
        )
        rewards = reward_func(
            [f"<s>{PROMPT}It is 5.\n<|im_end|>\n", f"{PROMPT}<|im_end|>"],
            [PROMPT, PROMPT],
            ["5", 5],
        )
    assert rewards == {
        "rewards": [1.0, 0.0],
        "scores": [1.0, 0.0],
        "extra_logs": {"refused": [0.0, 1.0], "masked": [0.0, 0.0]},
    }
    assert [item["problem"] for item in server.asked[0]] == ["2 + 3?"] * 2
    assert [item["completion"] for item in server.asked[0]] == ["It is 5.\n", ""]


def test_what_is_wrong_is_said_and_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT_S", 0.001)
    with RewardServer(lambda item: StepRewards(float("inf"))) as server:
        reward_func = make_reward_func(RewardClient(server.url))
        with pytest.raises(RewardError, match="not finite"):
            reward_func(["a b"], ["a"], ["b"])
        with pytest.raises(RewardError, match="does not contain its prompt"):
            reward_func(["b"], ["a"], ["b"])
    with pytest.raises(RewardError, match=r"127\.0\.0\.1:9"):
        make_reward_func(RewardClient("http://127.0.0.1:9"))(["a b"], ["a"], ["b"])
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 3, (
        "OpenRLHF itself logs them as information only"
    )


def test_its_executor_calls_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = pytest.importorskip("openrlhf.utils.agent", exc_type=ImportError)
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(bundled_model("policy")))
    prompt, text = "What is 2 + 3?\n", "2 + 3 = 5\n"
    ids = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]

    class Engine:
        async def generate(self, prompt_ids: list[int], *_: Any, **__: Any) -> Any:
            return SimpleNamespace(
                outputs=[SimpleNamespace(token_ids=ids, finish_reason="stop", logprobs=None)]
            )

    file = tmp_path / "rewards.py"
    end = tokenizer.eos_token
    file.write_text(
        "from mclabel.rl.adapters.openrlhf import make_reward_func\n"
        f"reward_func = make_reward_func(end_tokens=[{end!r}])\n"
    )
    with RewardServer() as server:
        monkeypatch.setenv("MCLABEL_REWARDS_URL", server.url)
        executor = agent.SingleTurnAgentExecutor([str(file)])
        output = asyncio.run(
            executor.execute(
                prompt, "5", SimpleNamespace(max_tokens=64, logprobs=None), 256, tokenizer, Engine()
            )
        )
    assert server.asked[0][0]["completion"].strip() == text.strip()
    assert output["reward"] == output["scores"] == 1.0
    made = [torch.tensor([value]) for value in (output["reward"], output["extra_logs"]["refused"])]
    assert [tensor.shape for tensor in made] == [(1,), (1,)], "as its SamplesGenerator makes them"
