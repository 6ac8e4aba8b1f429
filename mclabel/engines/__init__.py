"""Engines, which run a policy (a language model with its sampling settings).

The setting `policy.engine` chooses an engine by its name. A built-in engine is one file in this
package and one line in `ENGINES`. A user's engine is a class in a package of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from mclabel.core.boundary import Boundary
from mclabel.core.components import load_component_class
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
"""Maps the name of an engine in a configuration to its class, as `module:Class`."""

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
    """Make the engine of a policy without starting it.

    The process that runs the engine calls this function.

    Args:
        policy: settings of the policy, whose field `engine` chooses the engine.
        seed: seed of the run.
        continues: True if the engine must be able to continue a solution from any prefix, and not
            only answer whole prompts.

    Raises:
        ConfigError: `policy.engine` names no engine class, or an engine that cannot continue
            prefixes although the job needs it.
        ComponentError: the constructor of a user's engine failed.
    """
    target: type[Engine] = load_component_class(policy.engine, Engine)
    if continues and not target.continues:
        raise ConfigError(
            f"policy.engine={policy.engine.kind}: this engine only answers whole prompts, which "
            "suits critics. This job must continue solutions from a prefix. Choose "
            "policy.engine=openai with a vLLM server, or policy.engine=vllm"
        )
    if Boundary("engines", target).is_built_in:
        return target(policy, seed=seed)
    return cast(Engine, CheckedEngine(target, policy, seed=seed))


def runs_model(policy: PolicySettings) -> bool:
    """Return whether a policy's engine runs the model in the setting `policy.model`.

    It may run the model itself or through a server.
    """
    from mclabel.engines.model import ModelEngine

    target = policy.engine.component
    return isinstance(target, type) and issubclass(target, ModelEngine)
