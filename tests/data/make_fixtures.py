"""Makes runs of earlier releases, and what those releases read in them: `fixtures/schema-N.tar.xz`.

    python tests/data/make_fixtures.py CHECKOUT

CHECKOUT is the working tree of an earlier release. Its own command labels three small jobs; then
its own code reads them, and `read.json` holds the records, the rows of every export and the figures
of the report. `test_earlier_schemas.py` reads the same runs with this release and compares.

The fixtures were made from the last commits that wrote schemas 3, 4 and 5; for the first two this
script spoke the names of then. One of a later schema
is added by running this script once on a checkout that still writes it, before the schema changes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"
JOBS = {
    "arith": ["problems.limit=3", "policy.max_tokens=200", "estimator.kind=fixed"],
    "scripted": [
        *("problems.source=problems.jsonl", "policy.engine=scripted", "estimator.kind=posterior"),
        *("estimator.pilot=6", "solutions.per_problem=2", "estimator.min_gain_per_token=0.001"),
    ],
    "balanced": [
        *("problems.source=problems.jsonl", "policy.engine=scripted", "estimator.kind=bisect"),
        *("solutions.balance=1", "keep_rollouts=false", "solutions.per_problem=4"),
    ],
}
"""Overrides by the name of the run: between them, labels of every source, priors, and problems that
were dropped."""
SHARED = ["seed=1", "estimator.rollouts=4", "block_problems=6", "ray.address=none"]

READ = """
import dataclasses, json, pathlib, sys, tempfile
import numpy as np
from mclabel.data.exchange import FORMATS
from mclabel.data.shards.labels import read_labels, read_rollouts
from mclabel.data.shards.store import Store
from mclabel.errors import MclabelError
from mclabel.pipelines import export_run
from mclabel.report.page import facts
from mclabel.report import runs

def plain(value):
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return [None if np.isnan(one) else float(one) for one in value]
    return value

run = sys.argv[1]
rows = list(read_labels(Store(run)))
exported = {}
for to in FORMATS:
    out = pathlib.Path(tempfile.mkdtemp())
    try:
        export_run(run, to, str(out))
        exported[to] = [json.loads(line) for line in (out / "data.jsonl").open()]
    except MclabelError:  # no row is of that format
        exported[to] = []
report = facts.run_facts(runs.find_runs([run])[0])
content = {
    "labels": [plain(row) for row in rows],
    "rollouts": [plain(row) for row in read_rollouts(Store(run))],
    "exports": exported,
    "report": plain(report),
}
print(json.dumps(content, sort_keys=True))
"""


def main(checkout: Path) -> None:
    """Label with a release, and read with it what it has written."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    folder = Path(tempfile.mkdtemp())
    problems = [
        {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i), "level": str(i % 3)}
        for i in range(12)
    ]
    (folder / "problems.jsonl").write_text("\n".join(map(json.dumps, problems)))
    (folder / "job.yaml").write_text("seed: 1\n")
    for name, overrides in JOBS.items():
        command = [sys.executable, "-m", "mclabel", "label", "job.yaml", f"out={name}"]
        subprocess.run([*command, *SHARED, *overrides], cwd=folder, env=environment, check=True)
        read = _output([sys.executable, "-c", READ, name], folder, environment)
        (folder / name / "read.json").write_text(read)
    ask = "from mclabel.data.shards.schema import SCHEMA_VERSION; print(SCHEMA_VERSION)"
    version = _output([sys.executable, "-c", ask], folder, environment).strip()
    target = FIXTURES / f"schema-{version}.tar.xz"
    with tarfile.open(target, "w:xz") as archive:
        for name in JOBS:
            archive.add(folder / name, name, filter=_plain)
    print(target, target.stat().st_size)
    shutil.rmtree(folder)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without who made it, and when."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _output(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
