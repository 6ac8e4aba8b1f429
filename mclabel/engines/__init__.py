"""What runs a policy, chosen by name: engines continue token ids under fixed sampling parameters.

An engine is one file here and one line in `ENGINES`, or a class in a package of your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from mclabel.core.boundary import Boundary
from mclabel.core.components import derived_class
from mclabel.engines.base import Engine, EngineStats, Policy, PolicyPreview
from mclabel.engines.checked import CheckedEngine
from mclabel.engines.resources import EngineResources
from mclabel.engines.settings import EngineSettings, Example, PolicySettings

ENGINES: Mapping[str, str] = {
    "hf": "mclabel.engines.hf:HfEngine",
    "vllm": "mclabel.engines.vllm:VllmEngine",
    "openai": "mclabel.engines.openai:OpenAIEngine",
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


def make_engine(policy: PolicySettings, *, seed: int = 0) -> Engine:
    """The engine of a policy, not started. A `partial` of this is sent to where it is to live.

    Args:
        policy: whose `engine` names it.
        seed: of the run.

    Raises:
        ConfigError: it is no class of an engine.
        ComponentError: an engine of somebody's own cannot be made.
    """
    target: type[Engine] = derived_class(policy.engine, Engine)
    if Boundary("engines", target).ours:
        return target(policy, seed=seed)
    return cast(Engine, CheckedEngine(target, policy, seed=seed))


def runs_model(policy: PolicySettings) -> bool:
    """Whether the engine of a policy runs `policy.model`, or a server of it."""
    from mclabel.engines.model import ModelEngine

    target = policy.engine.component
    return isinstance(target, type) and issubclass(target, ModelEngine)
