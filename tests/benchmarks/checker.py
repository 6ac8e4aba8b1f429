"""The answer checker beside Math-Verify: accuracy, golds, real solutions, speed, bombs.

    python -m tests.benchmarks.checker [--smoke | --quick]

Grades the tables of human-judged cases, every public gold, the solutions of ProcessBench, and
times both checkers on the same pairs on one core; the last line is JSON. Public data are read from
`shared/data` beside the checkout; without them only the tables are graded, and the
other figures are null. `--quick` times
Math-Verify on 150 pairs instead of 1,000 and mixes fewer bombs.
"""

from __future__ import annotations

import json
import logging
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sympy.core.cache import clear_cache

from mclabel.answers import Checker, Grade, extract_answer
from mclabel.core.records import Verdict
from tests.answers.test_gold import read_golds, spellings
from tests.answers.test_hostile import bombs
from tests.benchmarks import checker_limits as limits
from tests.benchmarks.sizes import BenchmarkSize, SizedParser, need
from tests.support.judged import Case, read_cases

ROOT = Path(__file__).parents[2]

DATA = ROOT.parent / "shared" / "data"
REPEATS = 5
"""Of a timed pass; the best counts, since other processes share the cores."""
SAMPLES = 8
"""Rollouts of a problem whose answers repeat, in the speed test."""
ON_PUBLIC_DATA = (
    "gold_parse_failures",
    "gold_spellings_missed",
    "processbench_solutions",
    "processbench_disagreements",
    "pairs_per_s",
    "pairs_per_s_no_memo",
    "math_verify_pairs_per_s",
    "ratio_to_math_verify",
    "bomb_loss",
    "bomb_loss_cpu",
    "pairs_per_s_waiting",
    "ratio_to_math_verify_waiting",
    "p99_ms_waiting",
    "p999_ms_waiting",
    "hostile_share_cost",
    "pairs_per_cpu_s_waiting",
    "hostile_pairs",
    "caller_ms_slowest",
    "seconds_slowest",
    "same_under_load",
)
"""Figures that are null without the public data."""
EXPLAINED = {
    "gsm8k-70": "the solution boxes the gold, 59; ProcessBench judged the text otherwise",
    "gsm8k-74": "the solution boxes the gold, 2, reached by a wrong quotient",
    "gsm8k-238": "ends in '... 34 hours ... in 4 weeks' with no mark: the last number is taken",
    "gsm8k-319": "boxes '4 blue shoe boxes and 6 red shoe boxes', which sums to the gold 10",
    "math-392": "boxes 1/(sin x cos x) - tan x, equal to the gold cot x but not simplified",
}


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A solution of ProcessBench whose problem's gold we have."""

    id: str
    text: str
    gold: str
    right: bool


def main() -> None:
    parser = SizedParser(__doc__)
    size: BenchmarkSize = parser.read().size
    need("math_verify", remedy="pip install '.[dev]'")
    logging.disable(logging.WARNING)
    console = Console(emoji=False, width=110)
    figures: dict[str, Any] = {}
    checker = Checker()
    figures["first_pair_ms"] = _first_pair_ms(checker)
    theirs = _math_verify()
    every = size.pick(smoke=20, quick=1, full=1)
    for name in ("cases", "holdout"):
        figures |= _accuracy(console, checker, theirs, name, every)
    figures |= _new_pairs(console, every)
    on_data = _on_public_data(console, checker, theirs, size) if DATA.is_dir() else {}
    figures |= {key: on_data.get(key) for key in ON_PUBLIC_DATA}
    checker.close()
    print(json.dumps(figures))


def _on_public_data(
    console: Console,
    checker: Checker,
    theirs: Callable[[str, str, bool], bool],
    size: BenchmarkSize,
) -> dict[str, Any]:
    """The figures named in `ON_PUBLIC_DATA`."""
    every = size.pick(smoke=100, quick=1, full=1)
    num_theirs = size.pick(smoke=4, quick=150, full=1000)
    golds, solutions = read_golds(DATA)[::every], _solutions()[::every]
    figures = _golds(console, checker, golds)
    figures |= _processbench(console, checker, solutions)
    figures |= _speed(console, theirs, solutions, num_theirs=num_theirs)
    num_good = size.pick(smoke=200, quick=20_000, full=100_000)
    figures |= _bombs(console, solutions, num_good=num_good)
    completions = [(one.text, one.gold) for one in solutions]
    random.Random(0).shuffle(completions)
    figures |= limits.waiting(
        console, completions * SAMPLES, lambda some: _their_rate(theirs, some[:num_theirs])
    )
    figures |= limits.hostile_share(console, completions * SAMPLES)
    number = size.pick(smoke=500, quick=20_000, full=1_000_000)
    figures |= limits.hostile(console, golds, number=number)
    figures |= limits.under_load(console, completions, size)
    return figures


def _first_pair_ms(checker: Checker) -> float:
    """What the first pair that needs a worker costs: the host starts and imports sympy."""
    start = time.perf_counter()
    checker.grade("\\sin 2x", "2\\sin x\\cos x")
    return round(1000 * (time.perf_counter() - start))


def _math_verify() -> Callable[[str, str, bool], bool]:
    from math_verify import parse, verify

    def right(answer: str, gold: str, completion: bool) -> bool:
        parsed = [parse(f"${gold}$"), parse(answer if completion else f"${answer}$")]
        return bool(verify(*parsed))

    return right


def _accuracy(
    console: Console,
    checker: Checker,
    theirs: Callable[[str, str, bool], bool],
    name: str,
    every: int,
) -> dict[str, Any]:
    cases = list(read_cases(f"{name}.txt"))[::every]
    ours = [case.grade(checker).verdict is Verdict.RIGHT for case in cases]
    other = [theirs(case.answer, case.gold, case.is_completion) for case in cases]
    table = Table(title=f"{name}.txt: {len(cases)} human-judged cases", title_justify="left")
    for column in ("", "accuracy", "false positives", "false negatives"):
        table.add_column(column, justify="right" if column else "left")
    rows = {"mclabel": _errors(cases, ours), "math-verify": _errors(cases, other)}
    for label, (accuracy, positives, negatives) in rows.items():
        table.add_row(label, f"{accuracy:.1%}", str(positives), str(negatives))
    console.print(table)
    for case, verdict in zip(cases, ours, strict=True):
        if verdict != case.right:
            wrong = "false positive" if verdict else "false negative"
            console.print(f"  {wrong}: {case.kind}: {case.gold} ;; {case.answer}", markup=False)
    prefix = "" if name == "cases" else f"{name}_"
    accuracy, positives, negatives = rows["mclabel"]
    return {
        f"{prefix}accuracy": round(accuracy, 4),
        f"{prefix}false_positives": positives,
        f"{prefix}false_negatives": negatives,
        f"{prefix}math_verify_accuracy": round(rows["math-verify"][0], 4),
        f"{prefix}math_verify_false_positives": rows["math-verify"][1],
    }


def _errors(cases: Sequence[Case], right: Sequence[bool]) -> tuple[float, int, int]:
    positives = sum(r and not c.right for c, r in zip(cases, right, strict=True))
    negatives = sum(c.right and not r for c, r in zip(cases, right, strict=True))
    return 1 - (positives + negatives) / len(cases), positives, negatives


def _golds(console: Console, checker: Checker, golds: Sequence[str]) -> dict[str, Any]:
    pairs = [(text, gold) for gold in golds for text in spellings(gold)]
    missed = [p for p in pairs if checker.grade(*p).verdict is not Verdict.RIGHT and p[1].strip()]
    nexts = [(b, a) for a, b in pairwise(golds) if a.strip() != b.strip()]
    verdicts = Counter(checker.grade(*pair).verdict.value for pair in nexts)
    unparsed = {gold: reason for gold in set(golds) if (reason := checker.unparsed_gold(gold))}
    console.print(
        f"golds: {len(golds):,}; against {len(pairs):,} spellings of their own {len(missed)} are "
        f"not right; against the next different one {dict(verdicts)}; not parsed: {unparsed}",
        markup=False,
    )
    return {"gold_parse_failures": len(unparsed), "gold_spellings_missed": len(missed)}


def _solutions() -> list[Solution]:
    gold_of: dict[str, str] = {}
    for name, problem, answer in (
        ("math_train", "problem", "final_answer"),
        ("math500", "problem", "answer"),
        ("gsm8k_test", "question", "answer"),
    ):
        for row in _rows(DATA / f"{name}.jsonl"):
            gold_of[" ".join(row[problem].split())] = row[answer].rpartition("####")[2].strip()
    return [
        Solution(
            id=row["id"],
            text="\n\n".join(row["steps"]),
            gold=gold_of[key],
            right=row["final_answer_correct"],
        )
        for split in ("gsm8k", "math")
        for row in _rows(DATA / f"processbench_{split}.jsonl")
        if (key := " ".join(row["problem"].split())) in gold_of
    ]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def _processbench(
    console: Console, checker: Checker, solutions: Sequence[Solution]
) -> dict[str, Any]:
    disagree = 0
    for one in solutions:
        answer, grade = checker.grade_completion(one.text, one.gold)
        if (grade.verdict is Verdict.RIGHT) == one.right:
            continue
        disagree += 1
        why = EXPLAINED.get(one.id, "NOT EXPLAINED")
        console.print(
            f"  {one.id}: ProcessBench {'right' if one.right else 'wrong'}, we {grade.verdict}: "
            f"gold {one.gold!r}, answer {answer!r}: {why}",
            markup=False,
        )
    console.print(f"ProcessBench: {disagree} disagreements in {len(solutions)} solutions")
    return {"processbench_solutions": len(solutions), "processbench_disagreements": disagree}


def _speed(
    console: Console,
    theirs: Callable[[str, str, bool], bool],
    solutions: Sequence[Solution],
    *,
    num_theirs: int,
) -> dict[str, Any]:
    """One pass over real solutions, each problem's eight times over, and over them once."""
    completions = [(one.text, one.gold) for one in solutions]
    random.Random(0).shuffle(completions)
    rollouts = completions * SAMPLES
    rates = [_rate(_warm(memo_size=200_000), rollouts) for _ in range(REPEATS)]
    bare = _warm(memo_size=0)
    bare_rates = [_rate(bare, completions) for _ in range(REPEATS + 1)][1:]
    with_memo, no_memo = max(rates), max(bare_rates)
    sample = completions[:num_theirs]
    their_rate = max(_their_rate(theirs, sample) for _ in range(2))
    console.print(
        f"speed, from whole solutions, best of {REPEATS}: {with_memo:,.0f} pairs/s over "
        f"{len(rollouts):,} rollouts "
        f"(memo empty at the start), {no_memo:,.0f} pairs/s without memo, Math-Verify "
        f"{their_rate:,.0f} pairs/s: {with_memo / their_rate:,.0f} times"
    )
    return {
        "pairs_per_s": round(with_memo),
        "pairs_per_s_no_memo": round(no_memo),
        "math_verify_pairs_per_s": round(their_rate, 1),
        "ratio_to_math_verify": round(with_memo / their_rate, 1),
    }


def _their_rate(
    theirs: Callable[[str, str, bool], bool], completions: Sequence[tuple[str, str]]
) -> float:
    clear_cache()  # sympy's, which would know the pairs of the pass before
    start = time.perf_counter()
    for text, gold in completions:
        theirs(text, gold, True)
    return len(completions) / (time.perf_counter() - start)


def _warm(*, memo_size: int) -> Checker:
    """A checker with a worker up and nothing in its memo about the pairs to come."""
    checker = Checker(memo_size=memo_size)
    checker.grade("\\sin 2x", "2\\sin x\\cos x")
    return checker


def _rate(checker: Checker, completions: Sequence[tuple[str, str]]) -> float:
    start = time.perf_counter()
    for text, gold in completions:
        checker.grade_completion(text, gold)
    return len(completions) / (time.perf_counter() - start)


def _new_pairs(console: Console, every: int) -> dict[str, Any]:
    """Latency of pairs not seen before, workers warm: of all judged cases."""
    fresh = _warm(memo_size=0)
    times: list[float] = []
    hard: list[float] = []
    for case in [*read_cases("cases.txt"), *read_cases("holdout.txt")][::every]:
        start = time.perf_counter()
        grade = case.grade(fresh)
        took = 1000 * (time.perf_counter() - start)
        times.append(took)
        if grade.layer == "sympy":
            hard.append(took)
    fresh.close()
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    console.print(
        f"a new pair on a warm worker: median {p50:.2f} ms, p99 {p99:.1f} ms; of the "
        f"{len(hard)} that sympy decided, median {statistics.median(hard):.0f} ms, most "
        f"{max(hard):.0f} ms"
    )
    return {
        "p50_ms": round(p50, 3),
        "p99_ms": round(p99, 1),
        "sympy_p50_ms": round(statistics.median(hard), 1),
    }


def _bombs(console: Console, solutions: Sequence[Solution], *, num_good: int) -> dict[str, Any]:
    """Throughput of good completions alone, and with one bomb to a hundred among them."""
    completions = [(one.text, one.gold) for one in solutions]
    good = [completions[i % len(completions)] for i in range(num_good)]
    corpus = bombs()
    mixed = list(good)
    for i in range(num_good // 100):
        bomb = f"{corpus[i % len(corpus)]}{'' if i < len(corpus) else i}"
        mixed.insert(i * 101, (f"\\boxed{{{bomb}}}" if i % 2 else bomb, _BOMB_GOLD))
    runs = [(_seconds(good), _seconds(mixed)) for _ in range(3)]
    wall, cpu = (
        1 - min(alone[k] for alone, _ in runs) / min(among[k] for _, among in runs) for k in (0, 1)
    )
    console.print(
        f"bombs: {num_good:,} good completions at {num_good / min(a[0] for a, _ in runs):,.0f}/s "
        f"alone; with {num_good // 100:,} bombs among them {wall:.1%} less by the clock and "
        f"{cpu:.1%} less by the caller's CPU time, which other processes do not disturb"
    )
    return {"bomb_loss": round(wall, 4), "bomb_loss_cpu": round(cpu, 4)}


_BOMB_GOLD = "12 "


def _seconds(pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """Until the last good pair is decided, by the clock and of CPU time in this process.

    What the workers think of bombs is not waited for.
    """
    checker = _warm(memo_size=200_000)
    open_pairs = []
    start, cpu_start = time.perf_counter(), time.process_time()
    for text, gold in pairs:
        answer = extract_answer(text)
        found = None if answer is None else checker._begin(answer, gold, None)
        if found is not None and not isinstance(found, Grade) and gold is not _BOMB_GOLD:
            open_pairs.append(found)
    for found in open_pairs:
        found.result()
    seconds = time.perf_counter() - start, time.process_time() - cpu_start
    checker.close()
    return seconds


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
