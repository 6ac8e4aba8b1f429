"""The job that selects solutions of a pool to be labelled. It reads the solutions and their PRM
scores, and writes a manifest: a Parquet file that lists the selected solutions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mclabel.core.errors import ConfigError, DataError, RejectReason
from mclabel.core.plain_files import write_atomically
from mclabel.core.settings import MAX_COUNT, OPERATIONAL, OneOf, Seed
from mclabel.core.settings import rule as settings_rule
from mclabel.data.readers.rows import describe_row_place, scan_rows
from mclabel.data.readers.solutions import build_manifest, read_selected
from mclabel.engines.devices import AUTO
from mclabel.judge.job import RunsInProcess, ScoreConfig
from mclabel.prm.scoring import FORMATS, OWN_FORMAT
from mclabel.prm.scoring.aggregate import aggregate
from mclabel.prm.scoring.items import convert_row_to_item
from mclabel.prm.scoring.layout import OUR_SPLIT, split_into_steps
from mclabel.prm.scoring.manifest import hash_weights
from mclabel.run.outputs import prepare_output_file
from mclabel.run.shards.manifest import MANIFEST, read_manifest
from mclabel.run.shards.opinions import iter_opinion_rows
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState
from mclabel.select.pool import (
    ChosenSolutions,
    Pool,
    Rule,
    ScoredSolution,
    choose_solutions,
    find_rule,
    hash_item_text,
    is_solution_file,
    make_scored_solution,
    parse_outcome,
    read_pool,
)

Floats = NDArray[np.float64]


AGGREGATION = "min"
"""Aggregation of step scores into a solution's score, for rule=convincing: the lowest step score.
"""
MAX_EXCLUDED = 1000
"""Maximum number of manifests in `exclude`."""


class SelectConfig(RunsInProcess):
    """A selection of solutions to be labelled."""

    solutions: Annotated[str, OPERATIONAL]
    """Pool of solutions: a file, or the folder or URL of a run of `mclabel label`."""
    out: Annotated[str, OPERATIONAL]
    """Manifest to write: a file that ends in .parquet."""
    rule: str
    """Rule: `uniform`, `convincing` or `module:function` (docs/select.md)."""
    budget: int = Field(ge=1, le=MAX_COUNT)
    """Number of solutions to choose."""
    prm: str | None = None
    """PRM that scores the pool. The scores are written to `OUT.scores.jsonl`."""
    scores: Annotated[str | None, OPERATIONAL] = None
    """Output of `mclabel score` for this pool, in place of `prm`."""
    uniform_share: float = Field(0.15, ge=0, le=1)
    """Share of the budget that is drawn at random from the pool, in [0, 1]."""
    per_problem: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Maximum number of solutions that the rule chooses from one problem."""
    seed: Seed = 0
    """Random seed."""
    exclude: list[str] = Field([], max_length=MAX_EXCLUDED)
    """Manifests of earlier selections from this pool, whose solutions are left out."""
    format: Annotated[str, OneOf(tuple(FORMATS))] = OWN_FORMAT
    """Format of the PRM: `mclabel`, `trl`, `math-shepherd`, `rlhflow`, `qwen` or `generative`
    (docs/generative.md)."""
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device of the scorer. `auto` takes cuda if the machine of the command has a GPU."""

    @settings_rule
    def _check_manifest_is_parquet(self) -> str | None:
        if not self.out.endswith(".parquet") or "://" in self.out:
            return f"out={self.out}: must be a local file that ends in .parquet. Rename it"
        return None

    @settings_rule
    def _check_scores_come_from_one_place(self) -> str | None:
        if self.prm is not None and self.scores is not None:
            return "prm and scores are both given. Give only one of the two"
        return None


@dataclass(frozen=True, kw_only=True)
class SelectReport:
    """Result of a selection."""

    num_pool: int
    """Number of solutions in the pool."""
    num_problems: int
    """Number of problems in the pool."""
    num_scored: int
    """Number of solutions in the pool that have scores; 0 if the rule needs no scores."""
    num_strange: int
    """Number of solutions in the file or run of scores that are not in the pool."""
    num_certain: int
    """Number of solutions chosen by the rule."""
    num_wrong: int
    """Number of solutions with wrong or ungraded answers among those that the rule chose."""
    num_drawn: int
    """Number of solutions drawn uniformly at random."""
    probability: float
    """Sampling probability, in [0, 1], of each solution that the rule did not choose."""
    stopped: JobReport | None = None
    """Report of the scoring job if a limit stopped it before its end; then nothing is selected.
    None if the selection was made."""

    def lines(self, out: str) -> Iterator[str]:
        """Yield the lines to print on a terminal. `out` is the path of the manifest."""
        unscored = self.num_pool - self.num_scored
        yield f"{self.num_pool:,} solutions of {self.num_problems:,} problems in the pool"
        if self.num_scored and unscored:
            yield f"{unscored:,} of them have no scores: they can only be drawn"
        if self.num_strange:
            yield f"{self.num_strange:,} solutions with scores are not in the pool"
        yield (
            f"{self.num_certain:,} chosen by the rule, {self.num_wrong:,} of them wrong or "
            f"ungraded; {self.num_drawn:,} drawn, with probability {self.probability:.4g}"
        )
        if self.num_scored and not self.num_certain:
            yield (
                "uniform_share leaves nothing to the rule, so the whole budget is drawn at random. "
                "Raise budget, or lower uniform_share"
            )
        yield f"Label them: mclabel label CONFIG --select {out}"


def select(
    config: SelectConfig, on_state: Callable[[JobState], None] = lambda state: None
) -> SelectReport:
    """Select solutions of a pool, and write them with their sampling probabilities as a manifest.

    The manifest depends only on pool, scores, seed and settings. With `prm`, the pool is first
    scored into `OUT.scores.jsonl`; after an interruption, the same command resumes.

    Args:
        config: configuration of the selection.
        on_state: called often with the state of the scoring job.

    Raises:
        ConfigError: the rule is unknown or needs scores that are not given, the budget exceeds the
            pool, or `out` cannot be written.
        DataError: the pool or the scores cannot be read, the scores belong to another pool, or the
            rule can rank too few solutions.
        ComponentError: a third-party rule fails, or does not return a finite number.
    """
    rule = find_rule(config.rule)
    if rule.key is not None and config.prm is None and config.scores is None:
        raise ConfigError(
            f"rule={config.rule}: ranks by scores, but no scores are given. Give --prm PRM to "
            "score the pool, or --scores FILE with the output of `mclabel score`"
        )
    out = prepare_output_file(config.out, "-o ")
    _check_settings(config, out)
    pool = read_pool(
        config.solutions,
        exclude=[read_selected(manifest, "exclude") for manifest in config.exclude],
    )
    num_pool = len(pool.rows)
    if config.budget > num_pool:
        raise ConfigError(
            f"budget={config.budget}: there are {num_pool:,} solutions to choose from. Give at "
            f"most {num_pool}"
        )
    if rule.wrong_share is not None and all(row.outcome is None for row in pool.rows):
        raise DataError(
            f"rule={config.rule}: prefers wrong answers, but no row of {config.solutions} records "
            "whether its answer is wrong. Add outcome or final_answer_correct to the rows"
        )
    keys, scores = np.full(num_pool, np.nan), np.full(num_pool, np.nan)
    num_strange, scores_path = 0, None
    if rule.key is not None:
        scores_path = config.scores or f"{config.out}.scores.jsonl"
        stopped = _score_pool(config, scores_path, on_state) if config.prm is not None else None
        if stopped is not None:
            return _make_report(
                pool,
                ChosenSolutions(certain=_NO_POSITIONS, drawn=_NO_POSITIONS, probability=0.0),
                stopped,
            )
        num_strange = _write_ranking(config, rule, pool, scores_path, keys, scores)
    chosen = choose_solutions(
        [row.id for row in pool.rows],
        pool.problems,
        keys,
        pool.is_wrong,
        budget=config.budget,
        uniform_share=1.0 if rule.key is None else config.uniform_share,
        seed=config.seed,
        wrong_share=rule.wrong_share,
        per_problem=config.per_problem,
    )
    content = build_manifest(
        list(_iter_manifest_rows(config.rule, pool, chosen, keys, scores)),
        _make_manifest_metadata(config, pool, chosen, scores, scores_path),
    )
    if out.exists() and out.read_bytes() != content:
        raise ConfigError(
            _describe_other_selection(
                config.out, "made from other settings, another pool or other scores"
            )
        )
    write_atomically(out, content)
    return _make_report(
        pool, chosen, num_scored=int((~np.isnan(scores)).sum()), num_strange=num_strange
    )


def _check_settings(config: SelectConfig, manifest_path: Path) -> None:
    """Check that an existing manifest at `manifest_path` was made with the same settings."""
    if not manifest_path.exists():
        return
    metadata = read_selected(str(manifest_path), "-o ").about
    compared_names = ("rule", "budget", "per_problem", "seed", "exclude")
    differences = [
        f"{key}={metadata.get(key)}, not {getattr(config, key)}"
        for key in compared_names
        if metadata.get(key) != getattr(config, key)
    ]
    if differences:
        raise ConfigError(_describe_other_selection(config.out, "; ".join(differences)))


def _describe_other_selection(manifest_path: str, difference: str) -> str:
    return (
        f"-o {manifest_path}: holds another selection ({difference}), and manifests are not "
        "overwritten. Give another -o, or delete the file first to replace it"
    )


_NO_POSITIONS = np.array([], dtype=np.int64)


def _make_report(
    pool: Pool,
    chosen: ChosenSolutions,
    stopped: JobReport | None = None,
    num_scored: int = 0,
    num_strange: int = 0,
) -> SelectReport:
    return SelectReport(
        num_pool=len(pool.rows),
        num_problems=pool.num_problems,
        num_certain=len(chosen.certain),
        num_wrong=int(pool.is_wrong[chosen.certain].sum()),
        num_drawn=len(chosen.drawn),
        probability=chosen.probability,
        stopped=stopped,
        num_scored=num_scored,
        num_strange=num_strange,
    )


def _score_pool(
    config: SelectConfig, scores_path: str, on_state: Callable[[JobState], None]
) -> JobReport | None:
    """Score the pool with a PRM; return the job's report if a limit stopped it, else None.

    Args:
        config: configuration of the selection.
        scores_path: file for the scores.
        on_state: called often with the state of the scoring job.
    """
    from mclabel.judge.score import score  # loads torch

    assert config.prm is not None
    scoring = ScoreConfig(
        prm=config.prm,
        format=config.format,
        device=config.device,
        solutions=config.solutions,
        out=scores_path,
        ray=config.ray,
    )
    job_report = score(scoring, on_state, accept_changes=True).job
    return job_report if job_report.num_blocks_left else None


def _write_ranking(
    config: SelectConfig, rule: Rule, pool: Pool, scores_path: str, keys: Floats, scores: Floats
) -> int:
    """Read the scores, and fill in the ranking keys and scores of the pool's solutions.

    If several solutions have the same text, only the first gets a key. So the rule chooses a text
    at most once; the solutions that repeat it can still be drawn at random.

    Args:
        config: configuration of the selection.
        rule: rule that computes the keys.
        pool: pool of solutions.
        scores_path: file or run with the scores.
        keys: ranking key of each solution in the pool, filled in place; NaN if it has none.
        scores: score of each solution in the pool, filled in place; NaN if it has none.

    Returns:
        Number of scored solutions that are not in the pool.
    """
    assert rule.key is not None
    positions_by_text: dict[str, list[int]] = {}
    for position, pool_row in enumerate(pool.rows):
        positions_by_text.setdefault(pool_row.text_id, []).append(position)
    aggregate_scores = partial(aggregate, aggregation=AGGREGATION)
    num_strange = num_read = 0
    for text_id, row in _iter_scored_rows(scores_path, aggregate_scores):
        num_read += 1
        if text_id not in positions_by_text:
            num_strange += text_id not in pool.left_out
            continue
        same_text = positions_by_text[text_id]
        keys[same_text[0]] = np.fmax(keys[same_text[0]], rule.key(row))
        scores[same_text] = np.fmax(scores[same_text], row.score)
    if not num_read:
        raise DataError(
            f"scores={scores_path!r}: contains no solutions with scores. Give the output of "
            f"`mclabel score` for {config.solutions}"
        )
    if num_strange == num_read:
        raise DataError(
            f"scores={scores_path!r}: none of its {num_read:,} solutions is in "
            f"{config.solutions}. Give the scores of this pool"
        )
    return num_strange


def _iter_scored_rows(
    scores_path: str, aggregate_scores: Callable[[Sequence[float]], float]
) -> Iterator[tuple[str, ScoredSolution]]:
    """Yield each scored solution in a file or a run, after the hash of its texts (`text_id`).

    `aggregate_scores` aggregates the scores of the steps.
    """
    if is_solution_file(scores_path):
        rows: Iterator[tuple[int, Any]] = iter(scan_rows(scores_path))
    else:
        rows = (
            (
                row["row"],
                {
                    **json.loads(row["input"]),
                    "scores": row["scores"] if row["is_known"] else None,
                    "unknown": None if row["is_known"] else row["reason"],
                },
            )
            for row in iter_opinion_rows(Store(scores_path))
        )
    for number, row in rows:
        location = describe_row_place(scores_path, number)
        if isinstance(row, Mapping) and "problem_id" in row and "id" in row:
            location = f"solution {row['id']}"
        item = row if isinstance(row, RejectReason) else convert_row_to_item(number, location, row)
        if isinstance(item, RejectReason):
            raise DataError(f"{location}: {item.detail}. Give the output of `mclabel score`")
        if row.get("scores") is None and isinstance(row.get("unknown"), str):
            continue  # the PRM could not score this solution
        steps = item.steps
        if isinstance(steps, str):
            steps = tuple(split_into_steps(steps, OUR_SPLIT))
        scored = make_scored_solution(
            location, item.problem, steps, row, parse_outcome(row, location), aggregate_scores
        )
        yield hash_item_text(item), scored


def _iter_manifest_rows(
    rule: str, pool: Pool, chosen: ChosenSolutions, keys: Floats, scores: Floats
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the manifest, one for each selected solution."""
    certain = [
        (rule, rank, position, 1.0) for rank, position in enumerate(chosen.certain.tolist(), 1)
    ]
    drawn = [("uniform", None, position, chosen.probability) for position in chosen.drawn.tolist()]
    for rule_name, rank, position, probability in (*certain, *drawn):
        row = pool.rows[position]
        yield {
            "problem_id": row.problem_id,
            "solution_id": row.id,
            "text_id": row.text_id,
            "rule": rule_name,
            "rank": rank,
            "key": None if np.isnan(keys[position]) else float(keys[position]),
            "score": None if np.isnan(scores[position]) else float(scores[position]),
            "probability": probability,
        }


def _make_manifest_metadata(
    config: SelectConfig,
    pool: Pool,
    chosen: ChosenSolutions,
    scores: Floats,
    scores_path: str | None,
) -> dict[str, Any]:
    """Return the metadata of the manifest: how the selection was made, and its figures."""
    num_not_certain = len(pool.rows) - len(chosen.certain)
    all_drawn = len(chosen.drawn) == num_not_certain
    return {
        "rule": config.rule,
        "budget": config.budget,
        "uniform_share": config.uniform_share if scores_path is not None else 1.0,
        "per_problem": config.per_problem,
        "aggregation": AGGREGATION if scores_path is not None else None,
        "seed": config.seed,
        "exclude": config.exclude,
        "by_content": bool(len(chosen.certain)),
        "num_pool": len(pool.rows),
        "num_scored": int((~np.isnan(scores)).sum()),
        "num_certain": len(pool.rows) if all_drawn else len(chosen.certain),
        "pool": {
            "place": config.solutions,
            "kind": "file" if is_solution_file(config.solutions) else "run",
            "id": pool.id,
        },
        "prm": None if scores_path is None else _read_recorded_prm(config, scores_path),
    }


def _read_recorded_prm(config: SelectConfig, scores_path: str) -> dict[str, Any]:
    """Return the recorded name of the PRM and the hash of its weights; None if not recorded."""
    if config.prm is not None:
        return {"prm": config.prm, "weights": hash_weights(config.prm)}
    if is_solution_file(scores_path):
        record_path = Path(f"{scores_path}.provenance.json")
        recorded_settings = (
            json.loads(record_path.read_text(encoding="utf-8")) if record_path.is_file() else {}
        )
    else:
        recorded_settings = (
            (read_manifest(Store(scores_path), MANIFEST) or {}).get("config", {}).get("judge", {})
        )
    return {"prm": recorded_settings.get("prm"), "weights": recorded_settings.get("weights")}
