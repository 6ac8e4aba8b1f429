"""Reinforcement learning as it is submitted to a Ray cluster.

    ray job submit --working-dir . --entrypoint-num-gpus 1 -- \
        python jobs/rl.py configs/rl/math-qwen2.5-1.5b.yaml problems.source=… out=…

This script does the same as `mclabel rl`. mclabel/rl/job.py implements the job.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from mclabel import jobs
from mclabel.cli.output import exit_with_messages
from mclabel.core.config.load import load_config
from mclabel.rl.config import RLConfig
from mclabel.show.progress import StageProgress


def main(config_path: str, *overrides: str, allow: Sequence[str] = ()) -> None:
    config = load_config(RLConfig, config_path, overrides, allow=allow)
    with StageProgress(Console(emoji=False), "rl", "steps") as progress:
        jobs.rl(config, lambda step, total, line: progress.update(step, total, detail=line))
    print("\n".join(jobs.rl_report(config.out).lines()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--allow", action="append", default=[], metavar="MODULE")
    arguments = parser.parse_intermixed_args()
    with exit_with_messages():
        main(arguments.config, *arguments.overrides, allow=arguments.allow)
