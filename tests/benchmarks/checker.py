"""Compare the answer checker with Math-Verify in accuracy, parsed golds and speed.

    python -m tests.benchmarks.checker [--smoke | --quick]

Both checkers grade the tables of human-judged cases, and ours also every public gold. Both are
timed on the same solutions of ProcessBench on one core. The last line is JSON. Without the public
data only the tables are graded, and the other figures are null. `--quick` times Math-Verify on 150
pairs instead of 1,000.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sympy.core.cache import clear_cache

from mclabel.answers import Checker
from mclabel.checkers import run_inline
from mclabel.core.records import Verdict
from tests.answers.test_gold import read_golds, spellings
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import DATA, BenchmarkSize, SizedParser, require_package
from tests.support.judged import Case, read_cases

SAMPLES = 8
"""Copies of each solution in the speed test, as rollouts of a problem often repeat an answer."""
ON_PUBLIC_DATA = (
    *("gold_parse_failures", "gold_spellings_missed", "pairs_per_s", "pairs_per_s_no_memo"),
    *("math_verify_pairs_per_s", "ratio_to_math_verify"),
)
"""Figures that are null without the public data."""
Theirs = Callable[[str, str, bool], bool]
"""Math-Verify as a function: an answer, a gold and whether the answer is a completion give True if
the answer is right.
"""


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    require_package("math_verify", remedy="pip install '.[dev]'")
    logging.disable(logging.WARNING)
    checker, theirs = Checker(), _math_verify()
    every = size.pick(smoke=100, quick=1, full=1)
    figures: dict[str, Any] = {}
    for name in ("cases", "holdout"):
        figures |= _accuracy(checker, theirs, name, every)
    on_data: dict[str, Any] = {}
    if DATA.is_dir():
        golds = read_golds(DATA)[:: size.pick(smoke=500, quick=1, full=1)]
        solutions = _solutions()[:: size.pick(smoke=100, quick=1, full=1)]
        counts = size.pick(smoke=(1, 2), quick=(5, 150), full=(5, 1000))
        on_data = _golds(checker, golds) | _measure_speed(theirs, solutions, *counts)
    checker.close()
    finish(figures | {key: on_data.get(key) for key in ON_PUBLIC_DATA})


def _math_verify() -> Theirs:
    from math_verify import parse, verify

    def right(answer: str, gold: str, completion: bool) -> bool:
        parsed = [parse(f"${gold}$"), parse(answer if completion else f"${answer}$")]
        return bool(verify(*parsed))

    return right


def _accuracy(checker: Checker, theirs: Theirs, name: str, every: int) -> dict[str, Any]:
    cases = list(read_cases(f"{name}.txt"))[::every]
    ours = [case.grade(checker).verdict is Verdict.RIGHT for case in cases]
    their_verdicts = [theirs(case.answer, case.gold, case.is_completion) for case in cases]
    for case, verdict in zip(cases, ours, strict=True):
        if verdict != case.right:
            print(f"  false {verdict}: {case.kind}: {case.gold} ;; {case.answer}")
    prefix = "" if name == "cases" else f"{name}_"
    accuracy, positives, negatives = _errors(cases, ours)
    their_accuracy, their_positives, _ = _errors(cases, their_verdicts)
    return {
        f"{prefix}accuracy": round(accuracy, 4),
        f"{prefix}false_positives": positives,
        f"{prefix}false_negatives": negatives,
        f"{prefix}math_verify_accuracy": round(their_accuracy, 4),
        f"{prefix}math_verify_false_positives": their_positives,
    }


def _errors(cases: Sequence[Case], right: Sequence[bool]) -> tuple[float, int, int]:
    positives = sum(r and not c.right for c, r in zip(cases, right, strict=True))
    negatives = sum(c.right and not r for c, r in zip(cases, right, strict=True))
    return 1 - (positives + negatives) / len(cases), positives, negatives


def _golds(checker: Checker, golds: Sequence[str]) -> dict[str, Any]:
    pairs = [(text, gold) for gold in golds for text in spellings(gold)]
    missed = [p for p in pairs if checker.grade(*p).verdict is not Verdict.RIGHT and p[1].strip()]
    reasons = {
        gold: asyncio.run(checker.explain_unparsed_gold(gold, run_blocking=run_inline))
        for gold in set(golds)
    }
    unparsed = {gold: reason for gold, reason in reasons.items() if reason}
    print(f"{len(golds):,} golds in {len(pairs):,} spellings; not parsed: {unparsed}")
    return {"gold_parse_failures": len(unparsed), "gold_spellings_missed": len(missed)}


def _solutions() -> list[tuple[str, str]]:
    """Return the solutions of ProcessBench whose problems have a gold in the public data."""
    gold_of: dict[str, str] = {}
    for name, problem, answer in (
        ("math_train", "problem", "final_answer"),
        ("math500", "problem", "answer"),
        ("gsm8k_test", "question", "answer"),
    ):
        for row in _rows(DATA / f"{name}.jsonl"):
            gold_of[" ".join(row[problem].split())] = row[answer].rpartition("####")[2].strip()
    return [
        ("\n\n".join(row["steps"]), gold_of[key])
        for split in ("gsm8k", "math")
        for row in _rows(DATA / f"processbench_{split}.jsonl")
        if (key := " ".join(row["problem"].split())) in gold_of
    ]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def _measure_speed(
    theirs: Theirs, completions: list[tuple[str, str]], repeats: int, num_theirs: int
) -> dict[str, Any]:
    """Time the checkers on real solutions, with each solution repeated `SAMPLES` times and once.

    The best pass counts, since other processes share the cores.
    """
    random.Random(0).shuffle(completions)
    rollouts = completions * SAMPLES
    rates = [_measure_rate(_start_checker(memo_size=200_000), rollouts) for _ in range(repeats)]
    bare = _start_checker(memo_size=0)
    bare_rates = [_measure_rate(bare, completions) for _ in range(repeats + 1)][1:]
    their_rate = max(_their_rate(theirs, completions[:num_theirs]) for _ in range(2))
    return {
        "pairs_per_s": round(max(rates)),
        "pairs_per_s_no_memo": round(max(bare_rates)),
        "math_verify_pairs_per_s": round(their_rate, 1),
        "ratio_to_math_verify": round(max(rates) / their_rate, 1),
    }


def _their_rate(theirs: Theirs, completions: Sequence[tuple[str, str]]) -> float:
    clear_cache()  # otherwise sympy's cache would contain the pairs of the previous pass
    start = time.perf_counter()
    for text, gold in completions:
        theirs(text, gold, True)
    return len(completions) / (time.perf_counter() - start)


def _start_checker(*, memo_size: int) -> Checker:
    """Return a checker whose worker has started and whose memo lacks the benchmark's pairs."""
    checker = Checker(memo_size=memo_size)
    checker.grade("\\sin 2x", "2\\sin x\\cos x")
    return checker


def _measure_rate(checker: Checker, completions: Sequence[tuple[str, str]]) -> float:
    start = time.perf_counter()
    for text, gold in completions:
        checker.grade_completion(text, gold)
    return len(completions) / (time.perf_counter() - start)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
