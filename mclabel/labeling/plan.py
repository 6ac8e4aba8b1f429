"""What a labelling job would do, by its configuration alone; `preview` looks at the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mclabel.core.records import AUTHOR
from mclabel.engines import EngineResources, PolicySettings, make_engine
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators import strongest
from mclabel.labeling.policy import PreparedModels, PreparedPolicy, with_examples


@dataclass(frozen=True, kw_only=True)
class LabelPlan:
    """A labelling job, resolved as far as can be without a network."""

    config: LabelConfig
    models: PreparedModels
    """As far as they can be prepared without a network."""

    @property
    def resources(self) -> EngineResources:
        """What one engine takes of the cluster."""
        return self.models.resources(self.config.ray)

    def lines(self) -> list[tuple[str, str]]:
        """What to show: names and what is planned."""
        config = self.config
        solutions, split = config.solutions, config.split
        problems = config.problems.source
        if solutions.run is not None:
            problems = f"those of {solutions.run}"
            chosen = f"those of {solutions.run}, whose rollouts are reused"
        elif solutions.path is not None:
            chosen = f"given by {solutions.path}"
        elif solutions.balance is None:
            chosen = f"{solutions.per_problem} sampled of each problem"
        else:
            most = solutions.most_samples
            chosen = (
                f"{solutions.balance} right and {solutions.balance} wrong ones kept of each "
                f"problem, {solutions.per_problem} to {most} sampled"
            )
        if solutions.select is not None:
            chosen += f", those that {solutions.select} selects"
        limit = "" if split.max_steps is None else f", {split.max_steps} at most"
        return [
            ("problems", f"{problems}, in blocks of {config.block_problems}"),
            ("solutions", chosen),
            ("steps", f"by {split.by}, of {split.region}{limit}"),
            ("rollouts", config.estimator.summary),
            *self._models(),
            *self._completers(),
            ("an engine takes", _taken(self.resources)),
            ("Ray", config.ray.address),
            ("out", config.out),
        ]

    def _completers(self) -> Iterator[tuple[str, str]]:
        """Who rolls out, where it is not the policy alone."""
        if self.models.completers:
            rolling = self.models.rolling
            each = ", ".join(f"{one.name} (a token costs {one.cost:.3g})" for one in rolling)
            strong = rolling[strongest(rolling)].name if len(rolling) > 1 else None
            yield "rolled out by", each + (f"; {strong} is the strongest" if strong else "")
            if self.models.take_turns(self.config.completer_turns):
                yield "turns", "one model is loaded at a time"

    def _models(self) -> Iterator[tuple[str, str]]:
        """Of each model its name and its engine."""
        for name, one in self.models.all.items():
            whose = "" if name == AUTHOR else f"{name}'s "
            settings = one.settings
            revision = f"@{settings.revision}" if settings.revision else ""
            yield f"{whose}model", settings.model + revision
            yield f"{whose}engine", f"{settings.engine.kind}, {one.engine.place}"


def plan(config: LabelConfig) -> LabelPlan:
    """What a labelling job would do.

    Raises:
        DataError: the file of examples cannot be read.
    """
    models = PreparedModels.of(config, _prepared)
    return LabelPlan(config=models.settled(config), models=models)


def _prepared(policy: PolicySettings) -> PreparedPolicy:
    settings = with_examples(policy)
    return PreparedPolicy(settings=settings, engine=make_engine(settings))


def _taken(resources: EngineResources) -> str:
    text = f"{resources.num_cpus:g} CPUs"
    if resources.total_gpus:
        text += f", {resources.total_gpus:g} GPUs"
    return text + (", over as few nodes as have room" if resources.bundles else "")
