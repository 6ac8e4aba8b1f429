"""Which engine a configuration chooses, and what the rest of the house asks it before a start."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from mclabel.core.config.load import load_config
from mclabel.engines import ENGINES, EngineSettings, make_engine
from mclabel.engines.hub import weights_fingerprint
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import semantic_config
from mclabel.run.shards.manifest import versions

SERVER = "policy.engine.endpoints=[http://localhost:8000/v1]"


def config_of(*overrides: str) -> LabelConfig:
    return load_config(LabelConfig, None, ["out=x", *overrides])


def engine_of(*overrides: str) -> EngineSettings:
    return config_of(*overrides).policy.engine


@pytest.mark.parametrize("kind", ENGINES)
def test_every_engine_is_found_and_loads_nothing_when_it_is_made(kind: str) -> None:
    more = {"openai": [SERVER], "hosted": [SERVER, "policy.engine.model=x"]}.get(kind, [])
    policy = config_of(f"policy.engine={kind}", *more).policy
    engine = make_engine(policy, seed=3, continues=kind != "hosted")
    assert (policy.engine.kind, engine.policy, engine.seed) == (kind, policy, 3)
    assert engine.settings is policy.engine
    assert type(engine).Settings is type(policy.engine)


@pytest.mark.parametrize(
    "overrides",
    [
        ["policy.engine=vllm", "policy.engine.tensor_parallel=2"],
        ["policy.engine.tensor_parallel=2", "policy.engine=vllm"],
        ["policy.engine.tensor_parallel=2", "policy.engine.kind=vllm"],
        ["policy.engine={kind: vllm, tensor_parallel: 2}"],
    ],
)
def test_the_name_and_the_keys_of_an_engine_come_in_any_order(overrides: list[str]) -> None:
    chosen = engine_of(*overrides)
    assert chosen.kind == "vllm"
    assert chosen == engine_of("policy={engine: {kind: vllm, tensor_parallel: 2}}")
    assert engine_of(*overrides, "policy.temperature=0").identity() == {}


def test_an_engine_that_is_given_whole_or_by_name_replaces_an_earlier_one() -> None:
    whole = "policy.engine={kind: vllm, tensor_parallel: 4}"
    assert engine_of(whole, "policy.engine=hf").kind == "hf"
    assert engine_of("policy.engine=hf", "policy.engine.threads=3", whole) == engine_of(whole)
    assert (
        engine_of("policy.engine=vllm", "policy.engine=hf", "policy.engine.threads=3").kind == "hf"
    )


def test_labels_depend_on_what_changes_the_weights_and_not_on_the_engine() -> None:
    def identity(*overrides: str) -> object:
        return semantic_config(config_of(*overrides)).identity

    plain = identity()
    assert plain == identity("policy.engine=vllm", "policy.engine.dtype=bfloat16")
    assert plain == identity("policy.engine=openai", SERVER)
    quantized = identity("policy.engine=vllm", "policy.engine.quantization=fp8")
    assert quantized != plain
    assert quantized["policy"]["engine"] == {"quantization": "fp8"}  # type: ignore[index]
    assert identity("policy.engine={kind: scripted, num_steps: 9}") != identity(
        "policy.engine=scripted"
    )


def test_engines_with_a_model_are_known_by_its_weights_and_others_by_their_name() -> None:
    folder = make_engine(config_of().policy).model  # type: ignore[attr-defined]
    weights = f"weights:{weights_fingerprint(Path(folder))}"
    for kind in ("hf", "vllm"):
        assert make_engine(config_of(f"policy.engine={kind}").policy).model_identity() == weights
    assert make_engine(config_of("policy.engine=scripted").policy).model_identity() == "scripted"
    remote = config_of("policy.engine=vllm", "policy.model=Qwen/Qwen2.5-Math-7B").policy
    assert make_engine(remote).model_identity() == "Qwen/Qwen2.5-Math-7B"


def test_an_engine_names_the_packages_that_are_recorded() -> None:
    recorded = versions(engine_of("policy.engine=openai", SERVER).component.packages)
    assert recorded["openai"] == version("openai")
    assert "openai" not in versions(engine_of("policy.engine=hf").component.packages)
    assert versions(["no-such-package"]) == versions()
