"""The distinct prefixes of a problem's solutions, and how rollouts run through them.

Index 0 is the bare problem. A prefix is known by its token ids; a rollout that starts with the
ids that lead from one prefix to another has gone through both, and is a free rollout of the
second. An estimator that searches rollouts has them added step by step.

A rollout from a wrong step that says "Wait, that is wrong" and mends it shows nothing of the step,
though it ends right: a policy that corrects itself recovers from most errors ("Beyond the First
Error", arXiv 2505.14391). It is told by its words, and by equations: the same left side with
another value.

What a step says, so that steps that say the same can be told from their texts.

Two solutions that agree on their next step are evidence for it, often the strongest there is;
where a policy is consistently wrong they are evidence of nothing, which the estimator's priors
must learn. Policies word the same step in many ways, so texts are compared by their result as
the answer checker normalises it, together with the numbers it was made of; a step without a
number by its words.
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
from mclabel.labeling.grading import Commitments

Decode = Callable[[Sequence[int]], str]


@dataclass
class Prefix:
    """One distinct prefix and what was rolled out from it."""

    parent: Prefix | None
    """The prefix one step shorter; None for the bare problem."""
    step_ids: tuple[int, ...]
    """Token ids of its last step: each prefix holds its own step alone, so that memory is linear
    in the solutions' length, not in its product with the number of steps."""
    step_text: str
    hash: PrefixHash
    counts: list[Counts]
    """Counts of rollouts by completer."""
    num_asked: list[int]
    """Number of requested rollouts by completer."""
    children: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Index of the prefix that a step leads to, by the step's ids."""
    children_by_text: dict[str, int] = field(default_factory=dict)
    """The same by the step's text; the first of those whose texts are equal."""
    need: float = 0
    """Number of tokens that the policy usually needs from here to the end of a solution, as far as
    the problem's solutions show it; 0 where they do not."""
    id: str = field(init=False)
    num_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        """Count on from the parent."""
        self.id = self.hash.id
        before = 0 if self.parent is None else self.parent.num_tokens
        self.num_tokens = before + len(self.step_ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """All of its token ids, put together at each call."""
        return tuple(chain.from_iterable(prefix.step_ids for prefix in self._lineage()))

    @property
    def text(self) -> str:
        """All of its text, put together at each call."""
        return "".join(prefix.step_text for prefix in self._lineage())

    def _lineage(self) -> list[Prefix]:
        """The prefixes from the bare problem to this one."""
        lineage, at = [], self
        while at.parent is not None:
            lineage.append(at)
            at = at.parent
        return lineage[::-1]


class PrefixTable:
    """Prefixes by index, and the ways through them."""

    def __init__(
        self,
        problem: Problem,
        solutions: Sequence[Solution],
        *,
        free_outcomes: bool,
        commitments: Sequence[Commitments] | None = None,
        completers: Sequence[str] = (AUTHOR,),
        splitter: StepSplitter | None = None,
        thinks: bool = False,
    ) -> None:
        """Begin with the prefixes of a problem's solutions.

        Args:
            problem: that the prefixes begin with.
            solutions: with at least one step each.
            free_outcomes: whether sampled solutions were not chosen by their outcomes.
            commitments: answers on the way, of each solution; None where nobody looked.
            completers: names of what rolls out. A rollout by another than the author is known to
                go through a prefix by the texts of its steps, as its tokens are others.
            splitter: splitter of rollouts, where they are followed.
            thinks: whether the prompt ends where the thinking of what rolls out begins.
        """
        self.completers = {name: number for number, name in enumerate(completers)}
        self._problem_id, self._splitter = problem.id, splitter or StepSplitter()
        self._thinks, self._free_outcomes = thinks, free_outcomes
        self.prefixes = [self._new(None, (), "")]
        self._by_id = {self.prefixes[ROOT].id: ROOT}
        stated = commitments or [()] * len(solutions)
        self.paths = [
            self._path(solution, own) for solution, own in zip(solutions, stated, strict=True)
        ]
        self._set_needs(solutions)

    def received(self, number: int, rollout: Rollout) -> RecordedRollout:
        """Return what an estimator receives of a rollout from prefix `number` whose way is on
        record.
        """
        ends = (0, *(rollout.step_ends or ()))
        return RecordedRollout(
            prefix=number,
            outcome=rollout.outcome,
            num_tokens=rollout.num_tokens,
            path=tuple(self._by_id[identity] for identity in rollout.through or ()),
            step_keys=tuple(step_key(rollout.text[a:b]) for a, b in pairwise(ends)),
            completer=self.completers[rollout.completer],
            repairs=self._repairs(number, rollout),
        )

    def _repairs(self, number: int, rollout: Rollout) -> bool:
        """Return whether a right rollout goes back on its prefix; of others it does not matter."""
        if rollout.outcome is not Outcome.RIGHT:
            return False
        return contradicts_prefix(rollout.text, self.prefixes[number].text)

    def followed(
        self, number: int, rollout: Rollout, ids: Sequence[int], decode: Decode
    ) -> Rollout:
        """The rollout, with its steps and the prefixes of the table that it went through."""
        steps = self._split(number, rollout, ids, decode)
        if rollout.completer == AUTHOR:
            passed = self._known(number, tuple(ids))
        else:
            passed = self._known_by_text(number, [step.text for step in steps])
        return replace(
            rollout,
            step_ends=tuple(accumulate(len(step.text) for step in steps)),
            through=tuple(self.prefixes[prefix].id for prefix in passed),
        )

    def grown(
        self, number: int, rollout: Rollout, ids: tuple[int, ...], decode: Decode
    ) -> RecordedRollout:
        """Return what an estimator that follows all receives; the table grows by the rollout's
        steps.
        """
        steps = self._split(number, rollout, ids, decode)
        path, at, begin = [], number, 0
        for step in steps[:-1]:
            at = self._step(at, ids[begin : step.end], step.text)
            path.append(at)
            begin = step.end
        ends = (0, *(step.end for step in steps))
        return RecordedRollout(
            prefix=number,
            outcome=rollout.outcome,
            num_tokens=rollout.num_tokens,
            path=tuple(path),
            step_keys=tuple(step_key(step.text) for step in steps),
            step_tokens=tuple(b - a for a, b in pairwise(ends)),
            completer=self.completers[rollout.completer],
        )

    def _split(
        self, number: int, rollout: Rollout, ids: Sequence[int], decode: Decode
    ) -> tuple[Step, ...]:
        opened = self._splitter.thinks_after(self.prefixes[number].text, opened=self._thinks)
        ended = rollout.finish_reason == "stop"
        return self._splitter.split(ids, rollout.text, decode, opened=opened, ended=ended)

    def _path(self, solution: Solution, commitments: Commitments) -> SolutionPath:
        path, at, begin = [], ROOT, 0
        for step in solution.steps[:-1]:
            at = self._step(at, solution.ids[begin : step.end], step.text)
            path.append(at)
            begin = step.end
        starts = (0, *(step.end for step in solution.steps[:-1]))
        return SolutionPath(
            prefixes=tuple(path),
            outcome=solution.outcome,
            sampled=solution.origin == "sampled" and self._free_outcomes,
            step_tokens=tuple(s.end - a for s, a in zip(solution.steps, starts, strict=True)),
            step_keys=tuple(step_key(s.text) for s in solution.steps),
            commitments=commitments,
        )

    def _set_needs(self, solutions: Sequence[Solution]) -> None:
        """Estimate what the policy needs from each prefix, by the solutions alone.

        The solutions that go through a prefix and ended by themselves show it best: the need is the
        median of what they took from there. From a prefix of cut solutions only, it is the median
        over all solutions of what they took after as many steps, of shorter ones the last step. Cut
        ones count there as needing more than their limit leaves: without them, the short solutions
        that fit would speak for all.
        """
        remaining = [_left(solution) for solution in solutions]
        ends = [entry.finish_reason for entry in solutions]
        ended = [entry for entry, end in zip(remaining, ends, strict=True) if end == "stop"]
        cuts = [entry[0] for entry, end in zip(remaining, ends, strict=True) if end == "length"]
        took: dict[int, list[int]] = defaultdict(list)
        for path, own, end in zip(self.paths, remaining, ends, strict=True):
            if end == "stop":
                for number, rest in zip(path.prefixes, own[1:], strict=True):
                    took[number].append(rest)
        usual: dict[int, float] = {}
        middle = (len(ended) + len(cuts) - 1) // 2
        for path in self.paths:
            for depth, number in enumerate(path.prefixes, start=1):
                prefix = self.prefixes[number]
                if number in took:
                    prefix.need = median_low(took[number])
                    continue
                if depth not in usual:
                    rests = sorted(entry[min(depth, len(entry) - 1)] for entry in ended)
                    usual[depth] = rests[middle] if middle < len(rests) else inf
                prefix.need = min(usual[depth], max(cuts, default=inf) + 1 - prefix.num_tokens)

    def _step(self, at: int, ids: tuple[int, ...], text: str) -> int:
        """The prefix one step on, added if it is new."""
        here = self.prefixes[at]
        if ids not in here.children:
            new = self._new(here, ids, text)
            if new.id not in self._by_id:  # or two solutions split the same ids otherwise
                self._by_id[new.id] = len(self.prefixes)
                self.prefixes.append(new)
            here.children[ids] = self._by_id[new.id]
            here.children_by_text.setdefault(text, here.children[ids])
        return here.children[ids]

    def _new(self, parent: Prefix | None, ids: tuple[int, ...], text: str) -> Prefix:
        number = len(self.completers)
        before = PrefixHash(self._problem_id) if parent is None else parent.hash
        return Prefix(
            parent=parent,
            step_ids=ids,
            step_text=text,
            hash=before.after(ids),
            counts=[Counts()] * number,
            num_asked=[0] * number,
        )

    def _known(self, number: int, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Prefixes of the table that these ids run through."""
        path: list[int] = []
        at, begin = number, 0
        while True:
            ways = self.prefixes[at].children.items()
            step = next((s for s, _ in ways if ids[begin : begin + len(s)] == s), None)
            if step is None:
                return tuple(path)
            at = self.prefixes[at].children[step]
            begin += len(step)
            path.append(at)

    def _known_by_text(self, number: int, texts: Sequence[str]) -> tuple[int, ...]:
        """Prefixes of the table that steps of these texts run through, from one on."""
        path: list[int] = []
        at = number
        for text in texts:
            child = self.prefixes[at].children_by_text.get(text)
            if child is None:
                break
            path.append(at := child)
        return tuple(path)


def _left(solution: Solution) -> list[int]:
    """Tokens of a solution after each number of steps, from none to all but the last."""
    ends = (0, *(step.end for step in solution.steps[:-1]))
    return [len(solution.ids) - end for end in ends]


_MARKS = re.compile(
    r"\b(?:wait|hold on|hmm+|oops|scratch that|correction|on second thought|my mistake|"
    r"let me (?:fix|correct|redo|try again|start over|go back)|"
    r"i (?:made|see|found|spot|notice) (?:a|an|the|my) (?:mistake|error|slip)|"
    r"(?:that|this|it)(?:'s| is| was| can(?:'t| ?not) be) (?:wrong|not right|incorrect|a mistake)|"
    r"actually,? (?:no|that|it|the)|no, (?:that|it|wait))\b|等等|不对|等一下|我错了|重新",
    re.IGNORECASE,
)
_EQUATION = re.compile(r"([\d.,\s+*/()\u00d7\u00f7-]{3,80})=\s{0,4}(-?\d[\d.,]{0,20})")
_OPERATOR = re.compile(r"\d\s{0,3}[-+*/\u00d7\u00f7]")
MAX_CHARACTERS = 20_000
"""Maximum number of characters of a completion that are searched for a repair of the prefix, which
comes early if there is one.
"""


def contradicts_prefix(completion: str, prefix: str) -> bool:
    """Return whether a completion says that something before it is wrong, or contradicts an
    equation.

    Args:
        completion: that follows the prefix.
        prefix: prefix of a solution.
    """
    text = completion[:MAX_CHARACTERS]
    if _MARKS.search(text):
        return True
    before = _equations(prefix[-MAX_CHARACTERS:])
    return any(
        before.get(left_side, value) != value for left_side, value in _equations(text).items()
    )


def _equations(text: str) -> dict[str, str]:
    """Values of arithmetic left sides that a text writes, without white space."""
    return {
        "".join(left_side.split()): value.rstrip(".,")
        for left_side, value in _EQUATION.findall(text)
        if _OPERATOR.search(left_side)
    }


_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_ANSWER = re.compile(r"\\boxed|\\fbox|####")
_WORD = re.compile(r"\w+")


def step_key(text: str) -> str:
    r"""The same for steps that say the same, as far as this can be seen.

    `"Ada has 3 * 4 = 12 pens.\n"` and `"So that makes 12 pens (4 times 3)."` have one key, so
    have two spellings of a boxed answer. Operands may change places; an operation is told by
    its result.

    Args:
        text: one step.
    """
    answer = extract_answer(text) if _ANSWER.search(text) else None
    if answer is not None:
        return f"answer {answer_key(answer)}"
    numbers = [
        answer_key(n.rstrip(",")) for n in _NUMBER.findall(unicodedata.normalize("NFKC", text))
    ]
    if numbers:
        return "numbers " + " ".join(sorted(set(numbers)))
    return "words " + " ".join(_WORD.findall(text.casefold()))
