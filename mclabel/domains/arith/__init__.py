"""The built-in domain: generated word problems with exact truth, and three tiny models."""

from __future__ import annotations

from pathlib import Path

BUNDLED = ("policy", "strong", "reflective")


def bundled_model(name: str) -> Path:
    """Return the folder of a bundled model.

    Args:
        name: `policy`, which errs on purpose, by misconception: it writes solutions, and scorers
            start from it. `strong`, which learned from right solutions alone: it completes the
            solutions of the policy, and its likelihood is an upper reference for scorers.
            `reflective`, which thinks aloud, errs as the policy does, and repairs some of it.

    Raises:
        ValueError: there is no such model.
    """
    if name not in BUNDLED:
        now = ", which was arith:base" if name == "base" else ""
        raise ValueError(
            f"arith:{name}: must be arith:policy, arith:strong or arith:reflective{now}"
        )
    return Path(__file__).parent / "models" / name
