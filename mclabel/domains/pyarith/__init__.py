"""arith's stories as functions in Python: code with exact truth, and a tiny policy."""

from __future__ import annotations

from pathlib import Path


def bundled_model(name: str) -> Path:
    """Return the folder of the bundled model.

    Args:
        name: `policy`, which errs on purpose, by misconception: it writes solutions, and scorers
            start from it. It has not forgotten arith, so it can start a scorer of both domains.

    Raises:
        ValueError: there is no such model.
    """
    if name != "policy":
        raise ValueError(f"pyarith:{name}: must be pyarith:policy")
    return Path(__file__).parent / "models" / name
