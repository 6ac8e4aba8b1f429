"""The models of a job, prepared: all that their settings name looked up, and their engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import AUTHOR
from mclabel.data.readers.rows import file_rows
from mclabel.engines import Engine, EngineResources, Example, Policy, PolicySettings, make_engine
from mclabel.engines.settings import MAX_EXAMPLES
from mclabel.labeling.completers import CompleterSettings
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators import Completer
from mclabel.run.settings import RayConfig


@dataclass(frozen=True, kw_only=True)
class PreparedPolicy:
    """A policy whose settings are looked up, with the one engine that a job asks about it."""

    settings: PolicySettings
    engine: Engine
    """Not started: those that sample are made where they are to live."""

    def maker(self, seed: int) -> Callable[[], Engine]:
        """Makes an engine that samples, wherever it is called.

        Args:
            seed: seed of the run.
        """
        return partial(make_engine, self.settings, seed=seed)

    def resources(self, ray: RayConfig) -> EngineResources:
        """Return what an engine of a job takes of the cluster."""
        own = self.engine.resources()
        return own.replaced(num_cpus=ray.num_cpus, num_gpus=ray.num_gpus)


def prepare_policy(policy: PolicySettings, *, continues: bool = True) -> PreparedPolicy:
    """Look up all that the settings name: examples, and the model's commit.

    Args:
        policy: as it was configured.
        continues: whether the engine must continue prefixes, as of `make_engine`.

    Raises:
        ConfigError: the file of examples holds none, this machine lacks what the engine needs, or
            the engine does not continue prefixes.
        EngineError: the model cannot be had.
    """
    policy = with_examples(policy)
    engine = make_engine(policy, continues=continues)
    engine.check_environment()
    if (commit := engine.model_commit()) not in (None, policy.revision):
        policy = policy.model_copy(update={"revision": commit})
        engine = make_engine(policy, continues=continues)
    return PreparedPolicy(settings=policy, engine=engine)


@dataclass(frozen=True, kw_only=True)
class PreparedCompleter:
    """A model that rolls out."""

    settings: CompleterSettings
    """With its name, and with its cost where there are several."""
    policy: PreparedPolicy
    """The author's own, where it is the author."""


@dataclass(frozen=True, kw_only=True)
class PreparedModels:
    """The models of a labelling job."""

    author: PreparedPolicy
    """Writes the solutions."""
    completers: tuple[PreparedCompleter, ...] = ()
    """Roll out; without any, the author does."""

    @classmethod
    def of(
        cls,
        config: LabelConfig,
        prepare: Callable[[PolicySettings], PreparedPolicy] = prepare_policy,
    ) -> Self:
        """Look up what the settings of each model name; see `prepare_policy`.

        Args:
            config: configuration of the job.
            prepare: what is done with the settings of each.

        Raises:
            ConfigError: one of several completers has no cost, and its engine cannot tell.
        """
        author = prepare(config.policy)
        completers = []
        for number, settings in enumerate(config.completers):
            if "max_tokens" not in settings.model_fields_set:
                longest = {"max_tokens": config.policy.max_tokens}
                settings = settings.model_copy(update=longest)
            policy = author if settings.is_author else prepare(settings)
            update: dict[str, Any] = {"name": settings.called}
            if settings.cost is None and not all(
                completer.is_author for completer in config.completers
            ):
                update["cost"] = _parameters(policy.engine, number)
            own = policy.settings if isinstance(policy.settings, CompleterSettings) else settings
            named = own.model_copy(update=update)
            completers.append(PreparedCompleter(settings=named, policy=policy))
        return cls(author=author, completers=tuple(completers))

    @property
    def all(self) -> dict[str, PreparedPolicy]:
        """Every model by its name among the completers, the author first."""
        others = {
            completer.settings.called: completer.policy
            for completer in self.completers
            if not completer.settings.is_author
        }
        return {AUTHOR: self.author, **others}

    @property
    def rolling(self) -> tuple[Completer, ...]:
        """The completers as estimators see them, with their costs relative to the least."""
        costs = [completer.settings.cost or 1.0 for completer in self.completers]
        return tuple(
            Completer(
                name=completer.settings.called,
                cost=cost / min(costs),
            )
            for completer, cost in zip(self.completers, costs, strict=True)
        ) or (Completer(),)

    def makers(self, seed: int) -> dict[str, Callable[[], Policy]]:
        """Return makers of the engines of all completers but the author, by name.

        Args:
            seed: seed of the run.
        """
        return {name: model.maker(seed) for name, model in self.all.items() if name != AUTHOR}

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that the engines run on, whose versions a run records."""
        return tuple(
            package
            for model in self.all.values()
            for package in model.settings.engine.component.packages
        )

    def settled(self, config: LabelConfig) -> LabelConfig:
        """A configuration with the models' settings as they were looked up."""
        completers = [completer.settings for completer in self.completers]
        return config.model_copy(update={"policy": self.author.settings, "completers": completers})

    def check(self) -> None:
        """Look at every model, and see that their engines can share a worker.

        Raises:
            ConfigError: they cannot (`resources`), or the machine lacks what one needs.
            EngineError: a model cannot be had, or is none.
        """
        self.resources(RayConfig())
        for model in self.all.values():
            model.engine.check_model()

    def resources(self, ray: RayConfig) -> EngineResources:
        """Return what the engines of one worker take of the cluster: they share what the largest
        needs.

        Raises:
            ConfigError: one of several lies on more than one node, or they do not fit a GPU.
        """
        taken = [item.resources(ray) for item in self.all.values()]
        if len(taken) == 1:
            return taken[0]
        if any(item.bundles for item in taken):
            raise ConfigError(
                "completers: an engine over several nodes cannot share its worker with another "
                "model. Serve it, and use engine.kind=openai"
            )
        held = sum(item.engine.resources().gpu_memory for item in self.all.values())
        if held > 1 + 1e-9:  # shares are rounded
            raise ConfigError(
                f"completers: the models reserve {held:g} of a GPU's memory together "
                "(gpu_memory_utilization), which must be at most 1. Lower their shares, or serve "
                "one of them (mclabel serve, vllm serve) and set its engine.kind=openai"
            )
        return EngineResources(
            num_cpus=max(item.num_cpus for item in taken),
            num_gpus=max(item.num_gpus for item in taken),
        )


def _parameters(engine: Engine, number: int) -> float:
    num_parameters = engine.num_parameters()
    if num_parameters is None:
        raise ConfigError(
            f"completers.{number}: its engine does not report the number of parameters of the "
            f"model, which is the default of cost. Set completers.{number}.cost"
        )
    return float(num_parameters)


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
