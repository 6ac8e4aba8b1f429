"""The training job as it is submitted to a Ray cluster.

    ray job submit --working-dir . --entrypoint-num-gpus 1 -- \
        python jobs/train.py configs/train/own-labels.yaml labels=[…] base=… out=… device=cuda

This script does the same as `mclabel train`. mclabel/prm/job.py implements the job. examples/ has
scripts to copy and change.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from mclabel import jobs
from mclabel.cli.output import exit_with_messages
from mclabel.core.config.load import load_config
from mclabel.prm.config import TrainConfig
from mclabel.show.progress import StageProgress


def main(config_path: str, *overrides: str, allow: Sequence[str] = ()) -> None:
    config = load_config(TrainConfig, config_path, overrides, allow=allow)
    with StageProgress(Console(emoji=False), "train", "steps") as progress:
        report = jobs.train(
            config, lambda step, total, loss: progress.update(step, total, detail=loss)
        )
    print(report)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--allow", action="append", default=[], metavar="MODULE")
    arguments = parser.parse_intermixed_args()
    with exit_with_messages():
        main(arguments.config, *arguments.overrides, allow=arguments.allow)
