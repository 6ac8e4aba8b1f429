"""The domain `arith`: generated word problems with exactly checked steps, and three tiny models."""

from __future__ import annotations

from pathlib import Path

BUNDLED = ("policy", "strong", "reflective")


def bundled_model(name: str) -> Path:
    """Return the folder of a bundled model.

    Args:
        name: `policy`, `strong` or `reflective`. `policy` writes solutions, and scorers start from
            its weights. It was trained to err by misconceptions. `strong` was trained on right
            solutions only. It completes the policy's solutions, and its likelihood shows how good a
            scorer could be. `reflective` thinks aloud, errs like `policy`, and corrects some of its
            errors.

    Raises:
        ValueError: there is no such model.
    """
    if name not in BUNDLED:
        raise ValueError(f"arith:{name}: must be arith:policy, arith:strong or arith:reflective")
    return Path(__file__).parent / "models" / name
