"""Inputs of a labelling job: problems as its items, given solutions, and a run as their source.

What cannot be used is a reject. Of a source run, solutions are labelled again, and rollouts are
taken over. The source is only read. A rollout of it stands for the one that this job would sample:
the same completer from the same prefix, under the same number.
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
from mclabel.data.readers.solutions import Selected, read_selected, read_solutions
from mclabel.labeling.config import LabelConfig
from mclabel.run.forecast import Size
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.labels import label_tables, named_rollouts
from mclabel.run.shards.manifest import MANIFEST, Semantic, claimed_config, differences, run_id
from mclabel.run.shards.plan import planned_blocks
from mclabel.run.shards.rejects import Reject
from mclabel.run.shards.schema import labeled_solution, problem_of, recorded_rollout
from mclabel.run.shards.store import Store


def input_config(config: LabelConfig) -> dict[str, Any]:
    """Return where problems and solutions come from: recorded, while the plan holds what they
    are.
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
    """Problems of a job, with solutions where they are given."""

    problems: Problems
    given: Mapping[str, tuple[GivenSolution, ...]] | None = None
    """Solutions by problem id; None lets the policy sample them."""
    size: Size
    """Amount of text of all problems."""
    rejects: Callable[[], Iterable[Reject]]
    """Gives what of the input cannot be used."""
    sampled_here: bool = True
    """True if all tokens of the labels are this job's: no rollouts are taken over."""

    @classmethod
    def of(cls, stream: ProblemStream) -> Self:
        """Return the inputs of problems that were read."""
        rejects: Callable[[], Iterable[Reject]] = stream.rejects if stream.num_rejected else tuple
        return cls(problems=stream, size=stream.size, rejects=rejects)

    @property
    def items(self) -> ProblemItems:
        """The problems with their solutions, as items of the job."""
        return ProblemItems(self.problems, self.given)


def load_inputs(config: LabelConfig, source: SourceRun | None = None) -> ProblemInputs:
    """Load the problems and solutions of a configuration.

    Args:
        config: configuration of the job.
        source: the run whose solutions are labelled; its problems are those of the job.

    Raises:
        DataError: they cannot be read; if `strict`, a row of theirs cannot be used.
    """
    if source is not None:
        lengths = (len(problem.text) for problem in source)
        return ProblemInputs(
            problems=source,
            size=Size.of_lengths(lengths),
            rejects=tuple,
            sampled_here=False,
        )
    path = config.solutions.path
    stream = read_problems(
        config.problems, may_repeat=path == config.problems.source, strict=config.strict
    )
    read = ProblemInputs.of(stream)
    if path is None:
        return read
    problems, size = read.problems, read.size
    manifest = config.solutions.select
    selected = None if manifest is None else read_selected(manifest)
    solutions = read_solutions(path, problems, selected=selected, strict=config.strict)
    given = solutions.by_problem
    if len(given) < len(problems):
        problems = ChosenProblems(problems, given, count=len(given))
        size = Size.of_lengths(len(problem.text) for problem in problems)
    return ProblemInputs(
        problems=problems,
        given=given,
        size=size,
        rejects=lambda: chain(read.rejects(), solutions.rejects),
    )


class ProblemItem(NamedTuple):
    """A problem to be labelled. A tuple, as jobs make and drop millions of them to plan."""

    problem: Problem
    given: tuple[GivenSolution, ...] = ()
    """Solutions to label; without any, the policy samples them."""

    @property
    def id(self) -> str:
        """Id of the problem."""
        return self.problem.id

    @property
    def num_chars(self) -> int:
        """Length of the problem's text."""
        return len(self.problem.text)

    def content(self) -> Sequence[str]:
        """Text, gold, and the given solutions with the ends of their steps."""
        texts = [self.problem.text, self.problem.answer]
        for solution in self.given:
            ends = None if solution.step_ends is None else list(solution.step_ends)
            texts += [solution.text, canonical_json(ends).decode()]
        return texts

    def extras(self) -> Sequence[str]:
        """Names and values of the problem's other columns."""
        return [text for pair in sorted(self.problem.meta.items()) for text in pair]


class ProblemItems:
    """Problems, with the solutions that are given for them, as items of a job."""

    def __init__(
        self, problems: Problems, given: Mapping[str, tuple[GivenSolution, ...]] | None = None
    ) -> None:
        """Pair problems with their solutions.

        Args:
            problems: with distinct ids.
            given: solutions to label, by problem id; None lets the policy sample them.
        """
        self._problems, self._given = problems, given or {}

    def __len__(self) -> int:
        return len(self._problems)

    def __iter__(self) -> Iterator[ProblemItem]:
        if not self._given:
            return map(ProblemItem, self._problems)
        return (ProblemItem(p, self._given.get(p.id, ())) for p in self._problems)


Place = tuple[str, str, int]
"""Id of a prefix, name of a completer, and the number of a rollout."""
_KEPT = 4
"""Shards of a source that a process keeps in memory."""


@dataclass(frozen=True, kw_only=True)
class SourceProblem:
    """Solutions and rollouts of one problem in a source."""

    rows: tuple[LabeledSolution, ...]
    """Its labelled solutions, in their order."""
    rollouts: Mapping[Place, Rollout]


@dataclass(frozen=True, kw_only=True)
class SourceRun:
    """A run that is read as a source. It iterates over its problems, each once."""

    location: str
    blocks: Mapping[str, tuple[str, ...]]
    """Blocks of the shard that has a problem's labels, by problem id."""
    completers: frozenset[str]
    """Names of the models that rolled out."""
    keeps_rollouts: bool
    selected: Selected | None = None
    """Which of its solutions are labelled; None for all."""

    @classmethod
    def read(cls, location: str, selected: Selected | None = None) -> SourceRun:
        """Find the problems of a run.

        Args:
            location: location of the run.
            selected: which of its solutions are labelled; None for all.

        Raises:
            ShardError: it has no labels, or they cannot be read.
            DataError: the run does not have the selected solutions.
        """
        solution_ids: list[str] = []
        blocks: dict[str, tuple[str, ...]] = {}
        completers: set[str] = set()
        kept = True
        for metadata, table in label_tables(Store(location)):
            own = tuple(metadata["blocks"]) if "blocks" in metadata else (metadata["block"],)
            if selected is not None:
                table = _of_selected(table, selected)
                solution_ids += table["solution_id"].to_pylist()
            blocks |= dict.fromkeys(pc.unique(table["problem_id"]).to_pylist(), own)
            listed = table["completers"].combine_chunks().flatten()
            completers |= set(pc.unique(listed.field("name")).to_pylist() or [AUTHOR])
            kept &= metadata["rollouts"] is not None
        if selected is not None:
            selected.check_found(solution_ids, location)
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
        for _, table in label_tables(Store(self.location)):
            for row in table.to_pylist():
                if row["problem_id"] in self.blocks and row["problem_id"] not in seen:
                    seen.add(row["problem_id"])
                    yield problem_of(row)

    def problem(self, problem: Problem) -> SourceProblem:
        """The solutions and rollouts of a problem; reads the shard that has them.

        Raises:
            ShardError: they cannot be read.
            DataError: the source has the problem no more.
        """
        labels, kept = _shard(self.location, self.blocks.get(problem.id, ()))
        labeled = map(labeled_solution, _of_problem(labels, problem.id))
        rows = sorted(self._with_selection(labeled), key=lambda row: row.solution.sample_index)
        if not rows:
            raise DataError(
                f"{self.location}: no longer holds labels of problem {problem.id}, "
                "which this job was to reuse. Restore that run"
            )
        rollouts = [recorded_rollout(row) for row in _of_problem(kept, problem.id)]
        return SourceProblem(
            rows=tuple(rows),
            rollouts={(r.prefix_id, r.completer, r.index): r for r in rollouts},
        )

    def _with_selection(self, rows: Iterable[LabeledSolution]) -> Iterator[LabeledSolution]:
        """Yield the selected rows of a problem, with their selection recorded. The probabilities of
        successive selections multiply.
        """
        for row in rows:
            if self.selected is None:
                yield row
            elif row.solution.id in self.selected.probabilities:
                selection = self.selected.selection(row.solution.id)
                before = 1.0 if row.selection_probability is None else row.selection_probability
                yield replace(
                    row,
                    chosen_by_outcome=row.chosen_by_outcome or selection.by_content,
                    selection_probability=before * selection.probability,
                )


def _of_selected(table: pa.Table, selected: Selected) -> pa.Table:
    """The rows of a labels shard that are selected, whose texts must be those that were chosen."""
    table = table.filter(pc.is_in(table["solution_id"], pa.array(list(selected.texts))))
    for row in table.select(["solution_id", "problem", "solution"]).to_pylist():
        selected.check_text(row["solution_id"], row["problem"], row["solution"])
    return table


def _of_problem(table: pa.Table | None, name: str) -> list[dict[str, object]]:
    if table is None:
        return []
    rows: list[dict[str, object]] = table.filter(pc.equal(table["problem_id"], name)).to_pylist()
    return rows


@lru_cache(maxsize=_KEPT)
def _shard(location: str, blocks: tuple[str, ...]) -> tuple[pa.Table | None, pa.Table | None]:
    """The labels of blocks that lie in one shard, and its rollouts if they were kept."""
    store = Store(location)
    for metadata, labels in label_tables(store, set(blocks)):
        kept = metadata["rollouts"] is not None
        return labels, named_rollouts(store, metadata) if kept else None
    return None, None


logger = logging.getLogger(__name__)

_SAME = ("policy", "split", "checker")
"""Parts of the configuration that solutions and rollouts rest on."""


def source_identity(location: str) -> str:
    """Return the identity of a run, which does not depend on its location.

    Raises:
        ConfigError: it is no run of `mclabel label`.
    """
    source_id = run_id(Store(location))
    if source_id is None:
        raise ConfigError(
            f"solutions.run={location!r}: is not a run of mclabel label. Give the folder or URL "
            "of one; pass a file of solutions as solutions.path"
        )
    return f"run:{source_id}"


def open_source(config: LabelConfig, semantic: Semantic) -> SourceRun | None:
    """Open the run that is the source of a job; None if there is none.

    Args:
        config: configuration of the job.
        semantic: what its labels depend on.

    Raises:
        ConfigError: it is no labelling run, its solutions are another policy's, or a completer of
            the same name is another model.
        ShardError: it has no labels, or they cannot be read.
    """
    location = config.solutions.run
    if location is None:
        return None
    try:
        source_identity(location)
    except ShardError as error:
        raise ConfigError(f"solutions.run={location!r}: {error}") from error
    theirs = claimed_config(Store(location), MANIFEST) or {}
    if "policy" not in theirs:
        raise ConfigError(
            f"solutions.run={location!r}: its labels do not come from rollouts of mclabel label, "
            "so there is nothing to reuse. Export it, and pass its solutions as solutions.path"
        )
    ours = semantic.config
    changed = differences(
        {name: theirs.get(name) for name in _SAME}, {name: ours.get(name) for name in _SAME}
    )
    mine = _by_name(ours)
    for name, completer in _by_name(theirs).items():
        if name in mine:
            place = f"completers.{name}"
            changed += differences({place: completer}, {place: mine[name]})
    if changed:
        lines = "\n".join(changed)
        raise ConfigError(
            f"solutions.run={location!r}: its solutions and rollouts were sampled with other "
            f"settings:\n{lines}\nGive the same values here. A completer that is another model "
            "needs another name"
        )
    try:
        manifest = config.solutions.select
        source = SourceRun.read(location, read_selected(manifest) if manifest else None)
    except ShardError as error:
        raise ConfigError(f"solutions.run={location!r}: {error}") from error
    _warn_of_gaps(source, {rolling.called for rolling in config.completers} or {AUTHOR})
    return source


def _warn_of_gaps(source: SourceRun, names: set[str]) -> None:
    """Warn of parts that a source lacks, and of parts that are not used."""
    store = Store(source.location)
    planned, done = planned_blocks(store), len(read_catalog(store).blocks)
    if planned is not None and done < len(planned.names):
        logger.warning(
            "%s is not finished: %d of its %d blocks are labelled, and the rest is left out",
            source.location,
            done,
            len(planned.names),
        )
    if not source.keeps_rollouts:
        logger.warning(
            "%s has kept no rollouts (keep_rollouts=false), so all rollouts are sampled again",
            source.location,
        )
    if unused := sorted(source.completers - names):
        logger.warning(
            "%s has rollouts by %s, which completers does not name: they are left out",
            source.location,
            ", ".join(unused),
        )


def _by_name(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the completers of a configuration by name, without their costs."""
    return {
        completer["name"]: {
            key: value for key, value in completer.items() if key not in ("name", "cost")
        }
        for completer in config.get("completers") or []
    }
