"""The policy of a job from its configuration, and what its engine takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from mclabel.arith import bundled_model
from mclabel.config import Example, PolicyConfig, RayConfig
from mclabel.config.policy import MAX_EXAMPLES
from mclabel.data.rows import file_rows
from mclabel.errors import ConfigError, DataError
from mclabel.labeling.resources import EngineResources, engine_resources
from mclabel.policy import Policy, SamplingParams
from mclabel.policy.hub import POLICY, pin_model


def resolved_policy(config: PolicyConfig) -> PolicyConfig:
    """The configuration with all that it names looked up: examples, and the model's commit.

    Raises:
        ConfigError: the file of examples holds none, or the environment no key.
        EngineError: the model cannot be had.
    """
    config = with_examples(config)
    if config.engine == "scripted":
        return config
    name = config.openai.api_key_env
    if config.engine == "openai" and name is not None and not os.environ.get(name):
        raise ConfigError(
            f"policy.openai.api_key_env={name}: the variable is not set. Export it here, and on "
            "every node that runs an engine"
        )
    commit = pin_model(resolve_model(config.model), revision=config.revision)
    return config if commit is None else config.model_copy(update={"revision": commit})


def check_policy(config: PolicyConfig) -> None:
    """See that a policy's model can be loaded, where that needs no download of its weights.

    Args:
        config: resolved.

    Raises:
        EngineError: its files are no good, or want code of their own to be run.
    """
    if config.engine == "scripted":
        return
    from mclabel.policy.text import check_model

    model = resolve_model(config.model)
    check_model(
        model,
        revision=config.revision,
        template=config.template,
        system=config.system,
        few_shot=_shown(config),
        trust_remote_code=config.trust_remote_code,
        weights=config.engine != "openai" and Path(model).is_dir(),
    )


def _shown(config: PolicyConfig) -> tuple[tuple[str, str], ...]:
    assert not isinstance(config.few_shot, str), "resolved_policy() first"
    return tuple((one.problem, one.solution) for one in config.few_shot)


def with_examples(config: PolicyConfig) -> PolicyConfig:
    """The configuration with the examples of its file in the file's place."""
    if not isinstance(config.few_shot, str):
        return config
    examples = []
    for place, row in file_rows(config.few_shot):
        texts = {name: row.get(name) for name in ("problem", "solution")}
        if not all(isinstance(text, str) and text.strip() for text in texts.values()):
            raise DataError(f"{place}: an example of policy.few_shot needs problem and solution")
        examples.append(Example(**texts))
        if len(examples) > MAX_EXAMPLES:
            raise DataError(
                f"{place}: policy.few_shot takes at most {MAX_EXAMPLES} examples, as all of them "
                "are put before every problem. Give a shorter file"
            )
    if not examples:
        raise DataError(f"policy.few_shot={config.few_shot!r}: holds no examples")
    return config.model_copy(update={"few_shot": examples})


def resolve_model(model: str, *, key: str = POLICY) -> str:
    """The folder of `arith:NAME`, any other model as it is.

    Args:
        model: what a configuration names.
        key: of the setting that does, for messages.
    """
    if not model.startswith("arith:"):
        return model
    try:
        return str(bundled_model(model.removeprefix("arith:")))
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error


def engine_device(config: PolicyConfig) -> Literal["cpu", "cuda"]:
    """Where an engine computes that computes itself."""
    if config.device != "auto":
        return config.device
    return "cuda" if config.engine == "vllm" else "cpu"


def resources_of(policy: PolicyConfig, ray: RayConfig) -> EngineResources:
    """What an engine of a job takes of the cluster."""
    return engine_resources(
        engine=policy.engine,
        device=engine_device(policy),
        threads=policy.threads,
        tensor_parallel=policy.tensor_parallel,
        pipeline_parallel=policy.pipeline_parallel,
        num_cpus=ray.num_cpus,
        num_gpus=ray.num_gpus,
    )


def sampling_params(config: PolicyConfig) -> SamplingParams:
    """How completions are sampled."""
    return SamplingParams(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        max_tokens=config.max_tokens,
        stop=tuple(config.stop),
        stop_token_ids=tuple(config.stop_token_ids),
    )


def policy_maker(config: PolicyConfig, *, seed: int) -> Callable[[], Policy]:
    """A function that makes the policy, to be called where its engine is to live.

    Args:
        config: resolved.
        seed: of the run.
    """
    sampling = sampling_params(config)
    if config.engine == "scripted":
        return partial(_scripted, sampling=sampling, **config.scripted)
    device = engine_device(config)
    common: dict[str, Any] = {
        "model": resolve_model(config.model),
        "sampling": sampling,
        "revision": config.revision,
        "template": config.template,
        "system": config.system,
        "few_shot": _shown(config),
        "trust_remote_code": config.trust_remote_code,
        "max_model_len": config.max_model_len,
        "max_live": config.max_live,
    }
    if config.engine == "openai":
        return partial(
            _openai,
            **common,
            endpoints=tuple(config.openai.endpoints),
            per_request_seeds=config.per_request_seeds is True,
            served_model=config.openai.model,
            api=config.openai.api,
            api_key_env=config.openai.api_key_env,
            timeout_s=config.openai.timeout_s,
            retry_s=config.openai.retry_s,
        )
    auto = "float32" if device == "cpu" else "auto"
    common |= {
        "threads": config.threads,
        "device": device,
        "dtype": auto if config.dtype == "auto" else config.dtype,
    }
    if config.engine == "hf":
        return partial(_hf, **common)
    seeds = config.per_request_seeds
    return partial(
        _vllm,
        **common,
        quantization=config.quantization,
        tensor_parallel=config.tensor_parallel,
        pipeline_parallel=config.pipeline_parallel,
        gpu_memory_utilization=config.gpu_memory_utilization,
        kv_cache_gib=config.kv_cache_gib,
        per_request_seeds=device == "cpu" if seeds == "auto" else seeds,
        run_seed=seed,
        engine_args=dict(config.engine_args),
    )


def _scripted(**arguments: Any) -> Policy:
    from mclabel.policy.scripted import ScriptedPolicy

    return ScriptedPolicy(**arguments)


def _hf(**arguments: Any) -> Policy:
    from mclabel.policy.hf import HfPolicy

    return HfPolicy(**arguments)


def _vllm(**arguments: Any) -> Policy:
    from mclabel.policy.vllm import VllmPolicy

    return VllmPolicy(**arguments)


def _openai(**arguments: Any) -> Policy:
    from mclabel.policy.openai import OpenAIPolicy

    return OpenAIPolicy(**arguments)
