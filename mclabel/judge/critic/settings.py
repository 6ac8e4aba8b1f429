"""Settings of a critic: what it is asked, and how often."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.core.settings import MAX_TOKENS, OneOf, Settings, at_most, rule
from mclabel.engines.settings import PolicySettings
from mclabel.judge.critic.parse import FIRST_INDEX
from mclabel.judge.critic.prompts import TEMPLATES, Template, missing_placeholders, own_template

MAX_VOTES = 1_024
"""On one solution."""


class CriticPolicySettings(PolicySettings):
    """A critic's model: the keys of `policy`, sampled as ProcessBench's votes are by default."""

    temperature: float = Field(1.0, ge=0, le=2)
    """Sampling temperature. 0 always takes the likeliest token, and makes all votes the same."""
    top_p: float = Field(0.9, gt=0, le=1)
    """Nucleus sampling: sample from the smallest set of tokens whose total probability is at least
    this. 1 samples from all tokens."""


class CriticSettings(Settings):
    """What a critic is asked about a solution, and for how many votes."""

    prompt: str = Field("processbench", min_length=1)
    """Name of a built-in prompt (`processbench`, `lessons`, `step_verdicts` or `thinkprm`), or the
    text of a template that contains {problem}, {steps} and, with `use_reference`, {reference}."""
    parser: Annotated[str, OneOf(tuple(FIRST_INDEX))] | None = None
    """Built-in prompt whose answer format and step marks a template of your own uses; required for
    such a template. null for a built-in prompt."""
    use_reference: bool = False
    """Whether the critic is shown the problem's reference solution or answer."""
    least_votes: int = Field(3, ge=1, le=MAX_VOTES)
    """Minimum number of votes, that is, readable answers of the language model, for an opinion. If
    that many all agree, no more are sampled."""
    most_votes: Annotated[
        int, at_most(MAX_VOTES, "all of a solution's votes are sampled on one engine")
    ] = Field(8, ge=1)
    """Maximum number of votes on a solution."""
    max_tokens: int = Field(8_192, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens in an answer. An answer that is cut without a verdict is sampled
    once more with twice as many."""

    @property
    def template(self) -> Template:
        """The prompt as a template."""
        if self.prompt in TEMPLATES:
            return TEMPLATES[self.prompt]
        assert self.parser is not None, "checked by a rule"
        return own_template(self.prompt, self.parser)

    @rule
    def _a_prompt_is_a_name_or_a_template(self) -> str | None:
        if self.prompt in TEMPLATES or not (fault := missing_placeholders(self.prompt)):
            return None
        if "\n" in self.prompt or "{" in self.prompt:
            return f"prompt: {fault}"
        return (
            f"prompt={self.prompt[:100]!r}: is neither a built-in prompt nor a template with "
            f"{{problem}} and {{steps}}. Take one of {', '.join(TEMPLATES)}, or write a template"
        )

    @rule
    def _an_own_prompt_has_a_parser(self) -> str | None:
        if self.prompt in TEMPLATES:
            return (
                f"parser={self.parser}: applies to a template of your own, but prompt="
                f"{self.prompt} is a built-in one. Remove parser"
                if self.parser is not None
                else None
            )
        if self.parser is None and not missing_placeholders(self.prompt):
            return (
                "parser=null: a template of your own needs a parser for its answers. Set parser "
                f"to one of {', '.join(FIRST_INDEX)}"
            )
        return None

    @rule
    def _a_reference_has_a_place(self) -> str | None:
        if self.prompt in TEMPLATES or self.use_reference == ("{reference}" in self.prompt):
            return None
        if self.use_reference:
            return (
                "use_reference=true: the template of your own has no {reference}. Add it where "
                "the reference should stand"
            )
        return (
            "use_reference=false: the template of your own contains {reference}. Set "
            "use_reference=true, or remove it"
        )

    @rule
    def _least_is_at_most_most(self) -> str | None:
        if self.least_votes > self.most_votes:
            return (
                f"least_votes={self.least_votes}: must be at most most_votes={self.most_votes}. "
                "Lower it, or raise most_votes"
            )
        return None
