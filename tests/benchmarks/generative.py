"""Does a small verifier that writes a chain about each step find first errors better than a PRM?

    python -m tests.benchmarks.generative [--smoke | --quick] [--out FOLDER]

On arith, with exact labels of the policy's solutions to train problems. A verifier learns to write
chains that a program made for the same solutions; a PRM with head `likelihood` and one with a plain
token head learn the labels. All start from the bundled policy. Epochs, the form of the chains and
thresholds are chosen on validation problems by first-error F1. Test problems are of the families of
training, and of families kept out of it. The verifier writes one greedy chain; a chain without a
verdict on every step up to the first incorrect one finds nothing. Intervals: 95%, paired bootstrap
over problems.

The rule, fixed beforehand: a generative verifier is worth going on with only if it finds more first
errors than the PRM with head `likelihood`, of solutions that have one, with a lower bound above 0.

About three hours of one core, in pieces: what is under `--out` is not done again. `--quick` takes
ten minutes, in which a verifier does not learn to write its chains. The last line is JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.generative_figures import (
    MAX_TOKENS,
    Block,
    Reading,
    always,
    best_threshold,
    cost_of_chains,
    cost_of_scores,
    f1,
    false_alarms,
    named_by_chains,
    named_by_scores,
    policy_parameters,
    threshold_at,
    truth,
)
from tests.benchmarks.generative_training import Course, Form, chains
from tests.benchmarks.pieces import Pieces, in_pieces
from tests.benchmarks.prm_vs_orm import HELD_OUT, HELD_OUT_FAMILIES, TEST, VALIDATION
from tests.benchmarks.scorers import NO_ERROR, Training, read_scores, samples
from tests.benchmarks.sizes import BenchmarkSize

TRAIN = "train"
GENERATIVE, LIKELIHOOD, PLAIN = "generative", "likelihood", "plain"
CAUTIOUS = "cautious"
"""Of a PRM with the threshold at which it has the false alarms of the verifier."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much is sampled and trained."""

    train: int
    """Problems, with two solutions each; of the other pools, with one."""
    validation: int
    test: int
    held_out: int
    verifiers: Sequence[tuple[Form, int]]
    """Form of the chains, and epochs; one is chosen, after one of its last epochs."""
    epochs_of_prms: Sequence[int]
    """One is chosen."""
    max_steps: int | None = None
    """Of each epoch, and of each PRM's training."""
    max_tokens: int = MAX_TOKENS


SMOKE = Amounts(
    train=8,
    validation=4,
    test=4,
    held_out=2,
    verifiers=(("claim", 1),),
    epochs_of_prms=(1,),
    max_steps=1,
    max_tokens=8,
)
QUICK = Amounts(
    train=250,
    validation=80,
    test=150,
    held_out=50,
    verifiers=(("claim", 3),),
    epochs_of_prms=(4,),
)
FULL = Amounts(
    train=3000,
    validation=400,
    test=1000,
    held_out=400,
    verifiers=(("claim", 3), ("copy", 3), ("short", 3), ("quote", 3), ("claim", 6)),
    epochs_of_prms=(2, 1),
)
LAST_EPOCHS = 3
"""After which a verifier is tried on validation problems."""


def main() -> None:
    in_pieces(__doc__, run)


def run(out: Path, pieces: Pieces, size: BenchmarkSize) -> dict[str, Any]:
    """Sample, train, read, measure."""
    amounts = size.pick(smoke=SMOKE, quick=QUICK, full=FULL)
    pools = [
        samples(TRAIN, "train", problems=amounts.train, seed=5, each=2),
        samples(VALIDATION, "validation", problems=amounts.validation, seed=3, each=1),
        samples(TEST, "test", problems=amounts.test, seed=11, each=1),
        samples(
            HELD_OUT,
            "test",
            problems=amounts.held_out,
            seed=12,
            each=1,
            families=HELD_OUT_FAMILIES,
        ),
    ]
    pieces.run([pool.piece(out) for pool in pools])
    verifiers = [
        Course(
            name=f"{form}-{epochs}",
            exchanges=partial(chains, form=form),
            epochs=epochs,
            max_steps=amounts.max_steps,
        )
        for form, epochs in amounts.verifiers
    ]
    trainings = prms(amounts)
    pieces.run([piece for course in verifiers for piece in course.pieces(out)])
    pieces.run([one.piece(out) for kind in trainings.values() for one in kind])
    chosen = choose_verifier(out, pieces, verifiers, amounts)
    named = named_by_chains(chosen.chains(out))
    alarms = false_alarms(named, truth(out, VALIDATION))
    scorers = choose_prms(out, pieces, trainings, alarms)
    blocks = []
    for pool in (TEST, HELD_OUT):
        readings = [
            replace(chosen, course=course, epoch=course.epochs, pool=pool)
            for course in verifiers
            if course != chosen.course
        ]
        readings = [replace(chosen, pool=pool), *readings]
        pieces.run([one.piece(out) for one in readings])
        pieces.run([one.training.scoring(out, pool) for one in scorers.values()])
        blocks.append(compare(out, pool, readings, scorers))
    return summary(blocks, chosen, scorers)


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A PRM, and what was chosen on validation problems."""

    training: Training
    threshold: float
    """By first-error F1."""
    cautious: float
    """The threshold with no more false alarms than the verifier has there."""


def choose_verifier(
    out: Path, pieces: Pieces, verifiers: Sequence[Course], amounts: Amounts
) -> Reading:
    """The form of chains and the epoch with the best first-error F1 on validation problems."""
    readings = [
        Reading(course=course, epoch=epoch, pool=VALIDATION, max_tokens=amounts.max_tokens)
        for course in verifiers
        for epoch in range(1, course.epochs + 1)[-LAST_EPOCHS:]
    ]
    pieces.run([one.piece(out) for one in readings])
    true = truth(out, VALIDATION)
    by_f1 = {one: f1(named_by_chains(one.chains(out)), true) for one in readings}
    for one, figure in by_f1.items():
        print(f"validation F1 of {one.course.name} chains after epoch {one.epoch}: {figure:.3f}")
    return max(readings, key=lambda one: by_f1[one])


def choose_prms(
    out: Path, pieces: Pieces, trainings: Mapping[str, Sequence[Training]], alarms: float
) -> dict[str, Scorer]:
    """Of each kind the epochs, and thresholds, by first-error F1 on validation problems."""
    true = truth(out, VALIDATION)
    chosen: dict[str, Scorer] = {}
    for kind, candidates in trainings.items():
        pieces.run([one.scoring(out, VALIDATION) for one in candidates])
        found = {}
        for one in candidates:
            steps = read_scores(out, one.name, VALIDATION)
            threshold = best_threshold(steps, true)
            figure = f1(named_by_scores(steps, threshold), true)
            print(f"validation F1 of {one.name}: {figure:.3f} at threshold {threshold:g}")
            cautious = threshold_at(steps, true, alarms)
            found[figure] = Scorer(training=one, threshold=threshold, cautious=cautious)
        chosen[kind] = found[max(found)]
    return chosen


def compare(
    out: Path, pool: str, readings: Sequence[Reading], scorers: Mapping[str, Scorer]
) -> Block:
    """All methods on a pool.

    Args:
        out: of the benchmark.
        pool: its name.
        readings: of the chosen verifier, and then of the other ones.
        scorers: the PRMs, by kind.
    """
    named, costs = {}, {}
    for reading in readings:
        name = GENERATIVE if reading is readings[0] else f"generative, {reading.course.name}"
        written = reading.chains(out)
        named[name] = named_by_chains(written)
        costs[name] = cost_of_chains(written, reading.course.parameters(out))
    for kind, scorer in scorers.items():
        steps = read_scores(out, scorer.training.name, pool)
        named[kind] = named_by_scores(steps, scorer.threshold)
        named[f"{kind}, {CAUTIOUS}"] = named_by_scores(steps, scorer.cautious)
        costs[kind] = cost_of_scores(out, pool, policy_parameters())
    count = len(truth(out, pool))
    named |= {"never": always(NO_ERROR, count), "always the second step": always(1, count)}
    return Block(out, pool, named, costs)


def summary(
    blocks: Sequence[Block], chosen: Reading, scorers: Mapping[str, Scorer]
) -> dict[str, Any]:
    """What the JSON line holds."""
    test, held_out = blocks
    others = [f"{kind}{more}" for kind in scorers for more in ("", f", {CAUTIOUS}")]
    less = {other: test.less(GENERATIVE, other) for other in others}
    low = less[LIKELIHOOD]["found"][1]
    return {
        "generative_minus": less,
        "goes_on": low is not None and low > 0,
        "all": test.summary(),
        "held_out": held_out.summary(),
        "unknown": round(test.unknown(GENERATIVE), 4),
        "chosen": {
            GENERATIVE: [chosen.course.name, chosen.epoch],
            **{kind: [one.training.name, one.threshold] for kind, one in scorers.items()},
        },
        "tokens_per_solution": test.tokens(),
    }


def prms(amounts: Amounts) -> dict[str, list[Training]]:
    """The PRMs, by kind, one for each number of epochs."""
    heads: Mapping[str, Sequence[str]] = {
        LIKELIHOOD: (),
        PLAIN: ("head=token", "states=null"),
    }
    limit = [] if amounts.max_steps is None else [f"max_steps={amounts.max_steps}"]
    return {
        kind: [
            Training(
                kind=f"{kind} {epochs}",
                seed=0,
                labels=[TRAIN],
                overrides=["target=exact", f"epochs={epochs}", *overrides, *limit],
            )
            for epochs in amounts.epochs_of_prms
        ]
        for kind, overrides in heads.items()
    }


if __name__ == "__main__":
    main()
