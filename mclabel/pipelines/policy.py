"""The policy of a job, prepared: all that its settings name looked up, and its engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mclabel.config import RayConfig
from mclabel.data.readers.rows import file_rows
from mclabel.engines import Engine, EngineResources, Example, Policy, PolicySettings, make_engine
from mclabel.engines.settings import MAX_EXAMPLES
from mclabel.errors import DataError


@dataclass(frozen=True, kw_only=True)
class PreparedPolicy:
    """A policy whose settings are looked up, with the one engine that a job asks about it."""

    settings: PolicySettings
    engine: Engine
    """Not started: those that sample are made where they are to live."""

    def maker(self, seed: int) -> Callable[[], Policy]:
        """Makes an engine that samples, wherever it is called.

        Args:
            seed: of the run.
        """
        return partial(make_engine, self.settings, seed=seed)

    def resources(self, ray: RayConfig) -> EngineResources:
        """What an engine of a job takes of the cluster."""
        own = self.engine.resources()
        return own.replaced(num_cpus=ray.num_cpus, num_gpus=ray.num_gpus)


def prepare_policy(policy: PolicySettings) -> PreparedPolicy:
    """Look up all that the settings name: examples, and the model's commit.

    Raises:
        ConfigError: the file of examples holds none, or this machine lacks what the engine needs.
        EngineError: the model cannot be had.
    """
    policy = with_examples(policy)
    engine = make_engine(policy)
    engine.check_environment()
    if (commit := engine.model_commit()) not in (None, policy.revision):
        policy = policy.model_copy(update={"revision": commit})
        engine = make_engine(policy)
    return PreparedPolicy(settings=policy, engine=engine)


def with_examples(policy: PolicySettings) -> PolicySettings:
    """The settings with the examples of their file in the file's place."""
    if not isinstance(policy.few_shot, str):
        return policy
    examples = []
    for place, row in file_rows(policy.few_shot):
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
        raise DataError(f"policy.few_shot={policy.few_shot!r}: holds no examples")
    return policy.model_copy(update={"few_shot": examples})
