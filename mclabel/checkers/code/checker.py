"""The checker of Python programs: a completion is right if it passes the tests of its problem.

Programs and tests run in separate sandboxes (`sandboxes`, `trials`).
"""

from __future__ import annotations

import asyncio
import os
import queue
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field

from mclabel.checkers.base import (
    WEAK_PREFIX,
    Checker,
    CheckerSettings,
    Grade,
    GradeItem,
    ThreadRunner,
    run_inline,
)
from mclabel.checkers.code.completions import NoCodeFound, extract_program
from mclabel.checkers.code.golds import BadGold, Gold, read_gold
from mclabel.checkers.code.sandboxes import Sandbox, SandboxFailed, check_sandbox_starts
from mclabel.checkers.code.trials import (
    CLAIMED,
    PASSED,
    WEAK,
    ProgramLimits,
    SandboxPair,
    UnrunnableTestsError,
    make_null_programs,
)
from mclabel.core.cores import count_cores
from mclabel.core.records import Problem, Verdict
from mclabel.core.settings import MAX_CORES, OPERATIONAL, Harmless

VERSION = "1"
ATTEMPTS = 2
"""Maximum number of attempts to run a program if the sandbox fails. After them, the verdict is
unknown."""
MAX_BEHAVIOUR = 500
"""Maximum characters of the text that describes a program's results on the examples. Longer texts
are cut and end in a digest."""
MAX_GOLDS = 10_000
"""Maximum number of golds (the tests of a problem) for which the check of their tests is cached."""
_SANDBOX = "sandbox: "
_OWN_COMPARISON = "own_comparison"
"""Reason of an unknown verdict: the tests passed only because the program's own code compared one
of its objects with a value of the tests."""
_RISK = "runs programs of models without a sandbox"


class CodeChecker(Checker):
    """Checker that runs programs against tests in sandboxes, which it reuses for all programs."""

    class Settings(CheckerSettings):
        """Settings of the checker `code`: the limits of each program, and the sandbox."""

        time_s: float = Field(5.0, gt=0, le=3_600)
        """Time limit in seconds for all tests of a program, or for each run if it reads standard
        input."""
        memory_mib: int = Field(512, ge=64, le=1 << 20)
        """Memory of each process of a program, in MiB."""
        processes: Annotated[int | None, OPERATIONAL] = Field(None, ge=1, le=MAX_CORES)
        """Maximum number of programs that run at the same time; null: one per core."""
        sandbox: Annotated[
            Literal["bwrap", "none"], Harmless(lambda value: value == "bwrap", _RISK)
        ] = "bwrap"
        """Sandbox in which programs run; `none` leaves this machine unprotected."""

    def __init__(self, settings: Settings) -> None:
        """Create a checker, and check that a sandbox can be started.

        Args:
            settings: limits of programs, and the sandbox.

        Raises:
            CheckerError: the system refuses sandboxes. The message contains the remedy.
        """
        self.name, self.version = settings.kind, VERSION
        self._is_sandboxed = settings.sandbox == "bwrap"
        self._limits = ProgramLimits(time_s=settings.time_s, memory_mib=settings.memory_mib)
        self._num_pairs = settings.processes or count_cores()
        self._pools: dict[int, queue.LifoQueue[SandboxPair]] = {}
        self._faults: dict[tuple[str, bool], str | None] = {}
        check_sandbox_starts(is_sandboxed=self._is_sandboxed)
        weakref.finalize(self, _close_sandboxes, self._pools)

    async def refuse(self, problem: Problem, run_blocking: ThreadRunner = run_inline) -> str | None:
        """Return the reason why a problem's tests cannot be used; None if they can.

        If the gold has a solution, the solution must pass the tests.

        Args:
            problem: the problem, whose gold is its tests.
            run_blocking: function that runs blocking work outside the event loop.
        """
        return await run_blocking(partial(self._explain_refused_gold, problem))

    def _explain_refused_gold(self, problem: Problem) -> str | None:
        try:
            gold = _read_answer_gold(problem.answer, problem.answer_is_json)
        except BadGold as error:
            return str(error)
        if (fault := self._find_tests_fault(problem, gold)) is not None or gold.solution is None:
            return fault
        grade = self._grade_program(gold, gold.solution)
        if grade.verdict is Verdict.RIGHT or grade.reason.startswith(_SANDBOX):
            return None  # a failed sandbox is not a fault of the gold
        return f"the gold's own solution does not pass its tests: {grade.reason}"

    def _find_tests_fault(self, problem: Problem, gold: Gold) -> str | None:
        """Return the reason why tests cannot distinguish right from wrong programs, or None.

        Tests cannot do so if they end before they call the program, or if they pass two programs
        that compute nothing: one whose calls all raise, and one whose calls return empty objects.
        """
        if gold.script_runs:
            return None
        key = (problem.answer, problem.answer_is_json)
        if key not in self._faults:
            try:
                with self._reserve_pair() as pair:
                    results = [pair.test_program(gold, null) for null in make_null_programs(gold)]
                passed = all(result in (PASSED, WEAK, CLAIMED) for result in results)
                fault = "the tests pass programs that compute nothing" if passed else None
            except UnrunnableTestsError as error:
                fault = str(error)
            except SandboxFailed:
                return None
            if len(self._faults) >= MAX_GOLDS:
                self._faults.clear()
            self._faults[key] = fault
        return self._faults[key]

    async def grade(
        self, items: Sequence[GradeItem], run_blocking: ThreadRunner = run_inline
    ) -> list[Grade]:
        """Return one grade per completion, in order; programs run concurrently.

        Args:
            items: completions of one or several problems.
            run_blocking: function that runs blocking work outside the event loop.
        """
        tasks = [run_blocking(partial(self._grade_item, item)) for item in items]
        return list(await asyncio.gather(*tasks))

    def _grade_item(self, item: GradeItem) -> Grade:
        problem = item.problem
        try:
            gold = _read_answer_gold(problem.answer, problem.answer_is_json)
        except BadGold as error:
            return Grade(verdict=Verdict.UNKNOWN, reason=f"gold: {error}", layer="none")
        if (fault := self._find_tests_fault(problem, gold)) is not None:
            return Grade(verdict=Verdict.UNKNOWN, reason=f"gold: {fault}", layer="none")
        try:
            code = extract_program(item.completion, gold)
        except NoCodeFound as error:
            return Grade(verdict=Verdict.WRONG, reason=str(error), layer="text")
        return self._grade_program(gold, code)

    def _grade_program(self, gold: Gold, code: str) -> Grade:
        grade = partial(Grade, layer="inside" if gold.shares_process else "split")
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                with self._reserve_pair() as pair:
                    result = pair.test_program(gold, code)
                    answer = code
                    if gold.examples:
                        answer = _shorten_with_digest(pair.describe_behaviour(gold, code))
            except SandboxFailed as error:
                reason = f"{_SANDBOX}{error}"
            except UnrunnableTestsError as error:
                return grade(answer=code, verdict=Verdict.UNKNOWN, reason=f"gold: {error}")
            else:
                is_weak = gold.shares_process or result == WEAK
                verdict = Verdict.RIGHT if result in (PASSED, WEAK) else Verdict.WRONG
                if result == CLAIMED:
                    verdict, result = Verdict.UNKNOWN, _OWN_COMPARISON
                result = PASSED if result == WEAK else result
                reason = f"{WEAK_PREFIX}{result}" if is_weak else result
                return grade(answer=answer, verdict=verdict, reason=reason)
        return grade(answer=code, verdict=Verdict.UNKNOWN, reason=reason)

    @contextmanager
    def _reserve_pair(self) -> Iterator[SandboxPair]:
        """Reserve a pair of sandboxes, one for a program and one for its tests, for the caller.

        The caller waits until a pair is free.
        """
        pool = self._pools.get(os.getpid())
        if pool is None:
            self._pools.clear()  # sandboxes of the parent process before a fork
            pool = queue.LifoQueue()
            for _ in range(self._num_pairs):
                pool.put(
                    SandboxPair(partial(Sandbox, is_sandboxed=self._is_sandboxed), self._limits)
                )
            pool = self._pools.setdefault(os.getpid(), pool)
        pair = pool.get()
        try:
            yield pair
        finally:
            pool.put(pair)


@lru_cache(256)
def _read_answer_gold(answer: str, is_json: bool) -> Gold:
    return read_gold(Problem(id="", text="", answer=answer, answer_is_json=is_json).gold)


def _shorten_with_digest(text: str) -> str:
    """Return a text of at most `MAX_BEHAVIOUR` characters.

    A longer text is cut, and a digest of the whole text is appended.
    """
    if len(text) <= MAX_BEHAVIOUR:
        return text
    return f"{text[: MAX_BEHAVIOUR - 20]}… {sha256(text.encode()).hexdigest()[:16]}"


def _close_sandboxes(pools: dict[int, queue.LifoQueue[SandboxPair]]) -> None:
    """End the sandboxes of a checker that was garbage-collected."""
    pool = pools.get(os.getpid())
    while pool is not None and not pool.empty():
        pool.get().close()
