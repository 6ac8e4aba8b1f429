"""Measure the quality of labels from the first problem on, before a run has learned anything.

    python -m tests.benchmarks.starting_priors [--smoke | --quick] [--out FOLDER] [--write FILE]

Four sets were labelled with sixteen rollouts of every prefix. The first has validation problems of
arith, with exact truth. Two have solutions of plain SmolLM2-135M, whose first errors a reader
judged (`plain`, and `plain, second set` in tests/data/plain). The fourth has solutions of
ProcessBench's GSM8K by other models. Its problems are far too hard for SmolLM2-135M, the completer.
Pools are stored in tests/data/pools, whose README says which, and how they were made. `--out`
samples all of them anew into a folder.

Every second problem of a set is for choosing, and the others are for testing. Priors are fitted to
the choosing halves of the first three sets with their true first errors. `--write` writes them as
the file that every run begins with. All figures are of the testing halves. The posterior is
measured as in a run too small to learn (`posterior, first problems`), and with priors that the run
has learned without truth (`posterior`). It is compared with the best constant rule and with
`fixed`. All draw their rollouts from the same pool.

More sets are arith's testing half with answers that count as right modulo 2, 4 or 10. A guess is
then right with chance 1/2, 1/4 or 1/10, which the estimators are given. Another set is modulo 2
without this knowledge. Further sets are simulated: a grid of the chance that the policy solves a
problem and of the known chance that a wrong solution's answer is right by luck.

Intervals are 95% bootstrap intervals over problems. `belief_error` is the difference of mean belief
and accuracy in each tenth of belief, weighted by its solutions. The last line is JSON: `sets` {set:
{estimator: figures}}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from mclabel.core.records import Outcome
from mclabel.core.stats.bootstrap import Estimate, draw_resample_weights, estimate_ratio
from mclabel.data.readers.judged import JudgedSolution, read_processbench
from mclabel.domains.words.smollm2 import SMOLLM2_INSTALL, SMOLLM2_PACKAGE
from mclabel.evaluate.labels.truth import make_truth_from_judgements
from mclabel.labeling.estimators import Judgement, SolutionPath
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.estimators.posterior.chain import Evidence
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.fit import (
    EvidenceByCompleter,
    EvidenceReadings,
    fit_priors_to_readings,
)
from mclabel.labeling.estimators.posterior.priors import (
    POOLED,
    Priors,
    make_starting_priors,
    make_uninformed_priors,
)
from mclabel.run.shards.labels import read_rollouts
from mclabel.run.shards.store import Store
from tests.benchmarks.estimators_common import Point, graded, learned, load_pool, make_pool
from tests.benchmarks.figures import finish, numbers
from tests.benchmarks.runs import SMOLLM2, label, read_rows, sampled_source, write_rows
from tests.benchmarks.simulation.measure import measure
from tests.benchmarks.simulation.profiles import guessed_cases
from tests.benchmarks.simulation.replay import Case, Replay, read_pool
from tests.benchmarks.sizes import DATA, BenchmarkSize, SizedParser, require_package

JUDGED, FEW_SHOT = "judged_smollm2_plain.jsonl", "smollm2_plain_few_shot.jsonl"
PROCESSBENCH_FILE, GSM8K = "processbench_gsm8k.jsonl", "gsm8k_test.jsonl"
SECOND_SET = Path(__file__).parents[1] / "data" / "plain" / "judged.jsonl"
POOLS = Path(__file__).parents[1] / "data" / "pools"
ARITH, PLAIN, PROCESSBENCH = "arith", ("plain", "plain, second set"), "ProcessBench GSM8K"
NUM_ARITH, NUM_PROCESSBENCH = 100, 60
"""Number of problems of arith and of ProcessBench. A problem of ProcessBench has one solution."""
ROLLOUTS = 16
COPIES = {ARITH: 1, PLAIN[0]: 3, PLAIN[1]: 3}
"""Number of copies of each choosing half, so that arith and plain text weigh about the same."""
FIT_ROUNDS = 3
STRENGTH = 10.0
"""Weight of the wide priors, towards which the starting priors are shrunk."""
OTHERWISE = 0.1
"""Likelihood of each first error other than the given true one, since a reader may err."""
MODULI = (2, 4, 10)
SOLVED, GUESSED = (0.02, 0.1, 0.3, 0.6, 0.9), (0.0, 0.1, 0.25, 0.5)
"""Grid of the simulated sets."""
RULES: Mapping[str, Callable[[int], int]] = {
    "wrong answer: the first step": lambda steps: 0,
    "wrong answer: the second step": lambda steps: min(1, steps - 1),
    "wrong answer: the step before the last": lambda steps: max(0, steps - 2),
}
"""Rules that name a first error from the number of steps alone, for solutions with a wrong answer.
If the answer is right, they name no error.
"""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The label that an estimator gives to one solution."""

    case: int
    decided: bool
    right: bool
    """True if the label is decided and its first error is the true one."""
    belief: float | None = None
    """Probability of the likeliest first error; None for an estimator without beliefs."""
    likeliest_right: bool = False


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--out", type=Path, help="folder for new pools")
    parser.add_argument("--write", type=Path, help="file for the priors")
    args = parser.read()
    size: BenchmarkSize = args.size
    pools = POOLS if args.out is None else sample_pools(args.out)
    sets = read_sets(pools, size)
    settings = PosteriorEstimator.Settings()
    choosing = {name: sets[name][::2] for name in COPIES if name in sets}
    priors = fit_starting_priors(choosing, settings)
    if args.write:
        if missing := COPIES.keys() - sets.keys():
            parser.error(f"--write needs the pools of {', '.join(sorted(missing))}: use --out")
        args.write.write_text(round_priors(priors).to_json() + "\n", encoding="utf-8")
    testing = testing_sets(sets, pools)
    count = size.pick(smoke=1, quick=20, full=60)
    for guessed, solved in product(GUESSED, SOLVED):
        name = f"simulated, solved {solved}, guessed {guessed}"
        testing[name] = list(guessed_cases(solved, guessed, count))
    finish(
        {
            "sets": {
                name: measure_estimators(cases, priors, settings) for name, cases in testing.items()
            }
        }
    )


def stored_figures(size: BenchmarkSize) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the figures of the estimators on the testing halves of the stored pools, by set.

    `posterior, first problems` begins with the starting priors of the package.
    """
    testing = testing_sets(read_sets(POOLS, size), POOLS)
    settings = PosteriorEstimator.Settings()
    return {
        name: measure_estimators(cases, make_starting_priors(), settings)
        for name, cases in testing.items()
    }


def read_sets(pools: Path, size: BenchmarkSize) -> dict[str, list[Case]]:
    """Read the sets that have a pool in the folder, and whose judgements exist on this machine."""
    sets = {ARITH: load_pool([str(pools / ARITH)])}
    for name, judged in judged_sets().items():
        if not (pool := pools / pool_folder(name)).is_dir():
            continue
        store = Store(str(pool))
        truth = make_truth_from_judgements("processbench", read_rows(store.location), judged)
        sets[name] = graded(read_pool(store, truth.first_error))
    return {name: cases[: size.pick(smoke=4, quick=48, full=None)] for name, cases in sets.items()}


def testing_sets(sets: Mapping[str, Sequence[Case]], pools: Path) -> dict[str, Sequence[Case]]:
    """Return the testing halves, that of all plain text, and arith's with guessable answers."""
    testing: dict[str, Sequence[Case]] = {name: cases[1::2] for name, cases in sets.items()}
    if testing.keys() >= {*PLAIN}:
        testing["plain, both sets"] = [case for name in PLAIN for case in testing[name]]
    for modulus in MODULI:
        cases = load_pool([str(pools / ARITH)], modulus=modulus)[: len(sets[ARITH])][1::2]
        if modulus == min(MODULI):
            testing[f"arith, modulo {modulus}, chance unknown"] = cases
        testing[f"arith, modulo {modulus}"] = [
            replace(case, answer_class=f"{case.answer_class} {1 / modulus:.3g}") for case in cases
        ]
    return testing


def judged_sets() -> dict[str, list[JudgedSolution]]:
    """Return the judged solutions of each set whose judgements exist on this machine.

    Those of `plain` and of ProcessBench are in the folder of the test data (MCLABEL_TEST_DATA).
    """
    second = read_processbench(SECOND_SET)
    few_shot = {row["id"] for row in read_json_lines(SECOND_SET) if row["prompt"] == "few_shot"}
    sets = {PLAIN[1]: [solution for solution in second if solution.id in few_shot]}
    if (DATA / JUDGED).is_file():
        sets[PLAIN[0]] = [
            JudgedSolution(
                id=str(number),
                problem=row["problem"],
                steps=tuple(row["steps"]),
                first_error=row["first"],
                other_first_errors=frozenset(row["ok"]),
            )
            for number, row in enumerate(read_json_lines(DATA / JUDGED))
        ]
    if (DATA / PROCESSBENCH_FILE).is_file():
        by_problem: dict[str, JudgedSolution] = {}
        for solution in read_processbench(DATA / PROCESSBENCH_FILE):
            by_problem.setdefault(solution.problem, solution)
        sets[PROCESSBENCH] = list(by_problem.values())[:NUM_PROCESSBENCH]
    return sets


def sample_pools(out: Path) -> Path:
    """Sample the pools that are not finished yet, and return the folder of all of them.

    Args:
        out: folder of the runs, and of `pools`, where each pool is written as one block.
    """
    require_package(SMOLLM2_PACKAGE, remedy=SMOLLM2_INSTALL)
    require_package("gguf", remedy=SMOLLM2_INSTALL)
    pools = out / "pools"
    _pack(make_pool(out, "validation", NUM_ARITH, ROLLOUTS), pools / ARITH)
    for name, judged in judged_sets().items():
        work = out / pool_folder(name)
        golds = golds_of(name)
        problems = dict.fromkeys(solution.problem for solution in judged)
        write_json_lines(
            source := work / "problems.jsonl",
            [{"problem": problem, "answer": golds[problem]} for problem in problems],
        )
        keys = [
            f"problems.source={source}",
            "problems.limit=null",
            "policy.model=smollm2:135m",
            f"policy.few_shot={DATA / FEW_SHOT}",
            "policy.temperature=0.7",
            f"policy.max_tokens={500 if name == PROCESSBENCH else 110}",
        ]
        if name == PROCESSBENCH:
            write_json_lines(
                path := work / "solutions.jsonl",
                [{"problem": solution.problem, "steps": solution.steps} for solution in judged],
            )
            keys.append(f"solutions.path={path}")
        else:
            keys.append(f"solutions.run={sampled_source(work, judged, *keys)}")
        fixed = {"kind": "fixed", "rollouts": ROLLOUTS, "root_rollouts": ROLLOUTS}
        label(work / "pool", *keys, f"estimator={json.dumps(fixed)}", config=SMOLLM2)
        _pack(str(work / "pool"), pools / pool_folder(name))
    return pools


def _pack(run: str, pool: Path) -> None:
    """Write the labels and rollouts of a run as one block, which makes small files."""
    if not pool.exists():
        write_rows(pool, read_rows(run), list(read_rollouts(Store(run))))


def golds_of(name: str) -> dict[str, str]:
    """Return the gold answer of each problem of a judged set."""
    if name == PROCESSBENCH:
        return {
            row["question"]: row["answer"].split("#### ")[1]
            for row in read_json_lines(DATA / GSM8K)
        }
    path, column = (SECOND_SET, "answer") if name == PLAIN[1] else (DATA / JUDGED, "gold")
    return {row["problem"]: row[column] for row in read_json_lines(path)}


def pool_folder(name: str) -> str:
    """Return the name of the folder of a set's pool."""
    return name.replace(",", "").replace(" ", "-")


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file with one JSON object a line."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_json_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a file with one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def fit_starting_priors(
    choosing: Mapping[str, Sequence[Case]], settings: PosteriorEstimator.Settings
) -> Priors:
    """Fit pooled priors to choosing halves, whose first errors are given."""
    cases = [
        replace(case, id=f"{name}-{copy}-{case.id}")
        for name, class_cases in choosing.items()
        for copy in range(COPIES[name])
        for case in class_cases
    ]
    priors = make_uninformed_priors()
    for _ in range(FIT_ROUNDS):
        evidence: dict[str, list[EvidenceReadings]] = {}

        def keep(case: Case, checked: Any, done: Replay, to: Any = evidence) -> None:
            readings = with_truth(checked.estimators[0].evidence(), case)
            to.setdefault(case.answer_class, []).append(readings)

        point = Point(name="", settings=settings, label="", knowledge=priors)
        measure(point.make, cases, on_done=keep)
        priors = fit_priors_to_readings(evidence, start=make_uninformed_priors(), strength=STRENGTH)
    return priors


def with_truth(readings: EvidenceReadings, case: Case) -> EvidenceReadings:
    """Add the true first errors to the evidence on a case."""

    def add_truth(by_completer: EvidenceByCompleter | None) -> EvidenceByCompleter | None:
        return by_completer and {
            who: _with_truth(evidence, case) for who, evidence in by_completer.items()
        }

    outcomes, once = add_truth(readings.outcomes), add_truth(readings.counted_once)
    assert outcomes and once
    return EvidenceReadings(
        outcomes=outcomes, counted_once=once, agreement=add_truth(readings.agreement)
    )


def _with_truth(evidence: Evidence, case: Case) -> Evidence:
    external_likelihood = np.full_like(evidence.external_likelihood, OTHERWISE)
    for number, (truth, path) in enumerate(zip(case.truth, case.paths, strict=True)):
        # The chain numbers a first error by the steps from it to the end; 0 stands for no error.
        external_likelihood[number, 0 if truth is None else path.num_steps - truth] = 1.0
    return replace(evidence, external_likelihood=external_likelihood)


def round_priors(priors: Priors) -> Priors:
    """Keep only the pooled class, with four digits, as priors that no run has fitted."""
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
        return {name: _four_digits(number) for name, number in numbers_.items()}
    if isinstance(numbers_, list):
        return [_four_digits(number) for number in numbers_]
    return float(f"{numbers_:.4g}")


def measure_estimators(
    cases: Sequence[Case], start: Priors, settings: PosteriorEstimator.Settings
) -> dict[str, dict[str, Any]]:
    """Return the figures of every estimator on the cases of a testing half."""
    rules = {name: rule_rows(cases, rule) for name, rule in RULES.items()}
    best = max(rules, key=lambda name: sum(row.right for row in rules[name]))
    figures_by_method = {f"rule: {best}": figures(rules[best], 0, len(cases))}
    points = {
        **{
            f"fixed {count}": Point(
                name="", label="", settings=FixedEstimator.Settings(rollouts=count)
            )
            for count in sorted({min(4, settings.rollouts), settings.rollouts})
        },
        "posterior, first problems": Point(
            name="", label="", settings=settings, knowledge=round_priors(start)
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
        figures_by_method[name] = figures(rows, sum(tokens), len(cases))
    return figures_by_method


def rule_rows(cases: Sequence[Case], rule: Callable[[int], int]) -> list[Row]:
    """Return the rows of a rule that ignores the content of steps."""
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
    # The last step is wrong if and only if the outcome is, so these two chances are one label.
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
    """Return figures with intervals over problems; tokens are per solution."""
    cases = np.array([row.case for row in rows])
    weights = draw_resample_weights(num_cases, 0)

    def ratio(top: Sequence[float], bottom: Sequence[float]) -> Estimate:
        above, below = np.zeros((2, num_cases))
        np.add.at(above, cases, top)
        np.add.at(below, cases, bottom)
        return estimate_ratio(above, below, weights)

    ones = [1.0] * len(rows)
    decided, right = [float(row.decided) for row in rows], [float(row.right) for row in rows]
    report: dict[str, Any] = {
        "first_error": numbers(ratio(right, ones)),
        "decided": numbers(ratio(decided, ones)),
        "right_if_decided": numbers(ratio(right, decided)),
    }
    beliefs = [row.belief for row in rows if row.belief is not None]
    if beliefs:
        likeliest = [float(row.likeliest_right) for row in rows]
        gaps = [belief - hit for belief, hit in zip(beliefs, likeliest, strict=True)]
        report["likeliest_right"] = numbers(ratio(likeliest, ones))
        report["belief_minus_accuracy"] = numbers(ratio(gaps, ones))
        tenths = np.minimum((np.array(beliefs) * 10).astype(int), 9)
        sums = np.bincount(tenths, weights=gaps)
        report["belief_error"] = round(float(np.abs(sums).sum() / len(rows)), 4)
    return {**report, "tokens": round(tokens / len(rows), 1)}


if __name__ == "__main__":
    main()
