"""Simulated problems that completers of known rates roll out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Outcome
from mclabel.labeling.estimators import Completer, Probe, RecordedRollout, SolutionPath
from mclabel.labeling.simulation.replay import Case

SOLUTIONS = 4
STEPS = (3, 7)
"""Fewest and most steps of a solution."""
HAZARD = 0.1
"""Chance that a step is the first wrong one."""
SLIP, LUCK = 0.05, 0.03
"""Chances that the author ends a sound solution wrong, and an unsound one right."""
SPREAD = 6.0
"""Values at single prefixes vary about a completer's rates like shares of so many draws."""
DRAWS = 64
STEP_TOKENS = 20


def simulated_completers(
    rates: Mapping[str, tuple[float, float]], *, problems: int, seed: int
) -> tuple[list[Case], dict[str, tuple[float, float]]]:
    """Simulate problems, and what each completer would do at every prefix.

    Args:
        rates: blindness and luck of each completer, in (0, 1).
        problems: how many, of `SOLUTIONS` solutions each.
        seed: of everything drawn.

    Returns:
        The cases, and of each completer the shares of draws that failed at sound prefixes and that
        succeeded at unsound ones.
    """
    rng = np.random.default_rng(seed)
    cases = []
    tallies = {name: np.zeros((2, 2)) for name in rates}
    for number in range(problems):
        paths, truth, is_sound = _solutions(rng)
        drawn = []
        for name, (blindness, luck) in rates.items():
            means = np.where(is_sound, 1 - blindness, luck)
            values = rng.beta(SPREAD * means, SPREAD * (1 - means))
            right = rng.random((len(values), DRAWS)) < values[:, None]
            drawn.append(right)
            shares = right[1:].mean(1)
            inner = is_sound[1:]
            tallies[name] += [
                [(1 - shares[inner]).sum(), inner.sum()],
                [shares[~inner].sum(), (~inner).sum()],
            ]
        cases.append(
            Case(
                id=f"simulated-{number}",
                paths=paths,
                num_prefixes=len(is_sound),
                answer_class="number",
                truth=truth,
                draw=partial(_draw, drawn),
                group="simulated",
                completers=tuple(Completer(name=name) for name in rates),
            )
        )
    return cases, {
        name: (float(sound[0] / sound[1]), float(unsound[0] / unsound[1]))
        for name, (sound, unsound) in tallies.items()
    }


def _solutions(
    rng: np.random.Generator,
) -> tuple[tuple[SolutionPath, ...], tuple[int | None, ...], NDArray[np.bool_]]:
    """Solutions that share the bare problem alone, their first errors, and each prefix's truth."""
    paths, truth, is_sound = [], [], [True]
    for _ in range(SOLUTIONS):
        steps = int(rng.integers(STEPS[0], STEPS[1] + 1))
        wrong = rng.random(steps) < HAZARD
        error = int(np.argmax(wrong)) if wrong.any() else None
        right = bool(rng.random() < (1 - SLIP if error is None else LUCK))
        if error is None and not right:
            error = steps - 1
        prefixes = tuple(range(len(is_sound), len(is_sound) + steps - 1))
        is_sound += [error is None or step < error for step in range(steps - 1)]
        paths.append(
            SolutionPath(
                prefixes=prefixes,
                outcome=Outcome.RIGHT if right else Outcome.WRONG,
                step_tokens=(STEP_TOKENS,) * steps,
            )
        )
        truth.append(error)
    return tuple(paths), tuple(truth), np.array(is_sound)


def _draw(drawn: list[NDArray[np.bool_]], probe: Probe, index: int) -> RecordedRollout:
    right = drawn[probe.completer][probe.prefix, index]
    return RecordedRollout(
        prefix=probe.prefix,
        outcome=Outcome.RIGHT if right else Outcome.WRONG,
        num_tokens=STEP_TOKENS,
        completer=probe.completer,
    )
