"""A labelling job from its configuration."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

from mclabel.checkers import make_checker
from mclabel.config import LabelConfig
from mclabel.data.outputs import check_run
from mclabel.data.readers.problems import ChosenProblems, Problems, read_problems
from mclabel.data.readers.remote import local_path
from mclabel.data.readers.solutions import read_solutions
from mclabel.data.shards.manifest import MANIFEST, Semantic, check_claim, claim, read_claim
from mclabel.data.shards.rejects import Reject, set_aside
from mclabel.data.shards.store import Store
from mclabel.data.sizes import Size
from mclabel.engines import make_engine
from mclabel.errors import ConfigError, DataError
from mclabel.labeling.items import ProblemItems
from mclabel.labeling.task import LabelTask
from mclabel.pipelines.fleet import from_anywhere, make_fleet
from mclabel.pipelines.policy import resolved_policy, resources_of
from mclabel.records import GivenSolution
from mclabel.seeds import ID_LENGTH
from mclabel.settings import content_fields
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
        check_claim(Store(config.out), MANIFEST, semantic)
    store = Store(config.out, create=True)
    provenance = {
        "versions": versions(config.policy.engine.component.packages),
        "input": input_config(config),
    }
    task = LabelTask(
        make_policy=make_policy,
        settings=config,
        provenance={**provenance, "config": semantic.config},
        keep_rollouts=config.keep_rollouts,
    )
    claim(store, MANIFEST, semantic, provenance)
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


def semantic_config(config: LabelConfig) -> Semantic:
    """What labels depend on: the semantic fields, the checker, and the content of local files.

    A local model is known by its content, so a folder may move, and may not change; so is a file
    that a setting names. Which engine runs the model is free to change; one that runs none is known
    by its name.
    """
    checker = make_checker(config.checker)
    known: dict[tuple[str, ...], Any] = {
        ("checker", "kind"): checker.name,
        ("checker", "version"): checker.version,
        ("policy", "model"): make_engine(config.policy).model_identity(),
    }
    for path, file in content_fields(config):
        known[path] = _content_of(".".join(path), file)
    semantic = Semantic(identity=config.identity(), config=config.semantic())
    for path, value in known.items():
        for tree in (semantic.identity, semantic.config):
            _put(tree, path, value)
    return semantic


def _content_of(key: str, place: str) -> str:
    """A name of a file's content, which stays when the file moves."""
    try:
        content = local_path(place).read_bytes()
    except (DataError, OSError) as error:
        raise ConfigError(f"{key}={place!r}: cannot be read ({error})") from error
    return f"content:{hashlib.sha256(content).hexdigest()[:ID_LENGTH]}"


def _put(tree: Any, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


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


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Versions of what decides about labels.

    Args:
        packages: of the engine, beside those of every job; what is not installed is left out.
    """
    installed = [name for name in packages if _is_installed(name)]
    return {
        **{name: version(name) for name in ("mclabel", "torch", "transformers", "ray", *installed)},
        "python": platform.python_version(),
    }


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
