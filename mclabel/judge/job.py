"""Runs a judging job from its configuration. It reads solutions, asks a judge about the first error
of each, and writes the judge's opinions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field, model_validator

from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.settings import MAX_SECONDS, OPERATIONAL, Chosen, Seed, Settings, at_most
from mclabel.engines import PolicySettings, runs_model
from mclabel.engines.devices import EngineResources
from mclabel.engines.settings import name_section_in_errors
from mclabel.judge import JUDGES
from mclabel.judge.base import Judge, JudgeSettings, find_judge_class, make_judge
from mclabel.judge.opinions import read_judged_input
from mclabel.judge.task import AnswerKey, JudgeTask, read_recorded_answers
from mclabel.prm.scoring.items import no_solutions_message
from mclabel.prm.scoring.scorer import ScorerSettings
from mclabel.run.run import RunOutput, make_location_absolute, run_task
from mclabel.run.settings import BudgetConfig, RayConfig
from mclabel.run.shards.manifest import (
    MANIFEST,
    SemanticConfig,
    collect_package_versions,
    describe_differences,
    read_manifest,
)
from mclabel.run.shards.opinions import TASK, iter_opinion_rows
from mclabel.run.shards.rejects import read_rejects
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState

MAX_BLOCK = 100_000
"""Maximum number of solutions in a block."""


class RunsInProcess(Settings):
    """Settings of a job that runs in this process unless the user names a Ray cluster."""

    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig(address="none")

    @model_validator(mode="before")
    @classmethod
    def _run_in_process_by_default(cls, given_settings: Any) -> Any:
        ray = given_settings.get("ray") if isinstance(given_settings, dict) else None
        return (
            {**given_settings, "ray": {"address": "none", **ray}}
            if isinstance(ray, dict)
            else given_settings
        )


class ScoreConfig(ScorerSettings, RunsInProcess):
    """A job that scores solutions with a PRM."""

    solutions: Annotated[str, OPERATIONAL]
    """Solutions: a file, or the folder or URL of a run of `mclabel label`."""
    out: Annotated[str | None, OPERATIONAL] = None
    """Output: a .jsonl file, or the folder or URL of a run of opinions; null prints JSON lines."""
    block_solutions: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(256, ge=1)
    """Number of solutions in a block, the unit of work. A killed block is scored again."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first unusable row or problem instead of skipping it."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()


def _make_default_judge() -> JudgeSettings:
    from mclabel.judge.symbolic.judge import SymbolicJudge

    return SymbolicJudge.Settings()


class JudgeConfig(RunsInProcess):
    """Settings of a job that asks a judge for opinions on the steps of solutions."""

    solutions: Annotated[str, OPERATIONAL]
    """Solutions: a file, or the folder or URL of a run of `mclabel label`."""
    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. The same path resumes an interrupted run."""
    judge: Annotated[JudgeSettings, Chosen("judges", default="symbolic")] = Field(
        default_factory=_make_default_judge
    )
    """Judge, which gives an opinion on the first error."""
    answers: Annotated[str | None, OPERATIONAL] = None
    """Earlier run of the same judge. Its answers to the same prompts are reused."""
    seed: Seed = 0
    """Random seed for sampling."""
    block_solutions: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(64, ge=1)
    """Number of solutions in a block, the unit of work."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, le=MAX_SECONDS)
    """Seconds between two writes of a journal. A killed engine loses at most the work of this time.
    """
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first unusable row or problem instead of skipping it."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()


def judge(
    config: JudgeConfig,
    on_state: Callable[[JobState], None] = lambda state: None,
    *,
    accept_changes: bool = False,
) -> JobReport:
    """Ask a judge for the first error of every solution of a file or a run, or resume such a job.

    Args:
        config: configuration of the job.
        on_state: function that is called often with the state of the job.
        accept_changes: True to accept input that changed since the job began: changed solutions are
            judged again, and removed solutions are left out. If False, a changed input is an error.

    Raises:
        ConfigError: there is no such judge, or something that the judge needs is missing.
        DataError: the input cannot be read, or no solution can be judged. With `strict`, also if a
            single row cannot be judged.
        ShardError: `out` holds another run, or the store fails.
    """
    if make_location_absolute(config.out) == make_location_absolute(config.solutions):
        raise ConfigError(
            f"-o {config.out}: must not be the run that is judged. Give another folder"
        )
    run = RunOutput.inspect(config.out)
    target = find_judge_class(config.judge)
    solutions = read_judged_input(
        config.solutions, strict=config.strict, split=target.split_rule(config.judge)
    )
    target.check_input(config.judge, lambda: (solution.problem for solution in solutions))
    settings = _resolve_judge_settings(config, run.recorded_config)
    own = make_judge(settings, seed=config.seed)
    own.check_ready()
    semantic = _collect_semantic_inputs(config, settings, own)
    run.check_config(semantic)
    ray = config.ray
    served = {
        key: name
        for key, policy in _find_policy_settings(config).items()
        if (name := policy.engine.served_model_name) is not None
    }

    def compute_resources() -> EngineResources:
        return own.resources().with_overrides(num_cpus=ray.num_cpus, num_gpus=ray.num_gpus)

    task = JudgeTask(
        make_judge=partial(
            make_judge,
            settings,
            seed=config.seed,
            num_cpus=ray.num_cpus if ray.address == "none" else compute_resources().num_cpus,
        ),
        source=config.solutions,
        provenance=run.shard_metadata(
            versions=collect_package_versions(),
            input={"solutions": config.solutions},
            served=served,
            asked=own.prompt_inputs(),
        ),
        strict=config.strict,
        answers=_read_earlier_answers(config, semantic, served),
    )
    report = run_task(
        task,
        run,
        solutions,
        config,
        resources=compute_resources,
        block_items=config.block_solutions,
        journal_s=config.journal_s,
        on_state=on_state,
        accept_changes=accept_changes,
    )
    store = Store(config.out)
    if not report.num_blocks_left and next(iter_opinion_rows(store), None) is None:
        raise DataError(no_solutions_message(config.solutions, read_rejects(store)))
    return report


def describe_judge(config: JudgeConfig) -> str:
    """Return a text that names the judge of a job and its models.

    If the user has not chosen a judge, the text lists the judges instead.
    """
    name = config.judge.kind
    if "judge" not in config.model_fields_set:
        return (
            f"The judge is {name}, since none is chosen. Choose one with "
            f"{', '.join(f'judge={choice}' for choice in JUDGES)} or judge=module:Class"
        )
    words = f"The judge is {name}"
    for key, policy in _find_policy_settings(config).items():
        asked = policy.model
        if not runs_model(policy):
            kind, served = policy.engine.kind, policy.engine.served_model_name
            asked = served or f"the engine {kind}, which does not run judge.{key}.model"
        words += f". It asks {asked}"
    return words


def _find_policy_settings(config: JudgeConfig) -> dict[str, PolicySettings]:
    """Return the settings of the judge's models, by their keys in the judge's settings."""
    values = {name: getattr(config.judge, name) for name in type(config.judge).model_fields}
    return {name: value for name, value in values.items() if isinstance(value, PolicySettings)}


def _resolve_judge_settings(config: JudgeConfig, recorded: Mapping[str, Any]) -> JudgeSettings:
    """Return the judge's settings with names resolved, such as paths made absolute.

    Args:
        config: configuration of the job.
        recorded: recorded configuration of the run that is resumed; empty for a new run.
    """
    target = find_judge_class(config.judge)
    policies = {}
    for name, policy in _find_policy_settings(config).items():
        with name_section_in_errors(f"judge.{name}"):
            from mclabel.labeling.policy import prepare_policy  # only judges with a model need it

            policies[name] = prepare_policy(policy, must_continue_prefixes=False).settings
    settings: JudgeSettings = target.resolve_settings(
        config.judge.model_copy(update=policies), recorded.get("judge", {})
    )
    return settings


def _collect_semantic_inputs(
    config: JudgeConfig, settings: JudgeSettings, judge_instance: Judge
) -> SemanticConfig:
    """Return the inputs on which opinions depend: the judge, its version, settings and models."""
    split = find_judge_class(settings).split_rule(settings)
    inputs = {
        "kind": settings.kind,
        "version": judge_instance.version,
        **judge_instance.identity_inputs(),
    }
    whole = {"task": TASK, "seed": config.seed}
    judge = {"identity": settings.identity(), "semantic": settings.semantic()}
    merged = {name: _merge_settings(content, inputs) for name, content in judge.items()}
    return SemanticConfig(
        identity={**whole, "judge": {**merged["identity"], "split": split}},
        config={
            **whole,
            "judge": {**merged["semantic"], "claim": judge_instance.claim, "split": split},
        },
    )


def _merge_settings(
    base_settings: Mapping[str, Any], overriding_settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings in which `overriding_settings` replace values of the same name."""
    merged = dict(base_settings)
    for name, value in overriding_settings.items():
        nested = isinstance(value, Mapping)
        merged[name] = _merge_settings(merged.get(name) or {}, value) if nested else value
    return merged


def _read_earlier_answers(
    config: JudgeConfig, semantic: SemanticConfig, served: Mapping[str, str]
) -> dict[AnswerKey, Any]:
    """Return the answers of the earlier run that the configuration names.

    The earlier run must have the same models and sampling settings.

    Args:
        config: configuration of the job.
        semantic: inputs on which the job's opinions depend.
        served: names of the job's models on their servers, by key in the judge's settings.

    Raises:
        ConfigError: the earlier run has other models, or the same models with other settings.
        ShardError: the named location is not a run of a judge.
    """
    if config.answers is None:
        return {}
    store = Store(config.answers)
    manifest = read_manifest(store, MANIFEST) or {}
    recorded: Mapping[str, Any] = manifest.get("config", {})
    if recorded.get("task") != TASK:
        raise ShardError(
            f"answers={config.answers!r}: is not a run of a judge. Give the `out` of `mclabel "
            "judge`"
        )
    keys = list(_find_policy_settings(config))
    there, here = (_select_answer_inputs(side, keys) for side in (recorded, semantic.config))
    changed = describe_differences(there, here)
    theirs: Mapping[str, str] = manifest.get("served", {})
    for key in theirs.keys() & served.keys():
        name = f"judge.{key}.engine.model"
        changed += describe_differences({name: theirs[key]}, {name: served[key]})
    if changed:
        lines = "\n".join(dict.fromkeys(changed))  # a model may differ in both comparisons
        raise ConfigError(
            f"answers={config.answers!r}: its answers come from another model, or were sampled "
            f"with other settings:\n{lines}\nGive the same values, or leave answers out to sample "
            "new answers"
        )
    return read_recorded_answers(store)


def _select_answer_inputs(config: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return the inputs of a judge's answers other than the prompts: its models and the seed.

    Args:
        config: inputs on which the judge's opinions depend.
        keys: keys of the models in the judge's settings. Without keys, all settings of the judge
            are returned, since each of them may change the answers.
    """
    judge = config["judge"]
    models = {key: judge.get(key) or {"model": None} for key in keys}
    return {"seed": config.get("seed"), "judge": models or judge}
