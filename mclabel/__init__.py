"""Process labels and process reward models from any policy and checkable answers.

Importing the package is light: engines, torch and Ray are loaded where they are used.
"""

from importlib.metadata import version

from mclabel.data.loading import load_labels, load_rollouts, read_labels
from mclabel.errors import ConfigError, DataError, EngineError, MclabelError, ShardError
from mclabel.records import (
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

__version__ = version("mclabel")

__all__ = [
    "Completion",
    "ConfigError",
    "Counts",
    "DataError",
    "EngineError",
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
    "load_labels",
    "load_rollouts",
    "read_labels",
]
