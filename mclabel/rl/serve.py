"""The HTTP server of rewards and step credits (the advantages of the steps of completions).

`serve_rewards` runs the server until it is interrupted. `make_app` returns the server as an ASGI
application. `parse_score_request` and `parse_openrlhf_request` parse and check requests.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mclabel.answers.golds import InvalidGold, read_gold
from mclabel.core.settings import Settings, describe_faults
from mclabel.core.stop import end_process_within
from mclabel.prm.scoring import OWN_FORMAT
from mclabel.prm.scoring.manifest import PrmManifest, find_model_folder
from mclabel.rl.client import RewardItem, StepRewards, strip_end_tokens
from mclabel.rl.config import RewardSettings, ServeRewardsConfig
from mclabel.rl.rewarder import REFUSALS, Rewarder, check_credit_evidence
from mclabel.serving.access import make_api_app
from mclabel.serving.requests import (
    Refused,
    RequestLimits,
    make_json_response,
    parse_body,
    read_body,
    respond_when_done,
)
from mclabel.serving.run import GRACE_S, OnReady, ServerAddress, open_listening_socket, run_server


def serve_rewards(
    config: ServeRewardsConfig, *, address: ServerAddress, limits: RequestLimits, on_ready: OnReady
) -> None:
    """Serve rewards until interrupted.

    Args:
        config: configuration of PRM, checker and credit.
        address: host, port and token of the server.
        limits: maximum numbers of requests that are processed and that wait.
        on_ready: function that is called when the server listens. Its arguments are the base URL
            and a function that stops the server and may be called from any thread.

    Raises:
        ConfigError: the port is in use, the host is reachable from other machines but no token is
            set, or the credit needs step scores but there is no PRM.
        DataError: the PRM does not exist.
        EngineError: the PRM cannot be loaded, or its engine died.
    """
    check_credit_evidence(config)
    with end_process_within(GRACE_S), open_listening_socket(address) as listening:
        if config.prm is not None and config.format == OWN_FORMAT:
            PrmManifest.read(find_model_folder(config.prm))
        try:
            asyncio.run(_load_and_serve(config, limits, listening, address, on_ready))
        except KeyboardInterrupt:
            return


async def _load_and_serve(
    config: ServeRewardsConfig,
    limits: RequestLimits,
    listening: socket.socket,
    address: ServerAddress,
    on_ready: OnReady,
) -> None:
    """Load the PRM, and serve until a signal arrives, the server is stopped, or the PRM dies."""
    rewarder = Rewarder(config, limits=limits)
    try:
        await rewarder.start()
        await run_server(
            make_app(rewarder, token=address.token), rewarder.requests, listening, address, on_ready
        )
    finally:
        await rewarder.close()
    if rewarder.requests.died is not None:
        raise rewarder.requests.died


def make_app(rewarder: Rewarder, *, token: str | None) -> ASGIApp:
    """Return the server as an ASGI application.

    Args:
        rewarder: service that computes the rewards; it must be started.
        token: token that clients must send. With None, only requests to a loopback host name are
            accepted.
    """
    endpoints = _RewardEndpoints(rewarder)
    routes = [
        Route("/score", endpoints.score, methods=["POST"]),
        Route("/get_reward", endpoints.get_reward, methods=["POST"]),
        Route("/health", endpoints.health),
    ]
    return make_api_app(routes, token)


class _RewardEndpoints:
    """The endpoints of the server, as methods that answer a request."""

    def __init__(self, rewarder: Rewarder) -> None:
        self._rewarder, self._settings = rewarder, rewarder.settings

    async def score(self, request: Request) -> Response:
        """Return rewards, step scores and step credits of completions."""
        items = parse_score_request(
            await read_body(request, max_bytes=MAX_BODY_BYTES), self._settings
        )
        work = self._rewarder.begin(items)
        return await respond_when_done(
            work,
            request,
            lambda rewards: make_json_response(
                {"items": [asdict(item_rewards) for item_rewards in rewards]}
            ),
        )

    async def get_reward(self, request: Request) -> Response:
        """Return one reward per completion, in the format of OpenRLHF."""
        items = parse_openrlhf_request(
            await read_body(request, max_bytes=MAX_BODY_BYTES), self._settings
        )
        work = self._rewarder.begin(items)
        return await respond_when_done(
            work, request, lambda rewards: make_json_response(_make_openrlhf_content(rewards))
        )

    async def health(self, request: Request) -> Response:
        """Return the settings of the server, and the numbers of completions by result."""
        settings, rewarder = self._settings, self._rewarder
        return make_json_response(
            {
                "status": "ok",
                "prm": settings.prm,
                "checker": settings.checker.kind if settings.check else None,
                "credit": settings.credit.kind,
                "num_scored": rewarder.num_scored,
                "num_ungraded": rewarder.num_ungraded,
                "num_masked": rewarder.num_masked,
                "num_refused": dict(rewarder.num_refused),
            }
        )


def _make_openrlhf_content(rewards: Sequence[StepRewards]) -> dict[str, Any]:
    """Return the response to OpenRLHF: for each completion its reward, and metrics to log."""
    numbers = [item_rewards.reward for item_rewards in rewards]
    logs = {
        "refused": [float(item_rewards.refused is not None) for item_rewards in rewards],
        "masked": [float(item_rewards.masked) for item_rewards in rewards],
    }
    for reason in REFUSALS:
        logs[f"refused_{reason}"] = [
            float(item_rewards.refused == reason) for item_rewards in rewards
        ]
    return {"rewards": numbers, "scores": numbers, "extra_logs": logs}


MAX_BODY_BYTES = 32 * 2**20
"""Maximum number of bytes of a request."""
MAX_ITEMS = 1_024
"""Maximum number of completions of a request."""
MAX_PROBLEM = 65_536
"""Maximum number of characters of a problem or of a group's name."""
MAX_ANSWER = 262_144
"""Maximum number of characters of a gold answer as JSON. It may be a whole solution or a list of
answers."""
MAX_MESSAGE = 2_000
"""Maximum number of characters of an error message."""

_Text = Annotated[str, Field(max_length=MAX_PROBLEM)]
S = TypeVar("S", bound=Settings)


class _ScoreItem(Settings):
    """One completion of a request POST /score, with the fields of `RewardItem`."""

    problem: _Text
    completion: str
    answer: Any = None
    group: _Text | None = None
    truncated: bool | None = None


class _ScoreRequest(Settings):
    """A request POST /score."""

    items: list[_ScoreItem]


class _GetRewardRequest(Settings):
    """A request of OpenRLHF. All lists have one element per completion."""

    query: list[str]
    """Texts that consist of a prompt and a completion."""
    prompts: list[_Text]
    """Prompts alone."""
    labels: list[Any] | None = None
    """Gold answers; None if there are none."""


def parse_score_request(body: bytes, settings: RewardSettings) -> list[RewardItem]:
    """Read the completions in a request POST /score.

    Args:
        body: body of the request.
        settings: settings of the server.

    Raises:
        Refused: the request is malformed or too large, or a required gold answer is missing.
    """
    content = parse_body(body)
    _check_length("items", content.get("items"))
    request = _validate_content(_ScoreRequest, content)
    fields_of_items = [dict(item) | {"truncated": bool(item.truncated)} for item in request.items]
    return _require_gold_answers(
        [RewardItem(**fields) for fields in fields_of_items], "items", settings
    )


def parse_openrlhf_request(body: bytes, settings: RewardSettings) -> list[RewardItem | None]:
    """Read the completions in a request POST /get_reward of OpenRLHF (0.11).

    Returns:
        The completions. None stands for a query that does not begin with its prompt, and for a
        prompt that does not contain the texts of `settings.around`.

    Raises:
        Refused: the request is malformed or too large, or a required gold answer is missing.
    """
    content = parse_body(body)
    for name in ("query", "prompts", "labels"):
        _check_length(name, content.get(name))
    request = _validate_content(_GetRewardRequest, content)
    labels = request.labels or [None] * len(request.query)
    lengths = {"query": len(request.query), "prompts": len(request.prompts), "labels": len(labels)}
    if len(set(lengths.values())) > 1:
        described_lengths = ", ".join(f"{number} {name}" for name, number in lengths.items())
        _refuse(f"{described_lengths}: the three lists must have the same length")
    items: list[RewardItem | None] = []
    for query, prompt, label in zip(request.query, request.prompts, labels, strict=True):
        item = _parse_openrlhf_item(query, prompt, settings)
        items.append(None if item is None else replace(item, answer=label))
    _require_gold_answers([item for item in items if item is not None], "labels", settings)
    return items


def _parse_openrlhf_item(query: str, prompt: str, settings: RewardSettings) -> RewardItem | None:
    """Return the completion in a query; None if the query or the prompt has another form."""
    before, after = settings.around
    start = prompt.find(before)
    end = prompt.rfind(after)
    if not query.startswith(prompt) or start < 0 or end < start + len(before):
        return None
    problem, completion = prompt[start + len(before) : end], query[len(prompt) :]
    return RewardItem(problem, strip_end_tokens(completion), group=prompt)


def _require_gold_answers(
    items: list[RewardItem], name: str, settings: RewardSettings
) -> list[RewardItem]:
    """Return the items. If the server checks answers, refuse a request without gold answers.

    A missing gold answer is an error of the set-up, so the request is refused. But a data set may
    contain rows whose gold states that there is no answer, such as `proof`. Such a row must not
    stop a training run: its completions are masked later.
    """
    if settings.check:
        for number, item in enumerate(items):
            if (fault := _find_answer_fault(item.answer)) is not None:
                _refuse(
                    f"{name}[{number}]: {fault}, and this server checks answers. Send a gold with "
                    "every completion, as a string, a number or a list of them, or start the "
                    "server with check=false"
                )
    return items


def _find_answer_fault(answer: Any) -> str | None:
    """Return a message about an invalid gold answer in a request; None if the answer is valid.

    The message is a clause that follows the name of the item.
    """
    if answer is None or (isinstance(answer, str | list | dict) and not answer):
        return "has no gold answer"
    if isinstance(answer, str) and not answer.strip():
        return "has no gold answer"
    gold = read_gold(answer)
    if isinstance(gold, InvalidGold):
        return f"its gold answer {gold.detail}" if gold.reason != "no_gold" else None
    if len(gold.answer) > MAX_ANSWER:
        return f"has a gold answer of more than {MAX_ANSWER:,} characters"
    return None


def _check_length(name: str, elements: object) -> None:
    """Refuse a list of more than `MAX_ITEMS` elements before the elements are read."""
    if isinstance(elements, list) and len(elements) > MAX_ITEMS:
        raise Refused(
            413,
            f"{name}: has {len(elements):,} elements, but a request may have at most {MAX_ITEMS:,}",
            param=name,
        )


def _validate_content(request_class: type[S], content: object) -> S:
    try:
        return request_class.model_validate(content)
    except ValidationError as error:
        _refuse(describe_faults(request_class, error, "request")[:MAX_MESSAGE])


def _refuse(message: str) -> NoReturn:
    raise Refused(400, message)
