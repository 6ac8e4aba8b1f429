"""Completers: models that sample rollouts, in addition to the author of the solutions or instead.

The author is the policy that wrote the solutions. It may fail after every correct step of some
kind, or reach the right answer from a wrong step by repeating the mistake. A stronger model does
both less often, so its rollouts locate errors better (arXiv 2501.07301). The step values are then
values under that model. Reinforcement learning and search need values under the author, so for them
the author has to sample the rollouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import Field

from mclabel.core.errors import EngineDied, EngineError, UnusableResponse
from mclabel.core.records import AUTHOR
from mclabel.core.settings import rule
from mclabel.engines import Policy, PolicySettings
from mclabel.labeling.prefixes import Prefix

MAX_COMPLETERS = 8
"""Maximum number of completers of a job."""
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class CompleterSettings(PolicySettings):
    """A model that samples rollouts. It has its own engine, prompt and sampling settings, under
    the same keys as `policy`.
    """

    model: str = Field(min_length=1)
    """Model folder or Hugging Face name, as in `policy.model`; `arith:strong` is bundled. The value
    `policy` means the configured `policy` itself; such an entry may have no other key except
    `cost`."""
    name: str | None = Field(None, pattern=f"^{_NAME}$")
    """Name of the completer in labels and tables. null uses the last part of `model`."""
    cost: float | None = Field(None, ge=1e-6, le=1e15)
    """Cost of one token of the completer, in any unit; only ratios between completers matter. Set
    the cost for all completers or for none. null uses the model's number of parameters. The
    `posterior` estimator divides its tokens among completers by cost. The completer with the
    highest cost counts as the strongest."""

    @property
    def is_author(self) -> bool:
        """Return whether the completer is the policy, the author of the solutions."""
        return self.model == AUTHOR

    @property
    def label_name(self) -> str:
        """Name of the completer in labels: `name`, or else the last part of `model`."""
        if self.is_author:
            return AUTHOR
        last = re.split("[/:]", self.model.rstrip("/"))[-1]
        return self.name or re.sub(r"[^A-Za-z0-9._-]", "-", last)

    @rule
    def _check_policy_keys(self) -> str | None:
        given = self.model_fields_set - {"model", "cost"}
        if self.is_author and given:
            return (
                f"model=policy means the policy itself, which is configured under `policy`. "
                f"Remove {', '.join(sorted(given))}"
            )
        return None

    @rule
    def _check_completer_name(self) -> str | None:
        if not re.fullmatch(_NAME, self.label_name):
            return (
                f"model={self.model!r}: the last part of the model cannot be used as a name in "
                "labels. Set name to 1 to 64 letters, digits and . _ -"
            )
        if not self.is_author and self.label_name == AUTHOR:
            return (
                f"model={self.model!r}: the name {self.label_name!r} is reserved for the policy. "
                f"Set name, or write {{model: policy}} for the policy itself"
            )
        return None


class PrefixNotReproduced(Exception):
    """Error if a completer's tokenizer changes the text of a prefix by encoding and decoding it."""


def encode_prefix(policy: Policy, prefix: Prefix) -> tuple[int, ...]:
    """Return a prefix's token ids in a completer's vocabulary.

    The last token ends where the last step of the prefix ends.

    Args:
        policy: the completer's policy.
        prefix: prefix of a solution that the author wrote.

    Raises:
        PrefixNotReproduced: the ids decode to another text than the prefix's.
    """
    ids = policy.encode(prefix.text) if prefix.text else ()
    if policy.decode(ids) != prefix.text:
        raise PrefixNotReproduced(
            "the completer's tokenizer does not reproduce the text of a step that ends after "
            f"{len(prefix.text):,} characters, so the completer cannot continue from there. "
            "Choose another completer, or remove the solution"
        )
    return ids


@contextmanager
def add_completer_name_to_errors(name: str) -> Iterator[None]:
    """Add the completer's name to the message of an engine error; do nothing for the author.

    Args:
        name: name of the model whose engine is called in the context.
    """
    try:
        yield
    except EngineError as error:
        if name == AUTHOR:
            raise
        kinds = (kind for kind in (EngineDied, UnusableResponse) if isinstance(error, kind))
        raise next(kinds, EngineError)(f"completer {name}: {error}") from error
