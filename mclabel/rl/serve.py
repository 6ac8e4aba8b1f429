"""A server of rewards and step credits from its configuration, until it is interrupted."""

from __future__ import annotations

import asyncio
import socket

from mclabel.core.stop import ends_within
from mclabel.prm.scoring.formats import OWN_FORMAT
from mclabel.prm.scoring.manifest import PrmManifest, model_folder
from mclabel.rl.config import ServeRewardsConfig
from mclabel.rl.server.rewarder import Rewarder, check_credit
from mclabel.serving.asked import Limits
from mclabel.serving.run import GRACE_S, Place, Ready, listen, run_server


def serve_rewards(
    config: ServeRewardsConfig, *, place: Place, limits: Limits, on_ready: Ready
) -> None:
    """Serve rewards until interrupted.

    Args:
        config: of PRM, checker and credit.
        place: where to listen.
        limits: of what is done at a time.
        on_ready: called with the base URL once it is served, and with a function that ends the
            server, from whatever thread.

    Raises:
        ConfigError: the port is in use, a host that others reach has no token, or the credit needs
            what the server does not know.
        DataError: there is no such PRM.
        EngineError: the PRM cannot be loaded, or died.
    """
    check_credit(config)
    with ends_within(GRACE_S), listen(place) as listening:
        if config.prm is not None and config.format == OWN_FORMAT:
            PrmManifest.read(model_folder(config.prm))
        try:
            asyncio.run(_run(config, limits, listening, place, on_ready))
        except KeyboardInterrupt:
            return


async def _run(
    config: ServeRewardsConfig,
    limits: Limits,
    listening: socket.socket,
    place: Place,
    on_ready: Ready,
) -> None:
    """Load, and serve until a signal, `stop` or the death of the PRM."""
    from mclabel.rl.server.app import make_app

    rewarder = Rewarder(config, limits=limits)
    try:
        await rewarder.start()
        app = make_app(rewarder, token=place.token)
        await run_server(app, rewarder.asked, listening, place, on_ready)
    finally:
        await rewarder.close()
    if rewarder.asked.died is not None:
        raise rewarder.asked.died
