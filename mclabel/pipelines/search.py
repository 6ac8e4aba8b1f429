"""A search from its configuration: problems in, trees and solutions out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mclabel.boundary import Boundary
from mclabel.checkers import make_checker
from mclabel.config import SearchConfig
from mclabel.data.outputs import check_run
from mclabel.data.readers.problems import read_problems
from mclabel.data.shards.manifest import MANIFEST, Semantic, read_claim
from mclabel.data.shards.store import Store
from mclabel.data.shards.trees import read_trees
from mclabel.engines import EngineResources
from mclabel.evaluation.search_figures import ModelSizes, search_figures
from mclabel.labeling.items import ProblemItems
from mclabel.pipelines.fleet import from_anywhere, make_fleet
from mclabel.pipelines.identity import check_output, claim_output, versions
from mclabel.pipelines.policy import PreparedPolicy, prepare_policy
from mclabel.search.checked import CheckedScorer, method_class
from mclabel.search.scorers.base import StepScorer
from mclabel.search.task import SearchTask
from mclabel.work.blocks import plan_blocks
from mclabel.work.budget import Limits
from mclabel.work.job import run_job
from mclabel.work.tally import JobReport, JobState
from mclabel.work.worker import Worker

TASK = "search"
"""What the manifest of a run calls its task."""


def search(
    config: SearchConfig,
    on_state: Callable[[JobState], None] = lambda state: None,
    *,
    accept_changes: bool = False,
) -> JobReport:
    """Search for solutions to every problem of an input, and resume what was stopped.

    The run holds the trees (`mclabel.data.shards.trees`) and the finished solutions, as a
    labelling run without rollouts does.

    Args:
        config: of the job.
        on_state: called often with its state.
        accept_changes: search problems anew that have changed since the run was begun, and leave
            out what is gone; else either is refused.

    Raises:
        ConfigError: there is no such method or scorer, or it lacks what it needs.
        DataError: the input cannot be read; if strict, a problem cannot be searched.
        ShardError: `out` holds another run, or the store fails.
    """
    check_run(config.out)
    method_class(config.search)
    policy = prepare_policy(config.policy)
    config = config.model_copy(update={"policy": policy.settings})
    policy.engine.check_model()
    checked = CheckedScorer(config.scorer)
    with checked.boundary.calling("check", may_take_long=True):
        checked.scorer.check()
    semantic = _semantic(config, policy, checked.scorer)
    problems = read_problems(config.problems, strict=config.strict)
    check_output(config.out, semantic)
    store = Store(config.out, create=True)
    provenance = {
        "versions": versions(config.policy.engine.component.packages),
        "input": {"problems": config.problems.model_dump()},
        "parameters": {
            "policy": policy.engine.num_parameters(),
            "scorer": checked.scorer.num_parameters(),
        },
    }
    claim_output(store, semantic, provenance)
    task = SearchTask(
        make_policy=policy.maker(config.seed),
        settings=config,
        ends=tuple(config.policy.stop),
        provenance={**provenance, **semantic.stamp()},
        strict=config.strict,
    )
    blocks = plan_blocks(
        store,
        ProblemItems(problems),
        task.outputs,
        identity=semantic.identity,
        block_items=config.block_problems,
        accept_changes=accept_changes,
    )
    worker = partial(Worker, task, out=from_anywhere(config.out), journal_s=config.journal_s)
    return run_job(
        blocks,
        task.outputs,
        make_fleet(config.ray, _resources(config, policy, checked.scorer), worker),
        store,
        on_state=on_state,
        limits=Limits(max_tokens=config.budget.max_tokens, max_hours=config.budget.max_hours),
        size=problems.size,
        rejects=problems.rejects if problems.num_rejected else tuple,
    )


def model_sizes(store: Store) -> ModelSizes | None:
    """How large the models of a run are, as it has recorded them; None where it could not tell."""
    claim = read_claim(store, MANIFEST)
    sizes = None if claim is None else claim.get("parameters")
    return ModelSizes(**sizes) if sizes and None not in sizes.values() else None


def search_lines(out: str) -> list[str]:
    """What a search has found and cost, in words.

    Raises:
        ShardError: `out` is no run of a search.
    """
    store = Store(out)
    return list(search_figures(list(read_trees(store)), model_sizes(store)).lines())


def _resources(config: SearchConfig, policy: PreparedPolicy, scorer: StepScorer) -> EngineResources:
    """What a worker takes of the cluster: policy and scorer share what the larger one needs."""
    own, other = policy.resources(config.ray), scorer.resources()
    if own.bundles:
        return own
    return EngineResources(
        num_cpus=max(own.num_cpus, other.num_cpus), num_gpus=max(own.num_gpus, other.num_gpus)
    ).replaced(num_cpus=config.ray.num_cpus, num_gpus=config.ray.num_gpus)


def _semantic(config: SearchConfig, policy: PreparedPolicy, scorer: StepScorer) -> Semantic:
    """What a search depends on: its settings, and what they name, by content."""
    checker = make_checker(config.checker)
    with Boundary.around("scorers", type(scorer)).calling("known", may_take_long=True):
        of_scorer = scorer.known()
    known: dict[str, Mapping[str, Any]] = {
        "checker": {"kind": checker.name, "version": checker.version},
        "policy": {"model": policy.engine.model_identity()},
        "scorer": of_scorer,
    }
    task = {"task": TASK}
    trees = []
    for tree in (config.identity(), config.semantic()):
        merged = {name: {**tree.get(name, {}), **more} for name, more in known.items()}
        trees.append({**task, **tree, **merged})
    return Semantic(identity=trees[0], config=trees[1])
