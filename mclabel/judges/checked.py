"""Where judges come in: each is called, and its opinions are checked, in this one place.

What the protocol does not allow ends in a `ComponentError` that names the judge, the method and
what it gave (`mclabel.boundary`). Errors of mclabel's own kinds are left as they are: they have a
message, and an engine that died is loaded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any, get_args

from mclabel.boundary import Boundary, shown
from mclabel.components import derived_class
from mclabel.data.readers.rows import RejectReason
from mclabel.errors import ConfigError
from mclabel.judges.base import UNKNOWN_VOTE, Answer, Asks, Judge, JudgedItem, Opinion
from mclabel.judges.base import JudgeSettings as Settings
from mclabel.records import Claim, Flag


class CheckedJudge:
    """A judge whose calls are made, and whose opinions are checked, here."""

    def __init__(self, settings: Settings, *, seed: int, num_cpus: float | None = None) -> None:
        """Make the judge that settings name, without loading anything.

        Args:
            settings: of the judge.
            seed: of the run.
            num_cpus: see `Judge.num_cpus`.

        Raises:
            ConfigError: they name no judge.
            ComponentError: it cannot be made.
        """
        target = judge_class(settings)
        self.boundary = Boundary.around("judges", target)
        with self.boundary.calling("__init__", may_take_long=True):
            self.judge = target(settings, seed=seed)
        self.judge.num_cpus = num_cpus

    async def start(self) -> None:
        """Load what it needs."""
        await self.boundary.awaited(self.judge, "start", may_take_long=True)

    async def opinion(self, item: JudgedItem, ask: Asks) -> Opinion | RejectReason:
        """Its opinion on a solution, or why there can be none; see `Judge.judge`.

        Raises:
            ComponentError: it gives something else.
        """
        found = await self.boundary.awaited(self.judge, "judge", item, ask)
        if isinstance(found, RejectReason):
            return found
        if (fault := next(_faults(found, item), None)) is not None:
            raise self.boundary.broken("judge", fault)
        opinion: Opinion = found
        return opinion

    async def sample(self, prompt: str, *, number: int, max_tokens: int) -> Answer:
        """One answer of its language model; see `Judge.sample`."""
        found = await self.boundary.awaited(
            self.judge, "sample", prompt, number=number, max_tokens=max_tokens
        )
        if not isinstance(found, Answer):
            raise self.boundary.broken("sample", f"gave {shown(found)}, must give an Answer")
        return found

    async def close(self) -> None:
        """Free what it has loaded."""
        await self.boundary.awaited(self.judge, "close", may_take_long=True)


def judge_class(settings: Settings) -> type[Judge]:
    """The class that settings name.

    Raises:
        ConfigError: it is no judge.
    """
    page = "docs/extending-judge.md"
    target: type[Judge] = derived_class(settings, Judge, key="judge", page=page)
    if target.claim not in get_args(Claim):
        raise ConfigError(
            f"judge={settings.kind}: its claim is {target.claim!r}, must be one of "
            f"{', '.join(get_args(Claim))}"
        )
    return target


def _faults(opinion: Any, item: JudgedItem) -> Iterator[str]:
    if not isinstance(opinion, Opinion):
        yield f"gave {shown(opinion)}, must give an Opinion"
        return
    steps = len(item.steps)
    error, sure = opinion.first_error, opinion.sureness
    if type(opinion.is_known) is not bool:
        yield f"gave is_known={shown(opinion.is_known)}, must give a bool"
    if error is not None and not (type(error) is int and 0 <= error < steps):
        yield f"gave first_error={shown(error)}, must give None or an index below {steps}"
    if error is not None and not opinion.is_known:
        yield f"gave first_error={shown(error)} with is_known=False, must give None"
    if sure is not None and not (isinstance(sure, int | float) and 0 <= sure <= 1):
        yield f"gave sureness={shown(sure)}, must give a number in [0, 1]"
    if not isinstance(opinion.reason, str):
        yield f"gave reason={shown(opinion.reason)}, must give a text"
    if opinion.scores and len(opinion.scores) != steps:
        yield f"gave {len(opinion.scores)} scores for {steps} steps, must give one per step"
    if not all(isinstance(one, int | float) and isfinite(one) for one in opinion.scores):
        yield f"gave scores={shown(opinion.scores)}, must give finite numbers"
    if not all(type(one) is int and UNKNOWN_VOTE <= one <= steps for one in opinion.votes):
        yield f"gave votes={shown(opinion.votes)}, must give whole numbers from -1 to {steps}"
    yield from (fault for flag in opinion.flags if (fault := _flag_fault(flag, item)) is not None)


def _flag_fault(flag: Any, item: JudgedItem) -> str | None:
    if not isinstance(flag, Flag):
        return f"gave {shown(flag)} among its flags, must give Flag"
    if not 0 <= flag.step < len(item.steps):
        return f"gave a flag on step {shown(flag.step)}, must give one below {len(item.steps)}"
    length = len(item.steps[flag.step])
    if not 0 <= flag.start <= flag.end <= length:
        return (
            f"gave a flag on characters {flag.start} to {flag.end}, must lie within the "
            f"{length} of its step"
        )
    return None
