"""The device that is chosen where none is named: one rule for everything that computes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
import torch

from mclabel.core.config.keys import configuration_keys
from mclabel.engines import EngineResources, PolicySettings, make_engine
from mclabel.engines.devices import check_device, resolve_device
from mclabel.evaluate.search.job import SearchEvalConfig
from mclabel.judge.job import JudgeConfig, ScoreConfig
from mclabel.judge.score import ScorerJudge
from mclabel.labeling.config import LabelConfig
from mclabel.prm.config import TrainConfig
from mclabel.rl.config import RLConfig, ServeRewardsConfig
from mclabel.search.config import SearchConfig, ServeSearchConfig
from mclabel.search.prm_scorer import PrmScorer

CONFIGURATIONS = (
    *(JudgeConfig, LabelConfig, RLConfig, ScoreConfig, SearchConfig),
    *(SearchEvalConfig, ServeRewardsConfig, ServeSearchConfig, TrainConfig),
)


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_every_device_is_chosen_and_may_change_on_resuming(kind: type[LabelConfig]) -> None:
    devices = [
        key
        for key in configuration_keys(kind, built_in=True)
        if key.name.split(".")[-1] == "device" and key.components != ("vllm",)
    ]
    assert devices
    assert {(key.default, key.is_operational) for key in devices} == {("auto", True)}


def test_what_auto_stands_for() -> None:
    found = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto") == check_device("auto") == found
    assert resolve_device("cuda:3") == "cuda:3"


@pytest.mark.parametrize(
    ("changes", "has_gpu", "num_gpus"),
    [
        ({}, True, 1),
        ({}, False, 0),
        ({"device": "cpu"}, True, 0),
        ({"device": "cuda"}, False, 1),
    ],
)
def test_a_gpu_is_reserved_where_there_is_one(
    changes: dict[str, str], has_gpu: bool, num_gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    policy = PolicySettings.model_validate({"engine": {"kind": "hf", **changes}})
    judge = ScorerJudge.Settings(kind="scorer", prm="p", threshold=0.5, **changes)
    scorer = PrmScorer.Settings(kind="prm", prm="p", **changes)
    expected = EngineResources(num_cpus=1, num_gpus=num_gpus)
    assert make_engine(policy).resources() == expected
    assert ScorerJudge(judge).resources() == expected
    assert PrmScorer(scorer).resources() == expected
    served = scorer.model_copy(update={"url": "http://localhost:1"})
    assert PrmScorer(served).resources() == EngineResources()


@pytest.mark.ray
@pytest.mark.usefixtures("own_cluster")
def test_a_worker_takes_only_a_gpu_that_is_reserved_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node that says it has a GPU; Ray does not hide it from a worker without one."""
    ray.init("local", num_cpus=1, num_gpus=1, include_dashboard=False)

    def devices() -> tuple[str, ...]:  # pickled whole: a worker imports nothing else of this file
        torch.cuda.is_available = lambda: True
        with ThreadPoolExecutor(1) as thread:  # in one, engines load their models
            return tuple(thread.map(resolve_device, ("auto", "cuda")))

    worker = ray.remote(devices)
    found = {
        num_gpus: ray.get(worker.options(num_gpus=num_gpus).remote()) for num_gpus in (0, 0.5, 1)
    }
    assert found == {0: ("cpu", "cuda"), 0.5: ("cuda", "cuda"), 1: ("cuda", "cuda")}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == "cuda"  # the driver has what its machine has
