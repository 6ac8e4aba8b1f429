"""The `mclabel` command. This package only parses the options of the commands; the library
does the work.
"""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

from mclabel.cli import check, judge, label, look, rewards, search, train
from mclabel.cli.doctor import doctor
from mclabel.cli.evaluate import evaluate
from mclabel.cli.options import add_settings_arguments
from mclabel.cli.output import (
    add_json_option,
    console,
    exit_with_messages,
    record_json_result,
    show_tracebacks_of_errors,
)
from mclabel.cli.select import select

TRACEBACK = "--traceback"


class _ErrorReportingGroup(click.Group):
    """Group of commands that print a message instead of a traceback when they fail."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments after removing `--traceback`, which may be at any position."""
        if TRACEBACK in args:
            show_tracebacks_of_errors()
            args = [argument for argument in args if argument != TRACEBACK]
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with exit_with_messages():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with exit_with_messages():
            return super().invoke(ctx)


@click.group(cls=_ErrorReportingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mclabel")
@click.option(
    TRACEBACK,
    is_flag=True,
    expose_value=False,
    help="Also print the traceback if your own component fails. Can be given anywhere.",
)
def main() -> None:
    """Label reasoning steps automatically, and train process reward models (PRMs) on the labels.

    \b
    First:  mclabel quickstart --size small
    Yours:  mclabel label configs/label/own-data.yaml \\
                problems.source=problems.jsonl policy.model=MODEL out=runs/mine
    Pages:  mclabel doctor prints their folder, docs; begin with llms.txt
    """  # noqa: D301 - click keeps the lines after the character \b


@main.command()
@add_settings_arguments("mclabel.quickstart.toy:QuickstartConfig")
@click.option(
    "--model",
    type=click.Choice(["arith:policy", "smollm2:135m"]),
    help="Model that writes solutions; the same as model=.",
)
@click.option(
    "--size", type=click.Choice(["small", "full"]), help="Size of the job; the same as size=."
)
@click.option("--out", help="Folder for the results; the same as out=.")
@add_json_option
def quickstart(
    overrides: tuple[str, ...], model: str | None, size: str | None, out: str | None
) -> None:
    """Label, train and evaluate with bundled models, in minutes.

    It needs a CPU and no network. The results are written to runs/quickstart unless out= names
    another folder. Pass size=small for a fast first look, and model=smollm2:135m for a real
    language model.
    """
    from mclabel.core.config.load import load_config
    from mclabel.quickstart.real import run_real_quickstart
    from mclabel.quickstart.toy import QuickstartConfig, run_quickstart
    from mclabel.run.outputs import make_output_folder

    for key, value in (("model", model), ("size", size)):
        if value is not None:
            overrides = (*overrides, f"{key}={value}")
    config = load_config(QuickstartConfig, None, overrides)
    out_folder = config.out if out is None else out
    run_selected_quickstart = (
        run_quickstart if config.model == "arith:policy" else run_real_quickstart
    )
    summary = run_selected_quickstart(config.size, make_output_folder(out_folder, "out="), console)
    record_json_result({"out": out_folder, **summary})


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell script that completes commands, keys, files.

    \b
    bash, in ~/.bashrc:  eval "$(mclabel completion bash)"
    zsh, in ~/.zshrc:    eval "$(mclabel completion zsh)"
    fish, once:          mclabel completion fish > ~/.config/fish/completions/mclabel.fish
    """  # noqa: D301 - click keeps the lines after the character \b
    script = get_completion_class(shell)
    assert script is not None  # `shell` is one of the choices above
    click.echo(script(main, {}, "mclabel", "_MCLABEL_COMPLETE").source())


for _command in (
    *(label.label, label.submit, label.regrade),
    *(judge.judge, judge.combine, select),
    *(search.search, search.serve_search),
    rewards.serve_rewards,
    *(train.train, train.export_labels, train.import_labels, train.score, train.serve),
    *(evaluate, check.check, look.verify, doctor),
    *(look.show, look.labels, look.report, look.view, look.annotate),
):
    main.add_command(_command)
