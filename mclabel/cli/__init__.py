"""The `mclabel` command: verbs only. What they do lives in the library."""

from __future__ import annotations

from typing import Any

import click

from mclabel.cli import check, label, look, train, verify
from mclabel.cli.evaluate import evaluate
from mclabel.cli.options import SEED
from mclabel.cli.output import console
from mclabel.exits import EXIT_USER_ERROR, clear_exits, fail


class _Commands(click.Group):
    """Ends with messages in place of tracebacks."""

    def invoke(self, ctx: click.Context) -> Any:
        with clear_exits():
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mclabel")
def main() -> None:
    """Process labels and process reward models, without human labels."""


@main.command()
@click.option("--size", type=click.Choice(["small", "full"]), default="full", show_default=True)
@click.option("--out", default="runs/quickstart", show_default=True, help="Folder for the results.")
def quickstart(size: str, out: str) -> None:
    """Sample, label, train a PRM and measure with the bundled models, on CPU, in minutes."""
    from mclabel.data.outputs import output_folder
    from mclabel.quickstart import run_quickstart

    run_quickstart(size, output_folder(out, "--out "), console)  # type: ignore[arg-type]


@main.command()
@click.option(
    "--problems",
    default=300,
    show_default=True,
    type=click.IntRange(1, 2_000),  # about a megabyte each
    help="Of each profile.",
)
@click.option(
    "--profile", multiple=True, help="Only these; sharp, decay, recovery, lucky, hopeless."
)
@click.option("--seed", default=0, show_default=True, type=SEED)
def simulate(problems: int, profile: tuple[str, ...], seed: int) -> None:
    """Compare the estimators on simulated problems whose step values are known.

    Five profiles of how values answer to an error; no model is needed.
    """
    from mclabel.simulate.profiles import PROFILES
    from mclabel.simulate.table import simulate, simulation_table

    if unknown := [name for name in profile if name not in PROFILES]:
        fail(f"--profile {unknown[0]}: must be among {', '.join(PROFILES)}", EXIT_USER_ERROR)
    rows = simulate(problems, seed=seed, profiles=profile or PROFILES)
    console.print(simulation_table(rows))


for _command in (
    *(label.label, label.submit, label.compact, label.regrade),
    *(train.train, train.export_labels, train.import_labels, train.score, train.serve),
    *(evaluate, check.check, verify.verify),
    *(look.show, look.labels, look.report, look.view),
):
    main.add_command(_command)
