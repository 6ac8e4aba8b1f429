"""The checker of Python programs: a completion is right if it passes the tests of its problem.

Programs of models run in boxes of their own (`boxes`), apart from the tests (`trials`).
"""

from __future__ import annotations

import ast
import asyncio
import os
import queue
import re
import textwrap
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

from pydantic import Field

from mclabel.checkers.base import INSIDE, Aside, Checker, CheckerSettings, Grade, GradeItem, here
from mclabel.checkers.code.boxes import Box, BoxFailed, probe
from mclabel.checkers.code.golds import BadGold, Gold, read_gold
from mclabel.checkers.code.trials import GoldFails, Limits, Pair
from mclabel.core.boundary import clipped
from mclabel.core.records import Problem, Verdict
from mclabel.core.settings import MAX_CORES, OPERATIONAL, Harmless

VERSION = "1"
ATTEMPTS = 2
"""Runs of a program before a failure of the machine leaves it without a verdict."""
MAX_BEHAVIOUR = 500
"""Characters of what a program gives for the examples of its problem."""
_SANDBOX = "sandbox: "
_RISK = "runs programs of models without a sandbox"


class CodeChecker(Checker):
    """Runs programs against tests, in boxes that are kept as long as the checker."""

    class Settings(CheckerSettings):
        """What a program may use."""

        time_s: float = Field(5.0, gt=0, le=3_600)
        """Seconds that a program may take for all its tests, or for each run if it reads standard
        input. Waiting for a core does not count."""
        memory_mib: int = Field(512, ge=64, le=1 << 20)
        """Memory of each process of a program, in MiB."""
        disk_mib: int = Field(16, ge=1, le=1 << 16)
        """Size in MiB of the only folder that a program can write to, which is in memory."""
        output_kib: int = Field(1_024, ge=1, le=1 << 18)
        """Largest result of a function and largest output of a program, in KiB."""
        processes: Annotated[int | None, OPERATIONAL] = Field(None, ge=1, le=MAX_CORES)
        """Programs that run at once; null for one per core."""
        sandbox: Annotated[
            Literal["bwrap", "none"], Harmless(lambda value: value == "bwrap", _RISK)
        ] = "bwrap"
        """Sandbox of programs, recorded in the run; `none` leaves this machine unprotected."""

    def __init__(self, settings: Settings) -> None:
        """Make a checker, and see that a box can be started.

        Args:
            settings: limits of programs.

        Raises:
            CheckerError: the system refuses sandboxes; with the remedy.
        """
        self.name, self.version = settings.kind, VERSION
        self._is_fenced = settings.sandbox == "bwrap"
        self._limits = Limits(
            time_s=settings.time_s,
            memory_mib=settings.memory_mib,
            disk_mib=settings.disk_mib,
            output_kib=settings.output_kib,
        )
        self._num = settings.processes or _num_cores()
        self._pools: dict[int, queue.LifoQueue[Pair]] = {}
        probe(is_fenced=self._is_fenced, disk_mib=settings.disk_mib)
        weakref.finalize(self, _close, self._pools)

    async def refuse(self, problem: Problem, aside: Aside = here) -> str | None:
        """Say why a gold cannot be used; see `Checker`. A solution that it holds must pass."""
        return await aside(partial(self._refusal, problem))

    def _refusal(self, problem: Problem) -> str | None:
        try:
            gold = _gold(problem.answer, problem.answer_is_json)
        except BadGold as error:
            return str(error)
        if gold.solution is None:
            return None
        found = self._graded(gold, gold.solution)
        if found.verdict is Verdict.RIGHT or found.reason.startswith(_SANDBOX):
            return None  # of the latter nothing is known
        return f"the gold's own solution does not pass its tests: {found.reason}"

    async def grade(self, items: Sequence[GradeItem], aside: Aside = here) -> list[Grade]:
        """Grade completions, several at once; see `Checker`."""
        tasks = [aside(partial(self._grade, item)) for item in items]
        return list(await asyncio.gather(*tasks))

    def _grade(self, item: GradeItem) -> Grade:
        problem = item.problem
        try:
            gold = _gold(problem.answer, problem.answer_is_json)
        except BadGold as error:
            return Grade(verdict=Verdict.UNKNOWN, reason=f"gold: {error}", layer="none")
        try:
            code = program_in(item.completion, prompt=gold.prompt, name=gold.check)
        except NoCode as error:
            return Grade(verdict=Verdict.WRONG, reason=str(error), layer="text")
        return self._graded(gold, code)

    def _graded(self, gold: Gold, code: str) -> Grade:
        grade = partial(Grade, layer="inside" if gold.inside else "split")
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                with self._pair() as pair:
                    found = pair.run(gold, code)
                    answer = code
                    if gold.examples:
                        answer = clipped(pair.behaviour(gold, code), MAX_BEHAVIOUR)
            except BoxFailed as error:
                reason = f"{_SANDBOX}{error}"
            except GoldFails as error:
                return grade(answer=code, verdict=Verdict.UNKNOWN, reason=f"gold: {error}")
            else:
                verdict = Verdict.RIGHT if found == "passed" else Verdict.WRONG
                found = INSIDE + found if gold.inside else found
                return grade(answer=answer, verdict=verdict, reason=found)
        return grade(answer=code, verdict=Verdict.UNKNOWN, reason=reason)

    @contextmanager
    def _pair(self) -> Iterator[Pair]:
        """Two boxes that no other thread of this process uses."""
        pool = self._pools.get(os.getpid())
        if pool is None:
            self._pools.clear()  # those of the process that this one was forked from
            pool = queue.LifoQueue()
            for _ in range(self._num):
                pool.put(Pair(self._box, self._limits))
            pool = self._pools.setdefault(os.getpid(), pool)
        pair = pool.get()
        try:
            yield pair
        finally:
            pool.put(pair)

    @property
    def _box(self) -> Any:
        return partial(Box, is_fenced=self._is_fenced, disk_mib=self._limits.disk_mib)


def _num_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # of Linux
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@lru_cache(256)
def _gold(answer: str, is_json: bool) -> Gold:
    return read_gold(Problem(id="", text="", answer=answer, answer_is_json=is_json).gold)


def _close(pools: dict[int, queue.LifoQueue[Pair]]) -> None:
    """End the boxes of a checker that is gone."""
    pool = pools.get(os.getpid())
    while pool is not None and not pool.empty():
        pool.get().close()


MAX_CHARACTERS = 1 << 18
"""Of a program."""
_FENCE = re.compile(r"[ \t]*+(`{3,}+|~{3,}+)([^`]*+)")
_LANGUAGES = ("python", "python3", "py", "")


class NoCode(Exception):
    """A completion without a program that can be run; its text is the reason."""


def program_in(completion: str, *, prompt: str = "", name: str | None = None) -> str:
    """The program of a completion: its last block of Python, or all of it.

    A body that continues the prompt is put behind it. A whole program is too where the two parse
    together: it may rely on what the prompt imports and defines.

    Args:
        completion: text of a model.
        prompt: start of a file.
        name: of the function that the program must define.

    Raises:
        NoCode: there is none (`no_code`), it is too long, or it does not parse (`syntax_error`).
    """
    blocks = [code for language, code in _blocks(completion) if language in _LANGUAGES]
    found = blocks[-1] if blocks else completion
    if not found.strip():
        raise NoCode("no_code")
    if len(found) > MAX_CHARACTERS:
        raise NoCode("too_long")
    if prompt and (name is None or not _defines(found, name)):
        bodies = (found, textwrap.indent(textwrap.dedent(found), "    "))
        if (joined := _first([prompt + body for body in bodies])) is not None:
            return joined
    wholes = [f"{prompt}\n\n{textwrap.dedent(found)}"] if prompt else [textwrap.dedent(found)]
    if (whole := _first([*wholes, found])) is not None:
        return whole
    raise NoCode("syntax_error" if blocks or prompt else "no_code")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and code of each fenced block; the last may be open."""
    mark, language, lines = "", "", list[str]()
    for line in text.splitlines(keepends=True):
        fence = _FENCE.fullmatch(line.rstrip())
        if not mark and fence:
            mark, language, lines = fence[1], fence[2].strip().lower(), []
        elif mark and line.lstrip(" \t").startswith(mark):
            yield language, "".join(lines)
            mark = ""
        else:
            lines.append(line)
    if mark:
        yield language, "".join(lines)


def _first(sources: list[str]) -> str | None:
    return next((one for one in sources if _tree(one) is not None), None)


def _defines(source: str, name: str) -> bool:
    tree = _tree(textwrap.dedent(source))
    return tree is not None and any(name in _names(node) for node in tree.body)


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _tree(source: str) -> ast.Module | None:
    """The syntax tree of a whole module: None if it is none, as a body that stands alone."""
    try:
        tree = ast.parse(source)
        return None if _returns(tree) else tree
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _returns(node: ast.AST) -> bool:
    """Whether there is a `return` outside of functions, which the parser does not mind."""
    return any(
        isinstance(one, ast.Return)
        or (not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and _returns(one))
        for one in ast.iter_child_nodes(node)
        if isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case)
    )
