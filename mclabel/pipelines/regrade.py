"""A run graded again: with the checker of today, with other golds, or by other rules."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from pydantic import Field, ValidationError

from mclabel.answers import reference_answer
from mclabel.checkers import (
    Checker,
    CheckerSettings,
    Grade,
    GradeItem,
    here,
    make_checker,
)
from mclabel.checkers.base import CheckerField, default_checker, recorded_keys
from mclabel.components import NotAllowed, within
from mclabel.config import load_content
from mclabel.data.outputs import check_run
from mclabel.data.readers.problem_rows import text_of
from mclabel.data.readers.rows import Fault, file_rows
from mclabel.data.shards.catalog import read_catalog
from mclabel.data.shards.finished import write_finished
from mclabel.data.shards.labels import commit_block, committed_blocks, delete_losers, named_rollouts
from mclabel.data.shards.manifest import MANIFEST, Semantic, claim, claimed_config
from mclabel.data.shards.priors import missing_priors, priors_name, read_priors
from mclabel.data.shards.rejects import FILE as REJECTS
from mclabel.data.shards.rejects import copy_rejects
from mclabel.data.shards.schema import labeled_solution, recorded_rollout
from mclabel.data.shards.shard import read_shard
from mclabel.data.shards.store import Store
from mclabel.errors import ConfigError, DataError, ShardError
from mclabel.estimators import EstimatorSettings
from mclabel.labeling.grading import ungraded_reasons
from mclabel.labeling.regrade import Regraded, regrade_block
from mclabel.pipelines.identity import versions
from mclabel.records import LabeledSolution, Rollout
from mclabel.seeds import content_id
from mclabel.settings import CONTENT, Settings, settings_class


@dataclass(kw_only=True)
class RegradeReport:
    """What grading a run again came to. Counts are of this call; a resumed one has fewer."""

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

    def lines(self) -> list[str]:
        """What to say of it."""
        said = [
            f"checker {self.checkers[0]} then, {self.checkers[1]} now; "
            f"{self.num_blocks_resumed:,} of {self.num_blocks:,} blocks were there before",
            f"{self.num_solutions:,} solutions: {self.num_solutions_changed:,} other outcomes, "
            f"{self.num_first_errors_changed:,} other first errors",
            f"{self.num_rollouts:,} rollouts: {self.num_rollouts_changed:,} other outcomes",
        ]
        if self.num_rollouts_unused:
            said.append(f"{self.num_rollouts_unused:,} rollouts are not wanted any more")
        if self.num_rollouts_missing:
            said.append(
                f"{self.num_rollouts_missing:,} rollouts are wanted now that nobody has sampled: "
                "labels are judged without them (column num_missing)"
            )
        if self.num_golds:
            said.append(
                f"{self.num_golds:,} golds corrected; {self.num_golds_unknown:,} of them name no "
                "problem of the run"
            )
        return said


def regrade(
    run: str,
    out: str,
    *,
    golds: str | None = None,
    checker: Sequence[str] = (),
    allow: Sequence[str] = (),
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> RegradeReport:
    """Grade a run's solutions and rollouts again, and write the labels as a run of its own.

    Running it again resumes it.

    Args:
        run: folder or URL, labelled with keep_rollouts=true.
        out: folder or URL of the new run.
        golds: file of corrected golds: `problem_id` and `answer`.
        checker: changes to the run's checker, such as `checker.rules.units_optional=false`, or
            another one, `checker=my_package.grading:is_right`.
        allow: modules and packages, or names `module:Class`, whose code the run may name; no other
            is imported.
        on_progress: called with blocks done and in all.

    Raises:
        ConfigError: the run's estimator cannot be asked again, or there is no such checker.
        DataError: the golds cannot be read, or rollouts were not kept.
        ShardError: no run, or `out` holds another one.
    """
    source = Store(run)
    config = _config(source)
    with within(allow):
        settings = _settings(config, run)
    chosen = _checker(config, checker, allow)
    grader = make_checker(chosen)
    corrected = _golds(golds) if golds is not None else {}
    semantic = {
        **config,
        "checker": {**chosen.semantic(), "version": grader.version},
        "regraded": {
            "run": _place(run),
            "checker": config.get("checker"),
            "golds": content_id(sorted(corrected.items())) if corrected else None,
        },
    }
    if superseded := read_catalog(source).superseded:
        rows = sorted((block, sorted(ids)) for block, ids in superseded.items())
        semantic["regraded"]["superseded"] = content_id(rows)
    if _place(run) == _place(out):
        raise ConfigError(
            f"-o {out}: must not be the run that is graded again. Give another folder"
        )
    check_run(out)
    target = Store(out, create=True)
    made_by = {"versions": versions()}
    known = Semantic.of(semantic)
    claim(target, MANIFEST, known, made_by)
    provenance = {**made_by, **known.stamp()}
    work = _Regrading(source, target, settings, corrected, grader, provenance)
    return work.run(_checker_then(config), on_progress)


class _Regrading:
    def __init__(
        self,
        source: Store,
        target: Store,
        settings: EstimatorSettings,
        golds: Mapping[str, str],
        checker: Checker,
        provenance: Mapping[str, Any],
    ) -> None:
        self._source, self._target = source, target
        self._settings, self._golds, self._checker = settings, golds, checker
        self._provenance = provenance
        self._knowledge = lru_cache(maxsize=None)(self._read_knowledge)

    def run(self, checker: str, on_progress: Callable[[int, int], None]) -> RegradeReport:
        with asyncio.Runner() as self._runner:
            return self._run(checker, on_progress)

    def _run(self, checker: str, on_progress: Callable[[int, int], None]) -> RegradeReport:
        catalog = read_catalog(self._source)
        if not catalog.blocks:
            raise ShardError(f"{self._source.location}: holds no labels. Label a run first")
        done = committed_blocks(self._target)
        report = RegradeReport(
            checkers=(checker, f"{self._checker.name} {self._checker.version}"),
            num_blocks=len(catalog.blocks),
            num_golds=len(self._golds),
        )
        unknown, finished = set(self._golds), 0
        for file, blocks in catalog.by_file().items():
            metadata, table = read_shard(self._source, file, "labels")
            unknown.difference_update(table["problem_id"].to_pylist())
            todo = [block for block in blocks if self._new_id(block) not in done]
            report.num_blocks_resumed += len(blocks) - len(todo)
            finished += len(blocks) - len(todo)
            rollouts = self._rollouts(metadata) if todo else {}
            parts = catalog.parts(self._source, file, todo, metadata, table)
            for block, part in zip(todo, parts, strict=True):
                rows = part.to_pylist()
                # Of a shard of several blocks problems without rows go with the first one.
                without_rows = catalog.without_rows(blocks, metadata) if block == blocks[0] else {}
                solutions = list(map(labeled_solution, rows))
                self._block(block, without_rows, solutions, rollouts, report)
                finished += 1
                on_progress(finished, report.num_blocks)
        delete_losers(self._target)
        files = (REJECTS,) if copy_rejects(self._source, self._target) else ()
        write_finished(self._target, num_blocks=report.num_blocks, files=files)
        report.num_golds_unknown = len(unknown)
        return report

    def _block(
        self,
        block: str,
        without_rows: Mapping[str, Any],
        rows: list[LabeledSolution],
        rollouts: Mapping[str, list[Rollout]] | None,
        report: RegradeReport,
    ) -> None:
        names = dict.fromkeys(row.problem.id for row in rows)
        if rollouts is None and any(
            counts.num_rollouts
            for row in rows
            for counts in (row.root, *(s.counts for s in row.steps))
        ):
            raise DataError(
                f"{self._source.location}: was labelled with keep_rollouts=false, so there is "
                "nothing to grade again. Label it anew with keep_rollouts=true"
            )
        kept = [rollout for name in names for rollout in (rollouts or {}).get(name, ())]
        if self._settings.component.follow != "nothing" and any(r.step_ends is None for r in kept):
            raise DataError(
                f"{self._source.location}: an older mclabel wrote it, whose rollouts do not "
                "record the prefixes that they passed through. Label it again with this version"
            )
        again = regrade_block(
            rows,
            kept,
            settings=self._settings,
            golds=self._golds,
            read_knowledge=self._knowledge,
            grade=self._grade,
        )
        commit_block(
            self._target,
            self._new_id(block),
            uuid.uuid4().hex[:12],
            again.labeled,
            None if rollouts is None else again.rollouts,
            self._provenance,
            ungraded=ungraded_reasons(again.rollouts),
            **without_rows,
        )
        _count(report, rows, again)

    def _grade(self, items: Sequence[GradeItem]) -> Sequence[Grade]:
        return self._runner.run(self._checker.grade(items, here))

    def _new_id(self, block: str) -> str:
        return content_id("regraded", block, self._provenance["config"])

    def _rollouts(self, metadata: Mapping[str, Any]) -> dict[str, list[Rollout]] | None:
        """By problem; None if they were not kept."""
        if metadata["rollouts"] is None:
            return None
        table = named_rollouts(self._source, metadata)
        found: dict[str, list[Rollout]] = defaultdict(list)
        for row in table.to_pylist():
            found[row["problem_id"]].append(recorded_rollout(row))
        return found

    def _read_knowledge(self, identity: str) -> Any:
        content = read_priors(self._source, identity)
        if content is None:
            raise missing_priors(self._source, identity)
        self._target.create(priors_name(identity), content)
        return self._settings.component.read_knowledge(content.decode())


def _count(report: RegradeReport, rows: list[LabeledSolution], again: Regraded) -> None:
    pairs = list(zip(rows, again.labeled, strict=True))
    report.num_solutions += len(pairs)
    report.num_solutions_changed += sum(a.solution.outcome != b.solution.outcome for a, b in pairs)
    report.num_first_errors_changed += sum(a.first_error != b.first_error for a, b in pairs)
    report.num_rollouts += again.num_rollouts
    report.num_rollouts_changed += again.num_changed
    report.num_rollouts_unused += again.num_rollouts - len(again.rollouts)
    report.num_rollouts_missing += again.num_missing


def _config(source: Store) -> dict[str, Any]:
    """The semantic configuration of a run."""
    config = claimed_config(source, MANIFEST)
    if config is None:
        raise ShardError(
            f"{source.location}: has no {MANIFEST}. Give the `out` of `mclabel label`; imported "
            "labels have no rollouts to grade"
        )
    return config


def recorded_settings(content: Mapping[str, Any]) -> EstimatorSettings:
    """The settings of an estimator as a manifest records them.

    Files that they name are left out: what was read of them is on record with the labels. Earlier
    versions recorded every estimator's keys; those of others are left out, too.

    Raises:
        ConfigError: there is no such estimator.
        ValidationError: the settings are not its own.
    """
    known = settings_class("estimators", content["kind"])
    values = dict(content)
    if "price" in values:  # until manifests of format 2
        values["min_gain_per_token"] = values.pop("price")
        values = {name: value for name, value in values.items() if name in known.model_fields}
    for name, info in known.model_fields.items():
        if CONTENT in info.metadata:
            values.pop(name, None)
    return cast(EstimatorSettings, known.model_validate(values))


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


def _checker_then(config: Mapping[str, Any]) -> str:
    recorded = config.get("checker")
    if isinstance(recorded, Mapping):
        return f"{recorded.get('kind')} {recorded.get('version')}"
    return f"math {recorded}"


def _golds(path: str) -> dict[str, str]:
    golds: dict[str, str] = {}
    for place, row in file_rows(path):
        identity, answer = (
            (row.get("problem_id"), row.get("answer")) if isinstance(row, dict) else (None, None)
        )
        if identity in (None, "") or answer is None:
            raise DataError(f"{place}: needs problem_id and answer, the corrected gold")
        text = text_of(answer, numbers=True)
        if isinstance(text, Fault):
            raise DataError(f"{place}: the answer, which is the corrected gold, {text.detail}")
        gold = reference_answer(text)
        if golds.setdefault(str(identity), gold) != gold:
            raise DataError(
                f"{place}: problem {identity!r} has a different gold in an earlier "
                "row. Keep one of them"
            )
    if not golds:
        raise DataError(f"{path}: holds no golds")
    return golds


def _place(location: str) -> str:
    return location if "://" in location else str(Path(location).resolve())
