"""Problems with known values: changes of the value along a solution, and the place of the error.

A profile defines how values change after an error. `sharp`: they drop to zero. `decay`: they shrink
step by step, and errors halve them. `recovery`: they drop, and the policy recovers. `lucky`: wrong
solutions reach the right answer as often as with multiple choice. `hopeless`: even the bare problem
is hardly ever solved. `measured` takes values, shared prefixes and lengths from a pool of rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Outcome
from mclabel.labeling.estimators import Probe, RecordedRollout, SolutionPath
from tests.benchmarks.simulation.replay import Case

Profile = Literal["sharp", "decay", "recovery", "lucky", "hopeless"]
PROFILES: tuple[Profile, ...] = ("sharp", "decay", "recovery", "lucky", "hopeless")
STEP_TOKENS = 10
"""Number of tokens of every step."""
DRAWN_ROLLOUTS = 64
"""Number of rollouts of every prefix that are drawn with a case; further ones are drawn on demand.
"""


def simulated_cases(
    profile: Profile,
    count: int,
    *,
    seed: int = 0,
    num_solutions: int = 2,
) -> Iterator[Case]:
    """Simulate cases of a profile; solutions of a problem share their beginning.

    Args:
        profile: profile that defines how values change after errors.
        count: number of problems.
        seed: random seed; cases depend only on it and on the other arguments.
        num_solutions: number of solutions of each problem.
    """
    key = [seed, PROFILES.index(profile)]
    rng = np.random.default_rng(key)
    for number in range(count):
        root = float(rng.beta(1.0, 30.0) if profile == "hopeless" else rng.beta(1.2, 1.0))
        values, paths, truth = [root], [], []
        first: tuple[list[float], list[int], int | None] | None = None
        for _ in range(num_solutions):
            steps = int(rng.integers(3, 9))
            trace, error = _draw_trace(profile, root, steps, rng)
            shared = 0 if first is None else int(rng.integers(0, min(len(first[1]), steps - 1) + 1))
            prefixes = [] if first is None else first[1][:shared]
            if first is not None and shared:
                trace[:shared] = first[0][:shared]
                first_error = first[2]
                if first_error is not None and first_error < shared:
                    error = first_error
                elif error is not None:
                    error = max(error, shared)
                trace[shared:] = _draw_later_values(
                    profile, trace[shared - 1], error, shared, steps, rng
                )
            for value in trace[shared:]:
                prefixes = [*prefixes, len(values)]
                values.append(value)
            before_last = trace[-1] if trace else root
            right = bool(rng.random() < before_last)
            if error is None or error == steps - 1:
                # No step before the last was wrong, and the last is right with the value as its
                # chance.
                error = None if right else steps - 1
                right = right or bool(rng.random() < _draw_fallen_value(profile, before_last, rng))
            paths.append(_path(prefixes, right, steps))
            truth.append(error)
            first = first or (trace, prefixes, error)
        right_draws = rng.random((len(values), DRAWN_ROLLOUTS)) < np.array(values)[:, None]
        yield Case(
            id=f"{profile}-{number}",
            paths=tuple(paths),
            num_prefixes=len(values),
            answer_class="number",
            truth=tuple(truth),
            draw=_make_rollout_drawer(
                right_draws, values, _to_go(paths, len(values)), [*key, number]
            ),
            values=tuple(values),
            group=profile,
        )


def guessed_cases(
    solved: float, guessed: float, count: int, *, seed: int = 0, num_solutions: int = 4
) -> Iterator[Case]:
    """Simulate cases in which every answer can be guessed, with known chances.

    Args:
        solved: chance that the policy solves the bare problem without a guess.
        guessed: chance that a wrong solution's answer is right by luck.
        count: number of problems.
        seed: random seed; cases depend only on it and on the other arguments.
        num_solutions: number of solutions of each problem; they share no step.
    """
    rng = np.random.default_rng([seed, round(1000 * solved), round(1000 * guessed)])
    for number in range(count):
        values, paths, truth = [solved + (1 - solved) * guessed], [], []
        for _ in range(num_solutions):
            steps = int(rng.integers(3, 8))
            wrong = rng.random(steps) < 1 - solved ** (1 / steps)
            error = int(np.argmax(wrong)) if wrong.any() else None
            prefixes = range(len(values), len(values) + steps - 1)
            for step in range(steps - 1):
                is_sound = error is None or step < error
                value = solved ** ((steps - 1 - step) / steps) if is_sound else 0.0
                values.append(value + (1 - value) * guessed)
            is_right = error is None or bool(rng.random() < guessed)
            paths.append(_path(prefixes, is_right, steps))
            truth.append(error)
        right_draws = rng.random((len(values), DRAWN_ROLLOUTS)) < np.array(values)[:, None]
        yield Case(
            id=f"{solved}-{guessed}-{number}",
            paths=tuple(paths),
            num_prefixes=len(values),
            answer_class=f"number {guessed:.3g}" if guessed else "number",
            truth=tuple(truth),
            draw=_make_rollout_drawer(
                right_draws, values, _to_go(paths, len(values)), [seed, number]
            ),
            values=tuple(values),
        )


def resampled_cases(pool: Sequence[Case], count: int, *, seed: int = 0) -> Iterator[Case]:
    """Simulate cases with a pool's prefixes, outcomes and truth, and with its shares as values."""
    key = [seed, len(PROFILES)]
    rng = np.random.default_rng(key)
    for number in range(count):
        case = pool[int(rng.integers(len(pool)))]
        values = np.nan_to_num(np.array(case.values))
        draws = rng.random((case.num_prefixes, DRAWN_ROLLOUTS)) < values[:, None]
        yield Case(
            id=f"measured-{number}",
            paths=case.paths,
            num_prefixes=case.num_prefixes,
            answer_class=case.answer_class,
            truth=case.truth,
            draw=_make_rollout_drawer(
                draws, values.tolist(), _to_go(case.paths, case.num_prefixes), [*key, number]
            ),
            values=tuple(values.tolist()),
            group="measured",
        )


def _draw_trace(
    profile: Profile, root: float, steps: int, rng: np.random.Generator
) -> tuple[list[float], int | None]:
    """Return the values after each step but the last, and the index of the first error."""
    hazard = 1 - max(root, 0.02) ** (1 / steps)
    wrong = rng.random(steps) < hazard
    error = int(np.argmax(wrong)) if wrong.any() else None
    return _draw_later_values(profile, root, error, 0, steps, rng), error


def _draw_later_values(
    profile: Profile,
    value: float,
    error: int | None,
    begin: int,
    steps: int,
    rng: np.random.Generator,
) -> list[float]:
    """Return the values after each step from `begin` to the last but one."""
    values = []
    for step in range(begin, steps - 1):
        if error is None or step < error:
            to_go = steps - step
            value = min(0.999, value ** ((to_go - 1) / to_go) * float(np.exp(rng.normal(0, 0.1))))
            if profile == "decay":
                value *= float(rng.uniform(0.8, 1.0))
        elif step == error:
            value = _draw_fallen_value(profile, value, rng)
        elif profile == "recovery":
            value = min(0.95, value * float(rng.uniform(1.0, 1.8)))
        elif profile == "decay":
            value *= float(rng.uniform(0.5, 0.9))
        values.append(value)
    return values


def _draw_fallen_value(profile: Profile, value: float, rng: np.random.Generator) -> float:
    if profile == "decay":
        return value * 0.5
    if profile == "recovery":
        return value * float(rng.uniform(0.1, 0.5))
    if profile == "lucky":
        return float(rng.uniform(0.15, 0.5))
    return 0.0 if rng.random() < 0.8 else float(rng.beta(1, 30))


def _path(prefixes: Sequence[int], right: bool, steps: int) -> SolutionPath:
    return SolutionPath(
        prefixes=tuple(prefixes),
        outcome=Outcome.RIGHT if right else Outcome.WRONG,
        step_tokens=(STEP_TOKENS,) * steps,
    )


def _to_go(paths: Sequence[SolutionPath], num_prefixes: int) -> list[int]:
    """Return the number of tokens of a rollout from each prefix."""
    tokens = [0] * num_prefixes
    for path in paths:
        tokens_left = sum(path.step_tokens)
        tokens[0] = max(tokens[0], tokens_left)
        for prefix, step in zip(path.prefixes, path.step_tokens, strict=False):
            tokens_left -= step
            tokens[prefix] = max(tokens[prefix], tokens_left)
    return tokens


def _make_rollout_drawer(
    right: NDArray[np.bool_], values: Sequence[float], tokens: Sequence[int], key: Sequence[int]
) -> Callable[[Probe, int], RecordedRollout]:
    """Make the function that draws a case's rollouts.

    Args:
        right: array [prefix, index]: True if the rollout ends right, for the first rollouts.
        values: chance of each prefix that a later rollout ends right.
        tokens: number of tokens of a rollout from each prefix.
        key: random seed of later rollouts.
    """
    outcomes = (Outcome.WRONG, Outcome.RIGHT)
    rollouts = [
        [RecordedRollout(prefix=prefix, outcome=outcome, num_tokens=cost) for outcome in outcomes]
        for prefix, cost in enumerate(tokens)
    ]
    ends: list[list[bool]] = right.tolist()

    def draw(probe: Probe, index: int) -> RecordedRollout:
        prefix = probe.prefix
        drawn_ends = ends[prefix]
        while index >= len(drawn_ends):
            rng = np.random.default_rng([*key, prefix, len(drawn_ends)])
            drawn_ends += (rng.random(DRAWN_ROLLOUTS) < values[prefix]).tolist()
        return rollouts[prefix][drawn_ends[index]]

    return draw
