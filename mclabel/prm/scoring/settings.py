"""Settings of a scorer: which PRM, and where it computes."""

from __future__ import annotations

from typing import Annotated

from mclabel.prm.scoring.scorer import OWN_FORMAT
from mclabel.settings import OPERATIONAL, Settings


class ScorerSettings(Settings):
    """A PRM of any format."""

    prm: str
    """Folder of the PRM, or for another format its folder or Hugging Face name."""
    format: str = OWN_FORMAT
    """Format of the PRM: `mclabel`, `trl`, `math-shepherd`, `rlhflow` or `qwen`."""
    device: Annotated[str, OPERATIONAL] = "cpu"
    """Torch device of a model."""
    url: Annotated[str | None, OPERATIONAL] = None
    """Server of the same PRM, which then computes the scores."""
    trust_remote_code: Annotated[bool, OPERATIONAL] = False
    """Run Python code that comes with the PRM."""
