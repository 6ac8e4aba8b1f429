"""`Checker` grades answers: it runs the layers in order, caches grades and starts the workers.

A checker needs no set-up and works in any thread, event loop or process. Cheap layers, such as a
comparison of texts, run in the caller's process. If none decides a pair of answer and gold, a
worker process compares them with sympy. `group_answers` finds which of several answers mean the
same, for majority votes.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from mclabel.answers.extraction.boxes import join_boxes_if_exactly
from mclabel.answers.extraction.extract import ExtractedAnswer, find_answer_or_guess
from mclabel.answers.grade import (
    GUESS,
    IN_WORDS,
    NO_STACK,
    Grade,
    answer_key,
    grade_in_process,
    mark_as_guess,
    normalize_answer,
    normalize_gold,
    read_gold_form,
)
from mclabel.answers.reading.normalize import MAX_LENGTH
from mclabel.answers.values.forms import ItemCollection, SpecialValue, UnparsedText
from mclabel.answers.workers.attempt import MAX_STEPS
from mclabel.answers.workers.guard import explain_refused_form
from mclabel.answers.workers.pool import PASSING, WorkerPool, WorkerReply
from mclabel.core.records import Verdict

_MAX_MEMO_TEXT = 500
"""Maximum number of characters of an answer and its gold together for their grade to be cached.
Longer pairs rarely repeat and would only fill memory."""


T = TypeVar("T")


class ThreadRunner(Protocol):
    """Type of async functions that run blocking work, usually in a thread beside the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run `work`, usually in another thread, and return its result or raise its exception."""


class Checker:
    """Grades answers and completions against golds.

    Args:
        num_workers: number of processes that run sympy at the same time. They start when the first
            pair needs sympy. One additional process works on slow pairs.
        max_steps: maximum Python calls in sympy per pair. A pair that needs more calls has an
            unknown verdict, on any machine and under any load.
        memory_bytes: maximum address space of a worker in bytes.
        memo_size: maximum number of pairs whose grades are cached; 0 disables the cache.
    """

    def __init__(
        self,
        *,
        num_workers: int = 2,
        max_steps: int = MAX_STEPS,
        memory_bytes: int = 1 << 30,
        memo_size: int = 200_000,
    ) -> None:
        self._num_workers = num_workers
        self._max_steps = max_steps
        self._memory_bytes = memory_bytes
        self._memo_size = memo_size
        self._memo: dict[tuple[str, str, bool], Grade] = {}
        self._pool: WorkerPool | None = None
        self._lock = threading.Lock()
        _every_checker.add(self)

    def grade(self, answer: str, gold: str, *, units_optional: bool = True) -> Grade:
        """Grade an answer against a gold. The method never raises, whatever the two strings are.

        Args:
            answer: the answer as `extract_answer` returns it, or any text.
            gold: the reference answer as the data set writes it.
            units_optional: treat 5 cm as equal to 5 if only one side has a unit.
        """
        pending = self._begin_grading(answer, gold, units_optional)
        return self._await_grade(answer, gold, pending, units_optional)

    def grade_many(self, pairs: Iterable[tuple[str | None, str]]) -> list[Grade]:
        """Return the grades of (answer, gold) pairs in their order. An answer of None is wrong.

        The workers run while the cheap layers grade other pairs. A slow pair delays only the end
        of the batch. Use this method rather than `grade` for many pairs.
        """
        return list(self.grade_each(pairs, max_ahead=None))

    def grade_each(
        self, pairs: Iterable[tuple[str | None, str]], *, max_ahead: int | None = 10_000
    ) -> Iterator[Grade]:
        """Grade a stream of pairs, which may be endless, and yield the grades in order.

        Args:
            pairs: pairs of answer and gold. An answer of None is wrong.
            max_ahead: maximum number of pairs that are read before the grade of the first of them
                is yielded; None sets no limit.
        """
        begun: deque[tuple[str, str, Grade | Future[WorkerReply]]] = deque()
        for answer, gold in pairs:
            pending = _NO_ANSWER if answer is None else self._begin_grading(answer, gold, True)
            if not begun and isinstance(pending, Grade):
                yield pending
                continue
            begun.append((answer or "", gold, pending))
            while begun and (
                len(begun) == max_ahead or isinstance(begun[0][2], Grade) or begun[0][2].done()
            ):
                yield self._await_grade(*begun.popleft(), True)
        while begun:
            yield self._await_grade(*begun.popleft(), True)

    def grade_completion(
        self,
        text: str,
        gold: str,
        *,
        truncated: bool = False,
        units_optional: bool = True,
        grade_guesses: bool = True,
    ) -> tuple[str | None, Grade]:
        """Return the answer of a completion and its grade. A completion without an answer is wrong.

        Args:
            text: text of the completion.
            gold: the reference answer as the data set writes it.
            truncated: True if the completion was cut at its token limit. It is then wrong, and its
                answer is None.
            units_optional: treat 5 cm as equal to 5 if only one side has a unit.
            grade_guesses: grade a completion without a stated answer by its last number. If false,
                the verdict on such a completion is unknown.
        """
        extracted = None if truncated else _extract_answer_for_gold(text, gold)
        if extracted is None:
            return None, _TRUNCATED if truncated else _NO_ANSWER
        if not extracted.is_guess:
            return extracted.answer, self.grade(
                extracted.answer, gold, units_optional=units_optional
            )
        begun = self._begin_grading_extracted(extracted, gold, units_optional, grade_guesses)
        return extracted.answer or None, self._await_extracted_grade(
            extracted, begun, gold, units_optional
        )

    async def grade_completions(
        self,
        items: Sequence[tuple[str, str]],
        *,
        units_optional: bool = True,
        grade_guesses: bool = True,
        run_blocking: ThreadRunner,
    ) -> list[tuple[str | None, Grade]]:
        """Return the answers and grades of many completions without blocking the event loop.

        The workers run while the cheap layers grade other pairs.

        Args:
            items: text and gold of each completion. No text may be truncated.
            units_optional: treat 5 cm as equal to 5 if only one side has a unit.
            grade_guesses: grade a completion without a stated answer by its last number.
            run_blocking: function that runs the cheap layers outside the event loop.
        """

        def begin_grading_all() -> list[tuple[ExtractedAnswer, Grade | Future[WorkerReply]] | None]:
            answers = [_extract_answer_for_gold(text, gold) for text, gold in items]
            return [
                None
                if extracted is None
                else (
                    extracted,
                    self._begin_grading_extracted(extracted, gold, units_optional, grade_guesses),
                )
                for extracted, (_, gold) in zip(answers, items, strict=True)
            ]

        graded: list[tuple[str | None, Grade]] = []
        for begun, (_, gold) in zip(await run_blocking(begin_grading_all), items, strict=True):
            if begun is None:
                graded.append((None, _NO_ANSWER))
                continue
            extracted, grade = begun
            if isinstance(grade, Future):
                reply = await asyncio.wrap_future(grade)
                grade = self._make_grade_from_reply(reply, extracted.answer, gold, units_optional)
            graded.append(
                (
                    extracted.answer or None,
                    self._await_extracted_grade(extracted, grade, gold, units_optional),
                )
            )
        return graded

    async def explain_unparsed_gold(self, gold: str, *, run_blocking: ThreadRunner) -> str | None:
        """Return the reason why a gold can be compared only as text; None if it can be parsed.

        Args:
            gold: text of the gold.
            run_blocking: function that runs the cheap layers outside the event loop. A worker tries
                to parse a gold only if the cheap layers cannot.
        """
        pending = await run_blocking(lambda: self._begin_parsing_gold(gold))
        if isinstance(pending, Future):
            return _explain_parsing_failure(await asyncio.wrap_future(pending))
        return pending

    def _begin_parsing_gold(self, gold: str) -> str | Future[WorkerReply] | None:
        """Return None if the cheap layers can parse a gold, or the reason why it cannot be parsed.

        If only a worker may be able to parse it, return the future of the worker's reply.
        """
        form = read_gold_form(gold)
        if form is None:
            return "too_much_work"
        if isinstance(form, SpecialValue) and form.name == "empty text":
            return "empty"
        if not isinstance(form, UnparsedText):
            return None
        reason = explain_refused_form(form)
        if reason is not None:
            return reason
        return self._submit_question({"gold": normalize_gold(gold).text})

    def host_pid(self) -> int | None:
        """Return the process id of the host, which forks the workers; None if it is not running."""
        return None if self._pool is None else self._pool.host_pid()

    def close(self) -> None:
        """Stop the workers. The next pair that needs a worker starts them again."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _begin_grading(
        self, answer: str, gold: str, units_optional: bool
    ) -> Grade | Future[WorkerReply]:
        """Return the grade of a pair if the cache or a cheap layer decides it.

        Otherwise send the pair to a worker, and return the future of its reply. If
        `units_optional` is true, 5 cm equals 5.
        """
        remembered = self._memo.get((answer, gold, units_optional))
        if remembered is not None:
            return remembered
        here = grade_in_process(answer, gold, units_optional=units_optional)
        if isinstance(here, Grade):
            if here.reason != NO_STACK:
                self._remember_grade(answer, gold, units_optional, here)
            return here
        ours, theirs = here
        return self._submit_question(
            {"answer": ours, "gold": theirs, "units_optional": units_optional}
        )

    def _begin_grading_extracted(
        self, extracted: ExtractedAnswer, gold: str, units_optional: bool, grade_guesses: bool
    ) -> Grade | Future[WorkerReply]:
        if not extracted.answer:
            return _IN_WORDS
        if extracted.is_guess and not grade_guesses:
            return _NOT_GRADED
        return self._begin_grading(extracted.answer, gold, units_optional)

    def _await_extracted_grade(
        self,
        extracted: ExtractedAnswer,
        grade: Grade | Future[WorkerReply],
        gold: str,
        units_optional: bool,
    ) -> Grade:
        grade = self._await_grade(extracted.answer, gold, grade, units_optional)
        if not extracted.is_guess or grade is _NOT_GRADED or grade is _IN_WORDS:
            return grade
        return mark_as_guess(grade)

    def _await_grade(
        self, answer: str, gold: str, pending: Grade | Future[WorkerReply], units_optional: bool
    ) -> Grade:
        if isinstance(pending, Grade):
            return pending
        return self._make_grade_from_reply(pending.result(), answer, gold, units_optional)

    def _make_grade_from_reply(
        self, reply: WorkerReply, answer: str, gold: str, units_optional: bool
    ) -> Grade:
        grade = (
            Grade(verdict=Verdict.UNKNOWN, reason=reply.reason, layer="sympy")
            if reply.is_confirmed is None
            else _PROVED[reply.is_confirmed]
        )
        if reply.reason not in PASSING:
            self._remember_grade(answer, gold, units_optional, grade)
        return grade

    def _remember_grade(self, answer: str, gold: str, units_optional: bool, grade: Grade) -> None:
        if not self._memo_size or len(answer) + len(gold) > _MAX_MEMO_TEXT:
            return
        memo = self._memo
        if len(memo) >= self._memo_size:
            for old in [
                key for key, _ in zip(memo, range(self._memo_size // 10 + 1), strict=False)
            ]:
                memo.pop(old, None)
        memo[answer, gold, units_optional] = grade

    def _submit_question(self, question: dict[str, object]) -> Future[WorkerReply]:
        with self._lock:
            if self._pool is None:
                self._pool = WorkerPool(
                    num_workers=self._num_workers,
                    max_steps=self._max_steps,
                    memory_bytes=self._memory_bytes,
                )
            return self._pool.submit(question)

    def _reset_after_fork(self) -> None:
        """Reset the checker in a forked child process.

        The workers belong to the parent process, and the copied lock may be held.
        """
        pool, self._pool = self._pool, None
        self._lock = threading.Lock()
        if pool is not None:
            pool.close_inherited_descriptors()


def default_checker() -> Checker:
    """Return the process-wide checker that `grade` and `grade_completion` use."""
    return _default


def grade(answer: str, gold: str, *, units_optional: bool = True) -> Grade:
    """Grade `answer` against `gold` with the process-wide checker.

    Args:
        answer: the answer as `extract_answer` returns it, or any text.
        gold: the reference answer as the data set writes it.
        units_optional: treat 5 cm as equal to 5 if only one side has a unit.
    """
    return _default.grade(answer, gold, units_optional=units_optional)


def grade_completion(
    text: str,
    gold: str,
    *,
    truncated: bool = False,
    units_optional: bool = True,
    grade_guesses: bool = True,
) -> tuple[str | None, Grade]:
    """Return the answer of a completion and its grade. A completion without an answer is wrong.

    Args:
        text: text of the completion.
        gold: the reference answer as the data set writes it.
        truncated: True if the completion was cut at its token limit. It is then wrong, and its
            answer is None.
        units_optional: treat 5 cm as equal to 5 if only one side has a unit.
        grade_guesses: grade a completion without a stated answer by its last number. If false, the
            verdict on such a completion is unknown.
    """
    return _default.grade_completion(
        text,
        gold,
        truncated=truncated,
        units_optional=units_optional,
        grade_guesses=grade_guesses,
    )


def _extract_answer_for_gold(text: str, gold: str) -> ExtractedAnswer | None:
    """Return the answer of a completion, or None.

    If the gold is a list of n values and the completion has exactly n boxes after its thinking, the
    answer is the list of their contents.
    """
    extracted = find_answer_or_guess(text)
    if (
        extracted is None
        or not any(mark in gold for mark in (",", ";", " and "))
        or text.count("boxed") < 2
    ):
        return extracted
    form = read_gold_form(gold)
    if not isinstance(form, ItemCollection) or form.single_value is not None:
        return extracted
    listed = join_boxes_if_exactly(text.rpartition("</think>")[2], len(form.items))
    if listed is None or isinstance(read_gold_form(extracted.answer), ItemCollection):
        return extracted
    return ExtractedAnswer(listed)


def _reset_checkers_after_fork() -> None:
    for checker in tuple(_every_checker):
        checker._reset_after_fork()


def _explain_parsing_failure(reply: WorkerReply) -> str | None:
    """Return the reason why a worker could not parse a gold; None if it could."""
    return (
        None
        if reply.is_confirmed
        else "not_parsed"
        if reply.is_confirmed is False
        else reply.reason
    )


_NO_ANSWER = Grade(verdict=Verdict.WRONG, reason="no_answer", layer="extract")
_NOT_GRADED = Grade(verdict=Verdict.UNKNOWN, reason=GUESS, layer="extract")
_IN_WORDS = Grade(verdict=Verdict.UNKNOWN, reason=IN_WORDS, layer="extract")
_TRUNCATED = Grade(verdict=Verdict.WRONG, reason="truncated", layer="extract")
_PROVED = {
    True: Grade(verdict=Verdict.RIGHT, reason="equal", layer="sympy"),
    False: Grade(verdict=Verdict.WRONG, reason="different", layer="sympy"),
}
_every_checker: weakref.WeakSet[Checker] = weakref.WeakSet()
_default = Checker()
os.register_at_fork(after_in_child=_reset_checkers_after_fork)


MAX_GROUPS = 32
"""Maximum number of groups per problem that accept further answers. Only frequent answers can win
a vote, so the groups of rare answers need not be complete."""

Grouping = list[int | None]
_ComparisonGenerator = Generator[tuple[str, str], bool, Grouping]
"""A generator that yields pairs of answers, receives whether the two answers are equal, and returns
the group numbers."""


def group_answers(answers: Sequence[str | None], checker: Checker) -> Grouping:
    """Return a group number for each answer. Equal answers share a number; None stays None.

    Answers are compared from the most frequent to the least frequent. An answer joins the first
    group whose most frequent answer equals it. Of two equal answers, each must be right with the
    other one as the gold, so a number and its rounding are in different groups. An answer that
    equals none begins a new group. Only the first `MAX_GROUPS` groups accept further answers.

    Args:
        answers: answers of the samples of one problem.
        checker: compares two answers whose normalised texts differ, unless both are numbers.
    """
    return group_answers_per_problem([answers], checker)[0]


def group_answers_per_problem(
    problems: Iterable[Sequence[str | None]], checker: Checker
) -> list[Grouping]:
    """Return the group numbers of the answers to each problem, as `group_answers` does.

    The comparisons of different problems run concurrently.
    """
    groupings = [_yield_comparisons_to_group(answers) for answers in problems]
    finished: list[Grouping] = [[] for _ in groupings]
    due: list[tuple[int, bool | None]] = [(number, None) for number in range(len(groupings))]
    while due:
        asked = []
        for number, equal in due:
            try:
                pair = groupings[number].send(equal)  # type: ignore[arg-type]
            except StopIteration as end:
                finished[number] = end.value
            else:
                asked.append((number, pair))
        verdicts = _are_mutually_equal([pair for _, pair in asked], checker)
        due = [(number, same) for (number, _), same in zip(asked, verdicts, strict=True)]
    return finished


def _are_mutually_equal(pairs: Sequence[tuple[str, str]], checker: Checker) -> list[bool]:
    """Return for each pair whether each of its answers is right with the other one as the gold.

    A rounded answer may equal an exact gold, while the exact answer does not equal a rounded gold.
    """
    equal = [grade.verdict is Verdict.RIGHT for grade in checker.grade_many(pairs)]
    swapped = [(gold, answer) for (answer, gold), same in zip(pairs, equal, strict=True) if same]
    also = iter(checker.grade_many(swapped))
    return [same and next(also).verdict is Verdict.RIGHT for same in equal]


def _yield_comparisons_to_group(answers: Sequence[str | None]) -> _ComparisonGenerator:
    keys = [None if answer is None else answer_key(answer) for answer in answers]
    counts = Counter(key for key in keys if key is not None)
    text = {key: answer for key, answer in zip(keys, answers, strict=True) if key is not None}
    group: dict[str, int] = {}
    heads: list[tuple[str, bool, int]] = []
    num_groups = 0
    for key, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        answer = text[key] or ""
        is_number = len(answer) <= MAX_LENGTH and normalize_answer(answer).literal is not None
        for head, head_is_number, number in heads:
            if is_number and head_is_number:
                continue  # exact numbers of different keys differ
            if (yield answer, head):
                group[key] = number
                break
        else:
            group[key] = num_groups
            if len(heads) < MAX_GROUPS:
                heads.append((answer, is_number, num_groups))
            num_groups += 1
    return [None if key is None else group[key] for key in keys]
