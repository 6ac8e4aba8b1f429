"""The pool of solutions, the rules that rank its solutions, and the selection of some of them with
known sampling probabilities.

`mclabel.select.job` reads a pool and its scores, ranks the solutions by a `Rule`, and calls
`choose_solutions`. `mclabel.core.stats.pool` uses the probabilities to estimate statistics of the
whole pool.
"""

from __future__ import annotations

import hashlib
import inspect
import json
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
from mclabel.data.readers.judged import parse_answer_right
from mclabel.data.readers.solutions import SelectionManifest, hash_solution_text
from mclabel.prm.scoring.items import FILES, SolutionItem, read_file_items
from mclabel.run.shards.labels import iter_label_tables
from mclabel.run.shards.store import Store


class PoolRow(NamedTuple):
    """A solution of a pool."""

    id: str
    """Id of the solution in its run. In a file, the 1-based number of its row."""
    problem_id: str
    """Id of the problem, or a hash of its text if the file has no `problem_id`."""
    text_id: str
    """Hash of the texts of the problem and the solution."""
    outcome: Outcome | None
    """Outcome of the solution; None if it is unknown."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool of solutions, in the order of their ids."""

    rows: list[PoolRow]
    problems: NDArray[np.int64]
    """0-based index of each solution's problem, `[num_solutions]`."""
    left_out: frozenset[str] = frozenset()
    """`text_id` of each solution that earlier selections chose. Such solutions are not in the
    pool."""

    @property
    def id(self) -> str:
        """Hash of the pool's content. It does not depend on the order in which rows are read."""
        return content_id("pool", [(row.id, row.text_id, row.outcome) for row in self.rows])

    @property
    def num_problems(self) -> int:
        """Number of distinct problems."""
        return int(self.problems.max()) + 1

    @property
    def is_wrong(self) -> NDArray[np.bool_]:
        """True for solutions whose answer is wrong or ungraded, `[num_solutions]`."""
        wrong = (Outcome.WRONG, Outcome.UNGRADED)
        return np.array([row.outcome in wrong for row in self.rows], dtype=bool)


def read_pool(source: str, exclude: Sequence[SelectionManifest] = ()) -> Pool:
    """Read the solutions of a file or a labelling run.

    Args:
        source: file, or folder or URL of a run.
        exclude: earlier selections. Solutions with the same texts as theirs are left out.

    Raises:
        DataError: the file cannot be read or has no usable solution, or all solutions are left out.
        ShardError: the run has no labels, or they are damaged.
    """
    unsorted_rows = _iter_file_rows(source) if is_solution_file(source) else _iter_run_rows(source)
    left_out = frozenset(
        text_id for selected in exclude for text_id in selected.text_hashes.values()
    )
    all_rows = sorted(unsorted_rows, key=lambda row: row.id)
    rows = [row for row in all_rows if row.text_id not in left_out]
    if all_rows and not rows:
        raise DataError(
            f"{source}: all of its solutions are in the manifests of exclude, so none is left. "
            "Give a larger pool"
        )
    if not rows:
        raise DataError(
            f"{source}: holds no solutions with a problem and steps. Give a file with problem and "
            "solution in each row, or a run of mclabel label"
        )
    problem_indices: dict[str, int] = {}
    problems = [problem_indices.setdefault(row.problem_id, len(problem_indices)) for row in rows]
    return Pool(rows=rows, problems=np.array(problems, dtype=np.int64), left_out=left_out)


def is_solution_file(source: str) -> bool:
    """Return whether a source is a file of solutions, not a run."""
    return source.endswith(FILES)


def parse_outcome(row: Mapping[str, Any], location: str) -> Outcome | None:
    """Return the outcome from a row's `outcome` or `final_answer_correct`; None if unknown.

    Raises:
        DataError: a column has a value that is not allowed.
    """
    try:
        outcome = row.get("outcome")
        if outcome not in (None, ""):
            return Outcome(outcome)
        is_right = parse_answer_right(row.get("final_answer_correct"))
    except ValueError as error:
        names = ", ".join(Outcome)
        raise DataError(
            f"{location}: {error}. Give outcome ({names}) or final_answer_correct (true, false)"
        ) from error
    return None if is_right is None else Outcome.RIGHT if is_right else Outcome.WRONG


def hash_item_text(item: SolutionItem) -> str:
    """Return the hash of the texts of a problem and its solution."""
    return hash_solution_text(
        item.problem, item.steps if isinstance(item.steps, str) else "".join(item.steps)
    )


def _iter_file_rows(source: str) -> Iterator[PoolRow]:
    for item in read_file_items(source):
        if not isinstance(item, SolutionItem):
            continue  # scoring and labelling leave out such rows, too
        row = json.loads(item.row)
        problem_id = row.get("problem_id")
        yield PoolRow(
            item.id,
            content_id("problem", item.problem) if problem_id in (None, "") else str(problem_id),
            hash_item_text(item),
            parse_outcome(row, item.place),
        )


def _iter_run_rows(source: str) -> Iterator[PoolRow]:
    columns = ["solution_id", "problem_id", "problem", "solution", "outcome"]
    for _, table in iter_label_tables(Store(source)):
        table = table.filter(pc.greater(pc.list_value_length(table["steps"]), 0))
        for row in table.select(columns).to_pylist():
            text_id = hash_solution_text(row["problem"], row["solution"])
            yield PoolRow(row["solution_id"], row["problem_id"], text_id, Outcome(row["outcome"]))


Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class ChosenSolutions:
    """Selected solutions, as 0-based positions in the pool."""

    certain: Ints
    """Positions of the solutions that the rule chose, best first; their probability is 1."""
    drawn: Ints
    """Positions of the solutions that were drawn uniformly, in increasing order."""
    probability: float
    """Probability with which each solution that the rule did not choose was drawn; 1.0 if all of
    these solutions were drawn."""


def compute_uniform_part(budget: int, uniform_share: float) -> int:
    """Return the size of the uniform part of a budget: at least 1 if the share is above 0."""
    return 0 if uniform_share == 0 else min(budget, max(1, round(uniform_share * budget)))


def choose_solutions(
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
) -> ChosenSolutions:
    """Choose solutions: the best ones by a rule's ranking, and others uniformly at random.

    The budget N has two parts. The first k solutions of the rule's ranking are chosen with
    probability 1. The uniform part of m = N - k solutions is drawn without replacement from the
    other M - k solutions of the pool, with or without scores. Each of these has the probability
    m / (M - k). So the whole budget is used. If `uniform_share` > 0, then m is at least 1, and no
    probability is 0.

    Problems take turns in the ranking. First comes the best solution of each problem, in the order
    of the keys, then the second best solution of each problem, and so on.

    Args:
        ids: distinct ids of the pool's solutions.
        problems: 0-based index of each solution's problem.
        keys: ranking key of each solution; the highest keys are chosen first. NaN if the rule
            cannot rank a solution.
        is_wrong: True for solutions whose answer is wrong or ungraded.
        budget: number of solutions to choose, in 1..M, where M is the size of the pool.
        uniform_share: fraction of the budget that is drawn uniformly, in [0, 1].
        seed: random seed of the draw and of the order of equal keys.
        wrong_share: fraction of wrong or ungraded answers among the k solutions that the rule
            chooses. If there are too few of them, or of the others, the rest is filled up with the
            other kind. None ranks by keys alone.
        per_problem: maximum number of solutions that the rule chooses from one problem; None for no
            limit.

    Raises:
        DataError: the rule can rank too few solutions.
    """
    num_random = compute_uniform_part(budget, uniform_share)
    num_by_rule = budget - num_random
    ranked = np.flatnonzero(~np.isnan(keys))
    _, key_indices, counts = np.unique(keys[ranked], return_inverse=True, return_counts=True)
    is_tied, tie_hashes = counts[key_indices] > 1, np.zeros(len(ranked), dtype=np.uint64)
    tie_hashes[is_tied] = _hash_solutions_at_positions(seed, "tie", ids, ranked[is_tied])
    ranked = ranked[np.lexsort((tie_hashes, -keys[ranked]))]
    certain = _choose_best_ranked(ranked, problems, is_wrong, num_by_rule, wrong_share, per_problem)
    if len(certain) < num_by_rule:
        limit_note = (
            f" with at most {per_problem} from a problem" if per_problem is not None else ""
        )
        raise DataError(
            f"budget={budget}: the rule is to choose {num_by_rule:,} solutions, but of "
            f"{len(ids):,} in the pool it ranks {len(ranked):,} and can choose "
            f"{len(certain):,}{limit_note}. Lower budget, or raise uniform_share or per_problem"
        )
    not_certain = np.setdiff1d(np.arange(len(ids)), certain)
    # Solutions with the smallest hashes of seed and id are drawn, so the order has no influence.
    hashes = _hash_solutions_at_positions(seed, "draw", ids, not_certain)
    return ChosenSolutions(
        certain=certain,
        drawn=np.sort(not_certain[np.argsort(hashes, kind="stable")[:num_random]]),
        probability=num_random / len(not_certain) if len(not_certain) else 1.0,
    )


def _choose_best_ranked(
    ranked: Ints,
    problems: Ints,
    is_wrong: Flags,
    count: int,
    wrong_share: float | None,
    per_problem: int | None,
) -> Ints:
    """Return the positions in the pool of at most `count` solutions that the rule chooses.

    The arguments are those of `choose_solutions`; `ranked` holds positions, best first.
    """
    num_chosen = np.zeros(int(problems.max()) + 1, dtype=np.int64)
    if wrong_share is None:
        return _take_from_problems_in_turns(ranked, problems, num_chosen, count, per_problem)
    ranked_wrong, ranked_others = ranked[is_wrong[ranked]], ranked[~is_wrong[ranked]]
    chosen_wrong = _take_from_problems_in_turns(
        ranked_wrong, problems, num_chosen, round(wrong_share * count), per_problem
    )
    chosen_others = _take_from_problems_in_turns(
        ranked_others, problems, num_chosen, count - len(chosen_wrong), per_problem
    )
    remaining_wrong = ranked_wrong[~np.isin(ranked_wrong, chosen_wrong)]
    further_wrong = _take_from_problems_in_turns(
        remaining_wrong,
        problems,
        num_chosen,
        count - len(chosen_wrong) - len(chosen_others),
        per_problem,
    )
    return np.concatenate([chosen_wrong, chosen_others, further_wrong])


def _take_from_problems_in_turns(
    ranked: Ints, problems: Ints, num_chosen: Ints, count: int, per_problem: int | None
) -> Ints:
    """Return the first positions of a ranking in which problems take turns.

    The best solution of each problem comes first, then the second best of each, and so on.

    Args:
        ranked: positions of solutions in the pool, best first.
        problems: 0-based index of the problem of each solution in the pool.
        num_chosen: number of solutions chosen so far from each problem; increased in place.
        count: maximum number of solutions to return.
        per_problem: maximum number per problem, including those in `num_chosen`; None for no limit.
    """
    by_problem = np.argsort(problems[ranked], kind="stable")
    sorted_problems = problems[ranked[by_problem]]
    turns = np.empty(len(ranked), dtype=np.int64)
    turns[by_problem] = (
        num_chosen[sorted_problems]
        + np.arange(len(sorted_problems))
        - np.searchsorted(sorted_problems, sorted_problems)
    )
    order = np.argsort(turns, kind="stable")
    if per_problem is not None:
        order = order[turns[order] < per_problem]
    chosen = ranked[order[:count]]
    np.add.at(num_chosen, problems[chosen], 1)
    return chosen


def _hash_solutions_at_positions(
    seed: int, purpose: str, ids: Sequence[str], positions: Ints
) -> NDArray[np.uint64]:
    prefix = f"select:{seed}:{purpose}:"
    digests = (
        hashlib.sha256((prefix + ids[position]).encode()).digest()
        for position in positions.tolist()
    )
    return np.frombuffer(b"".join(digest[:8] for digest in digests), dtype=">u8").astype(np.uint64)


COMPONENT_KIND = "selections"
"""Name of this kind of component in the entry points by which other packages add rules."""
RULE_PARAMETERS = ("problem", "solution", "steps", "scores", "score", "outcome")
"""Parameter names that the function of a third-party rule may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSolution:
    """A solution of the pool with its PRM scores, from which a rule computes its ranking key."""

    location: str
    """File and row of the solution, or its id, for messages."""
    problem: str
    steps: tuple[str, ...]
    scores: tuple[float, ...]
    """Score of each step, in [0, 1]."""
    score: float
    """Score of the whole solution, aggregated from the scores of its steps."""
    outcome: Outcome | None
    """Outcome of the solution; None if it is unknown."""

    @property
    def solution(self) -> str:
        """Text of the solution."""
        return "".join(self.steps)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rule that ranks the solutions of a pool by how useful their labels would be."""

    key: Callable[[ScoredSolution], float] | None
    """Function that returns the ranking key of a solution; the highest keys are chosen first. None
    chooses at random, without scores."""
    wrong_share: float | None = None
    """Fraction of wrong or ungraded answers among the solutions that the rule chooses, if the pool
    has enough. None ranks by keys alone."""


UNIFORM = Rule(key=None)
# Convincing wrong answers, from "Let's Verify Step by Step" (arXiv 2305.20050, section 4.2). 80% of
# the choices are the wrong answers with the highest scores; the others are the best right answers.
# The paper ranks 1,000 samples of each problem separately; here all problems share one budget and
# take turns.
CONVINCING = Rule(key=lambda row: row.score, wrong_share=0.8)


def find_rule(name: str) -> Rule:
    """Return the rule with a name, or a rule that ranks by a third-party function.

    Args:
        name: name of a rule, or `module:function`.

    Raises:
        ConfigError: the rule is unknown, or the function has a parameter that gets no value.
    """
    target = find_target(COMPONENT_KIND, name)
    if isinstance(target, Rule):
        return target
    if not callable(target) or isinstance(target, type):
        raise ConfigError(f"rule={name}: must be a function. Give module:function")
    return Rule(key=_make_key_function(name, target))


def _make_key_function(
    name: str, function: Callable[..., Any]
) -> Callable[[ScoredSolution], float]:
    parameters = inspect.signature(function).parameters.values()
    accepts_any_keyword = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    named_parameters = [
        parameter
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    unknown_names = [
        parameter.name
        for parameter in named_parameters
        if parameter.name not in RULE_PARAMETERS and parameter.default is parameter.empty
    ]
    if unknown_names or any(
        parameter.kind is parameter.POSITIONAL_ONLY for parameter in named_parameters
    ):
        raise ConfigError(
            f"rule={name}: its parameter {', '.join(unknown_names) or 'before /'} gets no value. "
            f"Use only parameters among {', '.join(RULE_PARAMETERS)}"
        )
    passed_names = (
        RULE_PARAMETERS
        if accepts_any_keyword
        else [parameter.name for parameter in named_parameters if parameter.name in RULE_PARAMETERS]
    )
    boundary = Boundary(COMPONENT_KIND, name)

    def compute_key(solution: ScoredSolution) -> float:
        arguments = {parameter: getattr(solution, parameter) for parameter in passed_names}
        value: float = boundary.call(
            (f"for {solution.location}, the function"),
            function,
            result_type=FiniteFloat,
            **arguments,
        )
        return float(value)

    return compute_key


def make_scored_solution(
    location: str,
    problem: str,
    steps: tuple[str, ...],
    row: Mapping[str, Any],
    outcome: Outcome | None,
    aggregate_scores: Callable[[Sequence[float]], float],
) -> ScoredSolution:
    """Make the record of a solution from its texts and the scores in its row.

    Args:
        location: file and row of the solution, or its id, for messages.
        problem: text of the problem.
        steps: texts of the solution's steps.
        row: row with `scores`.
        outcome: outcome of the solution; None if it is unknown.
        aggregate_scores: function that aggregates the scores of the steps.

    Raises:
        DataError: the row has no scores, or invalid scores.
    """
    scores = row.get("scores")
    if (
        not isinstance(scores, list | tuple)
        or not scores
        or not all(type(score) in (int, float) and 0 <= score <= 1 for score in scores)
    ):
        raise DataError(
            f"{location}: scores={scores!r}: must be numbers from 0 to 1, one for each "
            "step. Give the output of `mclabel score`"
        )
    return ScoredSolution(
        location=location,
        problem=problem,
        steps=steps,
        scores=tuple(map(float, scores)),
        score=aggregate_scores(scores),
        outcome=outcome,
    )
