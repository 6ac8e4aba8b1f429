"""Where judges come in: each is called, and its opinions are checked, in this one place."""

from __future__ import annotations

from typing import cast, get_args

from mclabel.boundary import Boundary, Guard
from mclabel.components import derived_class
from mclabel.data.readers.rows import RejectReason
from mclabel.errors import ConfigError
from mclabel.judges.base import Judge, JudgedItem, Opinion
from mclabel.judges.base import JudgeSettings as Settings
from mclabel.records import Claim


def make_judge(settings: Settings, *, seed: int, num_cpus: float | None = None) -> Judge:
    """Make the judge that settings name, behind its boundary, without loading anything.

    Args:
        settings: of the judge.
        seed: of the run.
        num_cpus: see `Judge.num_cpus`.

    Raises:
        ConfigError: they name no judge.
        ComponentError: it cannot be made.
    """
    target = judge_class(settings)
    around = Boundary.around("judges", target)
    judge = around.call("__init__", target, settings, seed=seed, slow=True)
    judge.num_cpus = num_cpus
    return cast(Judge, Guard(judge, Judge, around, {"judge": _fault}))


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


def _fault(opinion: Opinion | RejectReason, item: JudgedItem, ask: object) -> str | None:
    if isinstance(opinion, RejectReason):
        return None
    steps, error = len(item.steps), opinion.first_error
    if error is not None and error >= steps:
        return f"gave first_error={error} (int), must give None or an index below {steps}"
    if error is not None and not opinion.is_known:
        return f"gave first_error={error} with is_known=False, must give None"
    if opinion.scores and len(opinion.scores) != steps:
        return f"gave {len(opinion.scores)} scores for {steps} steps, must give one per step"
    if max(opinion.votes, default=0) > steps:
        return f"gave votes={opinion.votes}, must give whole numbers from -1 to {steps}"
    for flag in opinion.flags:
        if flag.step >= steps:
            return f"gave a flag on step {flag.step}, must give one below {steps}"
        if not flag.start <= flag.end <= (length := len(item.steps[flag.step])):
            return (
                f"gave a flag on characters {flag.start} to {flag.end}, must lie within the "
                f"{length} of its step"
            )
    return None
