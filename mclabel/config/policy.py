"""Configuration of the policy: model, prompt, sampling, engine, servers; and of the split."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from mclabel.config.base import OPERATIONAL, SENSITIVE, Config, at_most
from mclabel.data.boundaries import check_pattern


class SplitConfig(Config):
    """Where the steps of a solution end."""

    by: Literal["line", "blank_line", "step", "pattern"] = "line"
    """A step a line; a step a paragraph; a step begins at "Step k" at the beginning of a line;
    or at each match of `pattern`."""
    pattern: str | None = None
    """Regular expression of RE2, which takes linear time on any text. A step begins where it
    matches, or at its first group: `;()` would split after semicolons."""
    region: Literal["all", "think", "answer"] = "all"
    """Of a reasoning model: what is split. The thinking, if it is not, is the first step; the
    answer, if it is not, the last."""
    think: tuple[str, str] = ("<think>", "</think>")
    """Texts that open and close the thinking."""
    min_tokens: int = Field(1, ge=1)
    """A shorter step is joined to the next one, the last to the one before it."""
    max_steps: int | None = Field(None, ge=1)
    """More steps than this in the region are joined to neighbours, evenly."""

    @model_validator(mode="after")
    def _check(self) -> SplitConfig:
        if (self.by == "pattern") != (self.pattern is not None):
            raise ValueError("pattern and by=pattern belong together: set both or none")
        if self.pattern is not None:
            check_pattern(self.pattern)
        if not all(self.think):
            raise ValueError("think must hold two texts, not empty ones")
        return self


MAX_EXAMPLES = 256
"""They are put before every problem."""


class Example(Config):
    """A worked example that the prompt shows before the problem."""

    problem: str
    solution: str


class OpenAIConfig(Config):
    """Servers behind the `openai` engine."""

    endpoints: Annotated[list[str], SENSITIVE] = Field([])
    """Base URLs, such as http://10.0.0.7:8000/v1, of servers of the same model."""
    model: str | None = None
    """Name under which they serve it; by default the only one that they have."""
    api: Literal["completions", "chat"] = "completions"
    """`chat` needs a server that knows continue_final_message, and keeps the ids exact."""
    api_key_env: Annotated[str | None, SENSITIVE] = None
    """Name of the environment variable that holds the key, wherever an engine runs."""
    timeout_s: float = Field(1800, gt=0, allow_inf_nan=False)
    """Of one request."""
    retry_s: float = Field(600, ge=0, allow_inf_nan=False)
    """How long one completion is asked for again while servers refuse or do not answer."""

    @model_validator(mode="after")
    def _check(self) -> OpenAIConfig:
        for endpoint in self.endpoints:
            parts = urlsplit(endpoint)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("endpoints must be URLs like http://HOST:8000/v1")
            if parts.username or parts.password or parts.query or parts.fragment:
                raise ValueError(
                    "endpoints must hold no user, password or query: give a key by api_key_env"
                )
        if self.api_key_env is not None and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", self.api_key_env):
            raise ValueError(
                "api_key_env must be the name of an environment variable in capitals, such as "
                "OPENAI_API_KEY, never a key itself"
            )
        return self


class PolicyConfig(Config):
    """The policy and how it is sampled."""

    engine: Annotated[Literal["hf", "vllm", "openai", "scripted"], OPERATIONAL] = "hf"
    model: str = "arith:policy"
    """Folder or Hugging Face name; `arith:policy` and `arith:base` are bundled. Of the `openai`
    engine: where the tokenizer of the model that is served comes from."""
    revision: str | None = None
    """Commit or tag of a Hugging Face model; without one, the commit found at the start."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""
    template: str | None = None
    """Prompt with {problem} in it; by default the model's chat template."""
    system: str | None = None
    """System message of the chat."""
    few_shot: Annotated[list[Example], Field(max_length=MAX_EXAMPLES)] | str = Field([])
    """Worked examples shown before the problem, or a file of them (problem, solution)."""
    temperature: float = Field(0.8, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    """0 for all tokens."""
    max_tokens: int = Field(512, ge=1)
    """Tokens of a solution, the prefix's own included."""
    stop: list[Annotated[str, Field(min_length=1)]] = Field([])
    """Texts that end a completion, and stay in it, beside the model's own end tokens."""
    stop_token_ids: list[Annotated[int, Field(ge=0)]] = Field([])
    """Tokens that end a completion, and do not stay in it."""
    max_model_len: int | None = Field(None, ge=1)
    """Tokens of prompt and solution together; by default what the model was made for."""
    quantization: str | None = None
    """Of vllm, e.g. fp8 or awq; None follows the model."""
    max_live: Annotated[int, OPERATIONAL, at_most(65_536, "memory is set aside for every one")] = (
        Field(256, ge=1)
    )
    """Completions that an engine samples at a time."""
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], OPERATIONAL] = "auto"
    """Of weights. auto: float32 on a CPU, the model's own on a GPU."""
    device: Annotated[Literal["auto", "cpu", "cuda"], OPERATIONAL] = "auto"
    """auto: a GPU for vllm, the CPU for hf."""
    threads: Annotated[int, OPERATIONAL, at_most(1_024, "no machine has as many cores")] = Field(
        1, ge=1
    )
    """CPU threads of an engine that computes on a CPU."""
    tensor_parallel: Annotated[int, OPERATIONAL] = Field(1, ge=1)
    """GPUs of one node that hold a layer together (vllm)."""
    pipeline_parallel: Annotated[int, OPERATIONAL] = Field(1, ge=1)
    """Groups of such GPUs, on one node or several, that hold layers one after the other (vllm)."""
    gpu_memory_utilization: Annotated[float, OPERATIONAL] = Field(0.9, gt=0, le=1)
    """Share of a GPU's memory that vllm takes."""
    kv_cache_gib: Annotated[float | None, OPERATIONAL] = Field(None, gt=0)
    """Memory for keys and values (vllm). By default what is left on a GPU, 1 GiB on a CPU."""
    per_request_seeds: Annotated[Literal["auto"] | bool, OPERATIONAL] = "auto"
    """A seed for each completion (vllm, openai). auto: on a CPU; they slow a GPU down."""
    engine_args: Annotated[dict[str, Any], OPERATIONAL] = Field({})
    """More arguments of vllm's AsyncEngineArgs."""
    openai: Annotated[OpenAIConfig, OPERATIONAL] = OpenAIConfig()
    scripted: Annotated[dict[str, float | bool], OPERATIONAL] = Field({})
    """Arguments of the scripted engine, for tests."""

    @model_validator(mode="after")
    def _check(self) -> PolicyConfig:
        if self.engine == "openai" and not self.openai.endpoints:
            raise ValueError("engine=openai needs openai.endpoints=[http://HOST:8000/v1]")
        if self.template is not None and "{problem}" not in self.template:
            raise ValueError("template must hold {problem}, where the problem's text is put")
        if self.template is not None and (self.system or self.few_shot):
            raise ValueError("system and few_shot belong to the chat; write them into template")
        if self.engine != "vllm" and max(self.tensor_parallel, self.pipeline_parallel) > 1:
            raise ValueError(
                "tensor_parallel and pipeline_parallel need engine=vllm; others use one device"
            )
        if taken := sorted(set(self.engine_args) & set(ENGINE_ARGS)):
            named = ", ".join(f"{name} (set {ENGINE_ARGS[name]})" for name in taken)
            raise ValueError(f"engine_args must not hold {named}")
        return self


ENGINE_ARGS = {
    "model": "policy.model",
    "tokenizer": "policy.model",
    "revision": "policy.revision",
    "tokenizer_revision": "policy.revision",
    "trust_remote_code": "policy.trust_remote_code",
    "hf_token": "the environment variable HF_TOKEN",
    "seed": "seed",
    "dtype": "policy.dtype",
    "quantization": "policy.quantization",
    "max_model_len": "policy.max_model_len",
    "max_num_seqs": "policy.max_live",
    "tensor_parallel_size": "policy.tensor_parallel",
    "pipeline_parallel_size": "policy.pipeline_parallel",
    "distributed_executor_backend": "policy.pipeline_parallel",
    "gpu_memory_utilization": "policy.gpu_memory_utilization",
    "kv_cache_memory_bytes": "policy.kv_cache_gib",
}
"""Arguments of vLLM's engine that have a key of their own, which is to be used."""
