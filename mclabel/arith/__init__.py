"""The built-in domain: generated word problems with exact truth, and two tiny models."""

from __future__ import annotations

from pathlib import Path

BUNDLED = ("policy", "base")


def bundled_model(name: str) -> Path:
    """Folder of a bundled model: `policy` (errs on purpose) or `base` (for scorers)."""
    if name not in BUNDLED:
        raise ValueError(f"arith:{name}: must be arith:policy or arith:base")
    return Path(__file__).parent / "models" / name
