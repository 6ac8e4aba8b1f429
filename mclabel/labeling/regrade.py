"""Grades a run again: with the installed checker, corrected golds, or other checker settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
from pydantic import Field, ValidationError

from mclabel.answers.golds import Gold, InvalidGold, read_gold
from mclabel.checkers import Checker, make_checker, run_inline
from mclabel.checkers.base import CheckerField, default_checker, keep_valid_keys
from mclabel.core.components import ComponentNotAllowed, allow_components
from mclabel.core.config.load import load_config_from_mapping
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import LabeledSolution
from mclabel.core.seeds import content_id
from mclabel.core.settings import CONTENT, Settings, find_settings_class
from mclabel.data.readers.rows import read_file_rows
from mclabel.labeling.estimators import EstimatorSettings
from mclabel.labeling.grading import grade_intermediate_answers
from mclabel.labeling.regrading import Regraded, regrade_block
from mclabel.labeling.rewritten import (
    RewrittenRun,
    SourceBlock,
    begin_rewritten_run,
    check_rollouts_kept,
    hash_superseded_rows,
    read_recorded_config,
)
from mclabel.run.run import make_location_absolute
from mclabel.run.shards.manifest import report_value_errors_as_damaged_priors
from mclabel.run.shards.store import Store


@dataclass(kw_only=True)
class RegradeReport:
    """Results of grading a run again. The counts exclude blocks that an earlier call finished."""

    checkers: tuple[str, str]
    """Kind and version of the source run's checker, and of the checker used now."""
    num_blocks: int = 0
    """Number of blocks of the source run."""
    num_blocks_resumed: int = 0
    """Number of blocks that an earlier call finished."""
    num_solutions: int = 0
    num_solutions_changed: int = 0
    """Number of solutions whose outcome changed."""
    num_first_errors_changed: int = 0
    """Number of solutions whose first wrong step changed."""
    num_rollouts: int = 0
    """Number of recorded rollouts."""
    num_rollouts_changed: int = 0
    """Number of recorded rollouts whose outcome changed."""
    num_rollouts_unused: int = 0
    """Number of recorded rollouts that none of the new labels is based on."""
    num_rollouts_missing: int = 0
    """Number of rollouts that the estimator asked for but that were never sampled."""
    num_golds: int = 0
    """Number of corrected gold answers."""
    num_golds_unknown: int = 0
    """Number of corrected gold answers for problems without labels in the run."""
    num_golds_mismatched: int = 0
    """Number of corrected gold answers that were not used because the run's problem of the same id
    has another text."""

    def lines(self) -> list[str]:
        """Return the report as lines to print."""
        lines = [
            f"checker {self.checkers[0]} then, {self.checkers[1]} now; "
            f"{self.num_blocks_resumed:,} of {self.num_blocks:,} blocks were finished before",
            f"{self.num_solutions:,} solutions: {self.num_solutions_changed:,} changed outcomes, "
            f"{self.num_first_errors_changed:,} changed first errors",
            f"{self.num_rollouts:,} rollouts: {self.num_rollouts_changed:,} changed outcomes",
        ]
        if self.num_rollouts_unused:
            lines.append(
                f"{self.num_rollouts_unused:,} rollouts are no longer used, because the estimator "
                "would not request them now"
            )
        if self.num_rollouts_missing:
            lines.append(
                f"{self.num_rollouts_missing:,} rollouts that the estimator requests now were "
                "never sampled: labels are computed without them (column num_missing)"
            )
        if self.num_golds:
            lines.append(
                f"{self.num_golds:,} golds corrected; {self.num_golds_unknown:,} of them name a "
                "problem that the run does not have"
            )
        if self.num_golds_mismatched:
            lines.append(
                f"{self.num_golds_mismatched:,} golds were not used, because the problem in the "
                "file of golds has another text than the run's problem of the same id"
            )
        return lines


def regrade(
    run: str,
    out: str,
    *,
    golds: str | None = None,
    checker: Sequence[str] = (),
    change_checker: bool = False,
    allow: Sequence[str] = (),
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> RegradeReport:
    """Grade a run's solutions and rollouts again, and write the new labels as a new run.

    An interrupted call is resumed by the same call.

    Args:
        run: folder or URL of the run to grade again; it must be labelled with keep_rollouts=true.
        out: folder or URL of the new run.
        golds: file of corrected gold answers, with columns `problem_id` and `answer`. If a row also
            has `problem`, its answer is used only if the run's problem has this text.
        checker: changes to the run's checker, such as `checker.units_optional=false`, or another
            checker, such as `checker=my_package.grading:is_right`.
        change_checker: True if the checker may be of another kind than the run's.
        allow: modules, packages or names of the form `module:Class` that may be imported if the
            run's configuration names them. Other user code is not imported.
        on_progress: called with the number of finished blocks and the number of all blocks.

    Raises:
        ConfigError: the run's estimator cannot be replayed, the checker does not exist, or the
            kind of checker differs from the run's without `change_checker`.
        DataError: the golds cannot be read, or the run did not store its rollouts.
        ShardError: `run` does not hold a run, or `out` holds another one.
    """
    source = Store(run)
    config = read_recorded_config(source)
    if "combined" in config:
        raise ConfigError(
            f"{run}: its labels are combined with opinions of judges and cannot be graded again. "
            "Grade the original run again, and combine the new labels with the opinions"
        )
    with allow_components(allow):
        settings = _read_recorded_estimator(config, run)
    recorded = config.get("checker")
    recorded = recorded if isinstance(recorded, Mapping) else {}
    content = {"checker": keep_valid_keys(recorded)} if recorded else {}
    chosen = load_config_from_mapping(
        _CheckerChoice, content, checker, allowed_components=allow
    ).checker
    kind = recorded.get("kind")
    if kind not in (None, chosen.kind) and not change_checker:
        raise ConfigError(
            f"checker.kind={chosen.kind}: {run} was graded by {kind}, and another checker may "
            "change every verdict. Remove checker.kind, or pass --change-checker to change it"
        )
    grader = make_checker(chosen)
    corrected = _read_corrected_golds(golds) if golds is not None else {}
    semantic = {
        **config,
        "checker": {**chosen.semantic(), "version": grader.version},
        "regraded": {
            "run": make_location_absolute(run),
            "checker": config.get("checker"),
            "golds": content_id(sorted((name, *gold.content) for name, gold in corrected.items()))
            if corrected
            else None,
            **hash_superseded_rows(source),
        },
    }
    target, provenance = begin_rewritten_run(run, out, semantic, action="graded again")
    rewritten = RewrittenRun(source, target, provenance, action="regraded")
    work = _RegradeJob(rewritten, settings, corrected, grader, run)
    return work.run(f"{kind} {recorded.get('version')}" if recorded else "none", on_progress)


class _RegradeJob:
    def __init__(
        self,
        rewritten: RewrittenRun,
        settings: EstimatorSettings,
        golds: Mapping[str, _CorrectedGold],
        checker: Checker,
        run: str,
    ) -> None:
        self._rewritten, self._run_name = rewritten, run
        self._settings, self._golds, self._checker = settings, golds, checker
        self._knowledge = lru_cache(maxsize=None)(self._read_knowledge)

    def run(self, checker: str, on_progress: Callable[[int, int], None]) -> RegradeReport:
        with asyncio.Runner() as self._runner:
            return self._regrade_all_blocks(checker, on_progress)

    def _regrade_all_blocks(
        self, checker: str, on_progress: Callable[[int, int], None]
    ) -> RegradeReport:
        rewritten = self._rewritten
        report = RegradeReport(
            checkers=(checker, f"{self._checker.name} {self._checker.version}"),
            num_blocks=rewritten.num_blocks,
            num_blocks_resumed=rewritten.num_resumed,
            num_golds=len(self._golds),
        )
        unknown, mismatched = set(self._golds), set[str]()

        def record_gold_matches(table: pa.Table) -> None:
            names, texts = table["problem_id"].to_pylist(), table["problem"].to_pylist()
            unknown.difference_update(names)
            for name, text in zip(names, texts, strict=True):
                if name in self._golds and not self._golds[name].matches_problem(text):
                    mismatched.add(name)

        for block in rewritten.iter_missing_blocks(on_progress, record_gold_matches):
            again = self._regrade_source_block(block)
            rewritten.commit(
                block, again.labeled, None if block.rollouts is None else again.rollouts
            )
            _add_changes_to_report(report, block.rows, again)
        rewritten.finish()
        report.num_golds_unknown, report.num_golds_mismatched = len(unknown), len(mismatched)
        return report

    def _regrade_source_block(self, block: SourceBlock) -> Regraded:
        check_rollouts_kept(self._run_name, block, "graded again")
        return regrade_block(
            block.rows,
            block.rollouts or (),
            settings=self._settings,
            golds={
                name: gold.gold
                for name, text in {row.problem.id: row.problem.text for row in block.rows}.items()
                if (gold := self._golds.get(name)) is not None and gold.matches_problem(text)
            },
            read_knowledge=self._knowledge,
            grade=lambda items: self._runner.run(self._checker.grade(items, run_inline)),
            grade_intermediate=lambda problem, solutions: self._runner.run(
                grade_intermediate_answers(problem, solutions, self._checker)
            ),
        )

    def _read_knowledge(self, identity: str) -> Any:
        content = self._rewritten.copy_and_read_priors(identity)
        with report_value_errors_as_damaged_priors(Store(self._run_name), identity):
            return self._settings.component.read_knowledge(content)


def _add_changes_to_report(
    report: RegradeReport, rows: Sequence[LabeledSolution], regraded: Regraded
) -> None:
    pairs = list(zip(rows, regraded.labeled, strict=True))
    report.num_solutions += len(pairs)
    report.num_solutions_changed += sum(a.solution.outcome != b.solution.outcome for a, b in pairs)
    report.num_first_errors_changed += sum(a.first_error != b.first_error for a, b in pairs)
    report.num_rollouts += regraded.num_rollouts
    report.num_rollouts_changed += regraded.num_changed
    report.num_rollouts_unused += regraded.num_rollouts - len(regraded.rollouts)
    report.num_rollouts_missing += regraded.num_missing


def parse_recorded_estimator(content: Mapping[str, Any]) -> EstimatorSettings:
    """Parse the settings of an estimator from a run's manifest.

    File names in the settings are ignored, because the run stores the content that was read.

    Raises:
        ConfigError: the estimator does not exist.
        ValidationError: the settings do not belong to the estimator.
    """
    settings_type = find_settings_class("estimators", content["kind"])
    values = dict(content)
    for name, info in settings_type.model_fields.items():
        if CONTENT in info.metadata:
            values.pop(name, None)
    return cast(EstimatorSettings, settings_type.model_validate(values))


def _read_recorded_estimator(config: Mapping[str, Any], run: str) -> EstimatorSettings:
    try:
        settings = parse_recorded_estimator(config["estimator"])
    except ComponentNotAllowed as error:
        raise ConfigError(f"{run}: its estimator {error}") from error
    except (KeyError, TypeError, ValidationError, ConfigError) as error:
        raise ConfigError(
            f"{run}: this version of mclabel does not have the estimator that the manifest names "
            f"({error}). Install the version of mclabel that labelled the run"
        ) from error
    if not settings.component.replayable:
        raise ConfigError(
            f"{run}: was labelled with estimator.kind={settings.kind}, which chose its rollouts "
            "by earlier verdicts and cannot be replayed with other verdicts. Label the problems "
            "again with another estimator"
        )
    return settings


class _CheckerChoice(Settings):
    """Settings of the checker for grading a run again."""

    checker: CheckerField = Field(default_factory=default_checker)


@dataclass(frozen=True, kw_only=True)
class _CorrectedGold:
    """A corrected gold answer."""

    gold: Gold
    problem: str | None
    """Text of the problem, which the run's problem must have; None if the file has no text."""

    @property
    def content(self) -> tuple[str, ...]:
        """Texts on which labels depend: the gold answer, and the problem if the file has it."""
        return (self.gold.answer,) if self.problem is None else (self.gold.answer, self.problem)

    def matches_problem(self, problem: str) -> bool:
        """Return whether the gold applies to a problem with this text.

        White space around the text does not matter.
        """
        return self.problem is None or self.problem.strip() == problem.strip()


def _read_corrected_golds(path: str) -> dict[str, _CorrectedGold]:
    golds: dict[str, _CorrectedGold] = {}
    for place, row in read_file_rows(path):
        identity = row.get("problem_id")
        if identity in (None, "") or row.get("answer") is None:
            raise DataError(
                f"{place}: a row needs problem_id, and answer with the corrected gold. Fill in both"
            )
        gold = read_gold(row["answer"])
        if isinstance(gold, InvalidGold):
            raise DataError(
                f"{place}: the corrected gold in column answer {gold.detail}. Correct the row"
            )
        text = row.get("problem")
        if not isinstance(text, str | None):
            raise DataError(
                f"{place}: problem must be a string, but it is of type {type(text).__name__}. "
                "Correct the row"
            )
        corrected = _CorrectedGold(gold=gold, problem=text)
        if golds.setdefault(str(identity), corrected) != corrected:
            raise DataError(
                f"{place}: problem {identity!r} has a different gold or text in an "
                "earlier row. Keep only one of the two rows"
            )
    if not golds:
        raise DataError(f"{path}: holds no golds. Give a file with problem_id and answer")
    return golds
