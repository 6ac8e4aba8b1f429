"""The examples in examples/trainers, called by the trainers themselves.

Each test needs only its trainer, the grader and pytest, and no other dependency of mclabel:
`pytest --noconftest -o addopts= tests/rl/adapters/test_grader_in_trainers.py`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mclabel.answers import verdict_on
from mclabel.core.errors import DataError

EXAMPLES = Path(__file__).parents[3] / "examples" / "trainers"
CASES = [
    (r"A half, so \boxed{0.5}.", "1/2", "right"),
    (r"It is \boxed{\frac{1}{3}}.", "1/2", "wrong"),
    (r"\boxed{\int_0^1 x^2 dx}", "1/3", "right"),  # needs a worker
    ("no idea", "4", "wrong"),
    (r"\boxed{1}", "proof", "unknown"),
    (r"\boxed{9**9**9**9}", "7", "unknown"),
    (r"\boxed{9^{9^{9^{9}}}}", "7", "unknown"),
    (r"\boxed{(2^{9999999})! \bmod 7}", "1", "unknown"),
    (r"\boxed{__import__('os').system('touch pwned')}", "7", "unknown"),
    ("1" * 100_000, "7", "wrong"),
    ("so 3 and " * 12_000 + r"\boxed{7}", "7", "right"),
    (r"\boxed{" * 5_000 + "7" + "}" * 5_000, "7", "right"),
    (r"\boxed{" + "{" * 20_000, "7", "wrong"),
]
"""Completion, gold and verdict of each case."""
TEXTS, GOLDS, VERDICTS = (list(column) for column in zip(*CASES, strict=True))
RIGHT = [float(verdict == "right") for verdict in VERDICTS]
UNKNOWN = [float(verdict == "unknown") for verdict in VERDICTS]


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def nothing_was_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "pwned").exists()


def test_one_verdict_from_any_thread() -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(verdict_on, TEXTS * 2, GOLDS * 2, timeout=300)) == VERDICTS * 2
    assert verdict_on("It is 5.", ["4", 5]) == "right"
    assert verdict_on("It is 5.", {"ground_truth": "5"}) == "right"
    assert verdict_on("It is 5.", None) == "unknown"
    for data in ({"unit": "s"}, object(), [["5"]]):
        with pytest.raises(
            DataError, match=r"gold=.+ must be a string, a number, or a list of them"
        ):
            verdict_on("It is 5.", data)


@pytest.mark.parametrize("where", ["main thread", "other thread", "event loop"])
def test_a_reward_function_of_trl(where: str) -> None:
    reward = load_example("trl_reward").right_answer
    expected = [None if unknown else right for right, unknown in zip(RIGHT, UNKNOWN, strict=True)]
    chats = [[{"role": "assistant", "content": text}] for text in TEXTS]

    async def on_loop() -> Any:
        return reward(prompts=TEXTS, completions=chats, answer=GOLDS)

    if where == "event loop":
        rewards = asyncio.run(on_loop())
    elif where == "other thread":
        with ThreadPoolExecutor(1) as thread:
            rewards = thread.submit(reward, TEXTS, GOLDS).result(timeout=300)
    else:
        rewards = reward(prompts=TEXTS, completions=TEXTS, answer=GOLDS, completion_ids=[], extra=1)
    assert rewards == expected


def test_compute_score_of_verl() -> None:
    score = load_example("verl_reward").compute_score
    with ThreadPoolExecutor(8) as threads:
        scores = list(threads.map(score, ["math"] * len(TEXTS), TEXTS, GOLDS, timeout=300))
    assert [row["score"] for row in scores] == RIGHT == [row["acc"] for row in scores]
    assert [row["unknown"] for row in scores] == UNKNOWN


class Written:
    """A tokenizer whose ids are characters."""

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids.tolist()))


def row_of_verl(text: str, gold: str) -> Any:
    import numpy as np
    import torch
    from tensordict import TensorDict
    from verl import DataProto

    ids = torch.tensor([[ord(sign) for sign in text]])
    tensors = {
        "prompts": ids[:, :1],
        "responses": ids,
        "attention_mask": torch.ones(1, ids.shape[1] + 1, dtype=torch.long),
    }
    columns: dict[str, Any] = {
        "data_source": "math",
        "reward_model": {"ground_truth": gold},
        "extra_info": {},
    }
    return DataProto(
        batch=TensorDict(tensors, batch_size=1),
        non_tensor_batch={name: np.array([value], dtype=object) for name, value in columns.items()},
    )


def configured_for_verl(manager: str) -> Any:
    verl = pytest.importorskip("verl", exc_type=ImportError)
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer/config"), "1.3"):
        return compose(
            "ppo_trainer",
            [
                "actor_rollout_ref.model.path=unused",
                "reward.num_workers=1",
                f"reward.reward_manager.name={manager}",
                f"reward.custom_reward_function.path={EXAMPLES / 'verl_reward.py'}",
            ],
        )


@pytest.mark.parametrize(
    "name", ["naive", "dapo", "gdpo", pytest.param("remote", marks=pytest.mark.ray)]
)
def test_managers_of_verl_call_it(name: str) -> None:
    config = configured_for_verl(name)
    import ray
    from verl.trainer.ppo.reward import load_reward_manager

    async def scored() -> list[Any]:
        return await asyncio.gather(
            *map(
                load_reward_manager(config, Written()).run_single,
                [row_of_verl(text, gold) for text, gold, _ in CASES],
            )
        )

    if name == "remote":
        ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        scores = asyncio.run(scored())
    finally:
        ray.shutdown()
    assert [row["reward_score"] for row in scores] == RIGHT
    assert [row["reward_extra_info"]["unknown"] for row in scores] == UNKNOWN


def test_the_alarm_of_verl_leaves_the_grader_whole() -> None:
    """The older manager grades in the main thread, where verl's alarm may interrupt it."""
    config = configured_for_verl("naive")
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.workers.reward_manager.naive import NaiveRewardManager

    score = get_custom_reward_fn(config)
    patient = NaiveRewardManager(Written(), 0, score, compute_score_timeout=300)
    assert [float(patient(row_of_verl(text, gold)).sum()) for text, gold, _ in CASES] == RIGHT
    slow = row_of_verl(r"\boxed{\int_0^1 (x^2 + \sin(x)^2 + \cos(x)^2) dx}", "4/3")
    assert (
        float(NaiveRewardManager(Written(), 0, score, compute_score_timeout=0.01)(slow).sum()) == 0
    )
    assert float(patient(slow).sum()) == 1


def test_a_task_of_verifiers() -> None:
    vf = pytest.importorskip("verifiers.v1")
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask

    module = load_example("verifiers_task")

    def make_task(text: str, gold: str) -> tuple[Any, Any]:
        task = module.AnswerTask(module.AnswerData(prompt="?", answer=gold))
        trace = Trace(
            task=TraceTask(type="AnswerTask", data=task.data),
            agent=AgentInfo(config=vf.AgentConfig()),
            nodes=[MessageNode(message=vf.AssistantMessage(content=text), sampled=True)],
        )
        return task, trace

    pairs = [make_task(text, gold) for text, gold, _ in CASES]

    async def scored() -> None:
        await asyncio.gather(*(task.score(trace) for task, trace in pairs))

    asyncio.run(scored())
    assert [trace.reward for _, trace in pairs] == RIGHT
    assert [trace.metrics["unknown"] for _, trace in pairs] == UNKNOWN
    assert [task.data.answer for task in list(module.AnswerTaskset(vf.TasksetConfig()))] == [
        "5",
        "1/6",
    ]


def test_a_rubric_of_verifiers() -> None:
    pytest.importorskip("verifiers.legacy", reason="verifiers 0.3, which has rubrics, is missing")
    from verifiers.types import AssistantMessage  # the type of completions in real rollouts

    environment = load_example("verifiers_rubric").load_environment(
        [{"question": "?", "answer": gold} for gold in GOLDS]
    )
    states = [
        {"completion": [AssistantMessage(content=text)], "trajectory": [], "prompt": "?",
         "answer": gold, "input": {"answer": gold}, "task": "math", "info": {}}
        for text, gold, _ in CASES
    ]  # fmt: skip
    asyncio.run(environment.rubric.score_group(states))
    assert [state["reward"] for state in states] == RIGHT
    assert [state["metrics"]["unknown"] for state in states] == UNKNOWN


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_scorer_of_inspect_ai(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    inspect_ai = pytest.importorskip("inspect_ai")
    if backend == "trio":
        pytest.importorskip("trio")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    monkeypatch.setenv("INSPECT_ASYNC_BACKEND", backend)

    def log_of(task: Any, outputs: dict[str, str]) -> Any:
        def answer_message(messages: Any, *_: Any) -> Any:
            model_output = ModelOutput.from_content("mockllm/model", outputs[messages[-1].text])
            model_output.usage = ModelUsage()  # otherwise a tokenizer is downloaded to count tokens
            return model_output

        (log,) = inspect_ai.eval(
            task,
            model=get_model("mockllm/model", custom_outputs=answer_message),
            log_dir=str(tmp_path / "logs"),
            display="none",
        )
        assert log.status == "success", log.error
        return log

    module = load_example("inspect_scorer")
    outputs = {str(number): text for number, text in enumerate(TEXTS)}
    log = log_of(
        inspect_ai.Task(
            dataset=[Sample(input=str(k), target=[gold, "none"]) for k, gold in enumerate(GOLDS)],
            scorer=module.right_answer(),
        ),
        outputs,
    )
    values = [
        "unknown" if score.value != score.value else score.value
        for score in [sample.scores["right_answer"] for sample in log.samples]
    ]
    assert values == [{"right": "C", "wrong": "I"}.get(verdict, verdict) for verdict in VERDICTS]
    assert math.isclose(
        log.results.scores[0].metrics["accuracy"].value, sum(RIGHT) / (len(CASES) - sum(UNKNOWN))
    )

    first, second = (str(sample.input) for sample in module.answers().dataset)
    log = log_of(module.answers(), {first: r"\boxed{6}", second: "It is 1/6."})
    assert [sample.scores["right_answer"].value for sample in log.samples] == ["I", "C"]
