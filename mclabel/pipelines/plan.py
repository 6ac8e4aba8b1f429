"""What a labelling job would do, by its configuration alone; `preview` looks at the rest."""

from __future__ import annotations

from dataclasses import dataclass

from mclabel.config import LabelConfig
from mclabel.engines import EngineResources, make_engine
from mclabel.pipelines.policy import PreparedPolicy, with_examples


@dataclass(frozen=True, kw_only=True)
class LabelPlan:
    """A labelling job, resolved as far as can be without a network."""

    config: LabelConfig
    policy: PreparedPolicy
    """As far as it can be prepared without a network."""

    @property
    def resources(self) -> EngineResources:
        """What one engine takes of the cluster."""
        return self.policy.resources(self.config.ray)

    def lines(self) -> list[tuple[str, str]]:
        """What to show: names and what is planned."""
        config = self.config
        policy, solutions, split = config.policy, config.solutions, config.split
        if solutions.path is not None:
            chosen = f"given by {solutions.path}"
        elif solutions.balance is None:
            chosen = f"{solutions.per_problem} sampled of each problem"
        else:
            most = solutions.most_samples
            chosen = (
                f"{solutions.balance} right and {solutions.balance} wrong ones kept of each "
                f"problem, {solutions.per_problem} to {most} sampled"
            )
        limit = "" if split.max_steps is None else f", {split.max_steps} at most"
        return [
            ("problems", f"{config.problems.source}, in blocks of {config.block_problems}"),
            ("solutions", chosen),
            ("steps", f"by {split.by}, of {split.region}{limit}"),
            ("rollouts", config.estimator.summary),
            ("model", policy.model + (f"@{policy.revision}" if policy.revision else "")),
            ("engine", f"{policy.engine.kind}, {self.policy.engine.place}"),
            ("an engine takes", _taken(self.resources)),
            ("Ray", config.ray.address),
            ("out", config.out),
        ]


def plan(config: LabelConfig) -> LabelPlan:
    """What a labelling job would do.

    Raises:
        DataError: the file of examples cannot be read.
    """
    settings = with_examples(config.policy)
    policy = PreparedPolicy(settings=settings, engine=make_engine(settings))
    return LabelPlan(config=config.model_copy(update={"policy": settings}), policy=policy)


def _taken(resources: EngineResources) -> str:
    text = f"{resources.num_cpus:g} CPUs"
    if resources.total_gpus:
        text += f", {resources.total_gpus:g} GPUs"
    return text + (", over as few nodes as have room" if resources.bundles else "")
