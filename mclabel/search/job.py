"""A search from its configuration: problems in, trees and solutions out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mclabel.checkers import make_checker
from mclabel.core.components import derived_class
from mclabel.core.settings import ComponentSettings
from mclabel.data.boundaries import SPLITTER_VERSION
from mclabel.data.readers.problems import ProblemStream, read_problems
from mclabel.engines import EngineResources
from mclabel.labeling.inputs import ProblemInputs
from mclabel.labeling.policy import PreparedPolicy, prepare_policy
from mclabel.run.budget import read_spent
from mclabel.run.forecast import predict
from mclabel.run.progress_log import job_starts
from mclabel.run.run import Run, run_task
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.manifest import MANIFEST, Semantic, read_claim
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import TASK, StoredTree, read_trees
from mclabel.run.sizes import Size
from mclabel.run.tally import JobReport, JobState
from mclabel.run.versions import versions
from mclabel.search.base import SearchMethod
from mclabel.search.config import SearchConfig
from mclabel.search.figures import ModelSizes, search_figures
from mclabel.search.scorers.base import StepScorer, make_scorer
from mclabel.search.task import SEARCH_OUTPUTS, SearchTask


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """A search whose parts are checked; nothing is loaded or written."""

    config: SearchConfig
    policy: PreparedPolicy
    scorer: StepScorer
    run: Run
    """The output, which is of this configuration or not begun."""
    problems: ProblemStream

    @property
    def resources(self) -> EngineResources:
        """What a worker takes of the cluster: policy and scorer share what the larger one needs."""
        ray = self.config.ray
        own, other = self.policy.resources(ray), self.scorer.resources()
        if own.bundles:
            return own
        return EngineResources(
            num_cpus=max(own.num_cpus, other.num_cpus), num_gpus=max(own.num_gpus, other.num_gpus)
        ).replaced(num_cpus=ray.num_cpus, num_gpus=ray.num_gpus)

    @property
    def inputs(self) -> ProblemInputs:
        """The problems, as the input of the job."""
        return ProblemInputs.of(self.problems)

    def lines(self, *, accept_changes: bool = False) -> list[str]:
        """The plan in words, with a forecast of the tokens where some problems are searched.

        Args:
            accept_changes: as in `search`.

        Raises:
            ShardError: the output belongs to another search, or to other problems.
        """
        config = self.config
        sizes = (self.policy.engine.num_parameters(), self.scorer.num_parameters())
        policy, scorer = ("unknown" if one is None else f"{one:,}" for one in sizes)
        limit = "no limit but the method's own" if config.tokens is None else f"{config.tokens:,}"
        found = [
            f"policy: {config.policy.model}, {policy} parameters",
            f"scorer: {_named(config.scorer)}, {scorer} parameters",
            f"search: {_named(config.search)}, choose {config.choose}",
            f"problems: {len(self.problems):,}; {self.problems.num_rejected:,} rows are left out",
            f"tokens of a problem: {limit}",
            str(self.resources),
        ]
        store = self.run.store
        if store is None or not self.run.was_begun:
            return [*found, f"{config.out}: not begun"]
        blocks = self.run.blocks(
            self.inputs.items,
            SEARCH_OUTPUTS,
            block_items=config.block_problems,
            accept_changes=accept_changes,
        )
        done = read_catalog(store).blocks.keys()
        num_done = sum(block in done for block, _ in blocks.sizes())
        found.append(f"{config.out}: {num_done:,} of {len(blocks):,} blocks are done")
        trees = list(read_trees(store)) if num_done else []
        if trees:
            found.append(f"tokens in all: {self._forecast(trees)}")
        return found

    def _forecast(self, trees: Sequence[StoredTree]) -> str:
        """Sampled tokens of the whole job, from the problems that are done."""
        seen = [(Size.of_lengths([len(one.problem)]), float(one.cost.num_sampled)) for one in trees]
        done = sum((size for size, _ in seen), Size())
        spent = sum(tokens for _, tokens in seen)
        left = self.problems.size - done
        if left.num_items <= 0:
            return f"{spent:,.0f}"
        more = predict(seen, left, seed=self.config.seed).times(1, spent)
        return f"{more.expected:,.0f} ({more.low:,.0f} to {more.high:,.0f})"


def plan_search(config: SearchConfig) -> SearchPlan:
    """Check everything that a search needs; nothing is loaded or written.

    Raises:
        ConfigError: there is no such method or scorer, or it lacks what it needs.
        DataError: the problems cannot be read.
        EngineError: the policy cannot be had.
    """
    run = Run.look(config.out)
    derived_class(config.search, SearchMethod)
    policy = prepare_policy(config.policy)
    config = config.model_copy(update={"policy": policy.settings})
    policy.engine.check_model()
    scorer = make_scorer(config.scorer)
    scorer.check()
    problems = read_problems(config.problems, strict=config.strict)
    run.check(_semantic(config, policy, scorer))
    return SearchPlan(config=config, policy=policy, scorer=scorer, run=run, problems=problems)


def search(
    config: SearchConfig,
    on_state: Callable[[JobState], None] = lambda state: None,
    *,
    accept_changes: bool = False,
) -> JobReport:
    """Search for solutions to every problem of an input, and resume what was stopped.

    The run holds the trees (`mclabel.run.shards.trees`) and the finished solutions, as a
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
    plan = plan_search(config)
    config = plan.config
    task = SearchTask(
        make_policy=plan.policy.maker(config.seed),
        settings=config,
        ends=tuple(config.policy.stop),
        provenance=plan.run.stamp(
            versions=versions(config.policy.engine.component.packages),
            input={"problems": config.problems.model_dump()},
            parameters={
                "policy": plan.policy.engine.num_parameters(),
                "scorer": plan.scorer.num_parameters(),
            },
        ),
        strict=config.strict,
    )
    return run_task(
        task,
        plan.run,
        plan.inputs,
        config,
        resources=lambda: plan.resources,
        block_items=config.block_problems,
        journal_s=config.journal_s,
        on_state=on_state,
        accept_changes=accept_changes,
    )


def model_sizes(store: Store) -> ModelSizes | None:
    """How large the models of a run are, as it has recorded them; None where it could not tell."""
    claim = read_claim(store, MANIFEST)
    sizes = None if claim is None else claim.get("parameters")
    return ModelSizes(**sizes) if sizes and None not in sizes.values() else None


def search_lines(out: str) -> list[str]:
    """What a search has found and cost, in words; nothing if no problem was searched.

    Raises:
        ShardError: `out` is no run of a search.
    """
    store = Store(out)
    trees = list(read_trees(store))
    if not trees:
        return []
    lines = list(search_figures(trees, model_sizes(store)).lines())
    return [*lines, *_interruptions(store, trees)]


def _interruptions(store: Store, trees: Sequence[StoredTree]) -> list[str]:
    """What kills and preemptions have cost beside what is in the trees, if there were any."""
    num_replayed = sum(tree.cost.num_replayed for tree in trees)
    num_lost = read_spent(store).num_tokens - sum(tree.cost.num_sampled for tree in trees)
    num_preempted = sum(line.get("num_preemptions") or 0 for line in job_starts(store))
    if num_lost <= 0 and not num_replayed and not num_preempted:
        return []
    return [
        f"Interruptions: {num_replayed:,} of the sampled tokens were taken over from journals "
        f"after kills, at least {max(0, num_lost):,} more were lost; {num_preempted:,} "
        "completions were preempted by their engine, which computes their tokens again."
    ]


def _named(component: ComponentSettings) -> str:
    """A component with its settings."""
    given = component.model_dump(exclude_none=True, exclude={"kind"})
    return ", ".join([component.kind, *(f"{key}={value}" for key, value in given.items())])


def _semantic(config: SearchConfig, policy: PreparedPolicy, scorer: StepScorer) -> Semantic:
    """What a search depends on: its settings, and what they name, by content."""
    checker = make_checker(config.checker)
    known: dict[str, Mapping[str, Any]] = {
        "checker": {"kind": checker.name, "version": checker.version},
        "split": {"version": SPLITTER_VERSION},
        "policy": {"model": policy.engine.model_identity()},
        "scorer": scorer.known(),
    }
    task = {"task": TASK}
    trees = []
    for tree in (config.identity(), config.semantic()):
        merged = {name: {**tree.get(name, {}), **more} for name, more in known.items()}
        trees.append({**task, **tree, **merged})
    return Semantic(identity=trees[0], config=trees[1])
