"""The labelling job as it is submitted to a Ray cluster.

    ray job submit --working-dir . -- \
        python jobs/label.py configs/label/own-data.yaml problems.source=… policy.model=… out=…

This script does the same as `mclabel label`, on the Ray cluster on which it runs.
mclabel/labeling/job.py implements the job. examples/ has scripts to copy and change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from mclabel import jobs
from mclabel.cli.output import EXIT_BUDGET, exit_with_messages
from mclabel.core.config.load import load_config
from mclabel.evaluate.health import ENOUGH_FILES, assess_run_health
from mclabel.labeling.config import LabelConfig
from mclabel.report.page.health import format_findings
from mclabel.run.shards.store import Store
from mclabel.show.progress import job_progress


def main(config_path: str, *overrides: str, allow: Sequence[str] = ()) -> None:
    config = load_config(LabelConfig, config_path, ["ray.address=auto", *overrides], allow=allow)
    with job_progress(Console(emoji=False), "label") as progress:
        report = jobs.label(config, progress)
    print(report)
    if (health := assess_run_health(Store(config.out), max_files=ENOUGH_FILES)) is not None:
        for finding in format_findings(health):
            print(finding.plain)
    if report.stopped_by is not None:
        sys.exit(EXIT_BUDGET)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--allow", action="append", default=[], metavar="MODULE")
    arguments = parser.parse_intermixed_args()
    with exit_with_messages():
        main(arguments.config, *arguments.overrides, allow=arguments.allow)
