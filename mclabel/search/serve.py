"""A server of searched solutions from its configuration, until it is interrupted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from mclabel.core.components import derived_class
from mclabel.core.errors import ConfigError
from mclabel.core.stop import ends_within
from mclabel.labeling.policy import prepare_policy
from mclabel.search.base import SearchMethod
from mclabel.search.config import ServeSearchConfig
from mclabel.search.scorers.base import StepScorer, make_scorer
from mclabel.search.server.asks import Reader
from mclabel.search.server.searcher import Searcher
from mclabel.serving.asked import Limits
from mclabel.serving.run import GRACE_S, Place, Ready, listen, run_server


def serve_search(
    config: ServeSearchConfig,
    *,
    place: Place,
    name: str | None = None,
    limits: Limits,
    on_ready: Ready,
) -> None:
    """Serve searched solutions until interrupted.

    Args:
        config: of policy, method and scorer.
        place: where to listen.
        name: of the model that clients ask for; None is `policy.model`.
        limits: of what is done at a time.
        on_ready: called with the base URL once it is served, and with a function that ends the
            server, from whatever thread.

    Raises:
        ConfigError: the port is in use, a host that others reach has no token, or the scorer knows
            the truth, which no request carries.
        EngineError: the engine cannot be loaded, or died.
    """
    derived_class(config.search, SearchMethod)
    if derived_class(config.scorer, StepScorer).is_truth:
        raise ConfigError(
            f"scorer.kind={config.scorer.kind}: works only for problems with known truth, "
            "which requests do not carry. Set scorer=prm with scorer.prm=FOLDER"
        )
    with ends_within(GRACE_S), listen(place) as listening:
        policy = prepare_policy(config.policy)
        config = config.model_copy(update={"policy": policy.settings})
        policy.engine.check_model()
        make_scorer(config.scorer).check()
        reader = Reader(config, name=name or config.policy.model)
        make = policy.maker(config.seed)
        try:
            asyncio.run(
                _run(
                    reader,
                    lambda: Searcher(make(), config, name=reader.name, limits=limits),
                    listening,
                    place,
                    on_ready,
                )
            )
        except KeyboardInterrupt:
            return


async def _run(
    reader: Reader,
    make_searcher: Callable[[], Searcher],
    listening: socket.socket,
    place: Place,
    on_ready: Ready,
) -> None:
    """Load, and serve until a signal, `stop` or the death of the engine."""
    from mclabel.search.server.app import make_app

    searcher = make_searcher()
    app = make_app(reader, searcher, token=place.token)
    try:
        await searcher.start()
        await run_server(
            app, searcher.asked, listening, place, lambda url, stop: on_ready(f"{url}/v1", stop)
        )
    finally:
        await searcher.close()
    if searcher.asked.died is not None:
        raise searcher.asked.died
