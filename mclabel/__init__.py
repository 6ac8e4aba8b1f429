"""Process labels and process reward models from any policy and checkable answers.

    import mclabel as mc

    run = mc.label([{"problem": "2 + 2 = ?", "answer": "4"}], policy="arith:policy")
    for solution in run:
        print(solution.first_error)

Importing the package loads little. Engines, torch and Ray are imported when they are used.
Functions such as `label` and `train` are imported when their names are first accessed. The import
must be quick: a command imports the package before it can handle a Ctrl-C.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mclabel.core.errors import ConfigError, DataError, EngineError, MclabelError, ShardError
from mclabel.core.extras import explain_missing_package
from mclabel.core.records import (
    Completion,
    Counts,
    LabeledSolution,
    Outcome,
    Problem,
    Rollout,
    Solution,
    Step,
    StepLabel,
    Verdict,
)

if TYPE_CHECKING:
    from mclabel.api import (
        grade,
        judge_solutions,
        label,
        load_steps,
        score,
        search_answers,
        select_solutions,
        train,
    )
    from mclabel.checkers import Grade
    from mclabel.data.exchange.job import export_run
    from mclabel.data.loading import load_labels, load_rollouts, read_labels
    from mclabel.judge.combine import combine
    from mclabel.labeling.background import LabelRun
    from mclabel.prm.scoring.score import PRM
    from mclabel.report.page.report import write_report

    __version__: str

_LAZY = {
    "PRM": "mclabel.prm.scoring.score",
    "Grade": "mclabel.checkers",
    "LabelRun": "mclabel.labeling.background",
    "export_run": "mclabel.data.exchange.job",
    "grade": "mclabel.api",
    "judge_solutions": "mclabel.api",
    "label": "mclabel.api",
    "load_labels": "mclabel.data.loading",
    "load_rollouts": "mclabel.data.loading",
    "load_steps": "mclabel.api",
    "read_labels": "mclabel.data.loading",
    "score": "mclabel.api",
    "search_answers": "mclabel.api",
    "select_solutions": "mclabel.api",
    "combine": "mclabel.judge.combine",
    "train": "mclabel.api",
    "write_report": "mclabel.report.page.report",
}
"""Modules of the public names that are imported when a name is first accessed, by name."""

__all__ = [
    "PRM",
    "Completion",
    "ConfigError",
    "Counts",
    "DataError",
    "EngineError",
    "Grade",
    "LabelRun",
    "LabeledSolution",
    "MclabelError",
    "Outcome",
    "Problem",
    "Rollout",
    "ShardError",
    "Solution",
    "Step",
    "StepLabel",
    "Verdict",
    "combine",
    "export_run",
    "grade",
    "judge_solutions",
    "label",
    "load_labels",
    "load_rollouts",
    "load_steps",
    "read_labels",
    "score",
    "search_answers",
    "select_solutions",
    "train",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("mclabel")
    elif name in _LAZY:
        with explain_missing_package():
            found = getattr(import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module 'mclabel' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
