"""The training job as it is submitted to a Ray cluster.

    ray job submit --working-dir . --entrypoint-num-gpus 1 -- \
        python jobs/train.py configs/train/own-labels.yaml labels=[…] base=… out=… device=cuda

A thin wrapper that a cluster takes: the same as `mclabel train`. The way of the data stands in
mclabel/pipelines/train.py; examples/ has scripts to copy and change.
"""

from __future__ import annotations

import sys

from rich.console import Console

from mclabel import pipelines
from mclabel.config import TrainConfig, load_config
from mclabel.exits import clear_exits
from mclabel.report.job_progress import StageProgress


def main(config_path: str, *overrides: str) -> None:
    config = load_config(TrainConfig, config_path, overrides)
    with StageProgress(Console(emoji=False), "train", "steps") as progress:
        report = pipelines.train(
            config, lambda step, total, loss: progress.update(step, total, detail=loss)
        )
    print(report)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: jobs/train.py CONFIG [KEY=VALUE]…")
    with clear_exits():
        main(*sys.argv[1:])
