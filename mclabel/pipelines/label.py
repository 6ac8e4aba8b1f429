"""A labelling job from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from mclabel.config import LabelConfig
from mclabel.data.outputs import check_run
from mclabel.data.shards.manifest import MANIFEST, read_claim
from mclabel.data.shards.rejects import set_aside
from mclabel.data.shards.store import Store
from mclabel.errors import CheckerError, DataError
from mclabel.labeling.task import LabelTask
from mclabel.pipelines.fleet import from_anywhere, make_fleet
from mclabel.pipelines.identity import check_output, claim_output, semantic_config, versions
from mclabel.pipelines.inputs import input_config, load_inputs
from mclabel.pipelines.mended import take_mended_checker, with_committed
from mclabel.pipelines.policy import PreparedModels
from mclabel.pipelines.source import open_source
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
    models = PreparedModels.of(config)
    config = models.settled(config)
    if not (was_begun := _was_begun(config.out)):
        models.check()
    semantic = semantic_config(config, models)
    source = open_source(config, semantic)
    inputs = load_inputs(config, source)
    if was_begun:
        take_mended_checker(Store(config.out), semantic)
    check_output(config.out, semantic)

    store = Store(config.out, create=True)
    provenance = {"versions": versions(models.packages), "input": input_config(config)}
    claim_output(store, semantic, provenance)
    task = LabelTask(
        make_policy=models.author.maker(config.seed),
        completers=models.rolling,
        make_completers=models.makers(config.seed),
        take_turns=models.take_turns(config.completer_turns),
        source=source,
        settings=config,
        provenance={**provenance, **semantic.stamp()},
        keep_rollouts=config.keep_rollouts,
    )
    blocks = plan_blocks(
        store,
        inputs.items,
        task.outputs,
        identity=semantic.identity,
        block_items=config.block_problems,
        accept_changes=accept_changes,
    )
    if config.strict:
        _check_none_left_out(store)
    worker = partial(Worker, task, out=from_anywhere(config.out), journal_s=config.journal_s)
    try:
        report = run_job(
            blocks,
            task.outputs,
            make_fleet(config.ray, models.resources(config.ray), worker),
            store,
            on_state=on_state,
            limits=Limits(max_tokens=config.budget.max_tokens, max_hours=config.budget.max_hours),
            should_stop=should_stop,
            only=None if choose is None else choose(blocks),
            size=inputs.size,
            rejects=inputs.rejects,
            prepare=models.check if was_begun else lambda: None,
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
