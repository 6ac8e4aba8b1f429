"""The `openai` engine: any OpenAI-compatible server, addressed by token ids.

A prompt and a prefix go to the completions endpoint as ids, and the sampled ids come back
(`return_token_ids`); what a server reads is counted in every answer, so that none can tokenise
anew unnoticed. A server that gives no ids has its texts tokenised once, in one piece, by the local
tokenizer. The chat endpoint takes only text: it is used if it continues the last message, and
shows by its prompt's ids, in every answer, that it read the very ids that were meant.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from mclabel.errors import EngineError
from mclabel.policy.base import NO_ROOM, EngineStats, SamplingParams
from mclabel.policy.endpoints import BusyError, Endpoints, RefusedError, Slots
from mclabel.policy.hub import fetch_model
from mclabel.policy.text import (
    PROBE,
    PolicyText,
    TextPolicy,
    model_end_ids,
    model_max_context,
    stopped_ids,
)
from mclabel.records import Completion

if TYPE_CHECKING:
    from openai import AsyncOpenAI

START_S = 20.0
"""How long servers are waited for at the start."""
PROBE_PREFIX = "Step 1: one and one"
ROUND_TRIPS = ("a\n\nb", "  x = 1/2 \n", "\\boxed{½}\n", "Step 1: 3 · 4 = 12.\n")
MAX_PROBLEMS = 20_000  # whose texts are kept for the chat endpoint
NEEDS = (
    "Use a server that does, such as `vllm serve`, or policy.engine=vllm, which runs the model "
    "itself"
)


class OpenAIPolicy(TextPolicy):
    """A `Policy` on servers."""

    def __init__(
        self,
        *,
        model: str,
        sampling: SamplingParams,
        endpoints: Sequence[str],
        revision: str | None = None,
        template: str | None = None,
        system: str | None = None,
        few_shot: Sequence[tuple[str, str]] = (),
        trust_remote_code: bool = False,
        max_model_len: int | None = None,
        max_live: int = 256,
        per_request_seeds: bool = False,
        served_model: str | None = None,
        api: Literal["completions", "chat"] = "completions",
        api_key_env: str | None = None,
        timeout_s: float = 1800.0,
        retry_s: float = 600.0,
    ) -> None:
        """Args:
        model: folder or Hugging Face name; only its tokenizer and configuration are read.
        sampling: parameters of every completion.
        endpoints: base URLs of servers of that model.
        revision: commit or tag of a Hugging Face model.
        template: prompt with `{problem}` in it; None uses the model's chat template.
        system: system message, with a chat template.
        few_shot: worked examples before the problem.
        trust_remote_code: run Python code that comes with the tokenizer.
        max_model_len: tokens of prompt and solution; None for what the server says.
        max_live: requests at a time.
        per_request_seeds: send every completion's seed.
        served_model: name under which it is served; None for the only one.
        api: endpoint to use.
        api_key_env: name of the environment variable that holds the key.
        timeout_s: of one request.
        retry_s: how long one completion is asked for again.
        """
        self._model, self._revision, self._sampling = model, revision, sampling
        self._prompting: dict[str, Any] = {
            "template": template,
            "system": system,
            "few_shot": few_shot,
            "trust_remote_code": trust_remote_code,
        }
        self._urls, self._api_key_env, self._timeout_s = tuple(endpoints), api_key_env, timeout_s
        self._retry_s, self._seeded = retry_s, per_request_seeds
        self._served_model, self._api = served_model, api
        self._max_model_len, self._max_live = max_model_len, max_live
        self._slots = Slots(max_live)
        self._endpoints: Endpoints | None = None
        self._end_ids: frozenset[int] = frozenset()
        self._max_context: float = inf
        self._problems: OrderedDict[tuple[int, ...], str] = OrderedDict()
        self._num_live = self._num_sampled = self._num_prompt = 0

    async def start(self) -> None:
        trust = self._prompting["trust_remote_code"]
        folder = fetch_model(self._model, revision=self._revision, weights=False, code=trust)
        self._text = PolicyText.load(folder, revision=None, **self._prompting)
        if self._api == "chat" and not self._text.is_chat:
            raise EngineError(
                "policy.openai.api=chat: policy.template or the model's lack of a chat template "
                "makes the prompt plain text. Leave out policy.template, or use api=completions"
            )
        ends = model_end_ids(self._text, folder, trust_remote_code=trust)
        self._end_ids = ends | frozenset(self._sampling.stop_token_ids)
        self._endpoints = Endpoints(
            self._urls, api_key_env=self._api_key_env, timeout_s=self._timeout_s
        )
        own = model_max_context(folder, trust_remote_code=trust)
        self._max_context = min(self._max_model_len or inf, own)
        try:
            served = await self._endpoints.ask_each(_models, retry_s=START_S)
            limits = [self._served_limit(url, models) for url, models in served.items()]
            self._max_context = min([self._max_context, *limits])
            await self._probe()
        except BaseException:
            await self._endpoints.close()
            raise

    @property
    def max_context(self) -> float:
        return self._max_context

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        ids = self._loaded_text().prompt_ids(problem)
        if self._api == "chat":
            self._problems[ids] = problem
            self._problems.move_to_end(ids)
            if len(self._problems) > MAX_PROBLEMS:
                self._problems.popitem(last=False)
        return ids

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        room = self._sampling.room(len(prompt), len(prefix), self._max_context)
        if room < 1:
            return NO_ROOM
        body = self._body(tuple(prompt), tuple(prefix), room, seed if self._seeded else None)
        async with self._slots.taken(priority):
            self._num_live += 1
            try:
                return await self._ask(body, (*prompt, *prefix), hash(tuple(prompt)))
            finally:
                self._num_live -= 1

    def stats(self) -> EngineStats:
        return EngineStats(
            num_live=self._num_live,
            max_live=self._max_live,
            num_waiting=self._slots.num_waiting,
            num_sampled_tokens=self._num_sampled,
            num_prefill_tokens=self._num_prompt,
            counts_as_sampled=False,
        )

    async def close(self) -> None:
        if self._endpoints is not None:
            await self._endpoints.close()

    # Requests

    def _body(
        self, prompt: tuple[int, ...], prefix: tuple[int, ...], room: int, seed: int | None
    ) -> dict[str, Any]:
        """What is sent. Every parameter is, as a server may have defaults of its own."""
        sampling = self._sampling
        body: dict[str, Any] = {
            "model": self._served_model,
            "max_tokens": room,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "n": 1,
            "stop": list(sampling.stop),
            "stop_token_ids": sorted(self._end_ids),
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "return_token_ids": True,
        }
        if seed is not None:
            body["seed"] = seed
        if self._api == "completions":
            return {**body, "prompt": [*prompt, *prefix]}
        messages = self._loaded_text().messages(self._problems[prompt])
        if prefix:
            messages.append({"role": "assistant", "content": self.decode(prefix)})
        return {
            **body,
            "messages": messages,
            "add_generation_prompt": not prefix,
            "continue_final_message": bool(prefix),
        }

    async def _ask(self, body: dict[str, Any], context: tuple[int, ...], home: int) -> Completion:
        assert self._endpoints is not None, "start() first"

        async def request(client: AsyncOpenAI) -> Completion:
            answer = await _post(client, self._api, body)
            return self._completion(answer, context)

        return await self._endpoints.ask(request, home=home, retry_s=self._retry_s)  # type: ignore[no-any-return]

    def _completion(self, answer: dict[str, Any], context: tuple[int, ...]) -> Completion:
        """The completion in an answer, which must say that the server read `context`."""
        try:
            choice, usage = answer["choices"][0], answer["usage"]
            read, ids = int(usage["prompt_tokens"]), choice.get("token_ids")
            finish_reason = choice["finish_reason"]
            text = choice["text"] if self._api == "completions" else choice["message"]["content"]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineError(
                f"policy.openai: an answer lacks {error}, so this is no OpenAI-compatible server. "
                "Check policy.openai.endpoints"
            ) from error
        shown = answer.get("prompt_token_ids", choice.get("prompt_token_ids"))
        self._check_read(read, shown, context)
        if finish_reason not in ("stop", "length"):
            raise BusyError(f"a completion ended with {finish_reason!r}")
        if ids is None:
            ids = self._tokenised(text or "")
        elif finish_reason == "stop":
            ids = stopped_ids(tuple(ids), self._end_ids, self._sampling.stop, self.decode)
        self._num_sampled += len(ids)
        details = usage.get("prompt_tokens_details") or {}
        self._num_prompt += read - (details.get("cached_tokens") or 0)
        return Completion(ids=tuple(ids), text=self.decode(ids), finish_reason=finish_reason)

    def _check_read(self, read: int, ids: list[int] | None, context: tuple[int, ...]) -> None:
        if ids is None and self._api == "chat":
            raise EngineError(
                "policy.openai.api=chat: the server does not show the ids of its prompt "
                f"(return_token_ids), so nothing says that a prefix was continued exactly. {NEEDS}"
            )
        if read == len(context) and (ids is None or tuple(ids) == context):
            return
        remedy = (
            "It has another chat template, does not know continue_final_message, or tokenises the "
            "prefix otherwise than it was sampled: use policy.openai.api=completions"
            if self._api == "chat"
            else "It adds or drops tokens: serve the model that policy.model names"
        )
        raise EngineError(
            f"policy.openai: the server read {read} tokens, which are not the {len(context)} of "
            f"prompt and prefix. {remedy}"
        )

    def _tokenised(self, text: str) -> tuple[int, ...]:
        ids = self.encode(text)
        if self.decode(ids) != text:
            raise EngineError(
                "policy.openai: the server returns no token ids (return_token_ids), and the "
                f"tokenizer of policy.model does not give its texts back exactly. {NEEDS}"
            )
        return ids

    # The start

    def _served_limit(self, url: str, models: list[dict[str, Any]]) -> float:
        """Tokens of a context at a server, and check that it serves the model."""
        names = [str(model.get("id")) for model in models]
        wanted = self._served_model
        if wanted is None and len(names) == 1:
            wanted = self._served_model = names[0]
        if wanted not in names:
            assert self._endpoints is not None
            known = self._endpoints.shown(", ".join(names) or "none")
            raise EngineError(
                f"policy.openai.model={wanted!r}: {url} serves {known}. Set it to one of these"
            )
        limit = models[names.index(wanted)].get("max_model_len")
        return float(limit) if isinstance(limit, int) else inf

    async def _probe(self) -> None:
        """One short completion, which shows whether the server can do what is needed."""
        prompt, prefix = self.prompt_ids(PROBE), self.encode(PROBE_PREFIX)
        assert self._endpoints is not None
        body = self._body(prompt, prefix, 1, None)
        seen: list[dict[str, Any]] = []

        async def request(client: AsyncOpenAI) -> Completion:
            seen.append(await _post(client, self._api, body))
            return self._completion(seen[-1], (*prompt, *prefix))

        try:
            await self._endpoints.ask(request, home=0, retry_s=START_S)
        except RefusedError as error:
            what = (
                "token ids as a prompt, or one of the sampling parameters"
                if self._api == "completions"
                else "continue_final_message"
            )
            raise EngineError(f"{error}. It must take {what} at {self._api}. {NEEDS}") from error
        if seen[-1]["choices"][0].get("token_ids") is not None:
            return
        if self._sampling.stop:
            raise EngineError(
                "policy.stop: the server returns no token ids (return_token_ids), so where a stop "
                f"text ends is not known. {NEEDS}"
            )
        for text in ROUND_TRIPS:
            self._tokenised(text)


async def _models(client: AsyncOpenAI) -> list[dict[str, Any]]:
    raw = await client.models.with_raw_response.list()
    answer = _json(raw.http_response.content, "/models")
    models = answer.get("data")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        raise EngineError(
            "policy.openai: /models answers no list of models, so this is no OpenAI-compatible "
            "server. Check policy.openai.endpoints (most end in /v1)"
        )
    return models


async def _post(client: AsyncOpenAI, api: str, body: dict[str, Any]) -> dict[str, Any]:
    model = body["model"]
    raw: Any
    # In `extra_body`, as the client knows few of the parameters, and would walk through the ids.
    if api == "completions":
        raw = await client.completions.with_raw_response.create(
            model=model, prompt="", extra_body=body
        )
    else:
        raw = await client.chat.completions.with_raw_response.create(
            model=model, messages=[], extra_body=body
        )
    return _json(raw.http_response.content, f"/{api}")


def _json(content: bytes, path: str) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise EngineError(
            f"policy.openai: {path} answers no JSON, so this is no OpenAI-compatible server. "
            "Check policy.openai.endpoints (most end in /v1)"
        ) from error
    return answer if isinstance(answer, dict) else {}
