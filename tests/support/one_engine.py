"""What `label_problem` needs beside a problem, for tests that label without a job."""

from __future__ import annotations

from mclabel.checkers import make_checker
from mclabel.engines import Policy
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.problem import Shared
from mclabel.run.desk import Desk


def on_one_engine(policy: Policy, settings: LabelSettings) -> Shared:
    """What problems share on an engine that is started."""
    desk = Desk()
    return Shared(
        policy=policy,
        settings=settings,
        checker=make_checker(settings.checker),
        desk=desk,
        decisions=Decisions(desk),
    )
