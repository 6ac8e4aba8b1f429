"""A run graded again: with the checker of today, with other golds, or by other rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
from pydantic import Field, ValidationError

from mclabel.answers.golds import Gold, NoGold, read_gold
from mclabel.checkers import Checker, CheckerSettings, Grade, GradeItem, here, make_checker
from mclabel.checkers.base import CheckerField, default_checker, recorded_keys
from mclabel.core.components import NotAllowed, within
from mclabel.core.config.load import load_content
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import LabeledSolution, Problem, Solution
from mclabel.core.seeds import content_id
from mclabel.core.settings import CONTENT, Settings, settings_class
from mclabel.data.readers.rows import file_rows
from mclabel.labeling.estimators import EstimatorSettings
from mclabel.labeling.grading import Commitments, commitments
from mclabel.labeling.regrading import Regraded, regrade_block
from mclabel.labeling.rewritten import (
    RewrittenRun,
    SourceBlock,
    begin_rewritten,
    check_kept,
    place_of,
    recorded_config,
    superseded_rows,
)
from mclabel.run.shards.manifest import making_use_of
from mclabel.run.shards.store import Store


@dataclass(kw_only=True)
class RegradeReport:
    """Results of grading a run again. Counts are of this call; a resumed one has fewer."""

    checkers: tuple[str, str]
    """Versions of the checker: that of the source run, and the installed one."""
    num_blocks: int = 0
    num_blocks_resumed: int = 0
    num_solutions: int = 0
    num_solutions_changed: int = 0
    """Number of solutions whose outcome changed."""
    num_first_errors_changed: int = 0
    num_rollouts: int = 0
    """Number of recorded rollouts."""
    num_rollouts_changed: int = 0
    num_rollouts_unused: int = 0
    """Number of recorded rollouts that no new label uses."""
    num_rollouts_missing: int = 0
    """Number of rollouts that the estimator asked for but that were never sampled."""
    num_golds: int = 0
    """Number of corrected gold answers."""
    num_golds_unknown: int = 0
    """Number of corrected gold answers for problems without labels in the run."""
    num_golds_mismatched: int = 0
    """Number of corrected gold answers that were not used, as the run has another problem of that
    id."""

    def lines(self) -> list[str]:
        """Return what to say of it."""
        lines = [
            f"checker {self.checkers[0]} then, {self.checkers[1]} now; "
            f"{self.num_blocks_resumed:,} of {self.num_blocks:,} blocks were done before",
            f"{self.num_solutions:,} solutions: {self.num_solutions_changed:,} other outcomes, "
            f"{self.num_first_errors_changed:,} other first errors",
            f"{self.num_rollouts:,} rollouts: {self.num_rollouts_changed:,} other outcomes",
        ]
        if self.num_rollouts_unused:
            lines.append(f"{self.num_rollouts_unused:,} rollouts are not wanted any more")
        if self.num_rollouts_missing:
            lines.append(
                f"{self.num_rollouts_missing:,} rollouts are wanted now that nobody has sampled: "
                "labels are judged without them (column num_missing)"
            )
        if self.num_golds:
            lines.append(
                f"{self.num_golds:,} golds corrected; {self.num_golds_unknown:,} of them name no "
                "problem of the run"
            )
        if self.num_golds_mismatched:
            lines.append(
                f"{self.num_golds_mismatched:,} golds were not used: the problem in the file of "
                "golds has another text than the run's problem of the same id"
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
    """Grade a run's solutions and rollouts again, and write the labels as a run of its own.

    Running it again resumes it.

    Args:
        run: folder or URL, labelled with keep_rollouts=true.
        out: folder or URL of the new run.
        golds: file of corrected golds: `problem_id` and `answer`. If a row has `problem`, too, its
            gold counts only where the run's problem has the same text.
        checker: changes to the run's checker, such as `checker.units_optional=false`, or
            another one, `checker=my_package.grading:is_right`.
        change_checker: whether the checker may be another one than the run's.
        allow: modules and packages, or names `module:Class`, whose code the run may name; no other
            is imported.
        on_progress: called with blocks done and in all.

    Raises:
        ConfigError: the run's estimator cannot be asked again, there is no such checker, or it is
            another one than the run's.
        DataError: the golds cannot be read, or rollouts were not kept.
        ShardError: no run, or `out` holds another one.
    """
    source = Store(run)
    config = recorded_config(source)
    if "combined" in config:
        raise ConfigError(
            f"{run}: its labels rest on opinions of judges, too. Grade the run that it was "
            "combined from again, and combine that"
        )
    with within(allow):
        settings = _settings(config, run)
    chosen = _checker(config, checker, allow)
    recorded = _recorded_kind(config)
    if recorded not in (None, chosen.kind) and not change_checker:
        raise ConfigError(
            f"checker.kind={chosen.kind}: {run} was graded by {recorded}, and another checker may "
            "change every verdict. Leave it out, or pass --change-checker if you mean it"
        )
    grader = make_checker(chosen)
    corrected = _golds(golds) if golds is not None else {}
    semantic = {
        **config,
        "checker": {**chosen.semantic(), "version": grader.version},
        "regraded": {
            "run": place_of(run),
            "checker": config.get("checker"),
            "golds": content_id(sorted((name, *gold.content) for name, gold in corrected.items()))
            if corrected
            else None,
            **superseded_rows(source),
        },
    }
    target, provenance = begin_rewritten(run, out, semantic, action="graded again")
    rewritten = RewrittenRun(source, target, provenance, action="regraded")
    work = _Regrading(rewritten, settings, corrected, grader, run)
    return work.run(_checker_then(config), on_progress)


class _Regrading:
    def __init__(
        self,
        rewritten: RewrittenRun,
        settings: EstimatorSettings,
        golds: Mapping[str, _Corrected],
        checker: Checker,
        run: str,
    ) -> None:
        self._rewritten, self._run_name = rewritten, run
        self._settings, self._golds, self._checker = settings, golds, checker
        self._knowledge = lru_cache(maxsize=None)(self._read_knowledge)

    def run(self, checker: str, on_progress: Callable[[int, int], None]) -> RegradeReport:
        with asyncio.Runner() as self._runner:
            return self._run(checker, on_progress)

    def _run(self, checker: str, on_progress: Callable[[int, int], None]) -> RegradeReport:
        rewritten = self._rewritten
        report = RegradeReport(
            checkers=(checker, f"{self._checker.name} {self._checker.version}"),
            num_blocks=rewritten.num_blocks,
            num_blocks_resumed=rewritten.num_resumed,
            num_golds=len(self._golds),
        )
        unknown, mismatched = set(self._golds), set[str]()

        def note(table: pa.Table) -> None:
            names, texts = table["problem_id"].to_pylist(), table["problem"].to_pylist()
            unknown.difference_update(names)
            for name, text in zip(names, texts, strict=True):
                if name in self._golds and not self._golds[name].is_of(text):
                    mismatched.add(name)

        for block in rewritten.missing(on_progress, note):
            again = self._regraded(block)
            rewritten.commit(
                block, again.labeled, None if block.rollouts is None else again.rollouts
            )
            _count(report, block.rows, again)
        rewritten.finish()
        report.num_golds_unknown, report.num_golds_mismatched = len(unknown), len(mismatched)
        return report

    def _regraded(self, block: SourceBlock) -> Regraded:
        check_kept(self._run_name, block, "graded again")
        return regrade_block(
            block.rows,
            block.rollouts or (),
            settings=self._settings,
            golds={
                name: gold.gold
                for name, text in {row.problem.id: row.problem.text for row in block.rows}.items()
                if (gold := self._golds.get(name)) is not None and gold.is_of(text)
            },
            read_knowledge=self._knowledge,
            grade=self._grade,
            commit=self._commit,
        )

    def _commit(self, problem: Problem, solutions: Sequence[Solution]) -> list[Commitments]:
        return self._runner.run(commitments(problem, solutions, self._checker))

    def _grade(self, items: Sequence[GradeItem]) -> Sequence[Grade]:
        return self._runner.run(self._checker.grade(items, here))

    def _read_knowledge(self, identity: str) -> Any:
        content = self._rewritten.copied_priors(identity)
        with making_use_of(Store(self._run_name), identity):
            return self._settings.component.read_knowledge(content)


def _count(report: RegradeReport, rows: Sequence[LabeledSolution], again: Regraded) -> None:
    pairs = list(zip(rows, again.labeled, strict=True))
    report.num_solutions += len(pairs)
    report.num_solutions_changed += sum(a.solution.outcome != b.solution.outcome for a, b in pairs)
    report.num_first_errors_changed += sum(a.first_error != b.first_error for a, b in pairs)
    report.num_rollouts += again.num_rollouts
    report.num_rollouts_changed += again.num_changed
    report.num_rollouts_unused += again.num_rollouts - len(again.rollouts)
    report.num_rollouts_missing += again.num_missing


def recorded_settings(content: Mapping[str, Any]) -> EstimatorSettings:
    """The settings of an estimator as a manifest records them.

    Files that they name are left out: what was read of them is on record with the labels.

    Raises:
        ConfigError: there is no such estimator.
        ValidationError: the settings are not its own.
    """
    settings_type = settings_class("estimators", content["kind"])
    values = dict(content)
    for name, info in settings_type.model_fields.items():
        if CONTENT in info.metadata:
            values.pop(name, None)
    return cast(EstimatorSettings, settings_type.model_validate(values))


def _settings(config: Mapping[str, Any], run: str) -> EstimatorSettings:
    try:
        settings = recorded_settings(config["estimator"])
    except NotAllowed as error:
        raise ConfigError(f"{run}: its estimator {error}") from error
    except (KeyError, TypeError, ValidationError, ConfigError) as error:
        raise ConfigError(
            f"{run}: its manifest names no estimator that this mclabel knows ({error})"
        ) from error
    if not settings.component.replayable:
        raise ConfigError(
            f"{run}: was labelled with estimator.kind={settings.kind}, which chose its rollouts "
            "by the earlier verdicts and cannot be replayed with others. Label again, with an "
            "estimator other than this one"
        )
    return settings


class _Choice(Settings):
    """The checker of a run that is graded again."""

    checker: CheckerField = Field(default_factory=default_checker)


def _checker(
    config: Mapping[str, Any], changes: Sequence[str], allow: Sequence[str]
) -> CheckerSettings:
    """The checker that a run was graded by, with changes."""
    recorded = config.get("checker")
    content = {"checker": recorded_keys(recorded)} if isinstance(recorded, Mapping) else {}
    return load_content(_Choice, content, changes, allow=allow).checker


def _recorded_kind(config: Mapping[str, Any]) -> Any:
    """The kind of the checker that a run was graded by; None if none is recorded."""
    recorded = config.get("checker")
    return recorded.get("kind") if isinstance(recorded, Mapping) else None


def _checker_then(config: Mapping[str, Any]) -> str:
    recorded = config.get("checker")
    if isinstance(recorded, Mapping):
        return f"{recorded.get('kind')} {recorded.get('version')}"
    return "none"


@dataclass(frozen=True, kw_only=True)
class _Corrected:
    """A corrected gold."""

    gold: Gold
    problem: str | None
    """Text of the problem that it is of; None where the file does not say."""

    @property
    def content(self) -> tuple[str, ...]:
        """Return what labels depend on."""
        return (self.gold.answer,) if self.problem is None else (self.gold.answer, self.problem)

    def is_of(self, problem: str) -> bool:
        """Return whether it is of a problem with this text; white space around it does not
        matter.
        """
        return self.problem is None or self.problem.strip() == problem.strip()


def _golds(path: str) -> dict[str, _Corrected]:
    golds: dict[str, _Corrected] = {}
    for place, row in file_rows(path):
        identity = row.get("problem_id")
        if identity in (None, "") or row.get("answer") is None:
            raise DataError(f"{place}: needs problem_id and answer, the corrected gold")
        gold = read_gold(row["answer"])
        if isinstance(gold, NoGold):
            raise DataError(f"{place}: the answer, which is the corrected gold, {gold.detail}")
        text = row.get("problem")
        if not isinstance(text, str | None):
            raise DataError(f"{place}: problem must be a text, is a {type(text).__name__}")
        corrected = _Corrected(gold=gold, problem=text)
        if golds.setdefault(str(identity), corrected) != corrected:
            raise DataError(
                f"{place}: problem {identity!r} has a different gold or text in an "
                "earlier row. Keep one of them"
            )
    if not golds:
        raise DataError(f"{path}: holds no golds")
    return golds
