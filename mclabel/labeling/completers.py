"""Completers: models that roll out, beside the author or in its place, so that blind spots show.

The author of a solution cannot recover from a sound step that it always misreads, and recovers
from wrong ones by the same slips. A stronger model does neither as often, so the outcomes of its
rollouts say more of the step (arXiv 2501.07301 labels so with a larger model). Values are then
its own: for values under the author (reinforcement learning, search) the author has to roll out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import Field

from mclabel.core.errors import BadAnswer, EngineDied, EngineError
from mclabel.core.records import AUTHOR
from mclabel.core.settings import rule
from mclabel.engines import Policy, PolicySettings
from mclabel.labeling.prefixes import Prefix

MAX_COMPLETERS = 8
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class CompleterSettings(PolicySettings):
    """A model that rolls out, with its own engine, prompt and sampling: the keys of `policy`."""

    model: str = Field(min_length=1)
    """Model folder or Hugging Face name, as in `policy.model`; `arith:strong` is bundled. `policy`
    is the policy itself, which then rolls out beside the others and takes no other keys."""
    name: str | None = Field(None, pattern=f"^{_NAME}$")
    """Name of the completer in labels and tables. null takes the last part of `model`."""
    cost: float | None = Field(None, ge=1e-6, le=1e15)
    """Cost of one token of the completer, in any unit; only ratios matter. Set it for all
    completers or for none. null takes the number of the model's parameters. `posterior` spreads
    tokens by it, and the most costly completer counts as the strongest."""

    @property
    def is_author(self) -> bool:
        """Return whether it is the policy itself, as it wrote the solutions."""
        return self.model == AUTHOR

    @property
    def called(self) -> str:
        """Its name in labels."""
        if self.is_author:
            return AUTHOR
        last = re.split("[/:]", self.model.rstrip("/"))[-1]
        return self.name or re.sub(r"[^A-Za-z0-9._-]", "-", last)

    @rule
    def _the_policy_has_its_own_keys(self) -> str | None:
        given = self.model_fields_set - {"model", "cost"}
        if self.is_author and given:
            return (
                f"model=policy is the policy itself, whose other keys are those of `policy`. "
                f"Remove {', '.join(sorted(given))}"
            )
        return None

    @rule
    def _its_name_is_its_own(self) -> str | None:
        if not re.fullmatch(_NAME, self.called):
            return (
                f"model={self.model!r}: its last part cannot be used as a name in labels. Set name "
                "to 1 to 64 letters, digits and . _ -"
            )
        if not self.is_author and self.called == AUTHOR:
            return (
                f"model={self.model!r}: the name {self.called!r} is reserved for the policy. Set "
                f"name, or write {{model: policy}} for the policy itself"
            )
        return None


class Inexpressible(Exception):
    """A completer's tokenizer does not give a prefix back."""


def spelled(policy: Policy, prefix: Prefix) -> tuple[int, ...]:
    """The tokens of a prefix as a completer reads it, which end where the prefix's last step ends.

    Args:
        policy: the completer.
        prefix: prefix of the author's solution.

    Raises:
        Inexpressible: decoded, they give another text.
    """
    ids = policy.encode(prefix.text) if prefix.text else ()
    if policy.decode(ids) != prefix.text:
        raise Inexpressible(
            "the completer's tokenizer does not reproduce the text of a step that ends after "
            f"{len(prefix.text):,} characters, so the completer cannot continue from there. "
            "Choose another completer, or remove the solution"
        )
    return ids


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Say whose engine failed, where it is not the policy's."""
    try:
        yield
    except EngineError as error:
        if name == AUTHOR:
            raise
        kinds = (kind for kind in (EngineDied, BadAnswer) if isinstance(error, kind))
        raise next(kinds, EngineError)(f"completer {name}: {error}") from error
