"""A labelling job from its configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from mclabel.core.errors import CheckerError
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.given import open_source
from mclabel.labeling.identity import semantic_config
from mclabel.labeling.inputs import input_config, load_inputs
from mclabel.labeling.journal import may_mend, with_committed
from mclabel.labeling.policy import PreparedModels
from mclabel.labeling.task import LabelTask
from mclabel.run.blocks import JobBlocks
from mclabel.run.run import Run, run_task
from mclabel.run.shards.manifest import versions
from mclabel.run.tally import JobReport, JobState

logger = logging.getLogger(__name__)

ONE_ROUND = ("fixed", "outcome")
"""Estimators all of whose rollouts are known once the solutions are."""


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
    run = Run.look(config.out)
    models = PreparedModels.of(config)
    config = models.settled(config)
    if not run.was_begun:
        models.check()
    _warn_of_rounds(config, models)
    semantic = semantic_config(config, models)
    source = open_source(config, semantic)
    inputs = load_inputs(config, source)
    run.check(semantic, may_mend)
    task = LabelTask(
        make_policy=models.author.maker(config.seed),
        completers=models.rolling,
        make_completers=models.makers(config.seed),
        forces=models.forces,
        take_turns=models.take_turns(config.completer_turns),
        source=source,
        settings=config,
        provenance=run.stamp(versions=versions(models.packages), input=input_config(config)),
        keep_rollouts=config.keep_rollouts,
    )
    try:
        return run_task(
            task,
            run,
            inputs,
            config,
            resources=lambda: models.resources(config.ray),
            block_items=config.block_problems,
            journal_s=config.journal_s,
            on_state=on_state,
            accept_changes=accept_changes,
            choose=choose,
            should_stop=should_stop,
            prepare=models.check if run.was_begun else lambda: None,
        )
    except CheckerError as error:
        assert run.store is not None, "nothing is graded before the output is claimed"
        raise with_committed(error, run.store) from error


def _warn_of_rounds(config: LabelConfig, models: PreparedModels) -> None:
    """Say that a job waits for a batch again and again, where it does."""
    batched = any(getattr(one.settings.engine, "batch", False) for one in models.all.values())
    if batched and config.estimator.kind not in ONE_ROUND:
        logger.warning(
            "policy.engine.batch=true: estimator.kind=%s asks in rounds, as outcomes decide what "
            "it asks next, and each round waits for a batch, which may take a day. Choose "
            "estimator.kind=fixed, which takes two batches, or leave out batch",
            config.estimator.kind,
        )
