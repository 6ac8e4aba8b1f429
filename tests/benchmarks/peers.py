"""Compare labelled solutions per second with the peers' ways of driving an engine.

    python -m tests.benchmarks.peers [--smoke | --quick]

The peers' algorithms are reimplemented here from their papers and repositories, as drivers of the
same loaded engine. Their reload of the engine for each wave is not counted. Each is compared with
ours by the same rule, and with our own `posterior`:

- sequential (OpenR arXiv 2410.09671, GenPRM arXiv 2504.00891): question by question, solution by
  solution, step by step. One call samples the rollouts of a step, which are graded before the next
  call. Ours is `fixed` with as many rollouts of every step.
- waves (SCAN arXiv 2509.16548): one wave over the data set samples the solutions. Then one wave for
  each step index rolls out that step in every wrong solution whose first error is not found yet.
  Ours is `first_error`, the same rule.

All ways run three times in turn. The last line is JSON. `ratio_waves` and `ratio_sequential` are
speed ratios of the same rule, and `…_posterior` those of `posterior`, as median, minimum and
maximum. `ways` has each way's medians of the speed, of the share of time with fewer than 256 live
completions, and of the share of first errors found.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from mclabel.answers import grade_completion
from mclabel.core.records import Completion, Problem, Verdict
from mclabel.core.seeds import derive_sampling_seed
from mclabel.data.boundaries import find_newline_ends
from mclabel.data.lengths import split_steps
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.registry import find_true_first_error
from tests.benchmarks.engine_common import (
    LoadedPolicy,
    Run,
    engine_name,
    label_job,
    loaded_policy,
    watch,
)
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

REPEATS, SOLUTIONS, ROLLOUTS = 3, 4, 8
MIN_GAIN = 0.08
"""Value of `min_gain` for `posterior`, as in configs/label/own-data.yaml."""


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    counts = size.pick(smoke=(1, 1, 1), quick=(2, 24, 64), full=(12, 200, 300))
    result = asyncio.run(_measure(*counts, repeats=1 if size is BenchmarkSize.SMOKE else REPEATS))
    figures: dict[str, Any] = {}
    for peer, ours in (("sequential", "fixed"), ("waves", "first_error")):
        for kind, key in ((ours, f"ratio_{peer}"), ("posterior", f"ratio_{peer}_posterior")):
            speeds = [
                _speed(a) / _speed(b) for a, b in zip(result[kind], result[peer], strict=True)
            ]
            spread = (statistics.median(speeds), min(speeds), max(speeds))
            figures[key] = [round(share, 2) for share in spread]
    kinds: dict[str, Callable[[Run], float]] = {
        "solutions_per_s": _speed,
        "tokens_per_s": lambda run: run.tokens_per_s,
        "under_256_live": lambda run: run.share_under_full,
        "first_errors_found": lambda run: run.accuracy or 0.0,
    }
    ways = {
        name: {kind: round(statistics.median(map(of, runs)), 3) for kind, of in kinds.items()}
        for name, runs in result.items()
    }
    finish({**figures, "ways": ways, "engine": engine_name()})


def _speed(run: Run) -> float:
    return run.num_solutions / run.seconds


async def _measure(few: int, some: int, many: int, *, repeats: int) -> dict[str, list[Run]]:
    """Return the runs of each way.

    The sequential way takes few questions, since questions that follow one another have the same
    speed as many.
    """
    problems = generate_problems(many, seed=4, split="test")
    runs: dict[str, list[Run]] = {}
    async with loaded_policy(str(bundled_model("policy"))) as policy:
        await label_job(policy, problems[:8], kind="fixed", rollouts=1)  # warms up the engine
        for _ in range(repeats):
            run_by_library = {
                "sequential": await _run_sequentially(policy, problems[:few]),
                "fixed": await label_job(policy, problems[:some], kind="fixed", rollouts=ROLLOUTS),
                "waves": await _run_in_waves(policy, problems),
                "first_error": await label_job(
                    policy, problems, kind="first_error", rollouts=ROLLOUTS
                ),
                "posterior": await label_job(policy, problems, kind="posterior", min_gain=MIN_GAIN),
            }
            for name, run in run_by_library.items():
                runs.setdefault(name, []).append(run)
    return runs


class _Solution:
    """A sampled solution and the step values that are measured so far."""

    def __init__(
        self, policy: LoadedPolicy, problem: Problem, number: int, completion: Completion
    ) -> None:
        self.number = number
        self.problem, self.prompt = problem, policy.prompt_ids(problem.text)
        self.ids, self.text = completion.ids, completion.text
        ends = find_newline_ends(completion.text)
        steps = split_steps(completion.ids, completion.text, ends, policy.decode)
        self.steps = [step.text for step in steps]
        self.ends = [step.end for step in steps[:-1]]
        self.right = _is_right(completion.text, problem)
        self.values: list[float] = []

    async def roll_out(self, policy: LoadedPolicy, end: int) -> None:
        """Measure the value of the prefix of `end` ids, by one call for all of its rollouts."""
        prefix = self.ids[:end]
        name = f"peer {self.number} {end}"
        done = await _sample_completions(policy, self.problem, self.prompt, prefix, ROLLOUTS, name)
        text = policy.decode(prefix)
        right = [_is_right(text + completion.text, self.problem) for completion in done]
        self.values.append(sum(right) / len(right))

    @property
    def error_is_found(self) -> bool:
        """True if the first step without a right rollout is the true first error.

        A wrong solution without such a step is labelled at its last step.
        """
        wrong = [index for index, value in enumerate(self.values) if not value]
        first_error = None if self.right and not wrong else [*wrong, len(self.steps) - 1][0]
        return first_error == find_true_first_error(self.problem.meta, self.steps)


def _accuracy(solutions: Sequence[_Solution]) -> float:
    return sum(solution.error_is_found for solution in solutions) / len(solutions)


async def _run_sequentially(policy: LoadedPolicy, problems: Sequence[Problem]) -> Run:
    await policy.reset_cache()
    solutions = []
    async with watch(policy) as watched:
        for problem in problems:
            prompt = policy.prompt_ids(problem.text)
            sampled = await _sample_completions(policy, problem, prompt, (), SOLUTIONS, "peer")
            for number, completion in enumerate(sampled):
                solution = _Solution(policy, problem, number, completion)
                solutions.append(solution)
                for end in solution.ends:
                    await solution.roll_out(policy, end)
    return watched.run(policy, len(solutions), accuracy=_accuracy(solutions))


async def _run_in_waves(policy: LoadedPolicy, problems: Sequence[Problem]) -> Run:
    await policy.reset_cache()
    async with watch(policy) as watched:
        sampled = await asyncio.gather(
            *(
                _sample_completions(policy, p, policy.prompt_ids(p.text), (), SOLUTIONS, "peer")
                for p in problems
            )
        )
        solutions = [
            _Solution(policy, problem, number, completion)
            for problem, completions in zip(problems, sampled, strict=True)
            for number, completion in enumerate(completions)
        ]
        going, step = [solution for solution in solutions if not solution.right], 0
        while going := [s for s in going if step < len(s.ends) and 0.0 not in s.values]:
            await asyncio.gather(*(s.roll_out(policy, s.ends[step]) for s in going))
            step += 1
    return watched.run(policy, len(solutions), accuracy=_accuracy(solutions))


async def _sample_completions(
    policy: LoadedPolicy,
    problem: Problem,
    prompt: Sequence[int],
    prefix: Sequence[int],
    count: int,
    name: str,
) -> list[Completion]:
    """Sample `count` completions of one prefix, each with a different seed."""
    seeds = [derive_sampling_seed(0, problem.id, name, i) for i in range(count)]
    return await asyncio.gather(*(policy.sample(prompt, prefix, seed=seed) for seed in seeds))


def _is_right(text: str, problem: Problem) -> bool:
    return grade_completion(text, problem.answer)[1].verdict is Verdict.RIGHT


if __name__ == "__main__":
    main()
