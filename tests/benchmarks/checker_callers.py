"""Compare the checker with Math-Verify in threads, event loops and Ray actors.

    python -m tests.benchmarks.checker_callers [--smoke | --quick]

Reward functions run in these places. Both checkers grade the human-judged pairs of tests/answers by
one call per completion, as a reward function does: ours by `verdict_on`, theirs by `parse` and
`verify` with the time limits of Math-Verify (the default) and, where the limits do not work,
without them. Each pass runs in a separate warm process whose
caches do not contain the pairs. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

from mclabel.core.records import Verdict
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser, need
from tests.support.judged import Case, read_cases

Grader = Callable[[Case], Verdict]
OURS, THEIRS, UNLIMITED = "mclabel", "Math-Verify", "Math-Verify, no limit"
WARM = Case(kind="", right=True, gold="2\\sin x\\cos x", answer="\\sin 2x")


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Results of one pass over the pairs."""

    pairs_per_s: float | None
    """Graded pairs per second; None if the checker raised an error on every pair."""
    right: float
    """Share of all pairs that are graded as people graded them. A pair without a verdict does not
    count.
    """
    false_positives: int
    unknown: int
    """Number of pairs without a verdict."""
    raised: int
    """Number of pairs on which the checker raised an error; `unknown` includes them."""
    error: str = ""
    """First error, or an empty text."""


def grade_all(name: str, every: int) -> Pass:
    """Grade every `every`th pair in this thread."""
    logging.disable(logging.WARNING)
    grade = GRADERS[name]()
    _grade_or_error(grade, WARM)
    cases = _cases(every)
    start = time.perf_counter()
    found = [_grade_or_error(grade, case) for case in cases]
    return _pass(cases, found, time.perf_counter() - start)


async def grade_all_in_loop(name: str, every: int) -> Pass:
    """Grade every `every`th pair in an event loop, with one coroutine for each pair."""
    logging.disable(logging.WARNING)
    grade = GRADERS[name]()

    async def reward(case: Case) -> Verdict | Exception:
        return _grade_or_error(grade, case)

    await reward(WARM)
    cases = _cases(every)
    start = time.perf_counter()
    found = await asyncio.gather(*map(reward, cases))
    return _pass(cases, found, time.perf_counter() - start)


def _ours() -> Grader:
    from mclabel.answers import verdict_on

    return lambda case: verdict_on(_text(case), f"${case.gold}$")


def _theirs(seconds: int | None) -> Grader:
    from math_verify import parse, verify

    def grade(case: Case) -> Verdict:
        gold, answer = (
            parse(text, parsing_timeout=seconds) for text in (f"${case.gold}$", _text(case))
        )
        is_right = verify(gold, answer, timeout_seconds=seconds)
        return Verdict.RIGHT if is_right else Verdict.WRONG

    return grade


GRADERS: dict[str, Callable[[], Grader]] = {
    OURS: _ours,
    THEIRS: lambda: _theirs(5),
    UNLIMITED: lambda: _theirs(None),
}


def _thread(name: str, every: int) -> Pass:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(grade_all, name, every).result()


def _loop(name: str, every: int) -> Pass:
    return asyncio.run(grade_all_in_loop(name, every))


def _in_new_process(run: Callable[[str, int], Pass]) -> Callable[[str, int], Pass]:
    """Return a function that makes the pass in a new process."""

    def pass_of(name: str, every: int) -> Pass:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(run, name, every).result()

    return pass_of


def _in_actor(name: str, every: int) -> Pass:
    import ray

    class Reward:
        def grade_all(self, name: str, every: int) -> Pass:
            return grade_all(name, every)

    return _run_in_actor(ray.remote(Reward), name, every)


def _in_async_actor(name: str, every: int) -> Pass:
    import ray

    class Reward:
        async def grade_all(self, name: str, every: int) -> Pass:
            return await grade_all_in_loop(name, every)

    return _run_in_actor(ray.remote(Reward), name, every)


def _run_in_actor(kind: Any, name: str, every: int) -> Pass:
    """Return the pass that a new actor of a class makes."""
    import ray

    if not ray.is_initialized():
        ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    actor = kind.remote()
    found: Pass = ray.get(actor.grade_all.remote(name, every))
    ray.kill(actor)
    return found


PLACES: dict[str, Callable[[str, int], Pass]] = {
    "main thread": _in_new_process(grade_all),
    "thread": _in_new_process(_thread),
    "asyncio": _in_new_process(_loop),
    "Ray actor": _in_actor,
    "async Ray actor": _in_async_actor,
}


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    need("math_verify", remedy="pip install '.[dev]'")
    every = size.pick(smoke=300, quick=3, full=1)
    figures: dict[str, dict[str, Any]] = {}
    num_passes = size.pick(smoke=1, quick=1, full=3)
    for place in size.pick(smoke=("thread", "async Ray actor"), quick=PLACES, full=PLACES):
        for name in GRADERS:
            if name == UNLIMITED and figures[f"{place}, {THEIRS}"]["pairs_per_s"] is not None:
                continue
            passes = [PLACES[place](name, every) for _ in range(num_passes)]
            rates = sorted(one.pairs_per_s for one in passes if one.pairs_per_s is not None)
            spread = None
            if rates:
                spread = [round(one, 1) for one in (statistics.median(rates), rates[0], rates[-1])]
            figures[f"{place}, {name}"] = {**asdict(passes[0]), "pairs_per_s": spread}
    finish({"places": figures})


def _cases(every: int) -> list[Case]:
    return [*read_cases("cases.txt"), *read_cases("holdout.txt")][::every]


def _text(case: Case) -> str:
    return case.answer if case.is_completion else f"${case.answer}$"


def _grade_or_error(grade: Grader, case: Case) -> Verdict | Exception:
    try:
        return grade(case)
    except Exception as error:  # a reward function would end with this error
        return error


def _pass(cases: Sequence[Case], found: Sequence[Verdict | Exception], seconds: float) -> Pass:
    raised = [one for one in found if isinstance(one, Exception)]
    judged = {Verdict.RIGHT: True, Verdict.WRONG: False}
    verdicts = [None if isinstance(one, Exception) else judged.get(one) for one in found]
    return Pass(
        pairs_per_s=len(cases) / seconds if len(raised) < len(cases) else None,
        right=sum(v is c.right for v, c in zip(verdicts, cases, strict=True)) / len(cases),
        false_positives=sum(
            v is True and not c.right for v, c in zip(verdicts, cases, strict=True)
        ),
        unknown=verdicts.count(None),
        raised=len(raised),
        error=f"{type(raised[0]).__name__}: {raised[0]}" if raised else "",
    )


if __name__ == "__main__":
    # Ray actors import it by this name
    from tests.benchmarks.checker_callers import main as run_main

    run_main()
