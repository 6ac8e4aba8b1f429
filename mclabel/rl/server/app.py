"""The reward server as an ASGI application."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mclabel.rl.client import StepRewards
from mclabel.rl.server.asks import MAX_BODY, read_get_reward, read_score
from mclabel.rl.server.rewarder import REFUSALS, Rewarder
from mclabel.serving.bodies import answered, json_response, read_body
from mclabel.serving.fence import fenced


def make_app(rewarder: Rewarder, *, token: str | None) -> ASGIApp:
    """The server as an ASGI application.

    Args:
        rewarder: started.
        token: what clients must know; None lets in who calls this machine by a loopback name.
    """
    served = _Served(rewarder)
    routes = [
        Route("/score", served.score, methods=["POST"]),
        Route("/get_reward", served.get_reward, methods=["POST"]),
        Route("/health", served.health),
    ]
    return fenced(routes, token)


class _Served:
    """The endpoints."""

    def __init__(self, rewarder: Rewarder) -> None:
        self._rewarder, self._settings = rewarder, rewarder.settings

    async def score(self, request: Request) -> Response:
        """Rewards, scores and credits of completions."""
        items = read_score(await read_body(request, max_bytes=MAX_BODY), self._settings)
        work = self._rewarder.begin(items)
        return await answered(work, request, _items)

    async def get_reward(self, request: Request) -> Response:
        """One reward a completion, in the form of OpenRLHF."""
        items = read_get_reward(await read_body(request, max_bytes=MAX_BODY), self._settings)
        work = self._rewarder.begin(items)
        return await answered(work, request, lambda found: json_response(_openrlhf(found)))

    async def health(self, request: Request) -> Response:
        """What is served, and how much was."""
        settings, rewarder = self._settings, self._rewarder
        return json_response(
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


def _items(found: Sequence[StepRewards]) -> Response:
    return json_response({"items": [asdict(one) for one in found]})


def _openrlhf(found: Sequence[StepRewards]) -> dict[str, Any]:
    """Rewards, and numbers that the trainer logs; each list has one number a completion."""
    rewards = [one.reward for one in found]
    logs = {
        "refused": [float(one.refused is not None) for one in found],
        "masked": [float(one.masked) for one in found],
    }
    for kind in REFUSALS:
        logs[f"refused_{kind}"] = [float(one.refused == kind) for one in found]
    return {"rewards": rewards, "scores": rewards, "extra_logs": logs}
