"""The verbs of reinforcement learning: `rl` and `serve-rewards`."""

from __future__ import annotations

import click

from mclabel.cli.options import configuration, server_options
from mclabel.cli.output import console, json_option, print_lines, result


@click.command()
@configuration("mclabel.rl.config:RLConfig")
@click.option(
    "--dry-run", is_flag=True, help="Check everything and print the plan, without training."
)
@json_option
def rl(config: str, overrides: tuple[str, ...], dry_run: bool, allow: tuple[str, ...]) -> None:
    """Train a policy by reinforcement learning.

    Every step of a solution gets credit. CONFIG is a YAML file, such as configs/rl/arith.yaml,
    which comes with mclabel. Its keys can be overridden, such as credit=mc estimator.rollouts=4.
    The output contains the trained policy, which any job can use as `policy.model`, the metrics of
    every optimizer step, and measurements on other problems, which `mclabel report` shows.

    Running the same command again resumes an interrupted training.
    """
    from mclabel.core.config.load import load_config
    from mclabel.rl.config import RLConfig
    from mclabel.rl.job import check_trl_installed, plan_rl, rl_report
    from mclabel.rl.job import rl as run_rl
    from mclabel.show.progress import StageProgress

    checked = load_config(RLConfig, config, overrides, allow=allow)
    if dry_run:
        planned = plan_rl(checked)
        result(
            {
                "out": checked.out,
                "policy": checked.policy.model,
                "policy_parameters": planned.policy.engine.num_parameters(),
                "num_problems": len(planned.problems),
                "num_problems_measured": len(planned.others),
                "credit": checked.credit.kind,
                "num_steps": checked.steps,
                "solutions_per_step": checked.problems_per_step * checked.group_size,
            }
        )
        for line in planned.lines(checked):
            click.echo(line)
        return
    check_trl_installed()
    with StageProgress(console, "rl", "steps") as progress:
        model = run_rl(checked, lambda step, total, line: progress.update(step, total, detail=line))
    report = rl_report(checked.out)
    hacked = {
        name: {"before": change.before, "after": change.after, "change": change.change}
        for name, change in report.hacked.items()
    }
    result({"model": str(model), "measured": report.measured, "hacked": hacked})
    print_lines(*report.lines())
    print_lines(
        f"Policy: {model}. Sample from it: policy.model={model}",
    )


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
