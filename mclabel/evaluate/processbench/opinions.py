"""Measures judges on ProcessBench by their opinions: one judge, or several that agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import SourceOpinion
from mclabel.data.readers.judged import JudgedSolution
from mclabel.evaluate.labels.job import check_out_folder
from mclabel.evaluate.labels.truth import make_solution_key
from mclabel.evaluate.processbench.figures import (
    JudgePanel,
    LeftOutReason,
    MeasuredJudge,
    ProcessBenchResult,
    measure_processbench,
)
from mclabel.evaluate.processbench.job import (
    Splits,
    read_splits,
    warn_of_splits_without_f1,
    write_results,
)
from mclabel.judge.base import Opinion
from mclabel.judge.consensus.rules import same_location
from mclabel.judge.opinions import OpinionRun, read_judged_rows
from mclabel.prm.scoring.manifest import write_provenance
from mclabel.run.shards.manifest import read_run_id
from mclabel.run.shards.store import Store

NO_VERDICT = "unscored"
"""Code of the reason why a solution has no prediction, if the scorer could not score it."""


def measure_opinions_on_processbench(
    files: Sequence[str],
    opinions: Sequence[str],
    *,
    out: str | None,
    seed: int,
    strict: bool = False,
) -> ProcessBenchResult:
    """Measure judges on ProcessBench by the first errors in their opinions.

    A judge predicts the first error that its opinion names, or no error. If several judges have
    judged one file, only solutions on which they agree have a prediction. A solution that a scorer
    could not score counts as predicted wrongly. A judge that claims an error at a step or before it
    predicts this step, or no error if it claims none.

    Args:
        files: files of the splits. A file's name is the name of the split, with or without the
            prefix `processbench_`.
        opinions: runs of `mclabel judge` over these files. Solutions are matched by the ids in the
            rows of the files.
        out: folder for processbench.json, processbench.md, predictions.jsonl, left_out.jsonl,
            provenance.json.
        seed: seed of the bootstrap.
        strict: whether an unusable row is an error; otherwise it is left out.

    Raises:
        ConfigError: a run matches two files, a file has no run, or no judge names first errors.
        DataError: a file cannot be used, or a run has no solution of the files.
        ShardError: a run has no opinions, or its shards are damaged.
    """
    check_out_folder(out)
    read = read_splits(files, strict=strict)
    splits = read.solutions
    warn_of_splits_without_f1(splits)
    judges = _assign_judges_to_splits(dict(zip(splits, files, strict=True)), splits, opinions)
    for name, of_split in judges.items():
        _check_some_judge_names_errors(name, of_split)
    predictions: dict[str, dict[str, int | None]] = {name: {} for name in splits}
    reasons: dict[str, dict[str, LeftOutReason]] = {name: {} for name in splits}
    unknown: dict[str, list[str]] = {name: [] for name in splits}
    for name, rows in splits.items():
        for row in rows:
            prediction = _predict_first_error(judges[name], row)
            if isinstance(prediction, LeftOutReason):
                reasons[name][row.id] = prediction
                if prediction.reason_code == NO_VERDICT:
                    unknown[name].append(row.id)
            else:
                predictions[name][row.id] = prediction.first_error
    panel = JudgePanel(
        {
            name: tuple(
                MeasuredJudge(name=judge.run.judge, claim=judge.run.claim) for judge in of_split
            )
            for name, of_split in judges.items()
        }
    )
    result = measure_processbench(
        splits,
        predictions,
        reasons=reasons,
        unknown=unknown,
        panel=panel,
        num_rejected=read.num_rejected,
        seed=seed,
    )
    write_results(result, splits, predictions, reasons, read.rejects, out)
    if out is not None:
        write_provenance(
            Path(out) / "provenance.json",
            opinions={
                name: [judge.provenance() for judge in of_split]
                for name, of_split in judges.items()
            },
        )
    return result


@dataclass(frozen=True, kw_only=True)
class _FirstErrorPrediction:
    first_error: int | None
    """Index of the predicted first wrong step, from 0; None for no error."""


@dataclass(frozen=True, kw_only=True)
class _SplitJudge:
    """The opinions of a judge on a split."""

    run: OpinionRun
    identity: str | None
    """The `id` in the run's manifest; None if it has none."""
    run_ids: Mapping[str, str]
    """Id of each solution in the run, by its id in the file of the split."""
    text_keys: Mapping[str, tuple[str, str]]
    """Text of each problem and text of its solution, both without whitespace, by the solution's id
    in the file of the split."""

    @property
    def names_first_errors(self) -> bool:
        """True if the judge's opinions name the first error exactly."""
        return self.run.claim != "at_or_before"

    def provenance(self) -> dict[str, Any]:
        """Return the location and id of the run and the name of its judge, for provenance.json."""
        return {"location": self.run.location, "run": self.identity, "judge": self.run.judge}

    def get_opinion(self, row: JudgedSolution) -> Opinion | LeftOutReason:
        """Return the judge's opinion on a solution, or the reason why there is none."""
        name = self.run_ids.get(row.id)
        if name is None:
            detail = "not judged: it is in the run's rejects.jsonl, or the job has not ended"
            return LeftOutReason(reason_code="not_in_run", detail=detail)
        if (num_steps := self.run.num_steps[name]) != len(row.steps):
            return LeftOutReason(
                reason_code="other_steps",
                detail=f"{num_steps} steps in the run, {len(row.steps)} in the file",
            )
        if self.text_keys[row.id] != make_solution_key(row.problem, row.steps):
            detail = "the run has this id for another problem or solution"
            return LeftOutReason(reason_code="other_text", detail=detail)
        opinion = self.run.opinions[name]
        reason = NO_VERDICT if self.run.claim == "scores" else "no_opinion"
        return (
            opinion
            if opinion.is_known
            else LeftOutReason(reason_code=reason, detail=opinion.reason)
        )


def _assign_judges_to_splits(
    files: Mapping[str, str], splits: Splits, opinions: Sequence[str]
) -> dict[str, list[_SplitJudge]]:
    """Return the judges of each split, first those that name first errors exactly.

    Args:
        files: files by split.
        splits: solutions by split.
        opinions: locations of the runs.
    """
    ids = {name: {row.id for row in rows} for name, rows in splits.items()}
    by_split: dict[str, list[_SplitJudge]] = {name: [] for name in splits}
    given: dict[str | None, str] = {}
    for location in opinions:
        judge = _read_judge(location)
        if (earlier := given.get(judge.identity)) is not None:
            raise ConfigError(
                f"--opinions {location}: is the same run as {earlier}. Give each run once"
            )
        given[judge.identity] = location
        fitting = [name for name in splits if not ids[name].isdisjoint(judge.run_ids)]
        if not fitting:
            raise DataError(_describe_no_match(judge, list(files.values()), splits))
        if len(fitting) > 1:
            raise ConfigError(
                f"--opinions {location}: the ids of its rows are in {files[fitting[0]]} and in "
                f"{files[fitting[1]]}, but a run of opinions belongs to one file. Give only one of "
                "the files, or make the ids of the solutions unique"
            )
        by_split[fitting[0]].append(judge)
    for name, judges in by_split.items():
        if not judges:
            raise ConfigError(
                f"{files[name]}: none of the --opinions has judged it. Run mclabel judge "
                f"{files[name]} -o OUT and give --opinions OUT, too, or leave the file out"
            )
    return {
        name: sorted(judges, key=lambda judge: not judge.names_first_errors)
        for name, judges in by_split.items()
    }


def _read_judge(location: str) -> _SplitJudge:
    run = OpinionRun.read(location)
    run_ids, text_keys = {}, {}
    for name, row in read_judged_rows(location):
        if (identity := row.get("id")) is not None:
            steps = row.get("steps")
            texts = steps if isinstance(steps, list) else [row.get("solution")]
            run_ids[str(identity)] = name
            text_keys[str(identity)] = make_solution_key(
                str(row.get("problem")), list(map(str, texts))
            )
    identity = read_run_id(Store(location))
    return _SplitJudge(run=run, identity=identity, run_ids=run_ids, text_keys=text_keys)


def _describe_no_match(judge: _SplitJudge, files: Sequence[str], splits: Splits) -> str:
    """Return the message that a run of opinions matches none of the files."""
    location, count = judge.run.location, len(judge.run.opinions)
    theirs = next(iter(splits.values()))[0].id
    own = next(iter(judge.run_ids), None)
    ids = "its rows have no id" if own is None else f"its rows have ids such as {own!r}"
    return (
        f"--opinions {location}: none of its {count:,} solutions is in {', '.join(files)}: {ids}, "
        f"the file has ids such as {theirs!r}. Give a run over the file: mclabel judge "
        f"{files[0]} -o OUT"
    )


def _check_some_judge_names_errors(split: str, judges: Sequence[_SplitJudge]) -> None:
    """Raise an error if a split has several judges, but none of them names first errors exactly.

    Raises:
        ConfigError: no judge names first errors; the message has the split and its runs.
    """
    if len(judges) > 1 and not any(judge.names_first_errors for judge in judges):
        runs = ", ".join(judge.run.location for judge in judges)
        raise ConfigError(
            f"--opinions: no judge of the split {split} names first errors. All judges claim only "
            f"that an error is at a step or before it: {runs}. Also give --opinions of a judge "
            "that names first errors, such as judge=critic"
        )


def _predict_first_error(
    judges: Sequence[_SplitJudge], row: JudgedSolution
) -> _FirstErrorPrediction | LeftOutReason:
    """Return the prediction for a solution, or the reason why there is none.

    Args:
        judges: judges of the split. If there are several, the first one names first errors exactly,
            and there is a prediction only if the others agree.
        row: solution of ProcessBench.
    """
    opinions = [judge.get_opinion(row) for judge in judges]
    if len(opinions) == 1:
        (only,) = opinions
        return (
            only
            if isinstance(only, LeftOutReason)
            else _FirstErrorPrediction(first_error=only.first_error)
        )
    sources = [
        SourceOpinion(
            source=judge.run.judge,
            claim=judge.run.claim,
            is_known=isinstance(opinion, Opinion),
            first_error=opinion.first_error if isinstance(opinion, Opinion) else None,
        )
        for judge, opinion in zip(judges, opinions, strict=True)
    ]
    if same_location(sources):
        return _FirstErrorPrediction(first_error=sources[0].first_error)
    details = "; ".join(
        f"{judge.run.judge} ({judge.run.location}): {_describe_opinion(judge, opinion)}"
        for judge, opinion in zip(judges, opinions, strict=True)
    )
    return LeftOutReason(reason_code="not_kept", detail=details)


def _describe_opinion(judge: _SplitJudge, opinion: Opinion | LeftOutReason) -> str:
    if isinstance(opinion, LeftOutReason):
        return f"{opinion.reason_code}, {opinion.detail}" if opinion.detail else opinion.reason_code
    if judge.names_first_errors:
        return "no error" if opinion.first_error is None else f"first error {opinion.first_error}"
    return (
        "nothing" if opinion.first_error is None else f"an error at or before {opinion.first_error}"
    )
