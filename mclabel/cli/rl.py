"""The verbs of reinforcement learning: `serve-rewards`."""

from __future__ import annotations

import click

from mclabel.cli.options import configuration
from mclabel.cli.output import console


@click.command("serve-rewards")
@configuration("ServeRewardsConfig")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8791, show_default=True, type=click.IntRange(1, 65535), help="Port of it."
)
@click.option(
    "--token-env",
    metavar="NAME",
    help="Variable of the environment that holds the token which clients must send. Without one, "
    "only this machine can ask.",
)
@click.option(
    "--max-waiting",
    default=64,
    show_default=True,
    type=click.IntRange(0, 65536),
    help="Maximum number of requests that wait for others to end. More are refused (429).",
)
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
    POST /get_reward in the form of OpenRLHF. GET /health says what is served.
    """
    from mclabel.config import ServeRewardsConfig, load_config
    from mclabel.pipelines.serve_rewards import serve_rewards as serve
    from mclabel.serving.asked import Limits
    from mclabel.serving.place import Place, token_of

    checked = load_config(ServeRewardsConfig, config, overrides, allow=allow)

    def say(address: str, stop: object) -> None:
        line = f"Serving rewards at {address}\nStop with Ctrl-C."
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    serve(
        checked,
        place=Place(host=host, port=port, token=token_of(token_env)),
        limits=Limits(max_waiting=max_waiting),
        on_ready=say,
    )
