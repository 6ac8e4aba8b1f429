"""Are labels good from the first problem on, before a run has learned anything?

    python -m tests.benchmarks.starting_priors [--smoke | --quick] [--out FOLDER] [--write FILE]

Three sets are labelled with sixteen rollouts of every prefix: validation problems of arith, with
exact truth, and two sets of solutions of plain SmolLM2-135M, whose first errors were judged by
reading (`plain`, and `plain, second set` in tests/data/plain). Every second problem of a set is
for choosing, the others are for testing. Priors are fitted to the choosing halves, whose first
errors are given; `--write` writes them as the file that every run begins with. All figures are of
the testing halves. The posterior is measured as in a run too small to learn (`posterior, first
problems`) and with priors that the run has learned, without truth (`posterior`), beside the best
constant rule and `fixed`. Rollouts are drawn from the same pool by all.

Two more sets are arith's testing half where each wrong answer, of solutions and rollouts, is turned
right with the chance 1/2, as if answers were guessed: once with `problems.chance` known, once not.
The others are simulated: a grid of the chance that the policy solves a problem and of the chance
that a wrong answer is right by luck, which is known.

Intervals: 95%, bootstrap over problems. Pools under `--out` are not made again. The last line is
JSON: `sets` {set: {estimator: figures}}.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from mclabel.core.records import Outcome
from mclabel.core.stats.bootstrap import Estimate, ratio_estimate, resample_weights
from mclabel.data.readers.judged import JudgedSolution, read_processbench
from mclabel.domains.words.smollm2 import SMOLLM2_INSTALL, SMOLLM2_PACKAGE
from mclabel.evaluate.labels.truth import judged_truth
from mclabel.labeling.estimators import Judgement, Probe, RecordedRollout, SolutionPath
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.estimators.posterior.chain import Evidence
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.fit import ByCompleter, Readings, fit_readings
from mclabel.labeling.estimators.posterior.priors import POOLED, Priors, wide_priors
from mclabel.run.shards.store import Store
from tests.benchmarks.estimators_common import Point, graded, learned, load_pool, make_pool
from tests.benchmarks.figures import finish, numbers
from tests.benchmarks.real_model import sampled_source
from tests.benchmarks.runs import label, read_rows
from tests.benchmarks.simulation.measure import measure
from tests.benchmarks.simulation.profiles import guessed_cases
from tests.benchmarks.simulation.replay import Case, Replay, read_pool
from tests.benchmarks.sizes import DATA, BenchmarkSize, SizedParser, need, not_run

JUDGED, FEW_SHOT = "judged_smollm2_plain.jsonl", "smollm2_plain_few_shot.jsonl"
SECOND_SET = Path(__file__).parents[1] / "data" / "plain" / "judged.jsonl"
COPIES = {"arith": 1, "plain": 3, "plain, second set": 3}
"""Times that the choosing half of a set counts: arith and plain text weigh about the same."""
FIT_ROUNDS = 3
STRENGTH = 10.0
"""Weight of the wide priors, towards which the starting ones are shrunk."""
OTHERWISE = 0.1
"""Likelihood of each first error but the true one, where the truth is given; a reader may err."""
GUESS = 0.5
"""Chance that a wrong answer is turned right."""
SOLVED, GUESSED = (0.02, 0.1, 0.3, 0.6, 0.9), (0.0, 0.1, 0.25, 0.5)
"""Grid of the simulated sets."""
RULES: Mapping[str, Callable[[int], int]] = {
    "wrong answer: the first step": lambda steps: 0,
    "wrong answer: the second step": lambda steps: min(1, steps - 1),
    "wrong answer: the step before the last": lambda steps: max(0, steps - 2),
}
"""First errors that rules give by the number of steps alone; none where the answer is right."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One solution as an estimator labels it."""

    case: int
    decided: bool
    right: bool
    """Whether it is decided and its first error is the true one."""
    belief: float | None = None
    """Probability of the likeliest first error; None of an estimator without beliefs."""
    likeliest_right: bool = False


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--out", type=Path, help="folder in which pools are kept")
    parser.add_argument("--write", type=Path, help="file to write the priors to")
    args = parser.read()
    need(SMOLLM2_PACKAGE, remedy=SMOLLM2_INSTALL)
    need("gguf", remedy=SMOLLM2_INSTALL)
    if not (DATA / JUDGED).is_file():
        not_run(f"{DATA / JUDGED} is not there. Name its folder in MCLABEL_TEST_DATA")
    size: BenchmarkSize = args.size
    rollouts = size.pick(smoke=2, quick=8, full=16)
    with tempfile.TemporaryDirectory() as scratch:
        sets = make_sets(args.out or Path(scratch), size, rollouts)
    settings = PosteriorEstimator.Settings(rollouts=rollouts)
    priors = fit_starting_priors({name: cases[::2] for name, cases in sets.items()}, settings)
    if args.write:
        args.write.write_text(rounded(priors).to_json() + "\n", encoding="utf-8")
    testing = {name: cases[1::2] for name, cases in sets.items()}
    for known in (True, False):
        name = f"arith, guesses {'known' if known else 'unknown'}"
        testing[name] = [with_guesses(case, known=known) for case in testing["arith"]]
    count = size.pick(smoke=1, quick=20, full=60)
    for guessed, solved in product(GUESSED, SOLVED):
        name = f"simulated, solved {solved}, guessed {guessed}"
        testing[name] = list(guessed_cases(solved, guessed, count))
    finish({"sets": {name: measured(cases, priors, settings) for name, cases in testing.items()}})


def make_sets(out: Path, size: BenchmarkSize, rollouts: int) -> dict[str, list[Case]]:
    """Sample the pools, as far as that is not done yet, and read their cases."""
    count = size.pick(smoke=2, quick=40, full=100)
    arith = load_pool([make_pool(out, "validation", count, rollouts)])
    rows = [json.loads(line) for line in (DATA / JUDGED).read_text("utf-8").splitlines()]
    judged = [
        JudgedSolution(
            id=str(number),
            problem=row["problem"],
            steps=tuple(row["steps"]),
            first_error=row["first"],
            also=frozenset(row["ok"]),
        )
        for number, row in enumerate(rows)
    ]
    golds = {row["problem"]: row["gold"] for row in rows}
    second = [json.loads(line) for line in SECOND_SET.read_text("utf-8").splitlines()]
    few_shot = {row["id"] for row in second if row["prompt"] == "few_shot"}
    own = [solution for solution in read_processbench(SECOND_SET) if solution.id in few_shot]
    own_golds = {row["problem"]: row["answer"] for row in second}
    return {
        "arith": arith,
        "plain": _judged_set(out / "plain", judged, golds, size, rollouts),
        "plain, second set": _judged_set(out / "plain-second", own, own_golds, size, rollouts),
    }


def _judged_set(
    work: Path,
    judged: Sequence[JudgedSolution],
    golds: Mapping[str, str],
    size: BenchmarkSize,
    rollouts: int,
) -> list[Case]:
    """Sample the pool of a set of judged solutions, as far as that is not done yet.

    Args:
        work: folder of the pool.
        judged: solutions of plain SmolLM2-135M with three examples in its prompt.
        golds: gold answer by problem.
        size: of the benchmark.
        rollouts: number of each prefix.
    """
    problems = list(dict.fromkeys(solution.problem for solution in judged))
    problems = problems[: size.pick(smoke=2, quick=24, full=len(problems))]
    judged = [solution for solution in judged if solution.problem in problems]
    work.mkdir(parents=True, exist_ok=True)
    source = work / "problems.jsonl"
    texts = [json.dumps({"problem": one, "answer": golds[one]}) for one in problems]
    source.write_text("\n".join(texts), encoding="utf-8")
    keys = [
        f"problems.source={source}",
        "problems.limit=null",
        "policy.model=smollm2:135m",
        f"policy.few_shot={DATA / FEW_SHOT}",
        "policy.temperature=0.7",
        "policy.max_tokens=110",
    ]
    fixed = {"kind": "fixed", "rollouts": rollouts, "root_rollouts": rollouts}
    run = sampled_source(work, judged, *keys)
    keys += [f"solutions.run={run}", f"estimator={json.dumps(fixed)}"]
    label(work / "pool", *keys, config="quickstart-smollm2.yaml")
    truth = judged_truth("processbench", read_rows(work / "pool"), judged)
    return graded(read_pool(Store(str(work / "pool")), truth.first_error))


def with_guesses(case: Case, *, known: bool) -> Case:
    """A case where every other wrong answer is right, chosen by a hash."""

    def guessed(outcome: Outcome, *place: int) -> Outcome:
        if outcome is not Outcome.WRONG:
            return outcome
        lucky = random.Random(f"{case.id} {place}").random() < GUESS
        return Outcome.RIGHT if lucky else outcome

    def draw(probe: Probe, index: int) -> RecordedRollout:
        rollout = case.draw(probe, index)
        return replace(rollout, outcome=guessed(rollout.outcome, probe.prefix, index))

    paths = (
        replace(path, outcome=guessed(path.outcome, number))
        for number, path in enumerate(case.paths)
    )
    kind = f"{case.answer_class} {GUESS}" if known else case.answer_class
    return replace(case, paths=tuple(paths), draw=draw, answer_class=kind)


def fit_starting_priors(
    choosing: Mapping[str, Sequence[Case]], settings: PosteriorEstimator.Settings
) -> Priors:
    """Fit pooled priors to choosing halves, whose first errors are given."""
    cases = [
        replace(case, id=f"{name}-{copy}-{case.id}")
        for name, own in choosing.items()
        for copy in range(COPIES[name])
        for case in own
    ]
    priors = wide_priors()
    for _ in range(FIT_ROUNDS):
        evidence: dict[str, list[Readings]] = {}

        def keep(case: Case, checked: Any, done: Replay, to: Any = evidence) -> None:
            readings = with_truth(checked.estimators[0].evidence(), case)
            to.setdefault(case.answer_class, []).append(readings)

        point = Point(name="", settings=settings, label="", knowledge=priors)
        measure(point.make, cases, on_done=keep)
        priors = fit_readings(evidence, start=wide_priors(), strength=STRENGTH)
    return priors


def with_truth(readings: Readings, case: Case) -> Readings:
    """Add the true first errors to the evidence on a case."""

    def known(by_completer: ByCompleter | None) -> ByCompleter | None:
        return by_completer and {who: _with_truth(own, case) for who, own in by_completer.items()}

    outcomes, once = known(readings.outcomes), known(readings.once)
    assert outcomes and once
    return Readings(outcomes=outcomes, once=once, agreement=known(readings.agreement))


def _with_truth(evidence: Evidence, case: Case) -> Evidence:
    elsewhere = np.full_like(evidence.elsewhere, OTHERWISE)
    for number, (truth, path) in enumerate(zip(case.truth, case.paths, strict=True)):
        # The chain numbers first errors by the steps to go before them, 0 for none.
        elsewhere[number, 0 if truth is None else path.num_steps - truth] = 1.0
    return replace(evidence, elsewhere=elsewhere)


def rounded(priors: Priors) -> Priors:
    """Keep the pooled class alone, with four digits, as priors that no run has fitted."""
    content = json.loads(priors.to_json())
    parts = [content, content["agreement"]]
    for part in parts:
        part["num_solutions"] = 0
        for kind in ("classes", "values"):
            if kind in part:
                part[kind] = {POOLED: _four_digits(part[kind][POOLED])}
    return Priors.from_json(json.dumps(content))


def _four_digits(numbers_: Any) -> Any:
    if isinstance(numbers_, dict):
        return {name: _four_digits(one) for name, one in numbers_.items()}
    if isinstance(numbers_, list):
        return [_four_digits(one) for one in numbers_]
    return float(f"{numbers_:.4g}")


def measured(
    cases: Sequence[Case], start: Priors, settings: PosteriorEstimator.Settings
) -> dict[str, dict[str, Any]]:
    """Figures of every estimator on the cases of a testing half."""
    rules = {name: rule_rows(cases, rule) for name, rule in RULES.items()}
    best = max(rules, key=lambda name: sum(row.right for row in rules[name]))
    found = {f"rule: {best}": figures(rules[best], 0, len(cases))}
    points = {
        **{
            f"fixed {count}": Point(
                name="", label="", settings=FixedEstimator.Settings(rollouts=count)
            )
            for count in sorted({min(4, settings.rollouts), settings.rollouts})
        },
        "posterior, first problems": Point(
            name="", label="", settings=settings, knowledge=rounded(start)
        ),
        "posterior": Point(
            name="", label="", settings=settings, knowledge=learned(cases, settings)
        ),
    }
    for name, point in points.items():
        rows: list[Row] = []
        tokens: list[int] = []

        def keep(
            case: Case,
            checked: Any,
            done: Replay,
            rows: list[Row] = rows,
            tokens: list[int] = tokens,
        ) -> None:
            number = len(tokens)
            tokens.append(done.num_tokens)
            for judgement, truth, path in zip(done.judgements, case.truth, case.paths, strict=True):
                rows.append(row_of(number, judgement, truth, path))

        measure(point.make, cases, on_done=keep)
        found[name] = figures(rows, sum(tokens), len(cases))
    return found


def rule_rows(cases: Sequence[Case], rule: Callable[[int], int]) -> list[Row]:
    """Rows of a rule that looks at no step."""
    return [
        Row(
            case=number,
            decided=True,
            right=truth == (None if path.outcome is Outcome.RIGHT else rule(path.num_steps)),
        )
        for number, case in enumerate(cases)
        for truth, path in zip(case.truth, case.paths, strict=True)
    ]


def row_of(number: int, judgement: Judgement, truth: int | None, path: SolutionPath) -> Row:
    """Compare a judgement with the truth."""
    right = judgement.is_decided and judgement.first_error == truth
    if judgement.posterior is None:
        return Row(case=number, decided=judgement.is_decided, right=right)
    last = path.num_steps - 1
    # The last step is wrong if and only if the outcome is, so these two are one label.
    *chances, of_last, of_none = judgement.posterior
    likely = int(np.argmax([*chances, of_last + of_none]))
    first_error = likely if likely < last or path.outcome is Outcome.WRONG else None
    return Row(
        case=number,
        decided=judgement.is_decided,
        right=right,
        belief=[*chances, of_last + of_none][likely],
        likeliest_right=first_error == truth,
    )


def figures(rows: Sequence[Row], tokens: int, num_cases: int) -> dict[str, Any]:
    """Figures with intervals over problems; tokens are per solution."""
    cases = np.array([row.case for row in rows])
    weights = resample_weights(num_cases, 0)

    def ratio(top: Sequence[float], bottom: Sequence[float]) -> Estimate:
        above, below = np.zeros((2, num_cases))
        np.add.at(above, cases, top)
        np.add.at(below, cases, bottom)
        return ratio_estimate(above, below, weights)

    each = [1.0] * len(rows)
    decided, right = [float(row.decided) for row in rows], [float(row.right) for row in rows]
    found: dict[str, Any] = {
        "first_error": numbers(ratio(right, each)),
        "decided": numbers(ratio(decided, each)),
        "right_if_decided": numbers(ratio(right, decided)),
    }
    beliefs = [row.belief for row in rows if row.belief is not None]
    if beliefs:
        likeliest = [float(row.likeliest_right) for row in rows]
        gaps = [belief - hit for belief, hit in zip(beliefs, likeliest, strict=True)]
        found["likeliest_right"] = numbers(ratio(likeliest, each))
        found["belief_minus_accuracy"] = numbers(ratio(gaps, each))
    return {**found, "tokens": round(tokens / len(rows), 1)}


if __name__ == "__main__":
    main()
