"""The pool that solutions are chosen from, and their choice, each with an exact probability.

A budget of N is split in two. The rule's part takes the first k of its ranking, which depends on
pool and scores alone: these are *certain*, with probability 1. The uniform part, m = N - k, is
drawn without replacement from the M - k others, each set of m alike: every one of them has
probability m / (M - k), also those that have no score. The two parts never overlap, so that all of
the budget is used, and the probabilities are exact given the pool and its scores; as m is at least
1 whenever the uniform share is above 0, none is 0. `mclabel.core.stats.pool` estimates from them.

The draw takes the m smallest of the hashes of (seed, solution): it is the same in whatever order
the solutions come. Ties of a ranking are broken by hashes, too.

Rules rank the solutions of a pool by how much their labels are worth. `CONVINCING` is the selection
of "Let's Verify Step by Step" (arXiv 2305.20050, section 4.2): of what it takes, 80% are wrong
answers with the highest scores, the rest are the best of all others. The paper ranks 1,000 samples
of each problem alone; here one budget is shared, and problems take turns (`choose`). `UNCERTAIN`
ranks by what the PRM does not know, as ActPRM (arXiv 2504.10559) does with thresholds; ours needs
no ensemble, and none. A function of one's own ranks by what it returns.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import FiniteFloat

from mclabel.core.boundary import Boundary
from mclabel.core.components import find_target
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import Outcome
from mclabel.core.seeds import content_id
from mclabel.data.readers.judged import answer_right_of
from mclabel.data.readers.solutions import Selected, text_id
from mclabel.prm.scoring.items import FILES, SolutionItem, file_items
from mclabel.run.shards.labels import label_tables
from mclabel.run.shards.store import Store


class PoolRow(NamedTuple):
    """A solution of a pool."""

    id: str
    """Id in a run; in a file the number of the row, from 1."""
    problem_id: str
    """Of a file without `problem_id`, a hash of the problem's text."""
    text_id: str
    outcome: Outcome | None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool, in the order of its ids."""

    rows: list[PoolRow]
    problems: NDArray[np.int64]
    """Number of the problem of each solution."""
    left_out: frozenset[str] = frozenset()
    """By their `text_id`, solutions that earlier selections have chosen."""

    @property
    def id(self) -> str:
        """A hash of what is in it, in whatever order it was read."""
        return content_id("pool", [(row.id, row.text_id, row.outcome) for row in self.rows])

    @property
    def num_problems(self) -> int:
        """Number of distinct problems."""
        return int(self.problems.max()) + 1

    @property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Of each solution, whether its answer is wrong or ungraded."""
        wrong = (Outcome.WRONG, Outcome.UNGRADED)
        return np.array([row.outcome in wrong for row in self.rows], dtype=bool)


def read_pool(source: str, without: Sequence[Selected] = ()) -> Pool:
    """The solutions of a file or a labelling run.

    Args:
        source: as `mclabel score` takes it.
        without: earlier selections, whose solutions, and those of the same text, are left out.

    Raises:
        DataError: the file cannot be read, or has no solution that can be used.
        ShardError: the run has no labels, or they are damaged.
    """
    found = _file_rows(source) if is_file(source) else _run_rows(source)
    gone = frozenset(text for one in without for text in one.texts.values())
    read = sorted(found, key=lambda row: row.id)
    rows = [row for row in read if row.text_id not in gone]
    if read and not rows:
        raise DataError(f"{source}: exclude leaves nothing of it. Give a larger pool")
    if not rows:
        raise DataError(
            f"{source}: holds no solutions with a problem and steps. Give a file with problem and "
            "solution in each row, or a run of mclabel label"
        )
    numbers: dict[str, int] = {}
    problems = [numbers.setdefault(row.problem_id, len(numbers)) for row in rows]
    return Pool(rows=rows, problems=np.array(problems, dtype=np.int64), left_out=gone)


def is_file(source: str) -> bool:
    """Return whether a source is a file of solutions, and no run."""
    return source.endswith(FILES)


def outcome_of(row: Mapping[str, Any], place: str) -> Outcome | None:
    """How a solution ended, by its row's `outcome` or `final_answer_correct`; None if unknown.

    Raises:
        DataError: the columns hold something else.
    """
    try:
        said = row.get("outcome")
        if said not in (None, ""):
            return Outcome(said)
        right = answer_right_of(row.get("final_answer_correct"))
    except ValueError as error:
        words = ", ".join(Outcome)
        raise DataError(
            f"{place}: {error}. Give outcome ({words}) or final_answer_correct (true, false)"
        ) from error
    return None if right is None else Outcome.RIGHT if right else Outcome.WRONG


def text_id_of(item: SolutionItem) -> str:
    """The `text_id` of a solution that was read from a file or from scores."""
    return text_id(item.problem, item.steps if isinstance(item.steps, str) else "".join(item.steps))


def _file_rows(source: str) -> Iterator[PoolRow]:
    for item in file_items(source):
        if not isinstance(item, SolutionItem):
            continue  # what scoring, and labelling, leave out, too
        row = json.loads(item.row)
        named = row.get("problem_id")
        yield PoolRow(
            item.id,
            content_id("problem", item.problem) if named in (None, "") else str(named),
            text_id_of(item),
            outcome_of(row, item.place),
        )


def _run_rows(source: str) -> Iterator[PoolRow]:
    columns = ["solution_id", "problem_id", "problem", "solution", "outcome"]
    for _, table in label_tables(Store(source)):
        table = table.filter(pc.greater(pc.list_value_length(table["steps"]), 0))
        for row in table.select(columns).to_pylist():
            text = text_id(row["problem"], row["solution"])
            yield PoolRow(row["solution_id"], row["problem_id"], text, Outcome(row["outcome"]))


Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What was chosen, by places in the pool."""

    certain: Ints
    """Places of those that the rule chose, in its order."""
    drawn: Ints
    """Places of those that were drawn uniformly, in order."""
    probability: float
    """Chance with which each of the others was drawn; 1.0 if all were."""


def num_drawn(budget: int, uniform_share: float) -> int:
    """Size of the uniform part of a budget: at least 1 unless the share is 0."""
    if uniform_share == 0:
        return 0
    return min(budget, max(1, round(uniform_share * budget)))


def choose(
    ids: Sequence[str],
    problems: Ints,
    keys: NDArray[np.float64],
    is_wrong: Flags,
    *,
    budget: int,
    uniform_share: float,
    seed: int,
    wrong_share: float | None,
    per_problem: int | None,
) -> Chosen:
    """Choose solutions.

    Problems take turns: each gives its best solution, the best of these first, then its second
    best, and so on; so none takes all while others have any left.

    Args:
        ids: of the pool's solutions, distinct.
        problems: of each, the number of its problem.
        keys: of each by the rule, higher is chosen first; NaN where it has none.
        is_wrong: of each, whether its answer is wrong or ungraded.
        budget: solutions to choose, in 1..M.
        uniform_share: share of it that is drawn uniformly.
        seed: of the draw.
        wrong_share: share of the rule's part that `is_wrong`, filled up by others and the other way
            round; None looks at keys alone.
        per_problem: most that the rule takes of a problem; None for no limit beside the turns.

    Raises:
        DataError: the rule can rank too few solutions.
    """
    num_random = num_drawn(budget, uniform_share)
    wanted = budget - num_random
    ranked = np.flatnonzero(~np.isnan(keys))
    _, place, counts = np.unique(keys[ranked], return_inverse=True, return_counts=True)
    is_tied, ties = counts[place] > 1, np.zeros(len(ranked), dtype=np.uint64)
    ties[is_tied] = _hashes(seed, "tie", ids, ranked[is_tied])
    ranked = ranked[np.lexsort((ties, -keys[ranked]))]
    certain = _certain(ranked, problems, is_wrong, wanted, wrong_share, per_problem)
    if len(certain) < wanted:
        limit = f", {per_problem} of a problem at most" if per_problem is not None else ""
        raise DataError(
            f"budget={budget}: the rule is to choose {wanted:,} solutions, but of {len(ids):,} in "
            f"the pool it ranks {len(ranked):,} and can take {len(certain):,}{limit}. Lower "
            "budget, or raise uniform_share or per_problem"
        )
    others = np.setdiff1d(np.arange(len(ids)), certain)
    hashes = _hashes(seed, "draw", ids, others)
    drawn = np.sort(others[np.argsort(hashes, kind="stable")[:num_random]])
    return Chosen(
        certain=certain,
        drawn=drawn,
        probability=num_random / len(others) if len(others) else 1.0,
    )


def _certain(
    ranked: Ints,
    problems: Ints,
    is_wrong: Flags,
    count: int,
    wrong_share: float | None,
    per_problem: int | None,
) -> Ints:
    """The solutions that a rule takes, in its order."""
    used = np.zeros(int(problems.max()) + 1, dtype=np.int64)
    if wrong_share is None:
        return _in_turns(ranked, problems, used, count, per_problem)
    wrong, rest = ranked[is_wrong[ranked]], ranked[~is_wrong[ranked]]
    first = _in_turns(wrong, problems, used, round(wrong_share * count), per_problem)
    second = _in_turns(rest, problems, used, count - len(first), per_problem)
    left = np.setdiff1d(wrong, first)
    left = wrong[np.isin(wrong, left)]  # in their order
    third = _in_turns(left, problems, used, count - len(first) - len(second), per_problem)
    return np.concatenate([first, second, third])


def _in_turns(
    ranked: Ints, problems: Ints, used: Ints, count: int, per_problem: int | None
) -> Ints:
    """The first of a ranking in which problems take turns.

    Args:
        ranked: places, best first.
        problems: of each place, the number of its problem.
        used: of each problem, how many were taken; counted on.
        count: to take at most.
        per_problem: most of a problem, with those that were taken before.
    """
    together = np.argsort(problems[ranked], kind="stable")
    own = problems[ranked[together]]
    turns = np.empty(len(ranked), dtype=np.int64)
    turns[together] = used[own] + np.arange(len(own)) - np.searchsorted(own, own)
    order = np.argsort(turns, kind="stable")
    if per_problem is not None:
        order = order[turns[order] < per_problem]
    taken = ranked[order[:count]]
    np.add.at(used, problems[taken], 1)
    return taken


def _hashes(seed: int, what: str, ids: Sequence[str], places: Ints) -> NDArray[np.uint64]:
    start = f"select:{seed}:{what}:"
    digests = (hashlib.sha256((start + ids[one]).encode()).digest() for one in places.tolist())
    return np.frombuffer(b"".join(one[:8] for one in digests), dtype=">u8").astype(np.uint64)


KIND = "selections"
GIVEN = ("problem", "solution", "steps", "scores", "score", "outcome")
"""Names of parameters that a function of one's own may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSolution:
    """A solution of the pool with its scores."""

    place: str
    """Names it in messages."""
    problem: str
    steps: tuple[str, ...]
    scores: tuple[float, ...]
    """One a step, in [0, 1]."""
    score: float
    """Score of the whole solution."""
    outcome: Outcome | None
    """How it ended; None if the pool does not say."""

    @property
    def solution(self) -> str:
        """Its text."""
        return "".join(self.steps)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How solutions are ranked."""

    key: Callable[[ScoredSolution], float] | None
    """A number for a solution, higher is chosen first. None chooses at random, without scores."""
    wrong_share: float | None = None
    """Share of what the rule takes that are wrong or ungraded answers, if there are enough."""


def entropy_of_first_error(scores: tuple[float, ...]) -> float:
    """Entropy, in nats, of where the first error is, or that there is none.

    The scores are taken for the chances that a step is right given that all before it are.
    """
    sound, total = 1.0, 0.0
    for score in scores:
        total -= _x_log_x(sound * (1 - score))
        sound *= score
    return total - _x_log_x(sound)


def _x_log_x(x: float) -> float:
    return x * math.log(x) if x > 0 else 0.0


UNIFORM = Rule(key=None)
CONVINCING = Rule(key=lambda row: row.score, wrong_share=0.8)
UNCERTAIN = Rule(key=lambda row: entropy_of_first_error(row.scores))


def find_rule(name: str) -> Rule:
    """The rule of a name, or one that calls the function `module:function`.

    Raises:
        ConfigError: there is none, or the function takes what no solution has.
    """
    target = find_target(KIND, name)
    if isinstance(target, Rule):
        return target
    if not callable(target) or isinstance(target, type):
        raise ConfigError(f"rule={name}: must be a function. Give module:function")
    return Rule(key=_of_function(name, target))


def _of_function(name: str, function: Callable[..., Any]) -> Callable[[ScoredSolution], float]:
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    unknown = [p.name for p in named if p.name not in GIVEN and p.default is p.empty]
    if unknown or any(p.kind is p.POSITIONAL_ONLY for p in named):
        raise ConfigError(
            f"rule={name}: its parameter {', '.join(unknown) or 'before /'} gets no value. Use "
            f"only parameters among {', '.join(GIVEN)}"
        )
    names = GIVEN if takes_all else [p.name for p in named if p.name in GIVEN]
    around = Boundary(KIND, name)

    def key(row: ScoredSolution) -> float:
        given = {one: getattr(row, one) for one in names}
        method = f"for {row.place}, the function"
        found: float = around.call(method, function, must=FiniteFloat, **given)
        return float(found)

    return key


def scored_solution(
    place: str,
    problem: str,
    steps: tuple[str, ...],
    row: Mapping[str, Any],
    outcome: Outcome | None,
    how: Callable[[tuple[float, ...]], float],
) -> ScoredSolution:
    """A solution with the scores in its row.

    Args:
        place: names it in messages.
        problem: its text.
        steps: texts of its steps.
        row: with `scores`.
        outcome: how it ended; None if the pool does not say.
        how: makes one score of those of the steps.

    Raises:
        DataError: the row has no scores, or such as are none.
    """
    scores = _numbers(place, row, "scores")
    if not scores or not all(0 <= score <= 1 for score in scores):
        raise DataError(
            f"{place}: scores={row.get('scores')!r}: must be numbers from 0 to 1, one a step. Give "
            "what `mclabel score` has written"
        )
    return ScoredSolution(
        place=place,
        problem=problem,
        steps=steps,
        scores=scores,
        score=how(scores),
        outcome=outcome,
    )


def _numbers(place: str, row: Mapping[str, Any], name: str) -> tuple[float, ...]:
    found = row.get(name)
    numbers: list[Any] = list(found) if isinstance(found, list | tuple) else [None]
    if not all(type(one) in (int, float) and math.isfinite(one) for one in numbers):
        raise DataError(
            f"{place}: {name}={found!r}: must be a list of finite numbers, one a step. Give what "
            "`mclabel score` has written"
        )
    return tuple(map(float, numbers))
