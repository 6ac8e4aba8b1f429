"""What each method names as the first errors of a pool of solutions, and what it costs.

A pool has one solution to each problem. What verifiers write is kept:

    chains/NAME-EPOCH-on-POOL.json
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mclabel.core.records import LabeledSolution
from mclabel.core.seeds import sampling_seed
from mclabel.core.stats.bootstrap import resample_weights, shares
from mclabel.domains.arith import bundled_model
from mclabel.engines import PolicySettings
from mclabel.engines.hf import HfEngine
from mclabel.engines.pretrained import load_tokenizer
from mclabel.judge.critic.parse import parse_output
from mclabel.prm.scoring.manifest import first_below
from tests.benchmarks.figures import Numbers
from tests.benchmarks.generative_training import Course, question, steps_of
from tests.benchmarks.pieces import Piece, write_json
from tests.benchmarks.scorer_figures import THRESHOLDS, Measured, location_f1
from tests.benchmarks.scorers import NO_ERROR, Floats, load_pool

UNKNOWN = -2
"""In place of a first error, where a method says nothing."""
MAX_TOKENS = 400
"""Of a chain; those of training solutions have at most 330."""
Named = NDArray[np.int64]
"""[problems]: first errors that a method names; `NO_ERROR` for none."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """A chain that a verifier wrote."""

    text: str
    first_error: int | None
    """That it names; None for none, or where it is not known."""
    is_known: bool
    """The chain has a verdict on every step up to the first incorrect one."""
    num_prompt: int
    """Tokens of the question."""
    num_tokens: int
    """Tokens of the chain."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a verifier is to write about."""

    course: Course
    epoch: int
    pool: str
    """Run of samples."""
    max_tokens: int = MAX_TOKENS

    def result(self, out: Path) -> Path:
        """Its file."""
        return out / "chains" / f"{self.course.name}-{self.epoch}-on-{self.pool}.json"

    def piece(self, out: Path) -> Piece:
        """Writes it."""
        return Piece(result=self.result(out), work=partial(_read, out, self))

    def chains(self, out: Path) -> list[Written]:
        """What was written, one for each distinct solution of the pool."""
        return [Written(**one) for one in json.loads(self.result(out).read_text())]


def _read(out: Path, reading: Reading) -> None:
    torch.set_num_threads(1)
    rows = load_pool(out / "runs" / reading.pool).rows
    write_json(
        reading.result(out), [asdict(one) for one in asyncio.run(_write(out, reading, rows))]
    )


async def _write(out: Path, reading: Reading, rows: Sequence[LabeledSolution]) -> list[Written]:
    verifier = HfEngine(
        PolicySettings(
            model=str(reading.course.folder(out, reading.epoch)),
            temperature=0.0,
            max_tokens=reading.max_tokens,
            engine=HfEngine.Settings(threads=1, max_live=256),
        )
    )
    await verifier.start()
    prompts = [verifier.prompt_ids(question(row.problem.text, steps_of(row))) for row in rows]
    work = [
        verifier.sample(prompt, (), seed=sampling_seed(0, row.solution.id, "chain", 0))
        for prompt, row in zip(prompts, rows, strict=True)
    ]
    completions = await asyncio.gather(*work)
    await verifier.close()
    found = []
    for row, prompt, one in zip(rows, prompts, completions, strict=True):
        is_cut = one.finish_reason == "length"
        vote = parse_output(one.text, "step_verdicts", len(row.solution.steps), is_cut)
        found.append(
            Written(
                text=one.text,
                first_error=vote.first_error,
                is_known=vote.is_known,
                num_prompt=len(prompt),
                num_tokens=len(one.ids),
            )
        )
    return found


def policy_parameters() -> int:
    """Of the bundled policy."""
    count = HfEngine(PolicySettings(model="arith:policy")).num_parameters()
    assert count is not None
    return count


def named_by_chains(chains: Sequence[Written]) -> Named:
    """First errors that chains name."""
    known = [NO_ERROR if one.first_error is None else one.first_error for one in chains]
    return np.array(
        [at if one.is_known else UNKNOWN for at, one in zip(known, chains, strict=True)]
    )


def named_by_scores(steps: Sequence[Floats], threshold: float) -> Named:
    """First steps whose scores are under the threshold."""
    found = [first_below(one.tolist(), threshold) for one in steps]
    return np.array([NO_ERROR if at is None else at for at in found])


def always(place: int, count: int) -> Named:
    """The same step of every solution."""
    return np.full(count, place)


def truth(out: Path, pool: str) -> Named:
    """True first errors."""
    return load_pool(out / "runs" / pool).first_errors


def f1(named: Named, true: Named) -> float:
    """First-error F1."""
    return float(location_f1(_sums(named, true).sum(0)))


def false_alarms(named: Named, true: Named) -> float:
    """Share of sound solutions in which an error is named."""
    sound = true == NO_ERROR
    return float((named[sound] >= 0).mean()) if sound.any() else 0.0


def best_threshold(steps: Sequence[Floats], true: Named) -> float:
    """The threshold with the highest first-error F1."""
    return float(max(THRESHOLDS, key=lambda one: f1(named_by_scores(steps, one), true)))


def threshold_at(steps: Sequence[Floats], true: Named, alarms: float) -> float:
    """The highest threshold with no more false alarms than that; the lowest if none has."""
    fits = [one for one in THRESHOLDS if false_alarms(named_by_scores(steps, one), true) <= alarms]
    return float(max(fits, default=THRESHOLDS[0]))


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of judging one solution, on average."""

    tokens: float
    """Read and written."""
    written: float = 0.0
    parameters: int

    @property
    def flops(self) -> float:
        """Two a parameter and token."""
        return 2.0 * self.parameters * self.tokens


def cost_of_chains(chains: Sequence[Written], parameters: int) -> Cost:
    """Reading the questions and writing the chains."""
    written = float(np.mean([one.num_tokens for one in chains]))
    read = float(np.mean([one.num_prompt for one in chains]))
    return Cost(tokens=read + written, written=written, parameters=parameters)


def cost_of_scores(out: Path, pool: str, parameters: int) -> Cost:
    """Reading problems and solutions once."""
    tokenizer = load_tokenizer(str(bundled_model("policy")), trust_remote_code=False, key="")
    rows = load_pool(out / "runs" / pool).rows
    read = [len(tokenizer(row.problem.text)["input_ids"]) + len(row.solution.ids) for row in rows]
    return Cost(tokens=1 + float(np.mean(read)), parameters=parameters)


class Block:
    """All methods on one pool."""

    def __init__(
        self, out: Path, pool: str, named: Mapping[str, Named], costs: Mapping[str, Cost]
    ) -> None:
        """Keep what is to be compared.

        Args:
            out: of the benchmark.
            pool: its name.
            named: first errors by method.
            costs: of methods that cost something.
        """
        self.pool, self.named, self._costs = pool, named, costs
        self._true = truth(out, pool)
        self._weights = resample_weights(len(self._true), 0)

    def found(self, method: str) -> Measured:
        """Of solutions with an error, the share whose first error is named."""
        is_hit = self.named[method] == self._true
        return self._share(is_hit, self._true != NO_ERROR)

    def right(self, method: str) -> Measured:
        """Of all solutions, the share of which the truth is named."""
        is_hit = self.named[method] == self._true
        return self._share(is_hit, np.ones_like(is_hit))

    def alarms(self, method: str) -> Measured:
        """Of sound solutions, the share in which an error is named."""
        return self._share(self.named[method] >= 0, self._true == NO_ERROR)

    def f1(self, method: str) -> Measured:
        """First-error F1."""
        table = _sums(self.named[method], self._true)
        return Measured(
            value=float(location_f1(table.sum(0))),
            resampled=location_f1(self._weights @ table),
            num_problems=len(table),
        )

    def unknown(self, method: str) -> float:
        """Share of solutions of which a method says nothing."""
        return float((self.named[method] == UNKNOWN).mean())

    def tokens(self) -> dict[str, dict[str, float]]:
        """Tokens that methods read or write for a solution, and FLOPs."""
        return {
            method: {
                "tokens": round(cost.tokens, 1),
                "written": round(cost.written, 1),
                "mflops": round(cost.flops / 1e6, 1),
            }
            for method, cost in self._costs.items()
        }

    def less(self, method: str, other: str) -> dict[str, Numbers]:
        """Paired differences of two methods."""
        return {name: of(method).less(of(other)).numbers for name, of in self._kinds.items()}

    def summary(self) -> dict[str, Any]:
        """What the JSON line holds of it."""
        return {
            method: {name: of(method).numbers for name, of in self._kinds.items()}
            for method in self.named
        }

    @property
    def _kinds(self) -> dict[str, Callable[[str], Measured]]:
        return {"found": self.found, "right": self.right, "alarms": self.alarms, "f1": self.f1}

    def _share(self, hits: NDArray[np.bool_], among: NDArray[np.bool_]) -> Measured:
        top, bottom = (hits & among).astype(np.float64), among.astype(np.float64)
        resampled = shares(self._weights @ top, self._weights @ bottom)
        return Measured(
            value=float(shares(top.sum(keepdims=True), bottom.sum(keepdims=True))[0]),
            resampled=resampled,
            num_problems=int(among.sum()),
        )


def _sums(named: Named, true: Named) -> Floats:
    """[problems, 4]: with an error, of these found; without one, of these passed."""
    wrong, hit = true != NO_ERROR, named == true
    return np.stack([wrong, wrong & hit, ~wrong, ~wrong & hit], 1).astype(np.float64)
