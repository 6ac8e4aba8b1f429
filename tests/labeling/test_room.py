"""No rollouts start from prefixes that leave fewer tokens than a completion usually needs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.records import (
    NO_ROOM,
    Completion,
    FinishReason,
    GivenSolution,
    LabeledSolution,
    Outcome,
    Problem,
    Rollout,
    Solution,
    Step,
)
from mclabel.engines.scripted import ScriptedEngine
from mclabel.evaluate.health import assess_run_health
from mclabel.labeling.config import LabelConfig, LabelSettings
from mclabel.labeling.estimators import ESTIMATORS, Completer
from mclabel.labeling.prefixes import PrefixTable
from mclabel.labeling.problem import ProblemLabels, RolloutModel, label_problem
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobState
from tests.benchmarks.simulation.replay import read_pool
from tests.support.one_engine import on_one_engine
from tests.support.scripted_jobs import scripted, scripted_overrides, write_problems

PROBLEM = Problem(id="p", text="Problem [answer 7]", answer="7")
CUT = "gggg"
CUTS_ALL = 80
"""A token limit that cuts all solutions of the scripted policy between the last line and the
answer. A solution has four lines of 17 characters, then 24 for a right answer or 26 for a wrong
one."""
CUTS_WRONG = 93
"""A token limit that cuts only the solutions with a wrong answer."""


def solution(index: int, steps: Sequence[str], end: FinishReason) -> Solution:
    text = "".join(steps)
    ends = accumulate(map(len, steps))
    return Solution(
        id=str(index),
        problem_id="p",
        sample_index=index,
        text=text,
        ids=tuple(map(ord, text)),
        steps=tuple(Step(text=a, end=b) for a, b in zip(steps, ends, strict=True)),
        finish_reason=end,
        origin="sampled",
        prediction=None,
        outcome=Outcome.WRONG if end == "stop" else Outcome.TRUNCATED,
    )


def list_needed_tokens(*solutions: Solution) -> dict[str, float]:
    table = PrefixTable(PROBLEM, solutions, kept_regardless_of_outcome=True)
    return {prefix.text: prefix.num_tokens_needed for prefix in table.prefixes}


def test_the_need_of_a_prefix_by_hand() -> None:
    short = solution(0, ["a", "bb", "c"], "stop")
    long = solution(1, ["a", "d", "eeeee", "f"], "stop")
    cut = solution(2, [CUT, "h", "i", "jjjj"], "length")  # cut at ten tokens
    # Completions after "a" took 3 and 7 tokens. After one step, the three solutions took 3, 7 and
    # more than the limit leaves to the cut one. After two steps they took 1, 6 and more. After
    # three, the two whole ones took 1 each and the cut one more.
    expected = {"": 0, "a": 3, "abb": 1, "ad": 6, "adeeeee": 1}
    assert list_needed_tokens(short, long, cut) == expected | {CUT: 7, CUT + "h": 6, CUT + "hi": 1}
    # Where most solutions were cut, the need is one token more than the limit leaves.
    most = list_needed_tokens(short, cut, replace(cut, id="3"))
    assert [most["a"], most[CUT], most[CUT + "h"], most[CUT + "hi"]] == [3, 7, 6, 5]


class Counting(ScriptedEngine):
    """A scripted engine that counts its completions of non-empty prefixes."""

    num_asked = 0

    async def sample(self, prompt: Sequence[int], prefix: Sequence[int], **how: Any) -> Completion:
        self.num_asked += bool(prefix)
        return await super().sample(prompt, prefix, **how)


def label_by_estimator(
    kind: str, policy: ScriptedEngine, *texts: str, completer: ScriptedEngine | None = None
) -> ProblemLabels:
    estimator = {"kind": kind} if kind in ("outcome", "trace") else {"kind": kind, "rollouts": 4}
    shared = on_one_engine(policy, LabelSettings.model_validate({"estimator": estimator}))
    if completer is not None:
        shared = replace(
            shared, completers=[RolloutModel(completer=Completer(name="other"), policy=completer)]
        )
    return asyncio.run(label_problem(PROBLEM, shared, given=[GivenSolution(text=t) for t in texts]))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_no_estimator_finds_steps_wrong_for_want_of_room(kind: str) -> None:
    policy = Counting(scripted(max_tokens=CUTS_ALL))
    lines = "".join(f"Line {i} is sound.\n" for i in range(1, 5))
    # a wrong answer in a text that exceeds the policy's token limit
    text = f"{lines}The answer is \\boxed{{70}}."
    for result in label_by_estimator(kind, policy), label_by_estimator(kind, policy, text):
        assert result.set_aside is None and len(result.labeled) in (1, 4)
        for row in result.labeled:
            assert len(row.steps) == 5 and row.first_error is None and not row.is_decided
            for step in row.steps[:-1]:
                assert step.hard is not False and step.counts.num_truncated == 0
                assert kind in ("posterior", "trace") or step.hard is None
                assert (step.value, step.low, step.high) == (None, None, None)
        assert {r.reason for r in result.rollouts if r.finish_reason == "failed"} <= {NO_ROOM}
        assert all(r.num_tokens == 0 for r in result.rollouts if r.finish_reason == "failed")
    assert policy.num_asked == 0


def test_a_completer_that_may_write_more_rolls_out() -> None:
    policy, completer = (Counting(scripted(max_tokens=limit)) for limit in (CUTS_ALL, 2 * CUTS_ALL))
    result = label_by_estimator("fixed", policy, completer=completer)
    assert {rollout.finish_reason for rollout in result.rollouts} == {"stop"}
    assert policy.num_asked == 0 and completer.num_asked == len(result.rollouts) > 0


def job(
    folder: Path,
    name: str,
    *changes: str,
    delay_s: float = 0.001,
    on_state: Callable[[JobState], None] = lambda state: None,
) -> Path:
    source = write_problems(folder, 20)
    base = [*scripted_overrides(source, folder / name), "ray.address=none", "block_problems=20"]
    base.append(f"policy.max_tokens={CUTS_WRONG}")
    base.append(f"policy.engine={{kind: scripted, delay_s: {delay_s}}}")
    jobs.label(load_config(LabelConfig, None, [*base, *changes]), on_state)
    return folder / name


def kill(state: JobState) -> None:
    if (state.counters.get("num_completions") or 0) >= 100:
        raise KeyboardInterrupt


def rows(run: Path) -> tuple[list[LabeledSolution], list[Rollout]]:
    store = Store(str(run))
    return (
        sorted(read_labels(store), key=lambda row: row.solution.id),
        sorted(read_rollouts(store), key=lambda r: (r.problem_id, r.prefix_id, r.index)),
    )


@pytest.mark.parametrize("kind", ["fixed", "posterior"])
def test_runs_that_were_interrupted_or_graded_again_decide_the_same(
    tmp_path: Path, kind: str
) -> None:
    pilot = ", pilot: 100" if kind == "posterior" else ""
    more = [f"estimator={{kind: {kind}, rollouts: 4{pilot}}}"]
    run = job(tmp_path, "run", *more)
    labels, rollouts = rows(run)
    reasons = [rollout.reason for rollout in rollouts if rollout.finish_reason == "failed"]
    assert set(reasons) == {NO_ROOM} and len(reasons) < len(rollouts)
    with pytest.raises(KeyboardInterrupt):
        job(tmp_path, "resumed", *more, delay_s=0.05, on_state=kill)
    seen: list[JobState] = []
    assert rows(job(tmp_path, "resumed", *more, on_state=seen.append)) == (labels, rollouts)
    assert seen[-1].num_replayed > 0
    jobs.regrade(str(run), str(tmp_path / "again"))
    again, same = rows(tmp_path / "again")
    assert same == rollouts and [replace(row, num_missing=None) for row in again] == labels
    for name in ("run", "again"):
        health = assess_run_health(Store(str(tmp_path / name)))
        figure = health.figures["rollouts_withheld"]
        assert (figure.count, figure.total) == (len(reasons), len(rollouts))
        assert health.figures["rollouts_ungraded"].count == 0
        assert health.figures["rollouts_truncated"].total == len(rollouts) - len(reasons)
        (finding,) = (
            reported for reported in health.findings if reported.check == "rollouts_withheld"
        )
        assert "policy.max_tokens=93 leaves less room" in finding.text
        assert finding.remedy.startswith("Raise policy.max_tokens")


def test_a_pool_has_no_values_where_nothing_was_rolled_out(tmp_path: Path) -> None:
    run = job(tmp_path, "run", "estimator={kind: fixed, rollouts: 4, root_rollouts: 4}")
    withheld = {r.prefix_id for r in rows(run)[1] if r.finish_reason == "failed"}
    cases = read_pool(Store(str(run)), lambda row: row.first_error)
    assert sum(math.isnan(value) for case in cases for value in case.values) == len(withheld) > 0
