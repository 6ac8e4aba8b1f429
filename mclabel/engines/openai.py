"""The `openai` engine: any OpenAI-compatible server, to which prompts are sent as token ids.

Prompt and prefix are sent as token ids, and the server returns the sampled ids
(`return_token_ids`). If it returns only text, the local tokenizer encodes the text. In every
response, the number of tokens that the server read is compared with the number sent. So a server
that tokenises the prefix differently is detected. A server of the chat API must return the ids of
the prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from mclabel.core.errors import EngineError, UnusableResponse
from mclabel.core.records import Completion
from mclabel.core.settings import OPERATIONAL
from mclabel.engines.base import NO_ROOM
from mclabel.engines.endpoints import Endpoints, RefusedError
from mclabel.engines.model import ModelEngine
from mclabel.engines.openai_response import (
    list_served_models,
    make_bad_response_error,
    parse_server_completion,
    post_completion_request,
)
from mclabel.engines.served import ServedEngine, ServerSettings
from mclabel.engines.settings import PolicySettings
from mclabel.engines.text import (
    PROBE,
    find_model_end_ids,
    read_model_max_context,
    trim_end_token_and_text,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PROBE_PREFIX = "Step 1: one and one"
"""Solution prefix that the servers have to continue in a test at the start."""
ROUND_TRIPS = ("a\n\nb", "  x = 1/2 \n", "\\boxed{½}\n", "Step 1: 3 · 4 = 12.\n")
"""Texts that the tokenizer must reproduce exactly if the server returns no token ids."""
MAX_PROBLEMS = 20_000
"""Maximum number of problems whose texts are kept for the chat API."""
NEEDS = (
    "Use a server that supports this, such as vLLM's, or policy.engine=vllm, which runs the model "
    "itself"
)
"""Remedy that ends messages about a server that lacks a required feature."""


class OpenAIEngine(ServedEngine, ModelEngine):
    """Runs a policy on OpenAI-compatible servers."""

    class Settings(ServerSettings):
        """OpenAI-compatible servers of one model, addressed by token ids."""

        model: Annotated[str | None, OPERATIONAL] = None
        """Name of the model on the servers; null uses the only model that they serve."""
        api: Annotated[Literal["completions", "chat"], OPERATIONAL] = "completions"
        """API of the servers. For `chat`, a server must support continue_final_message and return
        the token ids of the prompt."""

        @property
        def served_model_name(self) -> str | None:
            """Name of the model in requests; None uses the only model of the servers."""
            return self.model

    reads_weights: ClassVar[bool] = False

    settings: Settings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Store the settings of the engine without connecting."""
        super().__init__(policy, seed=seed)
        self._served_model = self.settings.model
        self._end_ids: frozenset[int] = frozenset()
        self._max_context: float = inf
        self._problems: OrderedDict[tuple[int, ...], str] = OrderedDict()

    @property
    def api(self) -> str:
        """Name of the API: `completions` or `chat`."""
        return self.settings.api

    async def start(self) -> None:
        """Load the tokenizer, and check that the servers serve the model and continue prefixes."""
        policy, settings = self.policy, self.settings
        folder = self.fetch(weights=False)
        text = self.load_text(folder)
        if settings.api == "chat" and not text.is_chat:
            raise EngineError(
                "policy.engine.api=chat: this API needs a chat template, but policy.template is "
                "set or the model has no chat template. Remove policy.template, or set "
                "policy.engine.api=completions"
            )
        trust = policy.trust_remote_code
        ends = find_model_end_ids(text, folder, trust_remote_code=trust)
        self._end_ids = ends | frozenset(policy.stop_token_ids)
        own = read_model_max_context(folder, trust_remote_code=trust)
        self._max_context = min(policy.max_model_len or inf, own)
        await super().start()

    async def check_servers(self, endpoints: Endpoints) -> None:
        """Check that all servers serve the model, and that one continues a prefix exactly."""
        served = await endpoints.send_to_each(list_served_models, retry_s=self.start_s)
        limits = [
            self._find_served_max_context(endpoints, url, models) for url, models in served.items()
        ]
        self._max_context = min([self._max_context, *limits])
        await self._sample_test_completion(endpoints)

    @property
    def max_context(self) -> float:
        """Maximum number of tokens of prompt and solution together that every server accepts."""
        return self._max_context

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """Render the prompt of a problem, and keep the problem's text for the chat API."""
        ids = self.text.prompt_ids(problem)
        if self.settings.api == "chat":
            self._problems[ids] = problem
            self._problems.move_to_end(ids)
            if len(self._problems) > MAX_PROBLEMS:
                self._problems.popitem(last=False)
        return ids

    async def sample(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        priority: int = 0,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """Sample one completion of a prompt and of the beginning of a solution."""
        room = self.policy.room(len(prompt), len(prefix), self._max_context, max_tokens)
        if room < 1:
            return NO_ROOM
        body = self._build_request_body(
            tuple(prompt), tuple(prefix), room, seed if self.settings.per_request_seeds else None
        )
        body["stop"] += stop
        context = (*prompt, *prefix)
        return await self.request_completion(
            body,
            lambda response: self._build_completion(response, context, room, stop),
            affinity_key=hash(tuple(prompt)),
            priority=priority,
        )

    # Requests

    def _build_request_body(
        self, prompt: tuple[int, ...], prefix: tuple[int, ...], room: int, seed: int | None
    ) -> dict[str, Any]:
        """Return the JSON body of a request for one completion.

        It contains all sampling parameters, because servers have different defaults.
        """
        policy = self.policy
        body: dict[str, Any] = {
            "model": self._served_model,
            "max_tokens": room,
            "temperature": policy.temperature,
            "top_p": policy.top_p,
            "top_k": policy.top_k or -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "n": 1,
            "stop": list(policy.stop),
            "stop_token_ids": sorted(self._end_ids),
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "return_token_ids": True,
        }
        if seed is not None:
            body["seed"] = seed
        if self.settings.api == "completions":
            return {**body, "prompt": [*prompt, *prefix]}
        messages = self.text.build_messages(self._problems[prompt])
        if prefix:
            messages.append({"role": "assistant", "content": self.decode(prefix)})
        return {
            **body,
            "messages": messages,
            "add_generation_prompt": not prefix,
            "continue_final_message": bool(prefix),
            "chat_template_kwargs": self.policy.template_variables,
        }

    def _build_completion(
        self,
        response: dict[str, Any],
        context: tuple[int, ...],
        room: int,
        stop: Sequence[str] = (),
    ) -> Completion:
        """Return the completion in a server's response.

        Args:
            response: response of the server.
            context: token ids of prompt and prefix. The response must show that the server read
                exactly these.
            room: maximum number of tokens that the request allowed.
            stop: stop texts of the request, in addition to `policy.stop`.
        """
        server_completion = parse_server_completion(response, self.settings.api)
        self._check_prompt_tokens(server_completion.num_read, server_completion.prompt_ids, context)
        self.warn_of_missing_fields(server_completion)
        finish_reason = server_completion.normalised_finish_reason(room)
        if finish_reason == "failed":
            raise UnusableResponse(
                "policy.engine=openai: the server aborted a completion: "
                f"{server_completion.error or server_completion.finish_reason}"
            )
        at_stop = False
        ids = server_completion.ids
        if ids is None and server_completion.reasoning:
            raise EngineError(
                "policy.engine.api=chat: the server puts the model's reasoning into "
                "reasoning_content and returns no token ids (return_token_ids), so the sampled "
                "text is not known exactly. Start the server without a reasoning parser"
            )
        if ids is None and stop:
            raise EngineError(
                "policy.engine=openai: the server returns no token ids (return_token_ids), so the "
                f"end of a solution step cannot be determined. {NEEDS}"
            )
        if ids is None:
            ids = self._tokenise_exactly(server_completion.text)
        elif finish_reason == "stop":
            ids, at_stop = trim_end_token_and_text(
                ids, self._end_ids, self.policy.stop, stop, self.decode
            )
        self.add_token_counts(server_completion, len(ids))
        return Completion(
            ids=tuple(ids),
            text=self.decode(ids),
            finish_reason=finish_reason,
            at_stop=at_stop,
        )

    def _check_prompt_tokens(
        self, read: int | None, ids: tuple[int, ...] | None, context: tuple[int, ...]
    ) -> None:
        if read is None and ids is None:
            raise make_bad_response_error("has neither usage.prompt_tokens nor prompt_token_ids")
        read = len(ids or ()) if read is None else read
        if ids is None and self.settings.api == "chat":
            raise EngineError(
                "policy.engine.api=chat: the server does not return the token ids of the prompt "
                "(return_token_ids), so it cannot be checked that prefixes are continued "
                f"exactly. {NEEDS}"
            )
        if read == len(context) and (ids is None or ids == context):
            return
        remedy = (
            "The server has another chat template or date, does not support "
            "continue_final_message, tokenises the prefix differently, or interprets control "
            "tokens in a problem's text. Set policy.engine.api=completions"
            if self.settings.api == "chat"
            else "The server adds or drops tokens. Serve the model that policy.model names"
        )
        raise EngineError(
            f"policy.engine=openai: the server read {read} tokens, which are not the "
            f"{len(context)} tokens of prompt and prefix. {remedy}"
        )

    def _tokenise_exactly(self, text: str) -> tuple[int, ...]:
        ids = self.encode(text)
        if self.decode(ids) != text:
            raise EngineError(
                "policy.engine=openai: the server returns no token ids (return_token_ids), and "
                f"the tokenizer of policy.model does not reproduce its texts exactly. {NEEDS}"
            )
        return ids

    # Checks at the start

    def _find_served_max_context(
        self, endpoints: Endpoints, url: str, models: list[dict[str, Any]]
    ) -> float:
        """Return a server's context length in tokens, and check that the server has the model."""
        names = [str(model.get("id")) for model in models]
        wanted = self._served_model
        if wanted is None and len(names) == 1:
            wanted = self._served_model = names[0]
        if wanted not in names:
            served = endpoints.redact_message(", ".join(names) or "none")
            raise EngineError(
                f"policy.engine.model={wanted!r}: {url} serves {served}. Set policy.engine.model "
                "to a model that the server serves"
            )
        limit = models[names.index(wanted)].get("max_model_len")
        return float(limit) if isinstance(limit, int) else inf

    async def _sample_test_completion(self, endpoints: Endpoints) -> None:
        """Sample a short completion, to check that the server can continue a prefix."""
        prompt, prefix = self.prompt_ids(PROBE), self.encode(PROBE_PREFIX)
        body = self._build_request_body(prompt, prefix, 1, None)
        seen: list[dict[str, Any]] = []

        async def request(client: AsyncOpenAI) -> Completion:
            seen.append(await post_completion_request(client, self.settings.api, body))
            return self._build_completion(seen[-1], (*prompt, *prefix), 1)

        try:
            await endpoints.send_request(request, affinity_key=0, retry_s=self.start_s)
        except RefusedError as error:
            fault = (
                "token ids as a prompt and all sampling parameters"
                if self.settings.api == "completions"
                else "continue_final_message"
            )
            raise EngineError(
                f"{error}. The API {self.settings.api} of the server must accept {fault}. {NEEDS}"
            ) from error
        if seen[-1]["choices"][0].get("token_ids") is not None:
            return
        if self.policy.stop:
            raise EngineError(
                "policy.stop: the server returns no token ids (return_token_ids), so the "
                f"position of a stop string cannot be determined. {NEEDS}"
            )
        for text in ROUND_TRIPS:
            self._tokenise_exactly(text)
