"""Cost of a labelling job: a pilot run, and a forecast from the finished blocks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import pyarrow as pa

from mclabel.core.records import AUTHOR
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.inputs import load_inputs, open_source_run
from mclabel.labeling.job import label, make_semantic_config
from mclabel.labeling.journal import may_resume_with_changes
from mclabel.labeling.policy import PreparedModels
from mclabel.labeling.problem import make_run_learner
from mclabel.labeling.task import LABEL_OUTPUTS
from mclabel.run.blocks import JobBlocks
from mclabel.run.budget import read_recorded_spending
from mclabel.run.forecast import Interval, Size, choose_pilot_blocks, forecast_cost
from mclabel.run.run import RunOutput
from mclabel.run.shards.catalog import read_catalog, read_labels_shard
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState

MIN_BLOCKS = 8
"""Minimum default number of blocks of a pilot. Fewer blocks hardly show how costs vary."""
NUM_PROBLEMS = 96
"""Minimum default number of problems of a pilot."""
MAX_BLOCKS = 500
"""Maximum number of blocks that a forecast reads."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Total cost of a job, including the cost so far."""

    num_blocks: int
    num_blocks_done: int
    num_blocks_seen: int
    """Number of finished blocks on which the forecast is based."""
    num_problems: int
    num_rollouts: Interval
    num_tokens: Interval
    """Number of sampled tokens of solutions and rollouts together."""
    hours: Interval | None
    """Hours of the job, if as many engines run as have run so far; None if no engine ran long
    enough to measure its speed."""
    shares: dict[str, float]
    """Shares of the tokens sampled so far, in [0, 1]: of the solutions, under `solutions`, and of
    each completer's rollouts. Empty if the job reuses rollouts of another run."""
    num_engines: int
    tokens_per_engine_second: float | None
    gpu_hours: Interval | None
    """GPU hours; None if the engines use no GPU."""
    money: Interval | None
    """Cost in the currency of the configured prices; None if no price is set."""
    still_learning: bool
    """True if all finished blocks were labelled before the estimator fitted its priors to this run;
    later blocks will then cost less."""

    def lines(self) -> list[tuple[str, str]]:
        """Return the forecast as pairs of a name and a text to print."""
        lines = [
            (
                "forecast",
                f"from {self.num_blocks_seen:,} blocks; {self.num_blocks_done:,} of "
                f"{self.num_blocks:,} blocks are finished; brackets are 95% intervals",
            ),
            ("rollouts in all", _format_interval(self.num_rollouts)),
            ("tokens in all", _format_interval(self.num_tokens)),
        ]
        if self.shares:
            so_far = ", ".join(f"{role} {share:.0%}" for role, share in self.shares.items())
            lines.append(("of them so far", so_far))
        if self.hours is not None:
            engines = f"{self.num_engines} engine" + ("" if self.num_engines == 1 else "s")
            speed = f"{self.tokens_per_engine_second:,.0f} tokens/s"
            lines.append(("hours in all", f"{_format_interval(self.hours)}, {engines} of {speed}"))
        if self.gpu_hours is not None:
            lines.append(("GPU hours in all", _format_interval(self.gpu_hours)))
        if self.money is not None:
            lines.append(("price in all", _format_interval(self.money)))
        if self.still_learning and self.num_blocks_done < self.num_blocks:
            lines.append(
                (
                    "note",
                    "the estimator has not learned its priors yet, so later blocks cost less. Run "
                    "a larger pilot",
                )
            )
        return lines


def run_pilot(
    config: LabelConfig,
    on_state: Callable[[JobState], None],
    *,
    num_problems: int | None = None,
    accept_changes: bool = False,
) -> JobReport:
    """Label a sample of a job's blocks that covers all problem lengths.

    The blocks are committed to the job's output, so the job does not label them again.

    Args:
        config: configuration of the job.
        on_state: callback that receives the state of the pilot every few seconds or more often.
        num_problems: approximate number of problems to label; None means the problems of
            `MIN_BLOCKS` blocks, but at least `NUM_PROBLEMS`.
        accept_changes: True labels problems again that changed since the run started, as in
            `label`; False makes such changes an error.
    """
    wanted = num_problems or max(NUM_PROBLEMS, MIN_BLOCKS * config.block_problems)

    def choose_block_ids(blocks: JobBlocks) -> frozenset[str]:
        sizes = {block.id: block.size for block in blocks.read_blocks()}
        ids = [block_id for block_id, _ in blocks.iter_item_counts()]
        count = ceil(wanted / config.block_problems)
        chosen = choose_pilot_blocks(
            [sizes[block_id] for block_id in ids], count, seed=config.seed + 1
        )
        return frozenset(ids[number] for number in chosen)

    return label(config, on_state, choose_blocks=choose_block_ids, accept_changes=accept_changes)


def forecast(config: LabelConfig, *, accept_changes: bool = False) -> Forecast | None:
    """Forecast the cost of a job from its finished blocks; return None if no block is finished.

    Args:
        config: configuration of the job.
        accept_changes: continue although problems changed, as in `label`.

    Raises:
        ShardError: the output belongs to another configuration, or to other problems.
    """
    models = PreparedModels.prepare_all(config)
    config = models.with_resolved_settings(config)
    run = RunOutput.inspect(config.out)
    semantic = make_semantic_config(config, models)
    run.check_config(semantic, may_resume_with_changes)
    if (store := run.store) is None:
        return None
    inputs = load_inputs(config, open_source_run(config, semantic))
    committed = read_catalog(store, require_complete=False).blocks
    done: dict[str, Size] = {}
    size_left = Size()
    blocks = run.plan_blocks(
        inputs.items,
        LABEL_OUTPUTS,
        block_items=config.block_problems,
        accept_changes=accept_changes,
    )
    for block in blocks.read_blocks():
        size = block.size
        if block.id in committed:
            done[block.id] = size
        else:
            size_left += size
    learner = make_run_learner(config)
    initial_priors_id = None if learner is None else learner.knowledge.id
    seen = list(
        _iter_block_costs(store, done, initial_priors_id=initial_priors_id, seed=config.seed)
    )
    if not seen:
        return None
    learned = [block for block in seen if not block.used_initial_priors]
    chosen = learned if len(learned) >= MIN_BLOCKS // 2 else seen
    spent = read_recorded_spending(store)

    def forecast_remaining(costs: list[int]) -> Interval:
        rows = [(block.size, cost) for block, cost in zip(chosen, costs, strict=True)]
        return forecast_cost(rows, size_left, seed=config.seed)

    tokens_left = forecast_remaining([block.num_tokens for block in chosen])
    rollouts_done = len(done) / len(seen) * sum(block.num_rollouts for block in seen)
    gpus = models.resources(config.ray).total_gpus
    speed = spent.tokens_per_engine_second
    engine_hours = None if speed is None else tokens_left.scale_and_shift(1 / speed / 3600)
    engines = max(1, spent.num_engines)
    tokens = tokens_left.scale_and_shift(1, spent.num_tokens)
    gpu_hours = (
        engine_hours.scale_and_shift(gpus, spent.gpu_hours) if engine_hours and gpus else None
    )
    return Forecast(
        num_blocks=len(blocks),
        num_blocks_done=len(done),
        num_blocks_seen=len(chosen),
        num_problems=len(inputs.problems),
        num_rollouts=forecast_remaining([block.num_rollouts for block in chosen]).scale_and_shift(
            1, rollouts_done
        ),
        num_tokens=tokens,
        shares=_compute_token_shares([block.tokens_by_role for block in seen])
        if inputs.samples_all_rollouts
        else {},
        hours=None
        if engine_hours is None
        else engine_hours.scale_and_shift(1 / engines, spent.hours),
        num_engines=engines,
        tokens_per_engine_second=speed,
        gpu_hours=gpu_hours,
        money=_forecast_price(config, tokens, gpu_hours),
        still_learning=not learned,
    )


@dataclass(frozen=True, kw_only=True)
class _BlockCost:
    """Measured cost of one finished block."""

    size: Size
    num_tokens: int
    num_rollouts: int
    tokens_by_role: Counter[str]
    used_initial_priors: bool
    """True if some labels of the block used the estimator's initial parameters, which were not yet
    fitted to this run."""


def _iter_block_costs(
    store: Store, done: Mapping[str, Size], *, initial_priors_id: str | None, seed: int
) -> Iterator[_BlockCost]:
    """Yield the costs of finished blocks, at most `MAX_BLOCKS`.

    Args:
        store: the run's store.
        done: number of problems and amount of text of each finished block, by block id.
        initial_priors_id: id of the parameters with which the run's estimator started; None if the
            estimator does not learn from the run.
        seed: random seed for choosing blocks if there are more than `MAX_BLOCKS`.
    """
    blocks = sorted(done)
    if len(blocks) > MAX_BLOCKS:
        blocks = random.Random(seed).sample(blocks, MAX_BLOCKS)
    for block in blocks:
        metadata, table = read_labels_shard(store, block)
        if metadata.get("cost") is None:
            continue
        priors = table["priors"].unique().to_pylist()
        yield _BlockCost(
            size=done[block],
            num_tokens=metadata["cost"]["num_tokens"],
            num_rollouts=metadata["cost"]["num_rollouts"],
            tokens_by_role=_count_tokens_by_role(table),
            used_initial_priors=initial_priors_id is not None and initial_priors_id in priors,
        )


def _count_tokens_by_role(table: pa.Table) -> Counter[str]:
    """Count the tokens of the solutions and of each completer's rollouts.

    Rollouts from a prefix that several solutions share are counted once.
    """
    tokens: Counter[str] = Counter()
    counted: dict[tuple[str, str], int] = {}
    names = ["problem_id", "origin", "solution_ids", "root", "steps", "completers"]
    for row in table.select(names).to_pylist():
        tokens["solutions"] += len(row["solution_ids"]) * (row["origin"] == "sampled")
        alone = {"name": AUTHOR, "root": row["root"], "steps": row["steps"]}
        for completer in row["completers"] or [alone]:
            counted[completer["name"], row["problem_id"]] = completer["root"]["num_tokens"]
            for step, counts in zip(row["steps"], completer["steps"], strict=True):
                counted[completer["name"], step["prefix_id"]] = counts["num_tokens"]
    for (name, _), num_tokens in counted.items():
        tokens[f"rollouts by {name}"] += num_tokens
    return tokens


def _compute_token_shares(parts: Sequence[Counter[str]]) -> dict[str, float]:
    total = sum(parts, Counter())
    return {name: count / max(1, total.total()) for name, count in total.items()}


def _forecast_price(
    config: LabelConfig, tokens: Interval, gpu_hours: Interval | None
) -> Interval | None:
    prices = config.budget
    by_tokens = by_hours = None
    if prices.price_per_million_tokens is not None:
        by_tokens = tokens.scale_and_shift(prices.price_per_million_tokens / 1e6)
    if prices.price_per_gpu_hour is not None and gpu_hours is not None:
        by_hours = gpu_hours.scale_and_shift(prices.price_per_gpu_hour)
    if by_tokens is None or by_hours is None:
        return by_tokens or by_hours
    return Interval(
        expected=by_tokens.expected + by_hours.expected,
        low=by_tokens.low + by_hours.low,
        high=by_tokens.high + by_hours.high,
    )


def _format_interval(amount: Interval) -> str:
    digits = 0 if amount.expected >= 100 else 2
    expected, low, high = (f"{x:,.{digits}f}" for x in (amount.expected, amount.low, amount.high))
    return f"{expected} [{low} to {high}]"
