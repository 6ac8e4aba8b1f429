"""Scorer of prefixes of solutions that uses a trained PRM, in this process or on a server.

If the PRM runs in this process and reads the policy's tokens, only the new tokens of a prefix are
computed. Otherwise every prefix is computed from its first token, and the cost counts all these
tokens.
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
from mclabel.engines.pretrained import check_weights, name_option_in_code_errors
from mclabel.judge.generative import find_prm_identity
from mclabel.prm.scoring import GENERATIVE, OWN_FORMAT
from mclabel.prm.scoring.aggregate import UnscoredError, check_scores
from mclabel.prm.scoring.manifest import find_model_folder
from mclabel.prm.scoring.score import estimate_steps
from mclabel.prm.scoring.scorer import Scorer, ScorerSettings, close_scorer, load_scorer
from mclabel.search.scorers import Beginning, Scored, StepScorer, StepScorerSettings

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.incremental import IncrementalPRM

GIB = 2**30
_ALLOWS_CODE = "scorer.trust_remote_code=true"
"""Option that permits a PRM's own Python code, for messages."""
MAX_TOGETHER = 1024
"""Maximum number of prefixes in a batch. The PRM's scorer splits the batch to fit its memory."""


class PrmScorer(StepScorer):
    """Scorer of prefixes that uses a PRM of any supported format."""

    class Settings(StepScorerSettings, ScorerSettings):
        """A trained PRM."""

        cache_gib: Annotated[float, OPERATIONAL] = Field(4.0, gt=0, le=MAX_COUNT)
        """Memory for the cache of prefixes, in GiB."""
        threads: Annotated[int, OPERATIONAL] = Field(1, ge=1, le=MAX_CORES)
        """Number of CPU threads of a PRM that runs in the worker's process."""

    settings: Settings

    def __init__(self, settings: Settings) -> None:
        """Store the settings without loading the PRM."""
        super().__init__(settings)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prm")
        self._scorer: Any = None
        self._incremental: IncrementalPRM | None = None
        self.seconds = 0.0
        """Total seconds of computation by the PRM."""
        self._waiting: list[tuple[Beginning, asyncio.Future[Scored]]] = []
        self._running: asyncio.Task[None] | None = None

    def identity_inputs(self) -> dict[str, Any]:
        """Return hashes of the PRM's weights and prompts, by name."""
        return find_prm_identity(self.settings)

    def check_ready(self) -> None:
        """Check that the PRM exists."""
        with name_option_in_code_errors(_ALLOWS_CODE):
            self.settings.check_prm()

    def num_parameters(self) -> int:
        """Return the number of the PRM's parameters; 0 if it is unknown, as for a hub name."""
        if self.settings.format == GENERATIVE:
            return self.settings.engine().num_parameters() or 0
        if self.settings.format != OWN_FORMAT and not Path(self.settings.prm).is_dir():
            return 0
        return sum(check_weights(str(find_model_folder(self.settings.prm))))

    def resources(self) -> EngineResources:
        """Return one GPU and one CPU core, or on a CPU as many cores as threads."""
        return self.settings.resources(self.settings.threads)

    async def start(self) -> None:
        """Load the PRM."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._load_prm)

    async def score(self, beginning: Beginning) -> Scored:
        """Score a prefix, in one batch with the other waiting prefixes."""
        turn: asyncio.Future[Scored] = asyncio.get_running_loop().create_future()
        self._waiting.append((beginning, turn))
        if self._running is None:
            self._running = asyncio.create_task(self._score_waiting_prefixes())
        scored = await turn
        check_scores(self.settings.prm, [scored.scores], [f"problem {beginning.problem.id}"])
        return scored

    async def close(self) -> None:
        """Release the PRM."""
        if self._running is not None:
            self._running.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)
        scorer, self._scorer, self._incremental = self._scorer, None, None
        await asyncio.to_thread(close_scorer, scorer)

    def _load_prm(self) -> None:
        from mclabel.prm.scoring.incremental import IncrementalPRM, supports_incremental_scoring

        threads = None if self.settings.on_gpu else self.settings.threads
        with name_option_in_code_errors(_ALLOWS_CODE):
            self._scorer = scorer = load_scorer(self.settings, threads=threads)
        if supports_incremental_scoring(scorer):
            self._incremental = IncrementalPRM(
                scorer, threads=threads, max_bytes=self.settings.cache_gib * GIB
            )

    async def _score_waiting_prefixes(self) -> None:
        """Score the waiting prefixes in batches until no prefix waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
                batch = [(prefix, turn) for prefix, turn in batch if not turn.done()]
                prefixes = [prefix for prefix, _ in batch]
                try:
                    results = await loop.run_in_executor(self._pool, self._score_batch, prefixes)
                except Exception as error:  # passed on to the callers
                    results = [error] * len(batch)
                for (_, turn), result in zip(batch, results, strict=True):
                    if turn.done():  # cancelled
                        continue
                    if isinstance(result, Exception):
                        turn.set_exception(result)
                    else:
                        turn.set_result(result)
        finally:
            self._running = None

    # In the thread of the PRM

    def _score_batch(self, prefixes: list[Beginning]) -> list[Scored | Exception]:
        import torch

        began = time.perf_counter()
        try:
            incremental = [prefix for prefix in prefixes if self._shares_tokens(prefix)]
            scored_by_id = dict(
                zip(map(id, incremental), self._score_new_tokens(incremental), strict=True)
            )
            whole = [prefix for prefix in prefixes if id(prefix) not in scored_by_id]
            scored_by_id.update(zip(map(id, whole), self._score_all_tokens(whole), strict=True))
        except torch.OutOfMemoryError as error:
            raise EngineDied(f"the device is out of memory ({error})") from error
        self.seconds += time.perf_counter() - began
        return [scored_by_id[id(prefix)] for prefix in prefixes]

    def _shares_tokens(self, prefix: Beginning) -> bool:
        """Return whether policy and PRM decode the token ids of the new steps to the same text."""
        if self._incremental is None or (
            prefix.parent is None and prefix.num_new < len(prefix.steps)
        ):
            return False  # the PRM has no state of the parent, which was computed from text
        start = prefix.steps[-prefix.num_new - 1].end if prefix.num_new < len(prefix.steps) else 0
        text = "".join(step.text for step in prefix.steps[-prefix.num_new :])
        return self._incremental.decodes_to_same_text(prefix.ids[start:], text)

    def _score_new_tokens(self, prefixes: list[Beginning]) -> list[Scored | Exception]:
        """Return the scores of prefixes by computing only their new tokens."""
        prm = self._incremental
        if prm is None or not prefixes:
            return []
        parents = [
            prm.begin(prefix.problem.text) if prefix.parent is None else prefix.parent
            for prefix in prefixes
        ]
        longer = prm.extend(
            [
                (parent, _list_new_step_ids(prefix))
                for parent, prefix in zip(parents, prefixes, strict=True)
            ]
        )
        return [
            extended
            if isinstance(extended, DataError)
            else Scored(
                scores=extended.scores,
                kept=extended,
                num_computed=num_computed,
                num_cached=extended.num_tokens - num_computed,
            )
            for extended, num_computed in zip(longer, prm.last_computed, strict=True)
        ]

    def _score_all_tokens(self, prefixes: list[Beginning]) -> list[Scored | Exception]:
        """Return the scores of prefixes by computing all their tokens."""
        scorer: Scorer = self._scorer
        encoded: dict[int, EncodedSolution] = {}
        results: dict[int, Scored | Exception] = {}
        for prefix in prefixes:
            texts = [step.text for step in prefix.steps]
            try:
                encoded[id(prefix)] = scorer.encode(
                    prefix.problem.text, texts, f"problem {prefix.problem.id}"
                )
            except DataError as error:
                results[id(prefix)] = error
        for name, estimate in zip(
            encoded, estimate_steps(scorer, list(encoded.values())), strict=True
        ):
            num_tokens = len(encoded[name].ids)
            results[name] = (
                estimate
                if isinstance(estimate, UnscoredError)
                else Scored(
                    scores=tuple(estimate.scores), num_computed=num_tokens + estimate.num_tokens
                )
            )
        return [results[id(prefix)] for prefix in prefixes]


def _list_new_step_ids(prefix: Beginning) -> list[tuple[int, ...]]:
    """Return the token ids of each new step."""
    ends = [0, *(step.end for step in prefix.steps)][-prefix.num_new - 1 :]
    return [prefix.ids[a:b] for a, b in pairwise(ends)]
