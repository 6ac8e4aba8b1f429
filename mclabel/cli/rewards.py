"""The verb `serve-rewards`."""

from __future__ import annotations

import click

from mclabel.cli.options import configuration, server_options
from mclabel.cli.output import print_lines


@click.command("serve-rewards")
@configuration("mclabel.rl.config:ServeRewardsConfig")
@server_options(port=8791)
def serve_rewards(
    config: str,
    overrides: tuple[str, ...],
    host: str,
    port: int,
    token_env: str | None,
    max_waiting: int,
    allow: tuple[str, ...],
) -> None:
    """Serve rewards and step credits to trainers.

    CONFIG is a YAML file whose keys can be overridden, such as prm=FOLDER credit=prm_min. The
    server answers POST /score with the outcome, step scores and step credits of completions, and
    POST /get_reward in the format of OpenRLHF. GET /health describes what is served.
    """
    from mclabel.core.config.load import load_config
    from mclabel.rl.config import ServeRewardsConfig
    from mclabel.rl.serve import serve_rewards as serve
    from mclabel.serving.requests import Limits
    from mclabel.serving.run import Place, token_of

    checked = load_config(ServeRewardsConfig, config, overrides, allow=allow)

    def say(address: str, stop: object) -> None:
        line = f"Serving rewards at {address}\nStop with Ctrl-C."
        print_lines(line)

    serve(
        checked,
        place=Place(host=host, port=port, token=token_of(token_env)),
        limits=Limits(max_waiting=max_waiting),
        on_ready=say,
    )
