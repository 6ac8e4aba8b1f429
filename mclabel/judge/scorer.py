"""A trained PRM as a judge: a number for each step, and the first one under a threshold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from mclabel.core.errors import BadAnswer, DataError, EngineError, RejectReason
from mclabel.core.records import Claim
from mclabel.core.settings import OPERATIONAL, rule
from mclabel.data.leaks import leak_key, leak_keys
from mclabel.data.readers.judged import JudgedSolution, as_judged
from mclabel.engines.devices import EngineResources
from mclabel.judge.base import Asks, Judge, JudgedItem, JudgeSettings, Opinion
from mclabel.judge.generative.scorer import known_prm
from mclabel.prm.scoring.aggregate import UnscoredError, check_scores
from mclabel.prm.scoring.batched import BatchedScorer, batch_tokens
from mclabel.prm.scoring.formats import GENERATIVE
from mclabel.prm.scoring.manifest import (
    best_threshold,
    first_below,
    trained_blocks,
)
from mclabel.prm.scoring.scorer import Scorer, ScorerSettings, close_scorer, load_scorer
from mclabel.run.shards.labels import committed_blocks, read_labels
from mclabel.run.shards.store import Store
from mclabel.run.task import RunnerState

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution


class ScorerJudge(Judge):
    """Scores every step; what it names is the first step under the threshold."""

    class Settings(JudgeSettings, ScorerSettings):
        """A trained PRM's opinion on every step."""

        threshold: float | None = Field(None, ge=0, le=1)
        """A step whose score is below this is wrong. null takes the best threshold on
        `held_out`."""
        held_out: Annotated[str | None, OPERATIONAL] = None
        """Run of `mclabel label` on problems neither judged nor trained on, for which the threshold
        has the highest F1."""

        @rule
        def _the_threshold_comes_from_somewhere(self) -> str | None:
            if (self.threshold is None) == (self.held_out is None):
                given = "are both given" if self.held_out else "are both missing"
                return (
                    f"threshold and held_out {given}. Give one of the two: judge.threshold=0.5, "
                    "say, or judge.held_out=RUN, a labelled run that chooses the threshold"
                )
            return None

    claim: ClassVar[Claim] = "scores"
    settings: Settings

    def __init__(self, settings: Settings, *, seed: int = 0) -> None:
        """Prepare to judge; see `Judge`."""
        super().__init__(settings, seed=seed)
        self._scorer: BatchedScorer | None = None

    @classmethod
    def settled(cls, settings: Any, recorded: Mapping[str, Any]) -> Any:
        """The settings with the threshold that was chosen on the held-out labels; see `Judge`."""
        path = settings.prm
        found = {"prm": str(Path(path).absolute())} if Path(path).is_dir() else {}
        if settings.held_out is None:
            return settings.model_copy(update=found)
        threshold = recorded.get("threshold")
        if threshold is None:
            threshold = chosen_threshold(settings)
        return settings.model_copy(update={**found, "threshold": threshold})

    @classmethod
    def check_input(cls, settings: Any, problems: Callable[[], Iterable[str]]) -> None:
        """See that the held-out labels are of other problems; see `Judge`."""
        if settings.held_out is None:
            return
        held_out = leak_keys([settings.held_out])
        key = f"judge.held_out={settings.held_out!r}"
        shared = sum(1 for one in {leak_key(text) for text in problems()} if one in held_out)
        if shared:
            raise DataError(
                f"{key}: {shared:,} of its {len(held_out):,} problems are also judged, so the "
                "threshold would be chosen on what it is used for. Give labels of other problems"
            )
        if (blocks := trained_blocks(settings.prm)) & committed_blocks(Store(settings.held_out)):
            raise DataError(
                f"{key}: the PRM was trained on its labels ({len(blocks):,} blocks), on which its "
                "scores are better than elsewhere. Give labels that it was not trained on"
            )

    @classmethod
    def split(cls, settings: Any) -> str:
        """As the PRM's format has it; see `Judge`."""
        split: str = settings.text_split
        return split

    def known(self) -> dict[str, Any]:
        """The PRM by its weights, and its threshold; see `Judge`."""
        return {"threshold": self.settings.threshold, **known_prm(self.settings)}

    def check(self) -> None:
        """See that there is a PRM."""
        self.settings.check_prm()

    def resources(self) -> EngineResources:
        """A GPU, or a core."""
        if self.settings.format == GENERATIVE:
            return self.settings.resources()
        return EngineResources(num_cpus=1.0, num_gpus=float(self.settings.on_gpu))

    async def start(self) -> None:
        """Load the PRM."""
        threads = max(1, int(os.cpu_count() or 1 if self.num_cpus is None else self.num_cpus))
        self._scorer = BatchedScorer(
            partial(self.load, threads),
            max_tokens=batch_tokens(
                threads, on_gpu=self.settings.on_gpu or self.settings.format == GENERATIVE
            ),
        )
        await self._scorer.start()

    def load(self, threads: int) -> Scorer:
        """The PRM, on so many cores if it is on a CPU."""
        return load_scorer(self.settings, threads=threads)

    async def judge(self, item: JudgedItem, ask: Asks) -> Opinion | RejectReason:
        """Score the steps."""
        from mclabel.prm.examples.encode import TooLongError

        assert self._scorer is not None, "start() first"
        try:
            (scores, concentrations, _), num_tokens = await self._scorer.score(item)
        except UnscoredError as error:
            return Opinion(is_known=False, reason=str(error), num_tokens=error.num_tokens)
        except (DataError, BadAnswer) as error:
            reason = "too_long" if isinstance(error, TooLongError) else "unreadable"
            reason = "bad_answer" if isinstance(error, BadAnswer) else reason
            return RejectReason(reason, str(error).removeprefix(f"{item.place}: "))
        try:
            check_scores("the scorer", [scores, concentrations or []], [item.place] * 2)
        except DataError as error:  # a fault of the PRM, not of the solution
            raise EngineError(str(error)) from error
        threshold = self.settings.threshold
        assert threshold is not None, "settled() first"
        found = first_below(scores, threshold)
        nearest = min(scores) if found is None else scores[found]
        return Opinion(
            is_known=True,
            first_error=found,
            sureness=min(1.0, abs(nearest - threshold)),
            scores=tuple(scores),
            concentrations=tuple(concentrations or ()),
            num_tokens=num_tokens,
        )

    def state(self) -> RunnerState:
        """What is scored now."""
        return RunnerState() if self._scorer is None else self._scorer.state()

    async def close(self) -> None:
        """Free the PRM."""
        if self._scorer is not None:
            await self._scorer.close()


def chosen_threshold(settings: ScorerJudge.Settings) -> float:
    """The threshold that is best on the held-out labels.

    Raises:
        DataError: they hold only solutions with an error, or only such without.
    """
    assert settings.held_out is not None
    rows = as_judged(list(read_labels(Store(settings.held_out))))
    scorer = load_scorer(settings, threads=os.cpu_count())
    encoded = {row.id: _encoded(scorer, row) for row in rows}
    there = {name: one for name, one in encoded.items() if one is not None}
    found = dict(zip(there, scorer.score_encoded(list(there.values())), strict=True))
    close_scorer(scorer)
    scores = {name: one for name, one in found.items() if not isinstance(one, UnscoredError)}
    try:
        return best_threshold(rows, scores)
    except DataError as error:
        raise DataError(f"judge.held_out={settings.held_out!r}: {error}") from error


def _encoded(scorer: Scorer, row: JudgedSolution) -> EncodedSolution | None:
    from mclabel.prm.examples.encode import TooLongError

    try:
        return scorer.encode(row.problem, row.steps, f"solution {row.id}")
    except TooLongError:
        return None
