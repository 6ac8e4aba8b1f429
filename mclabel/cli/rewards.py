"""The verb `serve-rewards`, which serves rewards over HTTP."""

from __future__ import annotations

import click

from mclabel.cli.options import add_configuration_arguments, add_server_options
from mclabel.cli.output import print_lines


@click.command("serve-rewards")
@add_configuration_arguments("mclabel.rl.config:ServeRewardsConfig")
@add_server_options(port=8791)
def serve_rewards(
    config: str,
    overrides: tuple[str, ...],
    host: str,
    port: int,
    token_env: str | None,
    max_waiting: int,
    allow: tuple[str, ...],
) -> None:
    """Serve rewards of completions and credits of steps to trainers.

    CONFIG is a YAML file whose keys can be overridden, such as prm=FOLDER credit=prm_min. The
    server answers POST /score with the outcome, step scores and step credits of completions, and
    POST /get_reward in the format of OpenRLHF. GET /health describes what is served.
    """
    from mclabel.core.config.load import load_config
    from mclabel.rl.config import ServeRewardsConfig
    from mclabel.rl.serve import serve_rewards as serve
    from mclabel.serving.requests import RequestLimits
    from mclabel.serving.run import ServerAddress, read_token

    checked = load_config(ServeRewardsConfig, config, overrides, allow=allow)

    def print_address(address: str, stop: object) -> None:
        print_lines(f"Serving rewards at {address}\nStop with Ctrl-C.")

    serve(
        checked,
        address=ServerAddress(host=host, port=port, token=read_token(token_env)),
        limits=RequestLimits(max_waiting=max_waiting),
        on_ready=print_address,
    )
