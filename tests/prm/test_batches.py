"""Batches of solutions: an unusable answer of a server fails only its own solution."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mclabel.core.errors import UnusableResponse
from mclabel.prm.examples.encode import EncodedSolution
from mclabel.prm.scoring.batched import ScoreQueue


def test_a_bad_answer_leaves_the_others_of_its_batch() -> None:
    solutions = [EncodedSolution(ids=(n,), num_prompt=0, positions=(0,)) for n in range(5)]
    sizes: list[int] = []

    def score(batch: Sequence[EncodedSolution]) -> list[list[float]]:
        sizes.append(len(batch))
        if any(solution.ids == (3,) for solution in batch):
            raise UnusableResponse("its response lacks data")
        return [[solution.ids[0] / 10] for solution in batch]

    async def run() -> list[list[float] | BaseException]:
        batches = ScoreQueue(score, max_tokens=100)
        batches.num_coming = 1  # holds the batch back until all solutions are queued
        tasks = [asyncio.create_task(batches.score(solution)) for solution in solutions]
        await asyncio.sleep(0)
        batches.num_coming = 0
        try:
            return await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            batches.close()

    results = asyncio.run(run())
    assert sizes == [5, 1, 1, 1, 1, 1]
    assert [result for result in results if not isinstance(result, BaseException)] == [
        [0.0],
        [0.1],
        [0.2],
        [0.4],
    ]
    with pytest.raises(UnusableResponse, match="lacks data"):
        raise results[3]  # type: ignore[misc]
