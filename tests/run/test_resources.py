"""CPUs and GPUs that an engine takes from a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from click.testing import CliRunner
from ray.cluster_utils import Cluster
from ray.util import placement_group_table

from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.domains.words import smollm2
from mclabel.engines import EngineResources, PolicySettings, make_engine
from mclabel.engines.openai import OpenAIEngine
from mclabel.labeling.config import LabelConfig
from mclabel.run.ray_cluster import Placement

CONFIGS = Path(__file__).parents[2] / "configs" / "label"


def resources_of(
    engine: object, *, num_cpus: float | None = None, num_gpus: float | None = None
) -> EngineResources:
    defaults = make_engine(PolicySettings.model_validate({"engine": engine})).resources()
    return defaults.with_overrides(num_cpus=num_cpus, num_gpus=num_gpus)


@pytest.mark.parametrize(
    ("engine", "changes", "num_cpus", "num_gpus"),
    [
        ("hf", {}, 1, 0),
        ({"kind": "hf", "threads": 3}, {}, 3, 0),
        ({"kind": "hf", "device": "cuda"}, {}, 1, 1),
        ({"kind": "vllm", "device": "cpu", "threads": 8}, {}, 8, 0),
        ("vllm", {}, 1, 1),
        ({"kind": "vllm", "tensor_parallel": 4}, {}, 4, 4),
        ("vllm", {"num_cpus": 2, "num_gpus": 0.5}, 2, 0.5),
        (OpenAIEngine.Settings(endpoints=["http://localhost:8000/v1"]), {}, 1, 0),
        ("scripted", {"num_cpus": 0.1}, 0.1, 0),
    ],
)
def test_one_node(
    engine: object, changes: dict[str, float], num_cpus: float, num_gpus: float
) -> None:
    resources = resources_of(engine, **changes)
    assert (resources.num_cpus, resources.num_gpus) == (num_cpus, num_gpus)
    place = Placement.reserve(resources)
    assert place.options == {"num_cpus": num_cpus, "num_gpus": num_gpus} and place.group is None


def test_pipelines_lie_over_nodes_in_bundles_of_a_gpu() -> None:
    engine = {"kind": "vllm", "tensor_parallel": 2, "pipeline_parallel": 2}
    resources = resources_of(engine)
    assert (resources.num_cpus, resources.num_gpus, resources.total_gpus) == (2, 0, 4)
    assert resources.bundles == ({"CPU": 2, "GPU": 1}, {"GPU": 1}, {"GPU": 1}, {"GPU": 1})
    changed = resources_of(engine, num_cpus=1, num_gpus=8)
    assert (changed.num_cpus, changed.num_gpus, changed.bundles[0]) == (1, 0, {"CPU": 1, "GPU": 1})


@pytest.mark.parametrize(
    ("name", "num_cpus", "num_gpus"),
    [
        ("quickstart", 1, 0),
        ("quickstart-smollm2", 1, 0),
        ("arith-bisect", 1, 0),
        ("arith-vllm", 1, 0),
        ("own-data", 1, 0),
        ("cpu-vllm", 8, 0),
        ("gsm8k-qwen2.5-math-7b", 1, 1),
        ("math-qwen2.5-math-7b", 1, 1),
        ("math-qwen2.5-72b-tp4", 4, 4),
        ("processbench", 1, 0),
        ("reasoning", 1, 1),
        ("traces", 1, 0),
        ("pyarith", 1, 0),
        ("humaneval-qwen2.5-coder-7b", 1, 1),
        ("openai-server", 1, 0),
    ],
)
def test_every_label_configuration_is_planned_without_model_or_gpu(
    name: str, num_cpus: float, num_gpus: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smollm2, "SMOLLM2_PACKAGE", "no_such_package")
    monkeypatch.setenv(smollm2.CACHE, str(tmp_path))
    config = load_config(LabelConfig, CONFIGS / f"{name}.yaml", ["out=somewhere"])
    planned = jobs.plan_labelling(config)
    assert (planned.resources.num_cpus, planned.resources.num_gpus) == (num_cpus, num_gpus)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(
        main, ["label", str(CONFIGS / f"{name}.yaml"), "out=somewhere", "--dry-run"]
    )
    # The plan names a model that is missing on this machine and cannot be downloaded.
    missing = not config.policy.model.startswith(f"{config.problems.source}:")
    assert result.exit_code == 2 * missing, result.output
    assert ("this job would not run:" in result.output) == missing
    assert f"model: {config.policy.model}" in result.output
    assert f"an engine takes: {num_cpus:g} CPUs" in result.output


@pytest.mark.ray
@pytest.mark.usefixtures("own_cluster")
def test_an_engine_over_two_nodes_gets_its_bundles() -> None:
    """Nodes that declare two GPUs each; no GPU is used."""
    head = {"num_cpus": 2, "num_gpus": 2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=2, num_gpus=2)
        ray.init(address=cluster.address)
        resources = resources_of(
            {"kind": "vllm", "tensor_parallel": 2, "pipeline_parallel": 2}, num_cpus=1
        )
        for _ in range(2):  # the second actor has room only if the first returned its bundles
            place = Placement.reserve(resources)
            seen = ray.get(
                ray.remote(_Engine).options(**place.options).remote().look.remote(), timeout=60
            )
            assert seen["gpus"] == 4
            assert sorted(seen["nodes"]) == [2, 2]
            place.release()
    finally:
        ray.shutdown()
        cluster.shutdown()


class _Engine:
    """An actor that reads its placement group, as vLLM does."""

    def look(self) -> dict[str, object]:
        group = ray.util.get_current_placement_group()
        nodes = list(placement_group_table(group)["bundles_to_node_id"].values())
        gpus = sum(bundle.get("GPU", 0) for bundle in group.bundle_specs)
        return {"gpus": gpus, "nodes": [nodes.count(node) for node in set(nodes)]}


CONNECTS = """
import sys
{before}
from mclabel.run.ray_cluster import connect_to_ray, enable_token_authentication
assert "ray" not in sys.modules or {before!r}
{does}
from ray._private.authentication.authentication_utils import is_token_auth_enabled
print(is_token_auth_enabled())
"""


@pytest.mark.ray
@pytest.mark.parametrize(
    ("before", "does", "mode", "expected"),
    [
        ("", "enable_token_authentication()", None, "True"),
        (
            "import ray",
            "connect_to_ray('local'); print(ray.get(ray.remote(lambda: 7).remote()))",
            None,
            "7\nTrue",
        ),
        ("import ray", "enable_token_authentication()", "disabled", "False"),
    ],
)
def test_a_cluster_of_our_own_takes_tokens_without_a_word(
    before: str, does: str, mode: str | None, expected: str, tmp_path: Path
) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    environment |= {"HOME": str(tmp_path)} | ({} if mode is None else {"RAY_AUTH_MODE": mode})
    done = subprocess.run(
        [sys.executable, "-c", CONNECTS.format(before=before, does=does)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout.strip(), done.returncode) == (expected, 0), done.stderr
    assert "authentication" not in done.stderr.lower()
