"""The domain `pyarith`: the stories of `arith` as Python functions, and a tiny policy.

The steps of solutions can be checked exactly.
"""

from __future__ import annotations

from pathlib import Path


def bundled_model(name: str) -> Path:
    """Return the folder of the bundled model.

    Args:
        name: `policy`, the only model. It writes solutions, and was trained to err by
            misconceptions. It still solves problems of `arith`, so scorers of both domains can
            start from its weights.

    Raises:
        ValueError: there is no such model.
    """
    if name != "policy":
        raise ValueError(f"pyarith:{name}: must be pyarith:policy")
    return Path(__file__).parent / "models" / name
