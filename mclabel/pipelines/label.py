"""A labelling job from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from mclabel.config import LabelConfig
from mclabel.data.outputs import check_run
from mclabel.data.readers.problems import ChosenProblems, Problems, read_problems
from mclabel.data.readers.solutions import read_solutions
from mclabel.data.shards.manifest import MANIFEST, read_claim
from mclabel.data.shards.rejects import Reject, set_aside
from mclabel.data.shards.store import Store
from mclabel.data.sizes import Size
from mclabel.engines import make_engine
from mclabel.errors import CheckerError, DataError
from mclabel.labeling.items import ProblemItems
from mclabel.labeling.task import LabelTask
from mclabel.pipelines.fleet import from_anywhere, make_fleet
from mclabel.pipelines.identity import check_output, claim_output, semantic_config, versions
from mclabel.pipelines.mended import take_mended_checker, with_committed
from mclabel.pipelines.policy import resolved_policy, resources_of
from mclabel.records import GivenSolution
from mclabel.work.blocks import JobBlocks, plan_blocks
from mclabel.work.budget import Limits
from mclabel.work.job import run_job
from mclabel.work.tally import JobReport, JobState
from mclabel.work.worker import Worker


def label(
    config: LabelConfig,
    on_state: Callable[[JobState], None],
    *,
    choose: Callable[[JobBlocks], Collection[str]] | None = None,
    accept_changes: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> JobReport:
    """Run a labelling job. Everything that can be wrong with it is found before it writes.

    The model of a run that was begun is known by its files, and is looked at only if work is left:
    that takes seconds of imports.

    What cannot be labelled is left out; `rejects.jsonl` says why, also if the job is stopped. On
    reaching a limit of the budget it ends early, and goes on when it is run with a larger one.

    Args:
        config: of the job.
        on_state: called often with its state.
        choose: ids of the blocks to label now; None labels all.
        accept_changes: label problems anew that have changed since the run was begun, and leave out
            what is gone; else either is refused.
        should_stop: asked often; no block is begun once it is true, those under way leave their
            journals.
    """
    check_run(config.out)
    config = config.model_copy(update={"policy": resolved_policy(config.policy)})
    check_model = make_engine(config.policy).check_model
    if not (was_begun := _was_begun(config.out)):
        check_model()
    semantic = semantic_config(config)
    work = load_work(config)
    make_policy = partial(make_engine, config.policy, seed=config.seed)
    if was_begun:
        take_mended_checker(Store(config.out), semantic)
    check_output(config.out, semantic)
    store = Store(config.out, create=True)
    provenance = {
        "versions": versions(config.policy.engine.component.packages),
        "input": input_config(config),
    }
    task = LabelTask(
        make_policy=make_policy,
        settings=config,
        provenance={**provenance, **semantic.stamp()},
        keep_rollouts=config.keep_rollouts,
    )
    claim_output(store, semantic, provenance)
    blocks = plan_blocks(
        store,
        work.items,
        task.outputs,
        identity=semantic.identity,
        block_items=config.block_problems,
        accept_changes=accept_changes,
    )
    make_worker = partial(Worker, task, out=from_anywhere(config.out), journal_s=config.journal_s)
    if config.strict:
        _check_none_left_out(store)
    try:
        report = run_job(
            blocks,
            task.outputs,
            make_fleet(config.ray, resources_of(config.policy, config.ray), make_worker),
            store,
            on_state=on_state,
            limits=Limits(max_tokens=config.budget.max_tokens, max_hours=config.budget.max_hours),
            should_stop=should_stop,
            only=None if choose is None else choose(blocks),
            size=work.size,
            rejects=work.rejects,
            prepare=check_model if was_begun else lambda: None,
        )
    except CheckerError as error:
        raise with_committed(error, store) from error
    if config.strict:
        _check_none_left_out(store)
    return report


def _was_begun(out: str) -> bool:
    """Whether an output is a run already."""
    is_there = "://" in out or Path(out).is_dir()
    return is_there and read_claim(Store(out), MANIFEST) is not None


def _check_none_left_out(store: Store) -> None:
    if (left_out := next(set_aside(store), None)) is not None:
        raise DataError(
            f"{store.location}: problem {left_out.problem_id} was left out: {left_out.detail}. "
            "Choose another out=…, or go on without strict"
        )


def input_config(config: LabelConfig) -> dict[str, Any]:
    """Where problems and solutions come from: recorded, while the plan holds what they are."""
    return {
        "problems": config.problems.model_dump(),
        "solutions": {"path": config.solutions.path},
        "block_problems": config.block_problems,
    }


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is to be labelled."""

    problems: Problems
    given: Mapping[str, tuple[GivenSolution, ...]] | None
    """Solutions by problem id; None lets the policy sample them."""
    size: Size
    """How much text all problems have."""
    rejects: Callable[[], Iterable[Reject]]
    """Gives what of the input cannot be used."""

    @property
    def items(self) -> ProblemItems:
        """The problems with their solutions, as items of the job."""
        return ProblemItems(self.problems, self.given)


def load_work(config: LabelConfig) -> Work:
    """Problems and solutions of a configuration.

    Raises:
        DataError: they cannot be read; if `strict`, a row of theirs cannot be used.
    """
    path = config.solutions.path
    stream = read_problems(
        config.problems, may_repeat=path == config.problems.source, strict=config.strict
    )
    problems: Problems = stream
    size = stream.size
    bad_rows: Callable[[], Iterable[Reject]] = stream.rejects if stream.num_rejected else tuple
    if path is None:
        return Work(problems=problems, given=None, size=size, rejects=bad_rows)
    found = read_solutions(path, problems, strict=config.strict)
    given = found.by_problem
    if len(given) < len(problems):
        problems = ChosenProblems(problems, given, count=len(given))
        size = Size.of_lengths(len(problem.text) for problem in problems)
    return Work(
        problems=problems,
        given=given,
        size=size,
        rejects=lambda: chain(bad_rows(), found.rejects),
    )
