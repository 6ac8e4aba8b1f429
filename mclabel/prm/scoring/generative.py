"""Settings of a generative PRM: a language model that writes a verification, then gives a verdict.

Its scores are computed by `mclabel.judge.generative`, which reads chains as critics are read.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mclabel.core.settings import MAX_TOKENS, Settings, at_most, rule
from mclabel.engines import Engine, make_engine
from mclabel.engines.sections import settings_of
from mclabel.engines.settings import PolicySettings

BUILT_IN = ("thinkprm", "genprm")
"""Names of the built-in templates: ThinkPRM (arXiv 2504.16828) and GenPRM without code
(arXiv 2504.00891)."""
POLICY = "generative.policy"
"""Key of the model's settings, in messages."""
MAX_CHAINS = 1_024
"""Of one solution."""
PLACEHOLDERS = ("{problem}", "{steps}")


class VerifierPolicySettings(PolicySettings):
    """How a generative PRM is run and sampled: the keys of `policy`, but for the model."""

    temperature: float = Field(0.6, ge=0, le=2)
    """Sampling temperature of the chains. 0 makes all chains of a solution the same."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Nucleus sampling: sample from the smallest set of tokens whose total probability is at least
    this. 1 samples from all tokens."""
    max_tokens: int = Field(4_096, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens in a chain; with template=genprm, in the analysis of one step. A
    chain that is cut is sampled once more with twice as many, and is unknown if cut again."""


class GenerativeSettings(Settings):
    """How a generative PRM verifies a solution, and how its verdict is read."""

    template: str = Field("thinkprm", min_length=1)
    """What the model is asked: `thinkprm` or `genprm` as the authors ask theirs, or a text that
    contains {problem} and {steps}, whose answer gives every step \\boxed{correct} or
    \\boxed{incorrect}."""
    least_chains: int = Field(4, ge=1, le=MAX_CHAINS)
    """Minimum number of finished chains for each solution. If that many all agree on the first
    error, no more are sampled."""
    most_chains: Annotated[
        int, at_most(MAX_CHAINS, "all of a solution's chains are sampled on one engine")
    ] = Field(4, ge=1)
    """Maximum number of chains for each solution. More are sampled only while the chains do not
    agree on the first error."""
    read: Literal["token", "text"] = "token"
    """Whether a verdict is the probability of its token where the engine gives it, else the word in
    the text (`token`), or always the word (`text`)."""
    policy: VerifierPolicySettings = VerifierPolicySettings()
    """How the model is run and sampled. The model itself is named by `prm`."""

    @rule
    def _a_template_is_a_name_or_a_text(self) -> str | None:
        missing = [one for one in PLACEHOLDERS if one not in self.template]
        if self.template in BUILT_IN or not missing:
            return None
        return (
            f"template={self.template[:100]!r}: must be {' or '.join(BUILT_IN)}, or a text that "
            f"contains {' and '.join(PLACEHOLDERS)}. Choose one of these, or add "
            f"{' and '.join(missing)}"
        )

    @rule
    def _least_is_at_most_most(self) -> str | None:
        if self.least_chains > self.most_chains:
            return (
                f"least_chains={self.least_chains}: must be at most most_chains="
                f"{self.most_chains}. Lower it, or raise most_chains"
            )
        return None

    @rule
    def _the_model_is_named_once(self) -> str | None:
        usual = VerifierPolicySettings()
        if self.policy.model == usual.model and not self.policy.trust_remote_code:
            return None
        return (
            "policy.model and policy.trust_remote_code: are taken from prm and trust_remote_code "
            "of the scorer. Remove them here"
        )

    @rule
    def _no_examples_are_shown(self) -> str | None:
        if not self.policy.few_shot:
            return None
        return (
            "policy.few_shot: a verifier is shown no examples before a solution. Remove it, or "
            "write them into template"
        )

    def policy_of(self, prm: str, *, trust_remote_code: bool) -> PolicySettings:
        """The policy that runs a model."""
        return self.policy.changed(model=prm, trust_remote_code=trust_remote_code)

    def engine_of(self, prm: str, *, trust_remote_code: bool) -> Engine:
        """The engine that runs a model, not started.

        Raises:
            ConfigError: the settings name no engine.
        """
        with settings_of(POLICY):
            return make_engine(self.policy_of(prm, trust_remote_code=trust_remote_code))
