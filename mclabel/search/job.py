"""The search job, which reads problems and writes search trees and solutions."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mclabel.checkers import make_checker
from mclabel.core.components import load_component_class
from mclabel.core.errors import RejectReason, shorten_detail
from mclabel.core.seeds import content_id
from mclabel.core.settings import ComponentSettings
from mclabel.data.boundaries import SPLITTER_VERSION
from mclabel.data.readers.base import ReaderSettings, RowSettings, make_reader
from mclabel.data.readers.problem_rows import Columns, read_problem, read_row_id
from mclabel.data.readers.problems import ProblemStream
from mclabel.engines import EngineResources
from mclabel.labeling.inputs import ProblemInputs
from mclabel.labeling.policy import PreparedPolicy, prepare_policy
from mclabel.run.budget import read_recorded_spending
from mclabel.run.forecast import Interval, Size, forecast_cost
from mclabel.run.progress_log import read_job_starts
from mclabel.run.run import RunOutput, run_task
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.manifest import (
    MANIFEST,
    SemanticConfig,
    collect_package_versions,
    read_manifest,
)
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import TASK, StoredTree, read_trees
from mclabel.run.tally import JobReport, JobState
from mclabel.search.base import SearchMethod
from mclabel.search.config import SearchConfig
from mclabel.search.scorers import StepScorer, make_scorer
from mclabel.search.task import SEARCH_OUTPUTS, SearchTask
from mclabel.search.tree import ModelSizes, SearchFigures, compute_search_figures

ANSWERS = "answers.jsonl"
"""File of the chosen answers in the folder of a run."""
NUM_SHOWN = 5
"""Number of chosen answers that are printed."""
MAX_TEXT = 60
"""Maximum number of characters of a problem that are printed."""


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """Parts of a search job that have been checked before anything is loaded or written."""

    config: SearchConfig
    policy: PreparedPolicy
    scorer: StepScorer
    run: RunOutput
    """Output folder, which is new or belongs to a run with this configuration."""
    problems: ProblemStream
    """Problems to search."""

    @property
    def resources(self) -> EngineResources:
        """Resources of a worker: the larger of the needs of policy and scorer, which share them."""
        ray = self.config.ray
        own, other = self.policy.resources(ray), self.scorer.resources()
        if own.bundles:
            return own
        return EngineResources(
            num_cpus=max(own.num_cpus, other.num_cpus), num_gpus=max(own.num_gpus, other.num_gpus)
        ).with_overrides(num_cpus=ray.num_cpus, num_gpus=ray.num_gpus)

    @property
    def inputs(self) -> ProblemInputs:
        """Input of the job as the workers need it, made from the problems."""
        return ProblemInputs.from_stream(self.problems)

    def preview(self, *, accept_changes: bool = False) -> SearchPreview:
        """Return the models, the inputs and the progress of the job.

        If some problems have already been searched, the preview includes a forecast of tokens.

        Args:
            accept_changes: True to accept that problems have changed since the run began; False to
                raise `ShardError` instead.

        Raises:
            ShardError: the output belongs to another search, or to other problems.
        """
        config = self.config
        seen = SearchPreview(
            out=config.out,
            policy=config.policy.model,
            policy_parameters=self.policy.engine.num_parameters(),
            scorer=_describe_component(config.scorer),
            scorer_parameters=self.scorer.num_parameters(),
            search=f"{_describe_component(config.search)}, choose {config.choose}",
            num_problems=len(self.problems),
            num_rejected=self.problems.num_rejected,
            tokens_per_problem=config.tokens,
            engine=self.resources,
        )
        store = self.run.store
        if store is None or not self.run.is_claimed:
            return seen
        blocks = self.run.plan_blocks(
            self.inputs.items,
            SEARCH_OUTPUTS,
            block_items=config.block_problems,
            accept_changes=accept_changes,
        )
        done = read_catalog(store, require_complete=False).blocks
        num_done = sum(block in done for block, _ in blocks.iter_item_counts())
        trees = list(read_trees(store, require_complete=False)) if num_done else []
        return replace(
            seen,
            num_blocks=len(blocks),
            num_blocks_done=num_done,
            num_tokens=self._forecast_tokens(trees) if trees else None,
        )

    def _forecast_tokens(self, trees: Sequence[StoredTree]) -> Interval:
        """Return a forecast of the sampled tokens of the whole job from its finished searches."""
        seen = [
            (Size.from_lengths([len(tree.problem)]), float(tree.cost.num_sampled)) for tree in trees
        ]
        done = sum((size for size, _ in seen), Size())
        spent = sum(tokens for _, tokens in seen)
        remaining = self.problems.size - done
        if remaining.num_items <= 0:
            return Interval(expected=spent, low=spent, high=spent)
        return forecast_cost(seen, remaining, seed=self.config.seed).scale_and_shift(1, spent)


@dataclass(frozen=True, kw_only=True)
class SearchPreview:
    """Preview of a search job: its models, its inputs and its progress."""

    out: str
    policy: str
    """Folder or name of the policy's model."""
    policy_parameters: int | None
    """Number of the policy's parameters; None if unknown."""
    scorer: str
    """Name and settings of the scorer."""
    scorer_parameters: int | None
    """Number of parameters of the scorer's model; 0 without a model, None if unknown."""
    search: str
    """Name and settings of the method, and the rule that chooses the answer."""
    num_problems: int
    num_rejected: int
    """Number of input rows that cannot be used."""
    tokens_per_problem: int | None
    """Maximum number of sampled tokens per problem; None if only the method limits it."""
    engine: EngineResources
    """Resources of a worker."""
    num_blocks: int | None = None
    """Number of blocks; None before the job has begun."""
    num_blocks_done: int = 0
    num_tokens: Interval | None = None
    """Forecast of the sampled tokens of the whole job; None before any problem is searched."""

    def lines(self) -> Iterator[str]:
        """Yield the lines to print."""
        sizes = (self.policy_parameters, self.scorer_parameters)
        policy, scorer = ("unknown" if size is None else f"{size:,}" for size in sizes)
        most = self.tokens_per_problem
        yield f"policy: {self.policy}, {policy} parameters"
        yield f"scorer: {self.scorer}, {scorer} parameters"
        yield f"search: {self.search}"
        yield f"problems: {self.num_problems:,}; {self.num_rejected:,} rows are left out"
        limit = "limited only by the method" if most is None else f"at most {most:,}"
        yield f"tokens per problem: {limit}"
        yield str(self.engine)
        if self.num_blocks is None:
            yield f"{self.out}: the search has not begun"
            return
        yield f"{self.out}: {self.num_blocks_done:,} of {self.num_blocks:,} blocks are done"
        if (tokens := self.num_tokens) is not None:
            between = f" ({tokens.low:,.0f} to {tokens.high:,.0f})"
            yield (
                f"tokens in all: {tokens.expected:,.0f}"
                + (between if tokens.low < tokens.high else "")
            )


def plan_search(config: SearchConfig) -> SearchPlan:
    """Check everything that a search job needs, without loading or writing anything.

    Raises:
        ConfigError: the method or scorer does not exist, or something that it needs is missing.
        DataError: the problems cannot be read.
        EngineError: the policy's model is not available.
    """
    run = RunOutput.inspect(config.out)
    load_component_class(config.search, SearchMethod)
    policy = prepare_policy(config.policy)
    config = config.model_copy(update={"policy": policy.settings})
    policy.engine.check_model()
    scorer = make_scorer(config.scorer)
    scorer.check_ready()
    problems = read_problems_with_optional_answers(config.problems, strict=config.strict)
    run.check_config(_collect_semantic_inputs(config, policy, scorer))
    return SearchPlan(config=config, policy=policy, scorer=scorer, run=run, problems=problems)


def read_problems_with_optional_answers(settings: ReaderSettings, *, strict: bool) -> ProblemStream:
    """Read the problems of an input, also those without a gold answer.

    A problem without a gold answer gets an empty answer, and its solutions are neither right nor
    wrong.

    Args:
        settings: settings of the reader. If they name a column of answers, all rows must have it.
        strict: True to raise an error for an unusable row; False to leave the row out.
    """
    columns: Columns = (None, None)
    if isinstance(settings, RowSettings):
        columns = (settings.problem_column, settings.answer_column)
    reader = make_reader(settings)
    return ProblemStream(
        lambda: ((number, _fill_missing_answer(row, columns)) for number, row in reader.rows()),
        source=settings.source,
        columns=columns,
        limit=settings.limit,
        chance=settings.chance,
        strict=strict,
    )


def _fill_missing_answer(row: Any, columns: Columns) -> Any:
    """Return a problem with an empty answer if a row lacks only the answer; else return the row."""
    problem_column, answer_column = columns
    found = read_problem(row, columns)
    if answer_column is not None or not isinstance(found, RejectReason):
        return row
    if found.reason not in ("no_column", "no_gold"):
        return row
    asked = read_problem({**row, "answer": "0"}, (problem_column, "answer"))
    if isinstance(asked, RejectReason):
        return row
    return replace(asked, id=read_row_id(row) or content_id("problem", asked.text), answer="")


def search(
    config: SearchConfig,
    on_state: Callable[[JobState], None] = lambda state: None,
    *,
    accept_changes: bool = False,
) -> JobReport:
    """Search for solutions to every problem of an input. Resume the job if it was interrupted.

    The run's folder holds the search trees (`mclabel.run.shards.trees`) and the finished solutions.
    The solutions are stored as in a labelling run without rollouts.

    Args:
        config: configuration of the job.
        on_state: function that is called often with the state of the job.
        accept_changes: True to search changed problems again and to leave out removed problems, if
            the input has changed since the run began. False to raise `ShardError` instead.

    Raises:
        ConfigError: the method or scorer does not exist, or something that it needs is missing.
        DataError: the input cannot be read, or (if strict) a problem cannot be searched.
        ShardError: `out` holds another run, or the store fails.
    """
    plan = plan_search(config)
    config = plan.config
    task = SearchTask(
        make_policy=plan.policy.engine_factory(config.seed),
        settings=config,
        end_texts=tuple(config.policy.stop),
        provenance=plan.run.shard_metadata(
            versions=collect_package_versions(config.policy.engine.component.packages),
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


def read_model_sizes(store: Store) -> ModelSizes | None:
    """Return the recorded sizes of a run's models; None if a size is unknown."""
    claim = read_manifest(store, MANIFEST)
    sizes = None if claim is None else claim.get("parameters")
    return ModelSizes(**sizes) if sizes and None not in sizes.values() else None


@dataclass(frozen=True, kw_only=True)
class SearchReport:
    """Results and cost of a search job, and the tokens that interruptions saved or lost."""

    figures: SearchFigures | None
    """Results and cost; None if no problem was searched."""
    answers: Sequence[Mapping[str, Any]]
    """Chosen answers of the first problems; the file `answers.jsonl` has all of them."""
    num_replayed: int
    """Number of sampled tokens that were reused from journals after kills."""
    num_lost: int
    """Minimum number of sampled tokens that were lost by kills."""
    num_preempted: int
    """Number of times that an engine preempted a completion and computed its tokens again."""

    def lines(self) -> Iterator[str]:
        """Yield the lines to print."""
        if self.figures is not None:
            yield from self.figures.lines()
        for row in self.answers:
            text = " ".join(row["problem"].split())
            if row["score"] is None:
                yield f"  no solution was finished: {text[:MAX_TEXT]}"
                continue
            yield (
                f"  {shorten_detail(str(row['answer']))}  score {row['score']:.2f}, "
                f"{row['votes']:g} of {row['of_votes']:g} votes: {text[:MAX_TEXT]}"
            )
        if self.num_lost or self.num_replayed or self.num_preempted:
            yield (
                f"Interruptions: {self.num_replayed:,} of the sampled tokens were reused from "
                f"journals after kills. At least {self.num_lost:,} more tokens were lost. "
                f"Engines preempted {self.num_preempted:,} completions and computed their tokens "
                "again."
            )


def read_chosen_answers(out: str) -> list[dict[str, Any]]:
    """Return the chosen answer of each problem of a search, with its score and its votes."""
    return [tree.chosen_answer_row() for tree in read_trees(Store(out))]


def write_search_report(out: str) -> SearchReport:
    """Return the results and cost of a search, and write its chosen answers to `answers.jsonl`.

    Args:
        out: output folder or object store URL of the search.

    Raises:
        ShardError: `out` is not the run of a search, or cannot be written to.
    """
    store = Store(out)
    trees = list(read_trees(store))
    answers = [tree.chosen_answer_row() for tree in trees]
    store.replace(
        ANSWERS,
        io.BytesIO("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in answers).encode()),
    )
    num_sampled = sum(tree.cost.num_sampled for tree in trees)
    return SearchReport(
        figures=compute_search_figures(trees, read_model_sizes(store)) if trees else None,
        answers=answers[:NUM_SHOWN],
        num_replayed=sum(tree.cost.num_replayed for tree in trees),
        num_lost=max(0, read_recorded_spending(store).num_tokens - num_sampled),
        num_preempted=sum(line.get("num_preemptions") or 0 for line in read_job_starts(store)),
    )


def _describe_component(component: ComponentSettings) -> str:
    """Return the name of a component with its settings."""
    given = component.model_dump(exclude_none=True, exclude={"kind"})
    return ", ".join([component.kind, *(f"{key}={value}" for key, value in given.items())])


def _collect_semantic_inputs(
    config: SearchConfig, policy: PreparedPolicy, scorer: StepScorer
) -> SemanticConfig:
    """Return everything on which the results of a search depend.

    This includes the settings, the versions of checker and splitter, and hashes of models.
    """
    checker = make_checker(config.checker)
    identities: dict[str, Mapping[str, Any]] = {
        "checker": {"kind": checker.name, "version": checker.version},
        "split": {"version": SPLITTER_VERSION},
        "policy": {"model": policy.engine.model_identity()},
        "scorer": scorer.identity_inputs(),
    }
    task = {"task": TASK}
    trees = []
    for tree in (config.identity(), config.semantic()):
        merged = {name: {**tree.get(name, {}), **more} for name, more in identities.items()}
        trees.append({**task, **tree, **merged})
    return SemanticConfig(identity=trees[0], config=trees[1])
