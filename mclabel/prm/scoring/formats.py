"""Formats of PRMs that can score."""

from __future__ import annotations

from collections.abc import Mapping

OWN_FORMAT = "mclabel"
FORMATS: Mapping[str, str] = {
    OWN_FORMAT: "mclabel.prm.scoring.score:PRM",
    "trl": "mclabel.prm.scoring.adapters:TrlPRM",
    "math-shepherd": "mclabel.prm.scoring.adapters:ShepherdPRM",
    "rlhflow": "mclabel.prm.scoring.adapters:RlhflowPRM",
    "qwen": "mclabel.prm.scoring.adapters:QwenPRM",
}
"""Names of the formats of PRMs, and where the class stands that scores with one."""
