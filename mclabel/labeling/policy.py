"""Prepared models of a job: their resolved settings and their engines.

Preparing a model reads its few-shot examples from their file, and resolves the model's commit. The
author is the model that writes the solutions; completers are the models that sample rollouts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import AUTHOR
from mclabel.data.readers.rows import read_file_rows
from mclabel.engines import Engine, EngineResources, Example, PolicySettings, make_engine
from mclabel.engines.settings import MAX_EXAMPLES
from mclabel.labeling.completers import CompleterSettings
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators import Completer
from mclabel.run.settings import RayConfig


@dataclass(frozen=True, kw_only=True)
class PreparedPolicy:
    """A policy with resolved settings, and an engine object that describes the policy's model."""

    settings: PolicySettings
    engine: Engine
    """Engine that is never started; the engines that sample are created in the worker processes."""

    def engine_factory(self, seed: int) -> Callable[[], Engine]:
        """Return a function that creates a sampling engine in the process that calls it.

        Args:
            seed: seed of the run.
        """
        return partial(make_engine, self.settings, seed=seed)

    def resources(self, ray: RayConfig) -> EngineResources:
        """Return the cluster resources that one engine of the job needs."""
        return self.engine.resources().with_overrides(num_cpus=ray.num_cpus, num_gpus=ray.num_gpus)


def prepare_policy(
    policy: PolicySettings, *, must_continue_prefixes: bool = True
) -> PreparedPolicy:
    """Resolve a policy's settings: read its few-shot examples, and look up the model's commit.

    Args:
        policy: settings as configured.
        must_continue_prefixes: True if the engine must be able to continue a given prefix token by
            token.

    Raises:
        ConfigError: this machine lacks something that the engine needs, or the engine cannot
            continue prefixes.
        DataError: the file of examples cannot be used.
        EngineError: the model cannot be found or downloaded.
    """
    policy = read_few_shot_examples(policy)
    engine = make_engine(policy, continues=must_continue_prefixes)
    engine.check_environment()
    if (commit := engine.model_commit()) not in (None, policy.revision):
        policy = policy.model_copy(update={"revision": commit})
        engine = make_engine(policy, continues=must_continue_prefixes)
    return PreparedPolicy(settings=policy, engine=engine)


@dataclass(frozen=True, kw_only=True)
class PreparedCompleter:
    """A model that samples rollouts."""

    settings: CompleterSettings
    """Settings with `name` filled in. `cost` is filled in as well, unless the author of the
    solutions is the only completer."""
    policy: PreparedPolicy
    """Prepared model. If the completer is the author, this is the same object as
    `PreparedModels.author`."""


@dataclass(frozen=True, kw_only=True)
class PreparedModels:
    """The models of a labelling job."""

    author: PreparedPolicy
    """Model that writes the solutions."""
    completers: tuple[PreparedCompleter, ...] = ()
    """Models that sample the rollouts; if empty, the author samples them."""

    @classmethod
    def prepare_all(
        cls,
        config: LabelConfig,
        prepare: Callable[[PolicySettings], PreparedPolicy] = prepare_policy,
    ) -> Self:
        """Prepare every model of a job by `prepare`, and fill in the completers' names and costs.

        Args:
            config: configuration of the job.
            prepare: function that prepares one model from its settings.

        Raises:
            ConfigError: a completer has no `cost`, and its engine does not report the model's
                number of parameters, which is the default cost.
        """
        author = prepare(config.policy)
        completers = []
        for number, settings in enumerate(config.completers):
            if "max_tokens" not in settings.model_fields_set:
                settings = settings.model_copy(update={"max_tokens": config.policy.max_tokens})
            policy = author if settings.is_author else prepare(settings)
            update: dict[str, Any] = {"name": settings.label_name}
            if settings.cost is None and not all(
                completer.is_author for completer in config.completers
            ):
                update["cost"] = _require_parameter_count(policy.engine, number)
            own = policy.settings if isinstance(policy.settings, CompleterSettings) else settings
            named = own.model_copy(update=update)
            completers.append(PreparedCompleter(settings=named, policy=policy))
        return cls(author=author, completers=tuple(completers))

    @property
    def by_name(self) -> dict[str, PreparedPolicy]:
        """Distinct models by name, the author first."""
        others = {
            completer.settings.label_name: completer.policy
            for completer in self.completers
            if not completer.settings.is_author
        }
        return {AUTHOR: self.author, **others}

    @property
    def estimator_completers(self) -> tuple[Completer, ...]:
        """Completers in the form that estimators use, with costs relative to the cheapest one."""
        costs = [completer.settings.cost or 1.0 for completer in self.completers]
        return tuple(
            Completer(
                name=completer.settings.label_name,
                cost=cost / min(costs),
            )
            for completer, cost in zip(self.completers, costs, strict=True)
        ) or (Completer(),)

    @property
    def packages(self) -> tuple[str, ...]:
        """Names of the packages that run the engines. A run records their versions."""
        return tuple(
            package
            for model in self.by_name.values()
            for package in model.settings.engine.component.packages
        )

    def with_resolved_settings(self, config: LabelConfig) -> LabelConfig:
        """Return a copy of a configuration with the resolved settings of its models."""
        completers = [completer.settings for completer in self.completers]
        return config.model_copy(update={"policy": self.author.settings, "completers": completers})

    def check_ready(self) -> None:
        """Check that every model can be loaded, and that the engines can share one worker.

        Raises:
            ConfigError: an engine spans several nodes although it shares a worker, the engines
                together do not fit into the GPU's memory, or the machine lacks something that an
                engine needs.
            EngineError: a model cannot be found, or is not a language model.
        """
        self.resources(RayConfig())
        for model in self.by_name.values():
            model.engine.check_model()

    def resources(self, ray: RayConfig) -> EngineResources:
        """Return the cluster resources of one worker. Its engines share them, so each amount is the
        largest that any engine needs.

        Raises:
            ConfigError: an engine that spans several nodes would share its worker, or the engines
                together do not fit into the GPU's memory.
        """
        taken = [item.resources(ray) for item in self.by_name.values()]
        if len(taken) == 1:
            return taken[0]
        if any(item.bundles for item in taken):
            raise ConfigError(
                "completers: an engine that spans several nodes cannot share its worker with "
                "another model. Serve the large model, and use engine.kind=openai for it"
            )
        held = sum(item.engine.resources().gpu_memory for item in self.by_name.values())
        if held > 1 + 1e-9:  # shares are rounded
            raise ConfigError(
                f"completers: together the models reserve {held:g} of a GPU's memory "
                "(gpu_memory_utilization), but at most 1 is possible. Lower their shares, or serve "
                "one model (mclabel serve, vllm serve) and set its engine.kind=openai"
            )
        return EngineResources(
            num_cpus=max(item.num_cpus for item in taken),
            num_gpus=max(item.num_gpus for item in taken),
        )


def _require_parameter_count(engine: Engine, completer_index: int) -> float:
    num_parameters = engine.num_parameters()
    if num_parameters is None:
        raise ConfigError(
            f"completers.{completer_index}: the engine does not report the model's number of "
            f"parameters, which is the default of cost. Set completers.{completer_index}.cost"
        )
    return float(num_parameters)


def read_few_shot_examples(policy: PolicySettings) -> PolicySettings:
    """Return the settings with `few_shot` read, if it names a file, and unchanged otherwise."""
    if not isinstance(policy.few_shot, str):
        return policy
    examples = []
    for place, row in read_file_rows(policy.few_shot):
        texts = {name: row.get(name) for name in ("problem", "solution")}
        if not all(isinstance(text, str) and text.strip() for text in texts.values()):
            raise DataError(
                f"{place}: an example of policy.few_shot needs a problem and a solution. Fill in "
                "both columns"
            )
        examples.append(Example(**texts))
        if len(examples) > MAX_EXAMPLES:
            raise DataError(
                f"{place}: policy.few_shot takes at most {MAX_EXAMPLES} examples, because all "
                "examples precede every problem in the prompt. Give a shorter file"
            )
    if not examples:
        raise DataError(
            f"policy.few_shot={policy.few_shot!r}: holds no examples. Add examples, or remove the "
            "key"
        )
    return policy.model_copy(update={"few_shot": examples})
