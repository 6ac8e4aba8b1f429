"""Settings of a policy: its model, its prompt, its sampling parameters, and its engine.

The meaning of a label depends on the policy, but not on the engine that runs the policy. The
identity of a run decides whether it can be resumed. It contains only those settings of the engine
that change the sampled text, such as the quantization of weights; all others are marked as
`OPERATIONAL`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.settings import (
    MAX_AMOUNT,
    MAX_TOKENS,
    ONE_VALUE,
    OPERATIONAL,
    Chosen,
    ComponentSettings,
    Settings,
    TrustsCode,
    at_most,
    rule,
)
from mclabel.engines.chat import RESERVED_VARIABLES, PromptParts
from mclabel.engines.devices import AUTO, resolve_device

MAX_EXAMPLES = 256
"""Maximum number of worked examples in `few_shot`, which precede every problem."""
MAX_VARIABLES = 64
"""Maximum number of entries in `template_variables`."""
_IDENTIFIER = "^[A-Za-z_][A-Za-z0-9_]*$"
_BOUNDED = Field(ge=-MAX_AMOUNT, le=MAX_AMOUNT)
_VariableField = (
    bool
    | Annotated[int, _BOUNDED]
    | Annotated[float, _BOUNDED]
    | Annotated[str, Field(max_length=10_000)]
)
"""Type of a chat template's `Variable`, with the ranges that a configuration allows."""
_SET_ASIDE = "memory is set aside for every one"
_NO_CORES = "no machine has as many cores"


class EngineSettings(ComponentSettings):
    """Base class of the settings of engines.

    A run may be resumed on another engine, so the engine's name is not part of the run's identity.
    Fields that do not affect the sampled text are marked `OPERATIONAL`.
    """

    component_kind: ClassVar[str] = "engines"

    kind: Annotated[str, OPERATIONAL] = ""
    """Name of the engine: a built-in one, one of another package, or `module:Class`."""

    def identity(self) -> dict[str, Any]:
        """Return the fields that affect the sampled text and differ from their defaults."""
        return Settings.identity(self)

    def semantic(self) -> dict[str, Any]:
        """Return the same as `identity()`.

        Fields with their default are left out, so that two engines do not differ by a field that
        only one of them has.
        """
        return self.identity()

    @property
    def served_model_name(self) -> str | None:
        """Name of the model on a server, which may differ from `policy.model`.

        It is None if the name is not set or the engine uses no server.
        """
        return None


class BoundedSettings(EngineSettings):
    """Settings of engines that sample a bounded number of completions at a time."""

    max_live: Annotated[int, OPERATIONAL, at_most(65_536, _SET_ASIDE)] = Field(256, ge=1)
    """Maximum number of completions that an engine samples at the same time."""


class DeviceSettings(BoundedSettings):
    """Settings of engines that compute in their own process, not on a server."""

    device: Annotated[Literal["auto", "cpu", "cuda"], OPERATIONAL] = AUTO
    """Device of the engine. `auto` uses cuda if the machine that runs the command has a GPU."""
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], OPERATIONAL] = "auto"
    """Data type of the weights. `auto`: float32 on a CPU, the model's own on a GPU."""
    threads: Annotated[int, OPERATIONAL, at_most(1_024, _NO_CORES)] = Field(1, ge=1)
    """Number of threads of each engine if it runs on a CPU; at most one per core is used."""

    @property
    def resolved_device(self) -> str:
        """The device that `device` stands for in this process: `cpu` or `cuda`."""
        return resolve_device(self.device)

    @property
    def weights_dtype(self) -> str:
        """Data type in which weights are loaded; `auto` takes that of the model's files."""
        on_cpu = self.dtype == "auto" and self.resolved_device == "cpu"
        return "float32" if on_cpu else self.dtype


class Example(Settings):
    """A worked example that the prompt shows before the problem."""

    problem: str
    solution: str


_ENGINE = Chosen("engines", default="hf")


def _make_default_engine() -> EngineSettings:
    """Return the settings of the default engine.

    They are found by name, because the modules of engines import this module.
    """
    engine = _ENGINE.settings({})
    assert isinstance(engine, EngineSettings)
    return engine


class PolicySettings(Settings):
    """Settings of a policy: its model, prompt and sampling, on which a step's value depends."""

    engine: Annotated[EngineSettings, _ENGINE] = Field(default_factory=_make_default_engine)
    """Engine that runs the model."""
    model: str = "arith:policy"
    """Model folder, Hugging Face name, or name of a bundled model: `arith:policy`, `arith:strong`,
    `arith:reflective`, `pyarith:policy`, `smollm2:135m`, `smollm2:words`."""
    revision: str | None = None
    """Commit or tag of a Hugging Face model; null takes the latest."""
    trust_remote_code: TrustsCode = False
    """True if the model's own Python code may run (command line only)."""
    template: str | None = None
    """Prompt template with {problem}; null uses the model's chat template. Control tokens such as
    <|im_start|> are special tokens in the template, but plain text in a problem."""
    template_variables: Annotated[
        dict[Annotated[str, Field(pattern=_IDENTIFIER, max_length=64)], _VariableField],
        Field(max_length=MAX_VARIABLES),
        ONE_VALUE,
    ] = Field({})
    """Variables of the chat template, such as {enable_thinking: false}."""
    system: str | None = None
    """System message in the chat template."""
    few_shot: Annotated[list[Example], Field(max_length=MAX_EXAMPLES)] | str = Field([])
    """Worked examples before the problem, each with problem and solution, or the path of a file
    with such examples."""
    temperature: float = Field(0.8, ge=0, le=2)
    """Sampling temperature; 0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: total probability of the tokens to sample from."""
    top_k: int = Field(0, ge=0, le=MAX_TOKENS)
    """Number of most likely tokens to sample from; 0 for all."""
    max_tokens: int = Field(512, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens in a solution, or in prefix and rollout together."""
    stop: list[Annotated[str, Field(min_length=1)]] = Field([])
    """Stop strings, kept in the completion."""
    stop_token_ids: list[Annotated[int, Field(ge=0, le=MAX_TOKENS)]] = Field([])
    """Stop token ids, not kept in the completion."""
    max_model_len: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens in prompt and solution together; null uses the model's limit."""

    @rule
    def _check_template_contains_problem_placeholder(self) -> str | None:
        if self.template is not None and "{problem}" not in self.template:
            return "template must contain {problem}, which is replaced by the problem's text"
        return None

    @rule
    def _check_single_chat_template(self) -> str | None:
        if self.template is not None and (self.system or self.few_shot):
            return (
                "system and few_shot apply only to the model's chat template. Write "
                "their text into template, and remove them"
            )
        return None

    @rule
    def _check_template_variables_need_chat(self) -> str | None:
        if self.template is not None and self.template_variables:
            return (
                "template_variables apply only to the model's chat template. Write their values "
                "into template, and remove template_variables"
            )
        if taken := sorted(RESERVED_VARIABLES & self.template_variables.keys()):
            return (
                f"template_variables: {', '.join(taken)} is set by mclabel itself. Use other names "
                "that the chat template reads"
            )
        return None

    @property
    def examples(self) -> tuple[tuple[str, str], ...]:
        """Worked examples as pairs of problem and solution. They are not read from a file here."""
        assert not isinstance(self.few_shot, str), "the file of examples is not read yet"
        return tuple((example.problem, example.solution) for example in self.few_shot)

    @property
    def prompt_parts(self) -> PromptParts:
        """The parts of a prompt that surround the problem."""
        return PromptParts(
            template=self.template,
            system=self.system,
            few_shot=self.examples,
            variables=self.template_variables,
        )

    def room(
        self,
        num_prompt: int,
        num_prefix: int,
        max_context: float,
        max_tokens: int | None = None,
    ) -> int:
        """Return how many tokens can be sampled after a prompt and a prefix, at least 0.

        Args:
            num_prompt: number of tokens of the prompt.
            num_prefix: number of tokens of the prefix.
            max_context: the engine's maximum number of tokens in prompt and solution together.
            max_tokens: maximum number of tokens in the solution; None uses the setting
                `max_tokens`.
        """
        most = self.max_tokens if max_tokens is None else max_tokens
        return int(max(0, min(most - num_prefix, max_context - num_prompt - num_prefix)))


_KEY = re.compile(r"(?<![\w.:/])policy(?=\.)")


@contextmanager
def name_section_in_errors(section: str) -> Iterator[None]:
    """Replace `policy.…` in the errors of an engine by the keys of another section.

    Engines name their settings `policy.…` in messages, as in a labelling job.

    Args:
        section: section that holds the policy's settings, such as `judge.policy`.
    """
    try:
        yield
    except (ConfigError, EngineError) as error:
        error.args = tuple(rename_policy_keys(str(text), section) for text in error.args)
        raise


def rename_policy_keys(message: str, section: str) -> str:
    """Return an engine's message with `policy.…` replaced by keys of `section`."""
    return _KEY.sub(section, message)
