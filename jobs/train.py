"""The training job as it is submitted to a Ray cluster.

    ray job submit --working-dir . --entrypoint-num-gpus 1 -- \
        python jobs/train.py configs/train/own-labels.yaml labels=[…] base=… out=… device=cuda

The same as `mclabel train`. Written out, so that it can be read, and changed where a job needs its
own way of the data.
"""

from __future__ import annotations

import sys

from rich.console import Console

from mclabel import edge
from mclabel.config import TrainConfig, load_config
from mclabel.errors import MclabelError
from mclabel.labeling.progress import StageProgress
from mclabel.labeling.stop import Stopped, stop_signals


def main(config_path: str, *overrides: str) -> None:
    # label shards -> encoded solutions with targets -> Trainer -> PRM
    config = load_config(TrainConfig, config_path, overrides)
    with StageProgress(Console(emoji=False), "train", "steps") as progress:
        report = edge.train(
            config, lambda step, total, loss: progress.update(step, total, detail=loss)
        )
    print(report)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: jobs/train.py CONFIG [KEY=VALUE]…")
    with stop_signals():
        try:
            main(*sys.argv[1:])
        except MclabelError as error:
            sys.exit(f"mclabel: {error}")
        except Stopped as stopped:
            print(f"mclabel: stopped by {stopped}. Run it again to resume", file=sys.stderr)
            sys.exit(stopped.exit_code)
