"""The engine context of `label_problem`, for tests that label without a job."""

from __future__ import annotations

from mclabel.checkers import make_checker
from mclabel.engines import Policy
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.decisions import DecisionBatcher
from mclabel.labeling.problem import EngineContext
from mclabel.run.cpu_executor import CpuExecutor


def on_one_engine(policy: Policy, settings: LabelSettings) -> EngineContext:
    """Return the context that problems share on a started engine."""
    executor = CpuExecutor()
    return EngineContext(
        policy=policy,
        settings=settings,
        checker=make_checker(settings.checker),
        executor=executor,
        decisions=DecisionBatcher(executor),
    )
