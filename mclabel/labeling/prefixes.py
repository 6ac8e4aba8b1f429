"""Table of the distinct prefixes of a problem's solutions, and the paths of rollouts through it.

Index 0 of the table is the prefix without steps. A prefix is identified by its token ids. A rollout
from one prefix may begin with exactly the ids that lead to a longer prefix of the table. Then it
passes through the longer prefix, and also counts as a rollout from there, without extra cost. For
an estimator that searches in rollouts, the steps of every rollout are added to the table. The
author is the model that wrote the solutions; completers are the models that sample rollouts.

A rollout may start from a wrong step, say "Wait, that is wrong", and repair the error. Its right
answer is no evidence that the step is right, since a policy that corrects itself recovers from most
errors ("Beyond the First Error", arXiv 2505.14391). Such repairs are detected by typical phrases,
and by equations that give another value to a left side of the prefix.

The function `make_step_key` maps steps with equal content to equal keys. If two solutions take the
same next step, the step is probably right, unless the policy makes the same mistake consistently,
which the estimator's priors must learn. Policies word the same step in many ways. So steps are
compared by the numbers that they contain, normalised as by the answer checker, and steps without a
number by their words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise
from math import inf
from statistics import median_low

from mclabel.answers import answer_key, extract_answer
from mclabel.core.records import AUTHOR, Counts, Outcome, Problem, Rollout, Solution, Step
from mclabel.core.seeds import PrefixHash
from mclabel.data.steps import StepSplitter
from mclabel.labeling.estimators import ROOT, RecordedRollout, SolutionPath
from mclabel.labeling.grading import IntermediateOutcomes

Decode = Callable[[Sequence[int]], str]


@dataclass
class Prefix:
    """One distinct prefix of a problem's solutions, and its rollout counts."""

    parent: Prefix | None
    """Prefix that is one step shorter; None for the prefix without steps."""
    step_ids: tuple[int, ...]
    """Token ids of the last step. Earlier steps are stored in the parents, so that memory grows
    with the length of the solutions, not with length times number of steps."""
    step_text: str
    """Text of the last step."""
    hash: PrefixHash
    counts: list[Counts]
    """Rollout counts of each completer, in the order of `PrefixTable.completers`."""
    num_requested: list[int]
    """Number of requested rollouts of each completer, in the order of `PrefixTable.completers`."""
    children: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Table index of each prefix that is one step longer, by the token ids of that step."""
    children_by_text: dict[str, int] = field(default_factory=dict)
    """Table index of each prefix that is one step longer, by the text of that step. If several
    steps have the same text, the first one is used."""
    num_tokens_needed: float = 0
    """Median number of tokens that the policy needs from this prefix to the end of a solution,
    estimated from the problem's solutions; 0 if unknown."""
    id: str = field(init=False)
    num_tokens: int = field(init=False)
    """Number of tokens of the whole prefix, in the author's vocabulary."""

    def __post_init__(self) -> None:
        """Set the id, and add the step's tokens to the parent's count."""
        self.id = self.hash.id
        before = 0 if self.parent is None else self.parent.num_tokens
        self.num_tokens = before + len(self.step_ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids of the whole prefix; they are concatenated at every access."""
        return tuple(chain.from_iterable(prefix.step_ids for prefix in self._list_ancestors()))

    @property
    def text(self) -> str:
        """Text of the whole prefix; it is concatenated at every access."""
        return "".join(prefix.step_text for prefix in self._list_ancestors())

    def _list_ancestors(self) -> list[Prefix]:
        """Return the prefixes with 1, 2, … steps that lead to this prefix, this prefix last."""
        lineage, at = [], self
        while at.parent is not None:
            lineage.append(at)
            at = at.parent
        return lineage[::-1]


class PrefixTable:
    """Distinct prefixes of a problem's solutions, by index, and each solution's sequence of
    prefixes.
    """

    def __init__(
        self,
        problem: Problem,
        solutions: Sequence[Solution],
        *,
        kept_regardless_of_outcome: bool,
        commitments: Sequence[IntermediateOutcomes] | None = None,
        completers: Sequence[str] = (AUTHOR,),
        splitter: StepSplitter | None = None,
        prompt_opens_thinking: bool = False,
    ) -> None:
        """Build the table from a problem's solutions.

        Args:
            problem: problem of the solutions.
            solutions: solutions with at least one step each.
            kept_regardless_of_outcome: True if sampled solutions were kept regardless of their
                outcomes, so that these outcomes count as rollouts.
            commitments: graded intermediate answers of each solution; None if not determined.
            completers: names of the models that roll out. The author's rollouts are matched to
                prefixes by token ids. Rollouts of other completers are matched by the texts of
                their steps, because their token ids differ.
            splitter: splitter that divides rollouts into steps; None uses the default splitter.
            prompt_opens_thinking: True if the prompt ends with the marker that opens the model's
                reasoning section, such as `<think>`.
        """
        self.completers = {name: number for number, name in enumerate(completers)}
        self._problem, self._splitter = problem, splitter or StepSplitter()
        self._prompt_opens_thinking, self._kept_regardless_of_outcome = (
            prompt_opens_thinking,
            kept_regardless_of_outcome,
        )
        self.prefixes = [self._make_prefix(None, (), "")]
        self._by_id = {self.prefixes[ROOT].id: ROOT}
        stated = commitments or [()] * len(solutions)
        self.paths = [
            self._add_solution_path(solution, own)
            for solution, own in zip(solutions, stated, strict=True)
        ]
        self._estimate_needed_tokens(solutions)

    def to_recorded_rollout(self, prefix_index: int, rollout: Rollout) -> RecordedRollout:
        """Return a rollout in the form that an estimator receives, with the table indices of the
        prefixes that it passes through.

        Args:
            prefix_index: table index of the prefix from which the rollout starts.
            rollout: recorded rollout. If it has no recorded path, the result has an empty path.
        """
        ends = (0, *(rollout.step_ends or ()))
        return RecordedRollout(
            prefix=prefix_index,
            outcome=rollout.outcome,
            num_tokens=rollout.num_tokens,
            path=tuple(self._by_id[identity] for identity in rollout.through or ()),
            step_keys=tuple(make_step_key(rollout.text[a:b]) for a, b in pairwise(ends)),
            completer=self.completers[rollout.completer],
            repairs=rollout.outcome is Outcome.RIGHT
            and corrects_prefix(rollout.text, self.prefixes[prefix_index].text),
        )

    def trace_rollout(
        self, prefix_index: int, rollout: Rollout, ids: Sequence[int], decode: Decode
    ) -> Rollout:
        """Return a copy of a rollout with its step ends (character offsets in its text) and the ids
        of the prefixes that it passes through.

        Args:
            prefix_index: table index of the prefix from which the rollout starts.
            rollout: sampled rollout.
            ids: token ids of the rollout.
            decode: function that decodes token ids of the completer that sampled the rollout.
        """
        steps = self._split_rollout(prefix_index, rollout, ids, decode)
        if rollout.completer == AUTHOR:
            passed = self._find_prefixes_along_token_ids(prefix_index, tuple(ids))
        else:
            passed = self._find_prefixes_along_step_texts(
                prefix_index, [step.text for step in steps]
            )
        return replace(
            rollout,
            step_ends=tuple(accumulate(len(step.text) for step in steps)),
            through=tuple(self.prefixes[prefix].id for prefix in passed),
        )

    def add_rollout(
        self, prefix_index: int, rollout: Rollout, ids: tuple[int, ...], decode: Decode
    ) -> RecordedRollout:
        """Add the steps of a rollout to the table, and return the rollout for the estimator.

        Args:
            prefix_index: table index of the prefix from which the rollout starts.
            rollout: sampled rollout.
            ids: token ids of the rollout.
            decode: function that decodes token ids of the completer that sampled the rollout.
        """
        steps = self._split_rollout(prefix_index, rollout, ids, decode)
        path, at, begin = [], prefix_index, 0
        for step in steps[:-1]:
            at = self._find_or_add_child(at, ids[begin : step.end], step.text)
            path.append(at)
            begin = step.end
        ends = (0, *(step.end for step in steps))
        return RecordedRollout(
            prefix=prefix_index,
            outcome=rollout.outcome,
            num_tokens=rollout.num_tokens,
            path=tuple(path),
            step_keys=tuple(make_step_key(step.text) for step in steps),
            step_tokens=tuple(b - a for a, b in pairwise(ends)),
            completer=self.completers[rollout.completer],
        )

    def _split_rollout(
        self, prefix_index: int, rollout: Rollout, ids: Sequence[int], decode: Decode
    ) -> tuple[Step, ...]:
        opened = self._splitter.is_thinking_after(
            self.prefixes[prefix_index].text, prompt_opens_thinking=self._prompt_opens_thinking
        )
        ended = rollout.finish_reason == "stop"
        return self._splitter.split(
            ids, rollout.text, decode, starts_in_thinking=opened, is_complete=ended
        )

    def _add_solution_path(
        self, solution: Solution, commitments: IntermediateOutcomes
    ) -> SolutionPath:
        path, at, begin = [], ROOT, 0
        for step in solution.steps[:-1]:
            at = self._find_or_add_child(at, solution.ids[begin : step.end], step.text)
            path.append(at)
            begin = step.end
        starts = (0, *(step.end for step in solution.steps[:-1]))
        return SolutionPath(
            prefixes=tuple(path),
            outcome=solution.outcome,
            sampled=solution.origin == "sampled" and self._kept_regardless_of_outcome,
            step_tokens=tuple(s.end - a for s, a in zip(solution.steps, starts, strict=True)),
            step_keys=tuple(make_step_key(s.text) for s in solution.steps),
            step_factors=compute_step_factors(self._problem.text, [s.text for s in solution.steps]),
            commitments=commitments,
        )

    def _estimate_needed_tokens(self, solutions: Sequence[Solution]) -> None:
        """Estimate the number of tokens that the policy needs from each prefix to the end.

        The estimate uses the solutions alone. If some solutions through a prefix finished without
        truncation, the need is the median of their remaining tokens after the prefix. If all
        solutions through a prefix were truncated, the need is a median over all solutions, of the
        remaining tokens after the same number of steps. A shorter solution contributes the length
        of its last step. A truncated solution is treated as censored: its need is above its token
        limit. If truncated solutions were left out, the median would be too low.
        """
        remaining = [_count_tokens_after_each_prefix(solution) for solution in solutions]
        ends = [entry.finish_reason for entry in solutions]
        ended = [entry for entry, end in zip(remaining, ends, strict=True) if end == "stop"]
        cuts = [entry[0] for entry, end in zip(remaining, ends, strict=True) if end == "length"]
        took: dict[int, list[int]] = defaultdict(list)
        for path, own, end in zip(self.paths, remaining, ends, strict=True):
            if end == "stop":
                for number, rest in zip(path.prefixes, own[1:], strict=True):
                    took[number].append(rest)
        medians: dict[int, float] = {}
        middle = (len(ended) + len(cuts) - 1) // 2
        for path in self.paths:
            for depth, number in enumerate(path.prefixes, start=1):
                prefix = self.prefixes[number]
                if number in took:
                    prefix.num_tokens_needed = median_low(took[number])
                    continue
                if depth not in medians:
                    rests = sorted(entry[min(depth, len(entry) - 1)] for entry in ended)
                    medians[depth] = rests[middle] if middle < len(rests) else inf
                prefix.num_tokens_needed = min(
                    medians[depth], max(cuts, default=inf) + 1 - prefix.num_tokens
                )

    def _find_or_add_child(self, parent_index: int, ids: tuple[int, ...], text: str) -> int:
        """Return the index of the prefix one step after a prefix; add it if it is new."""
        here = self.prefixes[parent_index]
        if ids not in here.children:
            new = self._make_prefix(here, ids, text)
            # Two solutions may split the same ids into different steps, and so share a prefix.
            if new.id not in self._by_id:
                self._by_id[new.id] = len(self.prefixes)
                self.prefixes.append(new)
            here.children[ids] = self._by_id[new.id]
            here.children_by_text.setdefault(text, here.children[ids])
        return here.children[ids]

    def _make_prefix(self, parent: Prefix | None, ids: tuple[int, ...], text: str) -> Prefix:
        number = len(self.completers)
        before = PrefixHash(self._problem.id) if parent is None else parent.hash
        return Prefix(
            parent=parent,
            step_ids=ids,
            step_text=text,
            hash=before.extend(ids),
            counts=[Counts()] * number,
            num_requested=[0] * number,
        )

    def _find_prefixes_along_token_ids(
        self, start_prefix_index: int, token_ids: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Return the indices of the prefixes that token ids after a prefix pass through."""
        path: list[int] = []
        at, begin = start_prefix_index, 0
        while True:
            ways = self.prefixes[at].children.items()
            step = next((s for s, _ in ways if token_ids[begin : begin + len(s)] == s), None)
            if step is None:
                return tuple(path)
            at = self.prefixes[at].children[step]
            begin += len(step)
            path.append(at)

    def _find_prefixes_along_step_texts(
        self, prefix_index: int, texts: Sequence[str]
    ) -> tuple[int, ...]:
        """Return the indices of the prefixes that the texts of steps after a prefix pass
        through.
        """
        path: list[int] = []
        at = prefix_index
        for text in texts:
            child = self.prefixes[at].children_by_text.get(text)
            if child is None:
                break
            path.append(at := child)
        return tuple(path)


def _count_tokens_after_each_prefix(solution: Solution) -> list[int]:
    """Return the number of remaining tokens of a solution after 0, 1, … steps, without the last."""
    return [len(solution.ids) - end for end in (0, *(step.end for step in solution.steps[:-1]))]


_CORRECTION_PHRASES = re.compile(
    r"\b(?:wait|hold on|hmm+|oops|scratch that|correction|on second thought|my mistake|"
    r"let me (?:fix|correct|redo|try again|start over|go back)|"
    r"i (?:made|see|found|spot|notice) (?:a|an|the|my) (?:mistake|error|slip)|"
    r"(?:that|this|it)(?:'s| is| was| can(?:'t| ?not) be) (?:wrong|not right|incorrect|a mistake)|"
    r"actually,? (?:no|that|it|the)|no, (?:that|it|wait))\b|等等|不对|等一下|我错了|重新",
    re.IGNORECASE,
)
_EQUATION = re.compile(r"([\d.,\s+*/()\u00d7\u00f7-]{3,80})=\s{0,4}(-?\d[\d.,]{0,20})")
_OPERATOR = re.compile(r"\d\s{0,3}[-+*/\u00d7\u00f7]")
MAX_REPAIR_CHARACTERS = 20_000
"""Maximum number of characters that are searched for a repair of the prefix: the first characters
of the completion, since a repair comes early, and the last characters of the prefix."""


def corrects_prefix(completion: str, prefix: str) -> bool:
    """Return whether a completion corrects its prefix.

    A completion does so if it says that something is wrong, or if it contradicts an equation of the
    prefix.

    Args:
        completion: text of a completion that follows the prefix.
        prefix: text of the prefix.
    """
    text = completion[:MAX_REPAIR_CHARACTERS]
    if _CORRECTION_PHRASES.search(text):
        return True
    before = _parse_equations(prefix[-MAX_REPAIR_CHARACTERS:])
    return any(
        before.get(left_side, value) != value for left_side, value in _parse_equations(text).items()
    )


def _parse_equations(text: str) -> dict[str, str]:
    """Return the equations of a text: the value of each arithmetic left side, without spaces."""
    return {
        "".join(left_side.split()): value.rstrip(".,")
        for left_side, value in _EQUATION.findall(text)
        if _OPERATOR.search(left_side)
    }


_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_ANSWER = re.compile(r"\\boxed|\\fbox|####")
_WORD = re.compile(r"\w+")


def make_step_key(text: str) -> str:
    r"""Return a key that is usually equal for steps with equal content.

    `"Ada has 3 * 4 = 12 pens.\n"` and `"So that makes 12 pens (4 times 3)."` have the same key.
    Two spellings of a boxed answer also have the same key. The order of operands does not matter.
    Operators are ignored, because the result usually determines them.

    Args:
        text: text of one step.
    """
    answer = extract_answer(text) if _ANSWER.search(text) else None
    if answer is not None:
        return f"answer {answer_key(answer)}"
    if numbers := _extract_numbers(text):
        return "numbers " + " ".join(sorted(numbers))
    return "words " + " ".join(_WORD.findall(text.casefold()))


RESTATING, REPEATING, MIN_REPEATED = 0.3, 0.1, 0.6
"""Factors of the probability that a step is the first wrong one: of a step that states no new
number, and of such a step if at least the share `MIN_REPEATED` of its words is in the problem.

In ProcessBench's solutions of GSM8K problems, .05 of all steps without a new number are the first
error, .01 of those that repeat the problem, and .17 of the other steps before the last."""


def compute_step_factors(problem: str, steps: Sequence[str]) -> tuple[float, ...]:
    """Return for each step a factor of the prior probability that it is the first wrong one.

    A step states no new number if it has no equals sign, and each of its numbers is in the problem
    or in an earlier step. `"Eva has 3 pens, and Ben has twice as many."` is an example.

    Args:
        problem: text of the problem.
        steps: texts of a solution's steps.
    """
    stated, problem_words = _extract_numbers(problem), set(_WORD.findall(problem.casefold()))
    factors = []
    for step in steps:
        numbers, words, factor = _extract_numbers(step), _WORD.findall(step.casefold()), 1.0
        if "=" not in step and numbers <= stated:
            num_repeated = sum(word in problem_words for word in words)
            factor = REPEATING if num_repeated >= MIN_REPEATED * len(words) else RESTATING
        factors.append(factor)
        stated |= numbers
    return tuple(factors)


def _extract_numbers(text: str) -> set[str]:
    plain = unicodedata.normalize("NFKC", text)
    return {answer_key(number.rstrip(",")) for number in _NUMBER.findall(plain)}
