"""Ways to drive a search, compared on one engine and one PRM.

`search_concurrently` is our way: one coroutine per problem, without a barrier between problems.
`by_levels` waits for all samples of a level before it scores any, and for all scores before the
next level. With one problem at a time and a PRM that reads from the first token, this is the search
of search-and-learn (huggingface/search-and-learn, `search_batch_size: 1`). With all problems at
once, the same search runs without a queue of problems.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mclabel.checkers import make_checker
from mclabel.core.records import Problem
from mclabel.engines import Policy
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.search.config import SearchSettings
from mclabel.search.problem import ProblemSearch, SearchContext, SearchResult, search_problem
from mclabel.search.scorers import StepScorer, make_scorer
from mclabel.search.task import grade_search_result


@dataclass(frozen=True, kw_only=True)
class Way:
    """Measurements of one way of searching."""

    seconds: float
    num_problems: int
    num_tokens: int
    """Number of tokens that the policy sampled."""
    num_scored: int
    """Number of tokens that the PRM computed."""
    scorer_seconds: float
    """Seconds in which the PRM computed, beside the engine."""
    accuracy: float

    @property
    def tokens_per_s(self) -> float:
        """Return policy tokens per second."""
        return self.num_tokens / self.seconds

    @property
    def problems_per_s(self) -> float:
        """Return problems per second."""
        return self.num_problems / self.seconds


async def search_concurrently(
    policy: Policy, settings: SearchSettings, problems: Sequence[Problem]
) -> Way:
    """Search all problems on one engine; no problem waits for another."""
    scorer = await _start_scorer(settings)
    shared = SearchContext(policy=policy, scorer=scorer, settings=settings)
    began = time.perf_counter()
    found = await asyncio.gather(
        *(search_problem(one, shared, priority=i) for i, one in enumerate(problems))
    )
    return await _way(policy, shared, problems, found, time.perf_counter() - began)


async def by_levels(
    policy: Policy, settings: SearchSettings, problems: Sequence[Problem], *, at_a_time: int
) -> Way:
    """Search `at_a_time` problems with a barrier after the samples and the scores of each level."""
    scorer = await _start_scorer(settings)
    shared = SearchContext(policy=policy, scorer=scorer, settings=settings)
    found: list[SearchResult] = []
    began = time.perf_counter()
    for start in range(0, len(problems), at_a_time):
        some = [ProblemSearch(one, shared) for one in problems[start : start + at_a_time]]
        found += await _levels(some)
    return await _way(policy, shared, problems, found, time.perf_counter() - began)


async def _levels(searches: Sequence[ProblemSearch]) -> list[SearchResult]:
    while asked := [
        (search, one.node, number, one.steps)
        for search in searches
        for one in search.method.wanted()
        for number in range(one.count)
    ]:
        pieces = await asyncio.gather(
            *(s.sample_continuation(node, i, steps) for s, node, i, steps in asked)
        )
        arrived = []
        for (search, node, _, _), piece in zip(asked, pieces, strict=True):
            assert piece is not None  # the search has no token limit
            entry, _ = search.tree.add(node, piece)
            arrived.append((search, node, entry.node.id))
        fresh = dict.fromkeys(arrived)
        nodes = dict(
            zip(
                fresh,
                await asyncio.gather(*(s.score_node(p, name) for s, p, name in fresh)),
                strict=True,
            )
        )
        for search, node, name in arrived:
            search.method.record(node, nodes[search, node, name])
    # all searches are complete: this only builds their results
    return [await search.run() for search in searches]


async def _start_scorer(settings: SearchSettings) -> StepScorer:
    scorer = make_scorer(settings.scorer)
    await scorer.start()
    return scorer


async def _way(
    policy: Policy,
    shared: SearchContext,
    problems: Sequence[Problem],
    found: Sequence[SearchResult],
    seconds: float,
) -> Way:
    checker, executor = make_checker(shared.settings.checker), CpuExecutor()
    graded = [
        await grade_search_result(
            problem, policy.prompt_ids(problem.text), one, shared.settings, checker, executor
        )
        for problem, one in zip(problems, found, strict=True)
    ]
    executor.close()
    spent = shared.scorer.seconds if shared.settings.scorer.kind == "prm" else 0.0  # type: ignore[attr-defined]
    await shared.scorer.close()
    return Way(
        seconds=seconds,
        num_problems=len(problems),
        num_tokens=sum(one.cost.num_sampled for one in found),
        num_scored=sum(one.cost.num_scored for one in found),
        scorer_seconds=spent,
        accuracy=sum(one.tree is not None and one.tree.is_chosen_right for one in graded)
        / len(graded),
    )
