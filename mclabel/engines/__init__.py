"""Engines, which run a policy and are chosen by name: they continue token ids.

An engine is one file here and one line in `ENGINES`, or a class in a package of your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from mclabel.core.boundary import Boundary
from mclabel.core.components import derived_class
from mclabel.core.errors import ConfigError
from mclabel.engines.base import CheckedEngine, Engine, EngineStats, Policy, PolicyPreview
from mclabel.engines.devices import EngineResources
from mclabel.engines.settings import EngineSettings, Example, PolicySettings

ENGINES: Mapping[str, str] = {
    "hf": "mclabel.engines.hf:HfEngine",
    "vllm": "mclabel.engines.vllm:VllmEngine",
    "openai": "mclabel.engines.openai:OpenAIEngine",
    "hosted": "mclabel.engines.hosted:HostedEngine",
    "scripted": "mclabel.engines.scripted:ScriptedEngine",
}
"""Name in a configuration, and where the class stands."""

__all__ = [
    "ENGINES",
    "Engine",
    "EngineResources",
    "EngineSettings",
    "EngineStats",
    "Example",
    "Policy",
    "PolicyPreview",
    "PolicySettings",
    "make_engine",
    "runs_model",
]


def make_engine(policy: PolicySettings, *, seed: int = 0, continues: bool = True) -> Engine:
    """Make the engine of a policy, not started. A `partial` of this is sent to its process.

    Args:
        policy: the policy, whose `engine` names the engine.
        seed: seed of the run.
        continues: whether the engine must continue prefixes, and not only answer whole prompts.

    Raises:
        ConfigError: it is no class of an engine, or one that does not continue prefixes.
        ComponentError: an engine of somebody's own cannot be made.
    """
    target: type[Engine] = derived_class(policy.engine, Engine)
    if continues and not target.continues:
        raise ConfigError(
            f"policy.engine={policy.engine.kind}: only answers whole prompts, as critics ask them, "
            "and this job must continue solutions from a prefix. Choose policy.engine=openai with "
            "a server of vLLM, or policy.engine=vllm"
        )
    if Boundary("engines", target).is_built_in:
        return target(policy, seed=seed)
    return cast(Engine, CheckedEngine(target, policy, seed=seed))


def runs_model(policy: PolicySettings) -> bool:
    """Return whether a policy's engine runs `policy.model` or is a client of a server that does."""
    from mclabel.engines.model import ModelEngine

    target = policy.engine.component
    return isinstance(target, type) and issubclass(target, ModelEngine)
