"""The hf, vllm and openai engines give equal step values to the same solutions, up to noise.

Whole jobs run, from configuration to shards. vLLM's engine runs in a Ray actor, and the openai
engine uses a real `vllm serve`. The engines share neither kernels nor random numbers, so the test
compares samples. If engines did not matter, the rollouts of a prefix could be divided between the
two jobs in any way.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.labels import iter_label_tables, read_labels
from mclabel.run.shards.store import Store
from tests.support.needs_vllm import NEEDS_VLLM
from tests.support.serving import CPU

pytestmark = NEEDS_VLLM

ROLLOUTS = 16
NUM_PERMUTATIONS = 4000
ALARM = 1e-3  # false-alarm rate of each comparison
JOB = [
    *["problems.limit=16", "problems.seed=21", "policy.max_tokens=200", "policy.temperature=0.8"],
    *[f"estimator={{kind: fixed, rollouts: {ROLLOUTS}}}", "keep_rollouts=false"],
]


@pytest.fixture(autouse=True)
def own_ray(own_cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in CPU.items():
        monkeypatch.setenv(name, content)


def label_run(out: Path, *overrides: str) -> dict[str, tuple[int, int]]:
    """Return the numbers of right and of all rollouts, by prefix."""
    config = load_config(LabelConfig, None, [f"out={out}", *JOB, *overrides])
    jobs.label(config, lambda state: None)
    return {
        step.prefix_id: (step.counts.num_right, step.counts.num_rollouts)
        for row in read_labels(Store(str(out)))
        for step in row.steps[:-1]
    }


def p_value(
    first: dict[str, tuple[int, int]], second: dict[str, tuple[int, int]], rng: np.random.Generator
) -> tuple[float, float]:
    """Return p-values of the differences of step values and of the mean, for equal engines.

    The rollouts of a prefix are randomly divided into two halves, which is hypergeometric.
    """
    assert first.keys() == second.keys()
    right: NDArray[np.int64] = np.array([[first[key][0], second[key][0]] for key in sorted(first)])
    total = right.sum(1)
    dealt = rng.hypergeometric(
        total, 2 * ROLLOUTS - total, ROLLOUTS, size=(NUM_PERMUTATIONS, len(total))
    )
    apart = 2 * dealt - total
    seen = right[:, 0] - right[:, 1]
    spread = ((apart**2).sum(1) >= (seen**2).sum()).mean()
    shift = (abs(apart.sum(1)) >= abs(seen.sum())).mean()
    return float(spread), float(shift)


def test_the_test_sees_a_policy_that_is_a_little_off() -> None:
    """Step values moved by 0.05, or exchanged between prefixes, would be noticed."""
    rng = np.random.default_rng(0)
    values = rng.beta(0.5, 0.7, size=200)

    def draw_counts(chances: NDArray[np.float64]) -> dict[str, tuple[int, int]]:
        right = rng.binomial(ROLLOUTS, np.clip(chances, 0, 1))
        return {f"{i:03}": (int(r), ROLLOUTS) for i, r in enumerate(right)}

    assert min(p_value(draw_counts(values), draw_counts(values), rng)) > ALARM
    assert p_value(draw_counts(values), draw_counts(values - 0.05), rng)[1] < ALARM
    assert p_value(draw_counts(values), draw_counts(rng.permutation(values)), rng)[0] < ALARM


def test_labels_of_three_engines_agree(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label_run(
        tmp_path / "sampled",
        *["ray.address=none", "solutions.per_problem=2", "estimator=outcome"],
    )
    rows = [
        {"problem_id": row.problem.id, "solution": row.solution.text}
        for row in read_labels(Store(str(tmp_path / "sampled")))
    ]
    solutions_path = tmp_path / "given.jsonl"
    solutions_path.write_text("\n".join(map(json.dumps, rows)))
    same = [f"solutions.path={solutions_path}"]
    hf = label_run(tmp_path / "hf", "ray.address=none", *same)
    runs = {
        "vllm": label_run(
            tmp_path / "vllm",
            *["policy.engine=vllm", "policy.engine.device=cpu", "policy.max_model_len=512"],
            *[
                "policy.engine.engine_args={enforce_eager: true}",
                "ray.address=local",
                "ray.max_engines=1",
            ],
            *same,
        ),
    }
    server = f"{{kind: openai, endpoints: [{url!r}], api_key_env: LOCAL_KEY}}"
    runs["openai"] = label_run(
        tmp_path / "openai", f"policy.engine={server}", "ray.address=none", *same
    )
    rng = np.random.default_rng(1)
    figures = {name: p_value(hf, run, rng) for name, run in runs.items()}
    means = {name: np.mean([r / n for r, n in run.values()]) for name, run in runs.items()}
    with capsys.disabled():
        print(f"\n{len(hf)} prefixes; hf mean {np.mean([r / n for r, n in hf.values()]):.3f}")
        for name, (spread, shift) in figures.items():
            print(f"{name}: mean {means[name]:.3f}, p {spread:.3f} of values, {shift:.3f} of mean")
    assert len(hf) > 100
    assert all(min(pair) > ALARM for pair in figures.values())
    for name in ("hf", "vllm", "openai"):
        metadata, _ = next(iter_label_tables(Store(str(tmp_path / name))))
        policy = metadata["config"]["policy"]
        assert (policy["temperature"], policy["max_tokens"], policy["stop"]) == (0.8, 200, [])
        assert policy["engine"] == {}
