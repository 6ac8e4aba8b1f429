"""Scores of solutions by PRMs, ORMs and language models; `FORMATS` names those that can be read."""

from __future__ import annotations

from collections.abc import Mapping

OWN_FORMAT = "mclabel"
GENERATIVE = "generative"
FORMATS: Mapping[str, str] = {
    OWN_FORMAT: "mclabel.prm.scoring.score:PRM",
    "trl": "mclabel.prm.scoring.adapters:TrlPRM",
    "math-shepherd": "mclabel.prm.scoring.adapters:ShepherdPRM",
    "rlhflow": "mclabel.prm.scoring.adapters:RlhflowPRM",
    "qwen": "mclabel.prm.scoring.adapters:QwenPRM",
    GENERATIVE: "mclabel.judge.generative:GenerativePRM",
}
"""Names of the formats of PRMs, and where the class stands that scores with one. A generative one
stands with the judges, because its answers are read as those of critics are."""
