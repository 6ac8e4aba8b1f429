"""The built-in domain: generated word problems with exact truth, and two tiny models."""

from __future__ import annotations

from pathlib import Path

BUNDLED = ("policy", "strong")


def bundled_model(name: str) -> Path:
    """Folder of a bundled model.

    Args:
        name: `policy`, which errs on purpose, by misconception: it writes solutions, and scorers
            start from it. `strong`, which learned from right solutions alone: it completes the
            solutions of the policy, and its likelihood is an upper reference for scorers.

    Raises:
        ValueError: there is no such model.
    """
    if name not in BUNDLED:
        now = ", which was arith:base" if name == "base" else ""
        raise ValueError(f"arith:{name}: must be arith:policy or arith:strong{now}")
    return Path(__file__).parent / "models" / name
