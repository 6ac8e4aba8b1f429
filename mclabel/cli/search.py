"""The subcommands `search`, which searches for solutions in a job, and `serve-search`, which does
so on request.
"""

from __future__ import annotations

from dataclasses import asdict

import click

from mclabel.cli.options import add_configuration_arguments, add_server_options
from mclabel.cli.output import (
    EXIT_NOTHING,
    add_json_option,
    console,
    fail,
    fail_if_stopped,
    print_lines,
    print_num_rejected,
    record_json_result,
)


@click.command()
@add_configuration_arguments("mclabel.search.config:SearchConfig")
@click.option("--address", help="Address of the Ray cluster to join; the same as ray.address=.")
@click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first problem that cannot be searched; the same as strict=true.",
)
@click.option(
    "--accept-changes",
    is_flag=True,
    help="Continue although problems were changed or removed since the run began: search changed "
    "problems again, and leave out the old solutions of changed and removed ones.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check everything and print the plan, without searching. If the search has begun "
    "already, the plan includes a forecast of its tokens.",
)
@add_json_option
def search(
    config: str,
    overrides: tuple[str, ...],
    address: str | None,
    strict: bool,
    accept_changes: bool,
    dry_run: bool,
    allow: tuple[str, ...],
) -> None:
    """Search for solutions, steered by a PRM's scores of steps.

    CONFIG is a YAML file, such as configs/search/arith-beam.yaml, which comes with mclabel. Its
    keys can be overridden, such as search=beam search.n=16 scorer.prm=FOLDER. The output is a run:
    `mclabel view`, `report` and `export` read its finished solutions, and `mclabel label
    --solutions` labels them; answers.jsonl has the answer that was chosen for each problem. A
    problem needs no `answer`. The run's search trees hold every sampled prefix with its scores.

    Running the same command again resumes an interrupted search.
    """
    from mclabel.core.config.load import load_config
    from mclabel.search.config import SearchConfig
    from mclabel.search.job import ANSWERS, plan_search, write_search_report
    from mclabel.search.job import search as run_search
    from mclabel.show.progress import job_progress

    option_values = {"ray.address": address, "strict": strict or None}
    option_overrides = [
        f"{key}={value}" for key, value in option_values.items() if value is not None
    ]
    checked = load_config(SearchConfig, config, [*option_overrides, *overrides], allow=allow)
    if dry_run:
        preview = plan_search(checked).preview(accept_changes=accept_changes)
        record_json_result(preview)
        print_lines(*preview.lines())
        return
    with job_progress(console, "search", "problems") as progress:
        report = run_search(checked, progress, accept_changes=accept_changes)
    print_num_rejected(report.num_rejected, "problems were left out", checked.out)
    outcome = write_search_report(checked.out)
    record_json_result({"out": checked.out, "job": report, **asdict(outcome)})
    fail_if_stopped(report)
    if outcome.figures is None:
        fail(
            f"no problem could be searched: all were left out. {checked.out}/rejects.jsonl has the "
            "reasons",
            EXIT_NOTHING,
        )
    print_lines(*outcome.lines())
    print_lines(f"The chosen answers are in {checked.out.rstrip('/')}/{ANSWERS}.")


@click.command("serve-search")
@add_configuration_arguments("mclabel.search.config:ServeSearchConfig")
@add_server_options(port=8790)
@click.option("--name", help="Name of the model that clients ask for; by default policy.model.")
@click.option(
    "--max-live",
    default=8,
    show_default=True,
    type=click.IntRange(1, 4096),
    help="Maximum number of searches under way at the same time.",
)
def serve_search(
    config: str,
    overrides: tuple[str, ...],
    host: str,
    port: int,
    token_env: str | None,
    name: str | None,
    max_live: int,
    max_waiting: int,
    allow: tuple[str, ...],
) -> None:
    """Serve solutions found by search over the OpenAI API.

    CONFIG is a YAML file as for `mclabel search`; keys that only a search job uses, such as
    problems and out, are ignored. The server answers POST /v1/chat/completions: the user message is
    the problem, and the answer is the solution that the search chooses. `n` requests several
    solutions, and `search`, `choose`, `tokens`, `seed` and `max_tokens` change the search for one
    request. Other sampling parameters must be left out or equal the policy's.
    """
    from mclabel.core.config.load import load_config
    from mclabel.search.config import ServeSearchConfig
    from mclabel.search.serve import serve_search as serve
    from mclabel.serving.requests import RequestLimits
    from mclabel.serving.run import ServerAddress, read_token

    checked = load_config(ServeSearchConfig, config, overrides, allow=allow)

    def print_address(address: str, stop: object) -> None:
        print_lines(f"Serving {name or checked.policy.model} at {address}\nStop with Ctrl-C.")

    serve(
        checked,
        place=ServerAddress(host=host, port=port, token=read_token(token_env)),
        name=name,
        limits=RequestLimits(max_live=max_live, max_waiting=max_waiting),
        on_ready=print_address,
    )
