"""Scoring of solutions with PRMs, ORMs and language models, in all formats that `FORMATS` lists."""

from __future__ import annotations

from collections.abc import Mapping

OWN_FORMAT = "mclabel"
"""Name of mclabel's own PRM format."""
GENERATIVE = "generative"
"""Name of the format of generative PRMs."""
FORMATS: Mapping[str, str] = {
    OWN_FORMAT: "mclabel.prm.scoring.score:PRM",
    "trl": "mclabel.prm.scoring.adapters:TrlPRM",
    "math-shepherd": "mclabel.prm.scoring.adapters:ShepherdPRM",
    "rlhflow": "mclabel.prm.scoring.adapters:RlhflowPRM",
    "qwen": "mclabel.prm.scoring.adapters:QwenPRM",
    GENERATIVE: "mclabel.judge.generative:GenerativePRM",
}
"""PRM formats: the name, and the `module:class` path of the class that scores with it. The class of
generative PRMs is in the package of judges, because their answers are read like those of
critics."""
