"""The recipes agree with the package, with each other, and with their tools."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml

from mclabel.core.config.load import load_config
from mclabel.domains.arith.problems import generate_problems
from mclabel.labeling.config import LabelConfig
from tests.support.forked import Forked

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes"
RAYJOB_FIELDS = {
    "spec.entrypoint": str,
    "spec.backoffLimit": int,
    "spec.shutdownAfterJobFinishes": bool,
    "spec.ttlSecondsAfterFinished": int,
    "spec.rayClusterSpec.rayVersion": str,
    "spec.rayClusterSpec.authOptions.mode": str,
    "spec.rayClusterSpec.enableInTreeAutoscaling": bool,
    "spec.rayClusterSpec.autoscalerOptions.version": str,
    "spec.rayClusterSpec.autoscalerOptions.idleTimeoutSeconds": int,
    "spec.rayClusterSpec.headGroupSpec.rayStartParams.num-cpus": str,
    "spec.rayClusterSpec.headGroupSpec.rayStartParams.num-gpus": str,
    "spec.rayClusterSpec.workerGroupSpecs.groupName": str,
    "spec.rayClusterSpec.workerGroupSpecs.replicas": int,
    "spec.rayClusterSpec.workerGroupSpecs.minReplicas": int,
    "spec.rayClusterSpec.workerGroupSpecs.maxReplicas": int,
}
"""Types of the fields that the recipe sets, as KubeRay 1.7.0 declares them in
ray-operator/config/crd/bases/ray.io_rayjobs.yaml (`v1`). The pods' templates, which Kubernetes
defines, were checked separately."""


def read_rayjob() -> tuple[dict[str, Any], dict[str, Any]]:
    job, config_map = yaml.safe_load_all((RECIPES / "rayjob.yaml").read_text())
    return job, config_map


def list_leaves(content: Any, path: str) -> dict[str, Any]:
    """Return the values by their paths, without pods' templates."""
    if isinstance(content, list):
        return {k: v for part in content for k, v in list_leaves(part, path).items()}
    if not isinstance(content, dict):
        return {path: content}
    parts = {key: part for key, part in content.items() if key != "template"}
    return {
        k: v for key, part in parts.items() for k, v in list_leaves(part, f"{path}.{key}").items()
    }


def test_the_rayjob_has_only_fields_that_kuberay_declares_and_the_ray_of_the_image() -> None:
    job, _ = read_rayjob()
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    fields = list_leaves(job["spec"], "spec")
    assert {place: type(value) for place, value in fields.items()} == RAYJOB_FIELDS
    assert re.findall(r"^ARG RAY=(\S+)", (RECIPES / "Dockerfile").read_text(), re.MULTILINE) == [
        fields["spec.rayClusterSpec.rayVersion"]
    ]


def test_the_rayjob_runs_a_command_that_loads_and_asks_for_the_nodes_it_may_have(
    tmp_path: Path,
) -> None:
    job, config_map = read_rayjob()
    program, verb, place, *overrides = shlex.split(job["spec"]["entrypoint"])
    cluster = job["spec"]["rayClusterSpec"]
    (volume,) = cluster["headGroupSpec"]["template"]["spec"]["volumes"]
    assert (program, verb) == ("mclabel", "label")
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    file = tmp_path / Path(place).name
    file.write_text(config_map["data"][file.name])
    config = load_config(LabelConfig, file, overrides)
    (workers,) = cluster["workerGroupSpecs"]
    assert config.ray.address == "auto" and config.ray.max_engines == workers["maxReplicas"]
    assert config.out.startswith("s3://"), "a new cluster finds nothing on the disk of an old one"


def test_the_image_copies_what_a_wheel_is_built_from_and_runs_as_no_root() -> None:
    dockerfile = (RECIPES / "Dockerfile").read_text()
    assert {
        name
        for line in [line.split() for line in dockerfile.splitlines() if line.startswith("COPY")]
        for name in line[1:-1]
    } == {"pyproject.toml", "README.md", "LICENSE", "configs", "mclabel"}
    for script in re.findall(r"^RUN ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE):
        subprocess.run(["sh", "-n", "-c", script], check=True)
    *_, user, _, entry = re.findall(r"^(?:USER|WORKDIR|ENTRYPOINT) .*", dockerfile, re.MULTILINE)
    assert (user, entry) == ("USER ray", 'ENTRYPOINT ["mclabel"]')


def test_the_script_for_slurm_parses() -> None:
    ended = subprocess.run(["bash", "-n", RECIPES / "slurm.sh"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    options = re.findall(r"^#SBATCH --([\w-]+)", (RECIPES / "slurm.sh").read_text(), re.MULTILINE)
    assert {"signal", "time", "no-requeue", "no-kill"} <= set(options)


def test_the_script_for_uv_and_the_image_install_extras_that_exist() -> None:
    """The script's header is read as PEP 723 defines.

    The package is on no index, so uv takes it from the clone.
    """
    (block,) = re.findall(
        r"^# /// script\n((?:#(?: .*)?\n)+)# ///$",
        (RECIPES / "label_hub.py").read_text(),
        re.MULTILINE,
    )
    declared = tomllib.loads(re.sub(r"^# ?", "", block, flags=re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert declared["requires-python"] == project["requires-python"]
    assert declared["dependencies"] == ["mclabel[run]"]
    installed = set(re.findall(r"'\.\[([\w,]+)\]'", (RECIPES / "Dockerfile").read_text()))
    assert installed == {"run", "run,gpu"} and {"run", "gpu"} <= set(
        project["optional-dependencies"]
    )
    assert (RECIPES / declared["tool"]["uv"]["sources"]["mclabel"]["path"]).resolve() == ROOT


@pytest.mark.slow
def test_the_script_for_uv_labels_a_file_and_writes_a_data_set(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    rows = [
        {"problem": p.text, "answer": p.answer} for p in generate_problems(2, seed=0, split="test")
    ]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [RECIPES / "label_hub.py", problems, "--out", "run", "--model", "arith:policy"]
    command += ["--max-tokens", "200", "--per-problem", "2", "--rollouts", "8"]
    for _ in range(2):  # the second call resumes the finished blocks
        script = Forked(*command, folder=tmp_path)
        output, _ = script.communicate()
        assert script.returncode == 0, output
        assert output.endswith("4 solutions: datasets.load_dataset('run-parquet')\n")
    loaded = datasets.load_dataset(str(tmp_path / "run-parquet"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].num_rows == 4
    assert {row["problem"] for row in loaded["train"]} == {row["problem"] for row in rows}
