"""The policy of a job: all that its settings name looked up, and what its engine takes."""

from __future__ import annotations

from mclabel.config import RayConfig
from mclabel.data.readers.rows import file_rows
from mclabel.engines import EngineResources, Example, PolicySettings, make_engine
from mclabel.engines.settings import MAX_EXAMPLES
from mclabel.errors import DataError


def resolved_policy(policy: PolicySettings) -> PolicySettings:
    """The settings with all that they name looked up: examples, and the model's commit.

    Raises:
        ConfigError: the file of examples holds none, or this machine lacks what the engine needs.
        EngineError: the model cannot be had.
    """
    policy = with_examples(policy)
    engine = make_engine(policy)
    engine.check_environment()
    commit = engine.model_commit()
    return policy if commit is None else policy.model_copy(update={"revision": commit})


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


def resources_of(policy: PolicySettings, ray: RayConfig) -> EngineResources:
    """What an engine of a job takes of the cluster."""
    own = make_engine(policy).resources()
    return own.replaced(num_cpus=ray.num_cpus, num_gpus=ray.num_gpus)
