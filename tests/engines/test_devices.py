"""The engine and the device that a configuration selects, before any engine starts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest
import ray
import torch

from mclabel.core.config.keys import list_configuration_keys
from mclabel.core.config.load import load_config
from mclabel.engines import EngineResources, EngineSettings, PolicySettings, make_engine
from mclabel.engines.devices import check_device, resolve_device
from mclabel.judge.job import JudgeConfig, ScoreConfig
from mclabel.judge.score import ScorerJudge
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import make_semantic_config
from mclabel.prm.config import TrainConfig
from mclabel.rl.config import ServeRewardsConfig
from mclabel.run.shards.manifest import collect_package_versions
from mclabel.search.config import SearchConfig, ServeSearchConfig
from mclabel.search.prm_scorer import PrmScorer

CONFIGURATIONS = (
    *(JudgeConfig, LabelConfig, ScoreConfig, SearchConfig),
    *(ServeRewardsConfig, ServeSearchConfig, TrainConfig),
)


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_every_device_is_chosen_and_may_change_on_resuming(kind: type[LabelConfig]) -> None:
    devices = [
        key
        for key in list_configuration_keys(kind, built_in=True)
        if key.name.split(".")[-1] == "device" and key.components != ("vllm",)
    ]
    assert devices
    assert {(key.default, key.is_operational) for key in devices} == {("auto", True)}


def test_what_auto_stands_for() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto") == check_device("auto") == device
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
    assert (
        PrmScorer(scorer.model_copy(update={"url": "http://localhost:1"})).resources()
        == EngineResources()
    )


@pytest.mark.ray
@pytest.mark.usefixtures("own_cluster")
def test_a_worker_takes_only_a_gpu_that_is_reserved_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node declares a GPU, which Ray does not hide from a worker without a GPU."""
    ray.init("local", num_cpus=1, num_gpus=1, include_dashboard=False)

    # pickled by value: a worker imports nothing else from this file
    def resolve_devices() -> tuple[str, ...]:
        torch.cuda.is_available = lambda: True
        with ThreadPoolExecutor(1) as thread:  # engines load their models in a thread
            return tuple(thread.map(resolve_device, ("auto", "cuda")))

    worker = ray.remote(resolve_devices)
    devices_by_share = {
        num_gpus: ray.get(worker.options(num_gpus=num_gpus).remote()) for num_gpus in (0, 0.5, 1)
    }
    assert devices_by_share == {0: ("cpu", "cuda"), 0.5: ("cuda", "cuda"), 1: ("cuda", "cuda")}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == "cuda"  # the driver may use the GPU of its machine


SERVER = "policy.engine.endpoints=[http://localhost:8000/v1]"


def config_of(*overrides: str) -> LabelConfig:
    return load_config(LabelConfig, None, ["out=x", *overrides])


def engine_of(*overrides: str) -> EngineSettings:
    return config_of(*overrides).policy.engine


WHOLE = "policy.engine={kind: vllm, tensor_parallel: 2}"


@pytest.mark.parametrize(
    ("overrides", "same"),
    [
        # The name and the keys of an engine come in any order.
        (["policy.engine=vllm", "policy.engine.tensor_parallel=2"], WHOLE),
        (["policy.engine.tensor_parallel=2", "policy.engine=vllm"], WHOLE),
        (["policy.engine.tensor_parallel=2", "policy.engine.kind=vllm"], WHOLE),
        (["policy={engine: {kind: vllm, tensor_parallel: 2}}"], WHOLE),
        # An engine that is given whole or by name replaces an earlier one.
        (["policy.engine=hf", "policy.engine.threads=3", WHOLE], WHOLE),
        ([WHOLE, "policy.engine=hf"], "policy.engine=hf"),
        (
            ["policy.engine=vllm", "policy.engine=hf", "policy.engine.threads=3"],
            "policy.engine={kind: hf, threads: 3}",
        ),
    ],
)
def test_overrides_choose_one_engine(overrides: list[str], same: str) -> None:
    assert engine_of(*overrides) == engine_of(same)


def test_labels_depend_on_what_changes_the_weights_and_not_on_the_engine() -> None:
    def compute_identity(*overrides: str) -> object:
        return make_semantic_config(config_of(*overrides)).identity

    plain = compute_identity()
    assert plain == compute_identity("policy.engine=vllm", "policy.engine.dtype=bfloat16")
    assert plain == compute_identity("policy.engine=openai", SERVER)
    quantized = compute_identity("policy.engine=vllm", "policy.engine.quantization=fp8")
    assert quantized != plain
    assert quantized["policy"]["engine"] == {"quantization": "fp8"}  # type: ignore[index]
    assert compute_identity("policy.engine={kind: scripted, num_steps: 9}") != compute_identity(
        "policy.engine=scripted"
    )


def test_engines_without_a_folder_of_a_model_are_known_by_their_name() -> None:
    assert make_engine(config_of("policy.engine=scripted").policy).model_identity() == "scripted"
    remote = config_of("policy.engine=vllm", "policy.model=Qwen/Qwen2.5-Math-7B").policy
    assert make_engine(remote).model_identity() == "Qwen/Qwen2.5-Math-7B"


def test_an_engine_names_the_packages_that_are_recorded() -> None:
    recorded = collect_package_versions(
        engine_of("policy.engine=openai", SERVER).component.packages
    )
    assert recorded["openai"] == version("openai")
    assert "openai" not in collect_package_versions(
        engine_of("policy.engine=hf").component.packages
    )
    assert collect_package_versions(["no-such-package"]) == collect_package_versions()
