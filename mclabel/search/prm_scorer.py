"""A trained PRM as the scorer of a search: in this process, or served.

Where policy and PRM share their tokens, and the PRM computes in this process, only new tokens are
computed. Else a beginning is read as text from its first token every time, and the cost says so.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mclabel.core.errors import DataError, EngineDied
from mclabel.core.settings import MAX_CORES, MAX_COUNT, OPERATIONAL
from mclabel.engines.devices import EngineResources
from mclabel.engines.pretrained import check_weights, code_allowed_by
from mclabel.judge.generative import known_prm
from mclabel.prm.scoring import GENERATIVE, OWN_FORMAT
from mclabel.prm.scoring.aggregate import UnscoredError, check_scores
from mclabel.prm.scoring.manifest import model_folder
from mclabel.prm.scoring.score import estimate_steps
from mclabel.prm.scoring.scorer import Scorer, ScorerSettings, close_scorer, load_scorer
from mclabel.search.scorers import Beginning, Scored, StepScorer, StepScorerSettings

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.incremental import IncrementalPRM

GIB = 2**30
_ALLOWS_CODE = "scorer.trust_remote_code=true"
MAX_TOGETHER = 1024
"""Beginnings of a batch, at most; the scorer cuts it to what fits its memory."""


class PrmScorer(StepScorer):
    """Scores steps with a PRM of any format."""

    class Settings(StepScorerSettings, ScorerSettings):
        """A trained PRM."""

        cache_gib: Annotated[float, OPERATIONAL] = Field(4.0, gt=0, le=MAX_COUNT)
        """Memory for the cache of prefixes, in GiB."""
        threads: Annotated[int, OPERATIONAL] = Field(1, ge=1, le=MAX_CORES)
        """CPU threads of a PRM in this process."""

    settings: Settings

    def __init__(self, settings: Settings) -> None:
        """Prepare to score; see `StepScorer`."""
        super().__init__(settings)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prm")
        self._scorer: Any = None
        self._incremental: IncrementalPRM | None = None
        self.seconds = 0.0
        """Time that the PRM has computed."""
        self._waiting: list[tuple[Beginning, asyncio.Future[Scored]]] = []
        self._running: asyncio.Task[None] | None = None

    def known(self) -> dict[str, Any]:
        """The PRM by its weights; see `StepScorer`."""
        return known_prm(self.settings)

    def check(self) -> None:
        """See that there is a PRM."""
        with code_allowed_by(_ALLOWS_CODE):
            self.settings.check_prm()

    def num_parameters(self) -> int:
        """Number of parameters in the PRM's files; 0 where it is no folder."""
        if self.settings.format == GENERATIVE:
            return self.settings.engine().num_parameters() or 0
        if self.settings.format != OWN_FORMAT and not Path(self.settings.prm).is_dir():
            return 0
        return sum(check_weights(str(model_folder(self.settings.prm))))

    def resources(self) -> EngineResources:
        """A GPU with a core beside it, or as many cores as threads."""
        return self.settings.resources(self.settings.threads)

    async def start(self) -> None:
        """Load the PRM."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._load)

    async def score(self, beginning: Beginning) -> Scored:
        """Score a beginning, together with all others that wait."""
        turn: asyncio.Future[Scored] = asyncio.get_running_loop().create_future()
        self._waiting.append((beginning, turn))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        found = await turn
        check_scores(self.settings.prm, [found.scores], [f"problem {beginning.problem.id}"])
        return found

    async def close(self) -> None:
        """Free the PRM."""
        if self._running is not None:
            self._running.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)
        scorer, self._scorer, self._incremental = self._scorer, None, None
        await asyncio.to_thread(close_scorer, scorer)

    def _load(self) -> None:
        from mclabel.prm.scoring.incremental import IncrementalPRM, is_incremental

        threads = None if self.settings.on_gpu else self.settings.threads
        with code_allowed_by(_ALLOWS_CODE):
            self._scorer = scorer = load_scorer(self.settings, threads=threads)
        if is_incremental(scorer):
            self._incremental = IncrementalPRM(
                scorer, threads=threads, max_bytes=self.settings.cache_gib * GIB
            )

    async def _run(self) -> None:
        """Score what waits, batch by batch, until nothing does."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
                batch = [(one, turn) for one, turn in batch if not turn.done()]
                asked = [one for one, _ in batch]
                try:
                    found = await loop.run_in_executor(self._pool, self._score, asked)
                except Exception as error:  # to whoever waits
                    found = [error] * len(batch)
                for (_, turn), result in zip(batch, found, strict=True):
                    if turn.done():  # cancelled
                        continue
                    if isinstance(result, Exception):
                        turn.set_exception(result)
                    else:
                        turn.set_result(result)
        finally:
            self._running = None

    # In the thread of the PRM

    def _score(self, asked: list[Beginning]) -> list[Scored | Exception]:
        import torch

        began = time.perf_counter()
        try:
            incremental = [one for one in asked if self._shares_tokens(one)]
            found = dict(zip(map(id, incremental), self._extended(incremental), strict=True))
            whole = [one for one in asked if id(one) not in found]
            found.update(zip(map(id, whole), self._whole(whole), strict=True))
        except torch.OutOfMemoryError as error:
            raise EngineDied(f"the device has no memory left ({error})") from error
        self.seconds += time.perf_counter() - began
        return [found[id(one)] for one in asked]

    def _shares_tokens(self, one: Beginning) -> bool:
        """Return whether the policy's tokens mean the same to the PRM."""
        if self._incremental is None or (one.parent is None and one.num_new < len(one.steps)):
            return False  # of a beginning whose parent had to be read as text
        start = one.steps[-one.num_new - 1].end if one.num_new < len(one.steps) else 0
        text = "".join(step.text for step in one.steps[-one.num_new :])
        return self._incremental.shares_tokens(one.ids[start:], text)

    def _extended(self, asked: list[Beginning]) -> list[Scored | Exception]:
        """Scores of beginnings of which only the new tokens are computed."""
        prm = self._incremental
        if prm is None or not asked:
            return []
        prefixes = [
            prm.begin(one.problem.text) if one.parent is None else one.parent for one in asked
        ]
        longer = prm.extend(
            [(prefix, _new_steps(one)) for prefix, one in zip(prefixes, asked, strict=True)]
        )
        return [
            found
            if isinstance(found, DataError)
            else Scored(
                scores=found.scores,
                kept=found,
                num_computed=num_computed,
                num_cached=found.num_tokens - num_computed,
            )
            for found, num_computed in zip(longer, prm.last_computed, strict=True)
        ]

    def _whole(self, asked: list[Beginning]) -> list[Scored | Exception]:
        """Scores of beginnings that are read from their first token."""
        scorer: Scorer = self._scorer
        encoded: dict[int, EncodedSolution] = {}
        results: dict[int, Scored | Exception] = {}
        for one in asked:
            texts = [step.text for step in one.steps]
            try:
                encoded[id(one)] = scorer.encode(
                    one.problem.text, texts, f"problem {one.problem.id}"
                )
            except DataError as error:
                results[id(one)] = error
        found = estimate_steps(scorer, list(encoded.values()))
        for name, own in zip(encoded, found, strict=True):
            num_tokens = len(encoded[name].ids)
            results[name] = (
                own
                if isinstance(own, UnscoredError)
                else Scored(scores=tuple(own.scores), num_computed=num_tokens + own.num_tokens)
            )
        return [results[id(one)] for one in asked]


def _new_steps(one: Beginning) -> list[tuple[int, ...]]:
    """Token ids of each new step."""
    ends = [0, *(step.end for step in one.steps)][-one.num_new - 1 :]
    return [one.ids[a:b] for a, b in pairwise(ends)]
