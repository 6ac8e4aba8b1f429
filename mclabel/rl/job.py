"""The reinforcement learning job: plan a run from a configuration, train, and report results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mclabel.checkers import make_checker
from mclabel.core.cores import usable_threads
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import Problem
from mclabel.core.seeds import content_id
from mclabel.data.boundaries import SPLITTER_VERSION
from mclabel.data.readers.problems import read_problems
from mclabel.engines.devices import check_device, resolve_device
from mclabel.engines.hub import fetch_model, resolve_model
from mclabel.labeling.policy import PreparedPolicy, prepare_policy
from mclabel.prm.scoring.manifest import PrmManifest, find_model_folder, hash_weights
from mclabel.prm.training.settings import check_trackers
from mclabel.rl.config import RLConfig
from mclabel.rl.credits import CheckedCredit
from mclabel.rl.measure import Change, compare_measurements
from mclabel.run.outputs import REINFORCED
from mclabel.run.run import Run
from mclabel.run.shards.manifest import Semantic, versions
from mclabel.run.trainings import check_finished

OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True)
class RLPlan:
    """Plan of a training run: the policy and the problems that it will use."""

    run: Run
    """Output folder of the run."""
    policy: PreparedPolicy
    problems: list[Problem]
    """Problems to train on."""
    others: list[Problem]
    """Held-out problems to measure on."""

    def lines(self, config: RLConfig) -> list[str]:
        """Return the plan as lines of text."""
        credit = CheckedCredit(config.credit)
        solutions = config.problems_per_step * config.group_size
        size = self.policy.engine.num_parameters()
        device = resolve_device(config.device)
        needs = " and ".join(sorted(credit.needs)) or "nothing beside outcomes"
        lines = [
            f"policy: {config.policy.model}, {size or 0:,} parameters, on {device}",
            f"problems: {len(self.problems):,} to train on, {len(self.others):,} to measure on",
            f"credit: {config.credit.kind}, needs {needs}",
            f"steps: {config.steps:,} of {solutions:,} solutions "
            f"({config.problems_per_step} problems x {config.group_size})",
        ]
        if credit.needs & {"values"} or (credit.needs & {"first_error"} and config.prm is None):
            lines.append(f"values: estimator {config.estimator.summary}")
        if config.prm is not None:
            lines.append(f"PRM: {config.prm}")
        return lines


def plan_rl(config: RLConfig) -> RLPlan:
    """Check everything that a training run needs, without loading weights or writing files.

    Raises:
        ConfigError: a component or the output folder is invalid, or there are too few problems.
        DataError: problems or the PRM cannot be read, or a training problem is also measured on.
        EngineError: the policy cannot be loaded.
    """
    run = Run.look(config.out, REINFORCED)
    CheckedCredit(config.credit)
    policy = prepare_policy(config.policy)
    policy.engine.check_model()
    if policy.engine.num_parameters() is None:
        raise ConfigError(
            f"policy.engine.kind={config.policy.engine.kind}: this engine has no weights to train. "
            "Set policy.engine.kind to hf or vllm"
        )
    if config.prm is not None:
        PrmManifest.read(find_model_folder(config.prm))
    problems = list(read_problems(config.problems, strict=True))
    others = [] if config.measured is None else list(read_problems(config.measured, strict=True))
    if len(problems) < config.problems_per_step:
        raise ConfigError(
            f"problems_per_step={config.problems_per_step}: there are only {len(problems)} "
            "problems to train on. Lower problems_per_step, or give more problems"
        )
    if leaked := {problem.text for problem in problems} & {problem.text for problem in others}:
        raise DataError(
            f"measured: {len(leaked)} of its problems are also in the training problems, such as "
            f"{min(leaked)[:80]!r}. Measure on other problems"
        )
    return RLPlan(run=run, policy=policy, problems=problems, others=others)


def rl(config: RLConfig, on_progress: OnProgress = lambda step, total, detail: None) -> Path:
    """Train a policy. An interrupted run resumes; a finished run returns at once.

    Args:
        config: configuration of the training run.
        on_progress: function that is called with the completed and the total number of optimizer
            steps, and a line of figures.

    Returns:
        The folder of the trained policy.

    Raises:
        ConfigError: the plan is invalid (see `plan_rl`), or the extra `rl` is not installed.
        DataError: the data is invalid (see `plan_rl`).
        TrainingError: a checkpoint is damaged, or the loss is not finite.
        EngineError: the policy cannot be loaded, or its engine died.
    """
    check_trl_installed()
    config = config.model_copy(update={"device": check_device(config.device)})
    plan = plan_rl(config)
    plan.run.check(_semantic_inputs(config, plan))
    out = Path(config.out)
    model = out / "model"
    if model.is_dir():
        check_finished(out)
        return model
    check_trackers(config.report_to)
    packages = (*config.policy.engine.component.packages, "trl")
    plan.run.claim({"versions": versions(packages)})
    _train(config, plan, on_progress)
    return model


@dataclass(frozen=True, kw_only=True)
class RLReport:
    """Results of a training run."""

    measured: dict[int, dict[str, float]]
    """Figures of the first and the last measurement, by optimizer step: `num_problems`, and the
    figures of `Measurement.summary`."""
    hacked: dict[str, Change]
    """Changes from the first to the last measurement that indicate a hacked reward, by figure."""

    def lines(self) -> Iterator[str]:
        """Yield the results as lines of text."""
        for step, figures in self.measured.items():
            shown = ", ".join(
                f"{name.replace('_', ' ')} {value:.3g}"
                for name, value in figures.items()
                if name != "num_problems"
            )
            yield f"after {step} steps, on {figures['num_problems']} problems: {shown}"
        for change in self.hacked.values():
            yield f"the reward may be hacked: {change}"


def rl_report(out: str) -> RLReport:
    """Return the results of a training run.

    Args:
        out: output folder of the run.

    Raises:
        DataError: a measurement cannot be read.
    """
    from mclabel.rl.training.record import read_measurements

    measurements = read_measurements(Path(out))
    first_and_last = sorted({min(measurements), max(measurements)} if measurements else ())
    changes_by_name = (
        compare_measurements(measurements[first_and_last[0]], measurements[first_and_last[1]])
        if len(first_and_last) > 1
        else {}
    )
    return RLReport(
        measured={
            step: {"num_problems": len(measurements[step].problems), **measurements[step].summary()}
            for step in first_and_last
        },
        hacked={name: change for name, change in changes_by_name.items() if change.is_bad},
    )


def check_trl_installed() -> None:
    """Check that TRL can be imported.

    Raises:
        ConfigError: TRL cannot be imported.
    """
    try:
        import mclabel.rl.training.trl  # noqa: F401
    except (ImportError, RuntimeError) as error:  # lazy modules raise RuntimeError
        raise ConfigError(
            f"mclabel rl needs TRL, which cannot be imported ({error}). Install TRL in a clone of "
            "mclabel with pip install '.[rl]'"
        ) from error


def _train(config: RLConfig, plan: RLPlan, on_progress: OnProgress) -> None:
    """Load the model, the engine and the PRM, then train and save the policy."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM

    from mclabel.engines.loading import quiet_transformers
    from mclabel.engines.pretrained import code_allowed_by, load_model, load_tokenizer
    from mclabel.prm.scoring.score import PRM
    from mclabel.rl.training.crediting import CreditAssigner
    from mclabel.rl.training.rollouts import LiveEngine, StepRollouts
    from mclabel.rl.training.trainer import TrainingInputs, save_policy, train_policy

    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # its warning about `rollout_func`
    policy = plan.policy.settings
    trust = policy.trust_remote_code
    folder = fetch_model(resolve_model(policy.model), revision=policy.revision, code=trust)
    quiet_transformers()
    transformers.set_seed(config.seed)
    on_progress(0, config.steps, "loading")
    load_first: Callable[[], Any] = partial(
        load_model,
        AutoModelForCausalLM,
        folder,
        trust_remote_code=trust,
        dtype=getattr(torch, config.dtype),
    )
    model = load_first().to(config.device)
    tokenizer = load_tokenizer(folder, trust_remote_code=trust)
    if (end_id := tokenizer.eos_token_id) is None:
        raise ConfigError(
            f"policy.model={policy.model!r}: its tokenizer must have an end token (eos_token), "
            "which ends solutions, but has none. Set eos_token in the model's "
            "tokenizer_config.json"
        )
    prm = None
    if config.prm is not None:
        with code_allowed_by(""):
            prm = PRM.load(config.prm, device=config.device, threads=config.threads)
    with LiveEngine(plan.policy.engine_factory(config.seed)(), config) as live:
        torch.set_num_threads(usable_threads(config.threads))  # engines change this number
        rollouts = StepRollouts(
            live,
            CreditAssigner(config, live, prm),
            plan.problems,
            group_size=config.group_size,
            end_id=end_id,
            stop=policy.stop,
            seed=config.seed,
        )
        training = TrainingInputs(
            model=model,
            tokenizer=tokenizer,
            policy=policy,
            engine=live,
            rollouts=rollouts,
            problems=plan.problems,
            others=plan.others,
            settings=config,
            measuring=config.measuring,
            out=Path(config.out),
            load_first=load_first,
            bf16=config.bf16,
            on_cpu=torch.device(config.device).type == "cpu",
        )
        train_policy(training, on_progress)
    save_policy(model, Path(folder), Path(config.out) / "model")


def _semantic_inputs(config: RLConfig, plan: RLPlan) -> Semantic:
    """Return the inputs that determine the trained weights."""
    checker = make_checker(config.checker)
    component_versions = {
        "checker": {"kind": checker.name, "version": checker.version},
        "split": {"version": SPLITTER_VERSION},
        "policy": {"model": plan.policy.engine.model_identity()},
    }
    content = {
        "task": "rl",
        "problems": content_id([(problem.text, problem.answer) for problem in plan.problems]),
        "measured": content_id([(problem.text, problem.answer) for problem in plan.others]),
        "prm": None if config.prm is None else hash_weights(config.prm) or config.prm,
    }
    trees = []
    for tree in (config.identity(), config.semantic()):
        merged = {
            name: {**tree.get(name, {}), **versions_of_part}
            for name, versions_of_part in component_versions.items()
        }
        trees.append({**tree, **merged, **content})
    return Semantic(identity=trees[0], config=trees[1])
