"""Settings of a policy: its model, its prompt, how it is sampled, and the engine that runs it.

What a label means depends on the policy. Which engine runs it does not: of an engine's settings
only those enter the identity of a run that its class does not mark as operational, such as the
quantization of weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from mclabel.settings import (
    OPERATIONAL,
    RUNS_CODE,
    Chosen,
    ComponentSettings,
    Settings,
    at_most,
)

MAX_EXAMPLES = 256
"""They are put before every problem."""
_SET_ASIDE = "memory is set aside for every one"
_NO_CORES = "no machine has as many cores"


class EngineSettings(ComponentSettings):
    """Base of the settings of engines.

    A run may be resumed on another engine, so an engine's name is not part of its identity. A
    field that changes what is sampled is left without the mark `OPERATIONAL`.
    """

    component_kind: ClassVar[str] = "engines"

    kind: Annotated[str, OPERATIONAL] = ""
    """Name of the engine: a built-in one, one of another package, or `module:Class`."""

    def identity(self) -> dict[str, Any]:
        """The fields that change what is sampled, where they differ from their first defaults."""
        return Settings.identity(self)

    def semantic(self) -> dict[str, Any]:
        """As `identity`: a field that only one engine has must not make engines differ."""
        return self.identity()


class BatchSettings(EngineSettings):
    """Settings of engines that sample a bounded number of completions at a time."""

    max_live: Annotated[int, OPERATIONAL, at_most(65_536, _SET_ASIDE)] = Field(256, ge=1)
    """Most completions that an engine samples at the same time."""


Device = Literal["cpu", "cuda"]


class DeviceSettings(BatchSettings):
    """Settings of engines that compute where they run."""

    device: Annotated[Device, OPERATIONAL] = "cpu"
    """Device on which the engine computes."""
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], OPERATIONAL] = "auto"
    """Type of the weights. `auto` takes float32 on a CPU and the model's own type on a GPU."""
    threads: Annotated[int, OPERATIONAL, at_most(1_024, _NO_CORES)] = Field(1, ge=1)
    """CPU threads of each engine, where it computes on a CPU."""

    @property
    def weights_dtype(self) -> str:
        """The dtype in which weights are loaded; `auto` for the model's own."""
        return "float32" if self.dtype == "auto" and self.device == "cpu" else self.dtype


class Example(Settings):
    """A worked example that the prompt shows before the problem."""

    problem: str
    solution: str


_ENGINE = Chosen("engines", default="hf")


def _default_engine() -> EngineSettings:
    """Settings of the default engine, found by its name: every engine's class needs this module."""
    found = _ENGINE.settings({})
    assert isinstance(found, EngineSettings)
    return found


class PolicySettings(Settings):
    """The policy and how it is sampled. A step's value is defined by these."""

    moved: ClassVar[Mapping[str, str]] = {
        name: f"engine.{name}"
        for name in (
            *("max_live", "dtype", "device", "threads", "quantization", "engine_args"),
            *("tensor_parallel", "pipeline_parallel", "gpu_memory_utilization", "kv_cache_gib"),
            "per_request_seeds",
        )
    } | {"openai": "engine, with kind: openai", "scripted": "engine, with kind: scripted"}

    engine: Annotated[EngineSettings, _ENGINE] = Field(default_factory=_default_engine)
    """The engine that runs the model: its name in `kind` (hf, vllm, openai), and its settings."""
    model: str = "arith:policy"
    """Folder or Hugging Face name; `arith:policy` and `arith:strong` are bundled. With
    engine.kind=openai: where the tokenizer of the model that is served comes from."""
    revision: str | None = None
    """Commit or tag of a Hugging Face model; without one, the commit found at the start."""
    trust_remote_code: Annotated[bool, RUNS_CODE] = False
    """Run Python code that comes with the model. A file alone must not say so."""
    template: str | None = None
    """Prompt with {problem} in it; by default the model's chat template."""
    system: str | None = None
    """System message of the chat."""
    few_shot: Annotated[list[Example], Field(max_length=MAX_EXAMPLES)] | str = Field([])
    """Worked examples shown before the problem, or a file of them (problem, solution)."""
    temperature: float = Field(0.8, ge=0, le=2)
    """Temperature of the sampling. 0 always takes the likeliest token."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample from the smallest set of tokens that holds this probability."""
    top_k: int = Field(0, ge=0)
    """Sample from this many of the likeliest tokens; 0 samples from all."""
    max_tokens: int = Field(512, ge=1)
    """Limit on the tokens of a whole solution, including those of the prefix that a rollout
    continues."""
    stop: list[Annotated[str, Field(min_length=1)]] = Field([])
    """Texts that end a completion, besides the model's own end tokens. They stay in the
    completion."""
    stop_token_ids: list[Annotated[int, Field(ge=0)]] = Field([])
    """Ids of tokens that end a completion. They do not stay in it."""
    max_model_len: int | None = Field(None, ge=1)
    """Limit on the tokens of prompt and solution together. By default it is the model's own."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.template is not None and "{problem}" not in self.template:
            raise ValueError("template must hold {problem}, where the problem's text is put")
        if self.template is not None and (self.system or self.few_shot):
            raise ValueError("system and few_shot belong to the chat; write them into template")
        return self

    @property
    def examples(self) -> tuple[tuple[str, str], ...]:
        """Worked examples as pairs of problem and solution; those of a file are read before."""
        assert not isinstance(self.few_shot, str), "the file of examples is not read yet"
        return tuple((one.problem, one.solution) for one in self.few_shot)

    def room(self, num_prompt: int, num_prefix: int, max_context: float) -> int:
        """Tokens that may be sampled after a prompt and a prefix; 0 where there is no room."""
        return int(max(0, min(self.max_tokens - num_prefix, max_context - num_prompt - num_prefix)))
