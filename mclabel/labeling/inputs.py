"""Inputs of a labelling job: problems, given solutions, and source runs.

A row or problem that cannot be used becomes a reject. A source run is an earlier run whose
solutions are labelled again and whose rollouts are reused; it is never written to. A completer is a
model that samples rollouts. A rollout of the source run replaces the rollout that this job would
sample from the same prefix with the same completer and the same index.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import AUTHOR, GivenSolution, LabeledSolution, Problem, Rollout
from mclabel.core.seeds import canonical_json
from mclabel.data.readers.problems import ChosenProblems, Problems, ProblemStream, read_problems
from mclabel.data.readers.solutions import SelectionManifest, read_selected, read_solutions
from mclabel.labeling.config import LabelConfig
from mclabel.run.forecast import Size
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.labels import iter_label_tables, read_shard_rollouts
from mclabel.run.shards.manifest import (
    MANIFEST,
    SemanticConfig,
    describe_differences,
    read_manifest_config,
    read_run_id,
)
from mclabel.run.shards.plan import read_planned_blocks
from mclabel.run.shards.rejects import Reject
from mclabel.run.shards.schema import parse_labeled_solution, parse_problem, parse_rollout
from mclabel.run.shards.store import Store


def extract_input_config(config: LabelConfig) -> dict[str, Any]:
    """Return the settings that name the sources of problems and solutions.

    The run records them for information only: its plan identifies the problems by their content.
    """
    return {
        "problems": config.problems.model_dump(),
        "solutions": {
            "path": config.solutions.path,
            "run": config.solutions.run,
            "select": config.solutions.select,
        },
        "block_problems": config.block_problems,
    }


@dataclass(frozen=True, kw_only=True)
class ProblemInputs:
    """Problems of a job, with their given solutions if there are any."""

    problems: Problems
    given: Mapping[str, tuple[GivenSolution, ...]] | None = None
    """Given solutions by problem id; None if the policy samples the solutions."""
    size: Size
    """Number of problems and their total number of characters."""
    rejects: Callable[[], Iterable[Reject]]
    """Function that returns the input's unusable rows and problems, with reasons."""
    samples_all_rollouts: bool = True
    """True if this job samples all its rollouts; False if it reuses rollouts of a source run."""

    @classmethod
    def from_stream(cls, stream: ProblemStream) -> Self:
        """Return the inputs of a job whose solutions the policy samples.

        Args:
            stream: problems that were read from a file or generated.
        """
        rejects: Callable[[], Iterable[Reject]] = stream.rejects if stream.num_rejected else tuple
        return cls(problems=stream, size=stream.size, rejects=rejects)

    @property
    def items(self) -> ProblemItems:
        """Problems paired with their given solutions, as the units that the job's blocks consist
        of.
        """
        return ProblemItems(self.problems, self.given)


def load_inputs(config: LabelConfig, source: SourceRun | None = None) -> ProblemInputs:
    """Load the problems and solutions of a configuration.

    Args:
        config: configuration of the job.
        source: source run, which gives the job's problems and solutions; None if there is none.

    Raises:
        DataError: a file cannot be read; if `strict`, a row cannot be used.
    """
    if source is not None:
        lengths = (len(problem.text) for problem in source)
        return ProblemInputs(
            problems=source,
            size=Size.from_lengths(lengths),
            rejects=tuple,
            samples_all_rollouts=False,
        )
    path = config.solutions.path
    stream = read_problems(
        config.problems, may_repeat=path == config.problems.source, strict=config.strict
    )
    read = ProblemInputs.from_stream(stream)
    if path is None:
        return read
    problems, size = read.problems, read.size
    manifest = config.solutions.select
    selected = None if manifest is None else read_selected(manifest)
    solutions = read_solutions(path, problems, selected=selected, strict=config.strict)
    given = solutions.by_problem
    if len(given) < len(problems):
        problems = ChosenProblems(problems, given, count=len(given))
        size = Size.from_lengths(len(problem.text) for problem in problems)
    return ProblemInputs(
        problems=problems,
        given=given,
        size=size,
        rejects=lambda: chain(read.rejects(), solutions.rejects),
    )


class ProblemItem(NamedTuple):
    """A problem to label. It is a tuple because planning creates and drops millions of items."""

    problem: Problem
    given: tuple[GivenSolution, ...] = ()
    """Given solutions to label; if empty, the policy samples the solutions."""

    @property
    def id(self) -> str:
        """Id of the problem."""
        return self.problem.id

    @property
    def num_chars(self) -> int:
        """Length of the problem's text in characters."""
        return len(self.problem.text)

    def content(self) -> Sequence[str]:
        """Return the texts on which the labels depend: the problem, its gold answer, its given
        solutions and the ends of their steps.
        """
        texts = [self.problem.text, self.problem.answer]
        for solution in self.given:
            ends = None if solution.step_ends is None else list(solution.step_ends)
            texts += [solution.text, canonical_json(ends).decode()]
        return texts

    def extra_texts(self) -> Sequence[str]:
        """Return names and values of the problem's remaining columns, on which labels do not
        depend.
        """
        return [text for pair in sorted(self.problem.meta.items()) for text in pair]


class ProblemItems:
    """Problems paired with their given solutions, as the units that a job's blocks consist of."""

    def __init__(
        self, problems: Problems, given: Mapping[str, tuple[GivenSolution, ...]] | None = None
    ) -> None:
        """Pair problems with their given solutions.

        Args:
            problems: problems with distinct ids.
            given: solutions to label, by problem id; None if the policy samples the solutions.
        """
        self._problems, self._given = problems, given or {}

    def __len__(self) -> int:
        return len(self._problems)

    def __iter__(self) -> Iterator[ProblemItem]:
        if not self._given:
            return map(ProblemItem, self._problems)
        return (ProblemItem(p, self._given.get(p.id, ())) for p in self._problems)


RolloutKey = tuple[str, str, int]
"""Key of a rollout: prefix id, name of the completer, and index of the rollout among the
completer's rollouts from this prefix, from 0."""
_MAX_CACHED_BLOCKS = 4
"""Maximum number of blocks of a source run whose labels and rollouts a process keeps in memory."""


@dataclass(frozen=True, kw_only=True)
class SourceProblem:
    """Solutions and rollouts of one problem in a source run."""

    rows: tuple[LabeledSolution, ...]
    """Labelled solutions of the problem, by sample index."""
    rollouts: Mapping[RolloutKey, Rollout]


@dataclass(frozen=True, kw_only=True)
class SourceRun:
    """An earlier run whose solutions and rollouts are reused.

    Iteration yields each problem of the run once.
    """

    location: str
    """Folder or URL of the run."""
    blocks: Mapping[str, str]
    """Id of the block that holds a problem's labels, by problem id."""
    completers: frozenset[str]
    """Names of the models that sampled the run's rollouts."""
    keeps_rollouts: bool
    """True if the run stored its rollouts."""
    selected: SelectionManifest | None = None
    """Selection of the run's solutions to label; None for all solutions."""

    @classmethod
    def read(cls, location: str, selected: SelectionManifest | None = None) -> SourceRun:
        """Index the problems of a run.

        Args:
            location: folder or URL of the run.
            selected: selection of the run's solutions to label; None for all solutions.

        Raises:
            ShardError: the run has no labels, or its labels cannot be read.
            DataError: the run lacks some of the selected solutions.
        """
        solution_ids: list[str] = []
        blocks: dict[str, str] = {}
        completers: set[str] = set()
        kept = True
        for metadata, table in iter_label_tables(Store(location)):
            if selected is not None:
                table = _filter_selected_rows(table, selected)
                solution_ids += table["solution_id"].to_pylist()
            blocks |= dict.fromkeys(pc.unique(table["problem_id"]).to_pylist(), metadata["block"])
            listed = table["completers"].combine_chunks().flatten()
            completers |= set(pc.unique(listed.field("name")).to_pylist() or [AUTHOR])
            kept &= metadata["rollouts"] is not None
        if selected is not None:
            selected.check_none_missing(solution_ids, location)
        return cls(
            location=location,
            selected=selected,
            blocks=blocks,
            completers=frozenset(completers),
            keeps_rollouts=kept,
        )

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Problem]:
        seen = set()
        for _, table in iter_label_tables(Store(self.location)):
            for row in table.to_pylist():
                if row["problem_id"] in self.blocks and row["problem_id"] not in seen:
                    seen.add(row["problem_id"])
                    yield parse_problem(row)

    def read_problem(self, problem: Problem) -> SourceProblem:
        """Read the solutions and rollouts of a problem from the shard that holds them.

        Raises:
            ShardError: the shard cannot be read.
            DataError: the source run does not hold the problem any more.
        """
        labels, kept = None, None
        if (block := self.blocks.get(problem.id)) is not None:
            labels, kept = _read_block_tables(self.location, block)
        labeled = map(parse_labeled_solution, _list_problem_rows(labels, problem.id))
        rows = sorted(self._iter_selected_rows(labeled), key=lambda row: row.solution.sample_index)
        if not rows:
            raise DataError(
                f"{self.location}: no longer holds the labels of problem {problem.id}, which this "
                "job reuses. Restore that run"
            )
        rollouts = [parse_rollout(row) for row in _list_problem_rows(kept, problem.id)]
        return SourceProblem(
            rows=tuple(rows),
            rollouts={(r.prefix_id, r.completer, r.index): r for r in rollouts},
        )

    def _iter_selected_rows(self, rows: Iterable[LabeledSolution]) -> Iterator[LabeledSolution]:
        """Yield the selected rows of a problem with their probability of selection. If a row was
        already selected from a larger pool, the two probabilities are multiplied.
        """
        for row in rows:
            if self.selected is None:
                yield row
            elif row.solution.id in self.selected.probabilities:
                selection = self.selected.get_selection(row.solution.id)
                before = 1.0 if row.selection_probability is None else row.selection_probability
                yield replace(
                    row,
                    chosen_by_outcome=row.chosen_by_outcome or selection.by_content,
                    selection_probability=before * selection.probability,
                )


def _filter_selected_rows(table: pa.Table, selected: SelectionManifest) -> pa.Table:
    """Return the selected rows of a labels shard, after checking that their texts are those that
    were selected.
    """
    table = table.filter(pc.is_in(table["solution_id"], pa.array(list(selected.text_hashes))))
    for row in table.select(["solution_id", "problem", "solution"]).to_pylist():
        selected.check_text(row["solution_id"], row["problem"], row["solution"])
    return table


def _list_problem_rows(table: pa.Table | None, name: str) -> list[dict[str, object]]:
    if table is None:
        return []
    rows: list[dict[str, object]] = table.filter(pc.equal(table["problem_id"], name)).to_pylist()
    return rows


@lru_cache(maxsize=_MAX_CACHED_BLOCKS)
def _read_block_tables(location: str, block: str) -> tuple[pa.Table, pa.Table | None]:
    """Read the labels of a block, and its rollouts if these were stored."""
    store = Store(location)
    ((metadata, labels),) = iter_label_tables(store, {block})
    kept = metadata["rollouts"] is not None
    return labels, read_shard_rollouts(store, metadata) if kept else None


logger = logging.getLogger(__name__)

_MATCHING_SECTIONS = ("policy", "split", "checker")
"""Configuration sections that must be the same as in the source run, because its solutions and
rollouts depend on them."""


def identify_source_run(location: str) -> str:
    """Return an identifier of a run that stays the same when the run is moved.

    Raises:
        ConfigError: the location does not hold a run of `mclabel label`.
    """
    source_id = read_run_id(Store(location))
    if source_id is None:
        raise ConfigError(
            f"solutions.run={location!r}: is not a run of mclabel label. Give the folder or URL "
            "of such a run, or pass a file of solutions as solutions.path"
        )
    return f"run:{source_id}"


def open_source_run(config: LabelConfig, semantic: SemanticConfig) -> SourceRun | None:
    """Open the source run of a job; return None if `solutions.run` is not set.

    Args:
        config: configuration of the job.
        semantic: settings and content hashes on which the job's labels depend.

    Raises:
        ConfigError: the location does not hold a labelling run, the solutions come from another
            policy, or a completer of the same name is another model.
        ShardError: the run has no labels, or its labels cannot be read.
    """
    location = config.solutions.run
    if location is None:
        return None
    try:
        identify_source_run(location)
    except ShardError as error:
        raise ConfigError(f"solutions.run={location!r}: {error}") from error
    source_config = read_manifest_config(Store(location), MANIFEST) or {}
    if "policy" not in source_config:
        raise ConfigError(
            f"solutions.run={location!r}: its labels do not come from rollouts of mclabel label, "
            "so there is nothing to reuse. Export it, and pass its solutions as solutions.path"
        )
    job_config = semantic.config
    changed = describe_differences(
        {name: source_config.get(name) for name in _MATCHING_SECTIONS},
        {name: job_config.get(name) for name in _MATCHING_SECTIONS},
    )
    job_completers = _map_completers_by_name(job_config)
    for name, completer in _map_completers_by_name(source_config).items():
        if name in job_completers:
            place = f"completers.{name}"
            changed += describe_differences({place: completer}, {place: job_completers[name]})
    if changed:
        lines = "\n".join(changed)
        raise ConfigError(
            f"solutions.run={location!r}: its solutions and rollouts were sampled with other "
            f"settings:\n{lines}\nSet the same values here. If a completer is a different model, "
            "give it a different name"
        )
    try:
        manifest = config.solutions.select
        source = SourceRun.read(location, read_selected(manifest) if manifest else None)
    except ShardError as error:
        raise ConfigError(f"solutions.run={location!r}: {error}") from error
    _warn_of_unused_results(
        source, {rolling.label_name for rolling in config.completers} or {AUTHOR}
    )
    return source


def _warn_of_unused_results(source: SourceRun, completer_names: set[str]) -> None:
    """Log a warning if a source run is incomplete, or if some of its rollouts are not used.

    Args:
        source: source run.
        completer_names: names of the job's completers.
    """
    store = Store(source.location)
    planned, done = read_planned_blocks(store), len(read_catalog(store).blocks)
    if planned is not None and done < len(planned.names):
        logger.warning(
            "%s is not finished: %d of its %d blocks are labelled. The other blocks are not used",
            source.location,
            done,
            len(planned.names),
        )
    if not source.keeps_rollouts:
        logger.warning(
            "%s did not store rollouts (keep_rollouts=false), so all rollouts are sampled again",
            source.location,
        )
    if unused := sorted(source.completers - completer_names):
        logger.warning(
            "%s has rollouts by %s, which are not used. Add these models to completers to reuse "
            "their rollouts",
            source.location,
            ", ".join(unused),
        )


def _map_completers_by_name(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the completers of a configuration by name, without their costs."""
    return {
        completer["name"]: {
            key: value for key, value in completer.items() if key not in ("name", "cost")
        }
        for completer in config.get("completers") or []
    }
