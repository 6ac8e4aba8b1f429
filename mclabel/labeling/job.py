"""The driver of a labelling job: cuts blocks, resumes, leases them out, reports.

Rerunning a job resumes it: blocks whose labels shard exists are done, the others are run. An
output belongs to one semantic configuration, which `run.json` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mclabel.data.manifest import claim
from mclabel.data.shards import committed_blocks, delete_losers
from mclabel.data.store import Store
from mclabel.labeling.fleet import Fleet
from mclabel.labeling.scheduler import GivenSolution
from mclabel.labeling.worker import Block, BlockReport, WorkerProgress
from mclabel.records import Problem
from mclabel.seeds import content_id

MANIFEST = "run.json"


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What a job has done so far, for progress displays."""

    num_blocks: int
    num_blocks_done: int
    """Committed, those of earlier runs included."""
    num_problems: int
    num_problems_done: int
    """Labelled, those of blocks that are not committed yet included."""
    num_problems_resumed: int
    """Of these, committed by earlier runs."""
    num_completions: int
    num_tokens: int
    """Sampled by the engines that are alive."""
    num_live: int
    num_waiting: int
    num_workers: int


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """What one run of a job did."""

    num_blocks: int
    num_blocks_resumed: int
    """Found committed at the start."""
    num_problems: int
    num_solutions: int
    """Labelled by this run."""
    num_rollouts: int
    num_tokens: int


def make_blocks(
    problems: Sequence[Problem],
    *,
    size: int,
    semantic: Mapping[str, Any],
    given: Mapping[str, tuple[GivenSolution, ...]] | None = None,
) -> list[Block]:
    """Cut problems into blocks whose ids are hashes of what they hold and how it is labelled."""
    given = given or {}
    blocks: list[Block] = []
    for start in range(0, len(problems), size):
        part = tuple(problems[start : start + size])
        solutions = {p.id: given[p.id] for p in part if p.id in given}
        contents = [[p.id, p.text, p.answer, dict(p.meta)] for p in part]
        texts = {key: [asdict(s) for s in value] for key, value in solutions.items()}
        blocks.append(
            Block(
                id=content_id("block", semantic, contents, texts),
                problems=part,
                given=solutions,
                priority=len(blocks),
            )
        )
    return blocks


def run_label_job(
    blocks: Sequence[Block],
    fleet: Fleet,
    store: Store,
    *,
    semantic: Mapping[str, Any],
    provenance: Mapping[str, Any],
    on_state: Callable[[JobState], None] = lambda state: None,
) -> JobReport:
    """Label every block that the store does not hold yet.

    Args:
        blocks: of the whole job.
        fleet: where they run.
        store: of the output.
        semantic: configuration that the output belongs to.
        provenance: versions and the like, written beside it.
        on_state: called often with the state of the job.

    Raises:
        ShardError: the output belongs to another semantic configuration.
        EngineError: engines cannot be loaded or kept alive.
    """
    claim(store, MANIFEST, semantic, provenance)
    committed = committed_blocks(store)
    todo = [block for block in blocks if block.id not in committed]
    resumed = sum(len(block.problems) for block in blocks if block.id in committed)
    reports: list[BlockReport] = []

    def state(workers: Sequence[WorkerProgress]) -> None:
        finished = sum(report.num_problems for report in reports)
        on_state(
            JobState(
                num_blocks=len(blocks),
                num_blocks_done=len(blocks) - len(todo) + len(reports),
                num_problems=sum(len(block.problems) for block in blocks),
                num_problems_done=resumed + max(finished, sum(w.num_problems for w in workers)),
                num_problems_resumed=resumed,
                num_completions=sum(w.num_completions for w in workers),
                num_tokens=sum(w.engine.num_sampled_tokens for w in workers),
                num_live=sum(w.engine.num_live for w in workers),
                num_waiting=sum(w.engine.num_waiting for w in workers),
                num_workers=len(workers),
            )
        )

    if todo:
        for report in fleet.run(todo, state):
            reports.append(report)
    delete_losers(store)
    return JobReport(
        num_blocks=len(blocks),
        num_blocks_resumed=len(blocks) - len(todo),
        num_problems=sum(report.num_problems for report in reports),
        num_solutions=sum(report.num_solutions for report in reports),
        num_rollouts=sum(report.num_rollouts for report in reports),
        num_tokens=sum(report.num_tokens for report in reports),
    )
