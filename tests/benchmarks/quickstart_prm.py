"""The PRM that benchmarks steer and reward with where they are given none."""

from __future__ import annotations

from pathlib import Path

from mclabel import jobs
from mclabel.core.config.load import bundled_config, load_config
from mclabel.labeling.config import LabelConfig
from mclabel.prm.config import TrainConfig
from tests.benchmarks.sizes import BenchmarkSize


def quickstart_prm(work: Path, size: BenchmarkSize, *changes: str) -> Path:
    """A PRM of the bundled policy as the quickstart trains it, on problems of the train split.

    Args:
        work: folder of the labels and the PRM; what is finished there is not made again.
        size: of the benchmark.
        changes: further keys of the labelling.
    """
    keys = [
        *("problems=arith", "problems.split=train", "estimator=posterior", "ray.address=none"),
        f"problems.limit={size.pick(smoke=3, quick=200, full=1000)}",
        *("policy.temperature=0.8", "policy.max_tokens=200", "policy.engine.max_live=1024"),
        *(f"out={work / 'labels'}", *changes),
    ]
    jobs.label(load_config(LabelConfig, None, keys), lambda state: None)
    more = size.pick(smoke=["max_steps=2"], quick=[], full=[])
    train = [f"labels=[{work / 'labels'}]", f"out={work / 'prm'}", *more]
    config = load_config(TrainConfig, bundled_config("train/quickstart.yaml"), train)
    jobs.train(config, lambda step, total, loss: None)
    return work / "prm"
