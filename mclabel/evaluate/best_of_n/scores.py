"""Caches scores in files, which a resumed evaluation and scorers with the same body reuse.

The body of a PRM is its language model without the head that computes scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mclabel.core.errors import DataError
from mclabel.core.plain_files import check_plain, write_atomically
from mclabel.core.seeds import content_id
from mclabel.prm.examples.encode import EncodedSolution
from mclabel.prm.scoring.aggregate import UnscoredError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from mclabel.prm.scoring.reading import SolutionLikelihoods
    from mclabel.prm.scoring.score import PRM
    from mclabel.prm.scoring.scorer import Scorer, ScorerSettings

T = TypeVar("T")


class ScoreCache:
    """Cache of scores, with one file for each model and set of solutions."""

    def __init__(self, folder: Path, *, threads: int | None) -> None:
        """Store the folder of the cache.

        Args:
            folder: folder of the cache's files.
            threads: number of threads of models on a CPU; None means one per core.
        """
        self._folder, self._threads = folder, threads

    def get_prm_scores(
        self,
        prm: PRM,
        folder: Path,
        encoded: Sequence[EncodedSolution],
        on_progress: Callable[[int, int], None],
    ) -> list[list[float]]:
        """Return a PRM's scores of the steps of each solution, from the cache if it has them.

        PRMs whose body is the same frozen language model share one forward pass.

        Args:
            prm: the loaded PRM.
            folder: folder of the PRM's weights.
            encoded: encoded solutions that are scored.
            on_progress: function that is called with the number of scored and of all distinct
                solutions.
        """
        from mclabel.prm.scoring.manifest import compute_scorer_fingerprint
        from mclabel.prm.scoring.reading import get_likelihood_only_network, score_likelihoods

        body = get_likelihood_only_network(prm.model)
        if body is not None:
            return score_likelihoods(prm.model, self.get_likelihoods(body, encoded, on_progress))
        return self._compute_or_read_cached(
            f"scores {compute_scorer_fingerprint(folder)}",
            encoded,
            partial(prm.score_encoded, on_progress=on_progress),
        )

    def get_scorer_scores(
        self,
        scorer: Scorer,
        settings: ScorerSettings,
        encoded: Sequence[EncodedSolution],
        on_progress: Callable[[int, int], None],
    ) -> list[list[float] | UnscoredError]:
        """Return the step scores of each solution by a PRM that mclabel did not train.

        A solution without scores has an error with the reason in place of its scores.

        Args:
            scorer: the loaded scorer.
            settings: settings of the scorer.
            encoded: encoded solutions that are scored.
            on_progress: function that is called with the number of scored and of all distinct
                solutions.
        """
        from mclabel.judge.generative import GenerativePRM, find_prm_identity

        def compute(distinct: Sequence[EncodedSolution]) -> list[list[float] | str]:
            if isinstance(scorer, GenerativePRM):
                results = scorer.score_encoded(distinct, on_progress=on_progress)
            else:
                results = list(scorer.score_encoded(distinct))
            return [
                str(step_scores) if isinstance(step_scores, UnscoredError) else step_scores
                for step_scores in results
            ]

        identity = {**settings.identity(), **find_prm_identity(settings)}
        kept = self._compute_or_read_cached(f"scores {content_id(identity)}", encoded, compute)
        return [
            UnscoredError(step_scores) if isinstance(step_scores, str) else step_scores
            for step_scores in kept
        ]

    def get_likelihoods(
        self,
        network: PreTrainedModel,
        encoded: Sequence[EncodedSolution],
        on_progress: Callable[[int, int], None],
    ) -> list[SolutionLikelihoods]:
        """Return a language model's token log-probabilities of each solution, summarised by step.

        Args:
            network: the loaded language model.
            encoded: encoded solutions.
            on_progress: function that is called with the number of read and of all distinct
                solutions.
        """
        from mclabel.prm.scoring.reading import (
            SolutionLikelihoods,
            compute_body_fingerprint,
            compute_solution_likelihoods,
        )

        kept = self._compute_or_read_cached(
            f"readings {compute_body_fingerprint(network)}",
            encoded,
            partial(
                compute_solution_likelihoods,
                network,
                threads=self._threads,
                on_progress=on_progress,
            ),
        )
        return [SolutionLikelihoods(*values) for values in kept]

    def _compute_or_read_cached(
        self,
        computation: str,
        encoded: Sequence[EncodedSolution],
        compute: Callable[[Sequence[EncodedSolution]], list[T]],
    ) -> list[T]:
        """Return the results of `compute` for solutions, from the cache if it has them.

        Args:
            computation: text that identifies the computation and its model.
            encoded: encoded solutions; equal ones are computed once.
            compute: function that returns a result for each distinct solution.
        """
        distinct = list(dict.fromkeys(encoded))
        path = self._folder / f"{_make_cache_key(computation, distinct)}.json"
        kept = _read_cached_results(path)
        if kept is not None and len(kept) == len(distinct):
            results: list[T] = kept
        else:
            results = compute(distinct)
            write_atomically(path, json.dumps(results).encode())
        result_of = dict(zip(distinct, results, strict=True))
        return [result_of[solution] for solution in encoded]


def _read_cached_results(path: Path) -> list[Any] | None:
    """Return the content of a file of scores; None if the file is missing or damaged."""
    check_plain(path, DataError)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return kept if isinstance(kept, list) else None


def _make_cache_key(computation: str, encoded: Sequence[EncodedSolution]) -> str:
    digest = hashlib.sha256(computation.encode())
    for solution in encoded:
        digest.update(repr(solution).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:24]
