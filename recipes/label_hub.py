# /// script
# requires-python = ">=3.11"
# dependencies = ["mclabel[run]"]
#
# [tool.uv.sources]
# mclabel = { path = ".." }
# ///
"""Label the problems of a Hugging Face data set or a file, and publish the labels as a data set.

    uv run recipes/label_hub.py hf:openai/gsm8k --subset main --split train --limit 100 \
        --model Qwen/Qwen2.5-Math-1.5B-Instruct --out runs/gsm8k --push NAME/gsm8k-labels

The same command resumes an interrupted run. The labels are written to the folder OUT-parquet, with
the data set card as README.md. `--push` uploads that folder; log in with `hf auth login` before.

The tests run this script on a local file with a bundled model. It was also run with uv. With a data
set of the hub and with `--push`: planned, not run.
"""

from __future__ import annotations

import argparse
from typing import Any

import mclabel as mc
from mclabel.data.exchange.job import export_tables


def main() -> None:
    """Label, print each solution as it is committed, and export."""
    arguments = _arguments()
    problems: dict[str, Any] = {"source": arguments.source}
    for key in ("subset", "split", "limit"):
        if (value := getattr(arguments, key)) is not None:
            problems[key] = value
    run = mc.label(
        problems,
        policy={
            "model": arguments.model,
            "system": arguments.system,
            "temperature": 0.8,
            "max_tokens": arguments.max_tokens,
            "engine": {"kind": arguments.engine},
        },
        estimator={"kind": "posterior", "rollouts": arguments.rollouts},
        solutions={"per_problem": arguments.per_problem},
        out=arguments.out,
    )
    for number, solution in enumerate(run, 1):
        print(f"{number}: {solution.solution.outcome}, first error {solution.first_error}")
    folder = f"{arguments.out.rstrip('/')}-parquet"
    report = export_tables(arguments.out, folder, push_to_hub=arguments.push)
    print(f"{report.num_labels} solutions: datasets.load_dataset({arguments.push or folder!r})")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("source", help="hf:NAME, or a .jsonl, .parquet or .csv file or its URL")
    parser.add_argument("--model", required=True, help="folder or Hugging Face name of the policy")
    parser.add_argument("--out", required=True, help="folder of the run")
    parser.add_argument("--subset", help="subset of the data set (only for hf:)")
    parser.add_argument("--split", help="split of the data set (only for hf:)")
    parser.add_argument("--limit", type=int, help="maximum number of problems")
    parser.add_argument("--system", help="system prompt of a chat model")
    parser.add_argument("--max-tokens", type=int, default=1024, help="maximum per solution")
    parser.add_argument("--engine", default="hf", help="hf (CPU or one GPU) or vllm")
    parser.add_argument("--per-problem", type=int, default=8, help="solutions per problem")
    parser.add_argument("--rollouts", type=int, default=64, help="maximum per prefix")
    parser.add_argument(
        "--push", metavar="NAME", help="data set on the hub to which the labels are uploaded"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
