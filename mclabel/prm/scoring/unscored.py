"""A solution that a scorer cannot tell the score of: it is unknown, never 0 and never a half."""

from __future__ import annotations

from mclabel.core.errors import DataError


class UnscoredError(DataError):
    """A solution was read, but nothing that the scorer sampled on it gives a verdict.

    `score_encoded` gives it in place of the solution's scores; who needs them raises it.
    """

    def __init__(self, reason: str, *, num_tokens: int = 0) -> None:
        """Note why there is no score.

        Args:
            reason: a sentence without the name of the solution.
            num_tokens: that were sampled in vain.
        """
        super().__init__(reason)
        self.num_tokens = num_tokens
