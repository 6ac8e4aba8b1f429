"""Process reward models: training examples from labels, networks, training and scoring.

The four subpackages build on one another in this order: `examples`, `model`, `scoring`,
`training`. Importing the package is fast, because torch is imported only when a name that needs
it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mclabel.prm.scoring.aggregate import aggregate
    from mclabel.prm.scoring.score import PRM
    from mclabel.prm.scoring.scorer import Scorer, load_prm
    from mclabel.prm.scoring.served import ServedPRM

__all__ = ["PRM", "Scorer", "ServedPRM", "aggregate", "load_prm"]

_MODULES = {
    "PRM": "mclabel.prm.scoring.score",
    "Scorer": "mclabel.prm.scoring.scorer",
    "ServedPRM": "mclabel.prm.scoring.served",
    "aggregate": "mclabel.prm.scoring.aggregate",
    "load_prm": "mclabel.prm.scoring.scorer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
