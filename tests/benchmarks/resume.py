"""Measure the cost of resuming a run with 100,000 blocks, all but four committed.

    python -m tests.benchmarks.resume [--smoke | --quick]

The benchmark makes runs of 10,000 and 100,000 blocks of one problem, in a folder and on S3. The S3
server runs in this process and lists pages of 1,000 names in 50 ms each. All blocks are committed
except the last four. Then `mclabel label` runs in a new process: it lists the shards, finds the
four blocks, labels them, and looks for files of attempts that lost the race to commit a block. The
committed shards hold zeros between the first and last bytes of a Parquet file. A resumed job opens
none of them. It only checks that they are not cut off, in a folder by reading their last bytes.

The time is that of the whole command without the import of the package. Memory is the largest of
the process, and its growth from 10,000 to 100,000 blocks. `--quick` has 1,000 and 10,000 blocks.
The last line is JSON: `seconds_100k` (the slower of the two stores) and `rss_mb`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mclabel.core.config.load import load_config
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.inputs import load_inputs
from mclabel.labeling.job import semantic_config
from mclabel.labeling.task import LABEL_OUTPUTS
from mclabel.run.blocks import plan_blocks
from tests.benchmarks.figures import finish
from tests.benchmarks.large_bucket import LargeBucket, serve
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

NUM_LEFT = 4
SHARD = b"PAR1" + bytes(2048) + b"PAR1"
CHILD = """
import json, resource, sys, time
from mclabel import jobs
from mclabel.labeling.config import LabelConfig
from mclabel.core.config.load import load_config
import mclabel.run.fleets, mclabel.engines.scripted
started = time.monotonic()
report = jobs.label(load_config(LabelConfig, None, sys.argv[1:]), lambda state: None)
seconds = time.monotonic() - started
rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([seconds, rss_mb, report.num_blocks_resumed, report.num_items]))
"""

Put = Callable[[str], None]
"""Function that creates a file of a run, given its name."""


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    sizes = size.pick(smoke=(10, 20), quick=(1_000, 10_000), full=(10_000, 100_000))
    seconds: dict[tuple[str, int], float] = {}
    memory: dict[tuple[str, int], float] = {}
    for count in sizes:
        with tempfile.TemporaryDirectory(prefix="resume-") as folder:
            source = _write_problems(Path(folder), count)
            for store, opened in (("folder", _folder), ("s3", _s3)):
                with opened(Path(folder)) as (out, put, environment):
                    found = _resume(source, out, put, environment, count)
                    seconds[store, count], memory[store, count] = found
    few, many = sizes
    stores = ("folder", "s3")
    result = {
        "seconds_100k": round(max(seconds[store, many] for store in stores), 1),
        "rss_mb": round(max(memory[store, many] for store in stores)),
        "rss_growth_mb": round(max(memory[store, many] - memory[store, few] for store in stores)),
        "shards": many,
        "seconds": {store: round(seconds[store, many], 1) for store in stores},
    }
    finish(result)


def _resume(
    source: Path, out: str, put: Put, environment: dict[str, str], count: int
) -> tuple[float, float]:
    """Return the seconds and MB of a job that finds all but a few blocks committed."""
    changes = [f"problems.source={source}", f"out={out}", "policy.engine=scripted"]
    changes += ["ray.address=none", "block_problems=1", "estimator.kind=fixed"]
    config = load_config(LabelConfig, None, changes)
    identity = semantic_config(config).identity
    items = load_inputs(config).items
    planned = plan_blocks(None, items, LABEL_OUTPUTS, identity=identity, block_items=1)
    blocks = [block_id for block_id, _ in planned.iter_item_counts()]
    for block in blocks[:-NUM_LEFT]:
        put(f"labels/{block}.parquet")
        put(f"rollouts/{block}.0123456789ab.parquet")
    run = subprocess.run(
        [sys.executable, "-c", CHILD, *changes],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if run.returncode != 0:
        raise RuntimeError(run.stderr)
    took, rss_mb, resumed, labeled = json.loads(run.stdout.splitlines()[-1])
    assert (resumed, labeled) == (count - NUM_LEFT, NUM_LEFT), run.stdout
    return took, rss_mb


def _write_problems(folder: Path, count: int) -> Path:
    path = folder / "problems.jsonl"
    with path.open("w") as file:
        for i in range(count):
            row = {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)}
            file.write(json.dumps(row) + "\n")
    return path


@contextmanager
def _folder(folder: Path) -> Iterator[tuple[str, Put, dict[str, str]]]:
    out = folder / "out"
    for name in ("labels", "rollouts"):
        (out / name).mkdir(parents=True)

    def put(name: str) -> None:
        (out / name).write_bytes(SHARD)

    yield str(out), put, {}


@contextmanager
def _s3(folder: Path) -> Iterator[tuple[str, Put, dict[str, str]]]:
    """Serve a bucket that is filled directly, without requests."""
    bucket = LargeBucket()
    with serve(bucket) as address:
        environment = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
        yield "s3://bucket/run", lambda name: bucket.put(f"run/{name}", SHARD), environment


if __name__ == "__main__":
    main()
