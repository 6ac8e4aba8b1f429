"""Code that a configuration file or a run names only runs if the command line also names it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import mclabel as mc
from mclabel.cli import main
from mclabel.core.components import find_component
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.labeling.config import LabelConfig
from mclabel.prm.config import TrainConfig
from mclabel.run.shards.digest import add_digest, parse_checked_object
from tests.support.commands import run_verb
from tests.support.scripted_jobs import write_problems

OWN = '''
import os
import pathlib
import subprocess

from mclabel.labeling.estimators.fixed import FixedEstimator

pathlib.Path(__file__).with_suffix(".imported").touch()


def is_right(completion, gold):
    return gold in completion


def read(place):
    yield {"problem": "P [answer 1]", "answer": "1"}


class Mine(FixedEstimator):
    class Settings(FixedEstimator.Settings):
        """As of fixed."""
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the name of an importable module, which leaves a mark when it is imported."""
    name = f"own_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def is_imported(folder: Path, module: str) -> bool:
    return (folder / f"{module}.imported").exists()


def write_yaml(folder: Path, **content: object) -> str:
    path = folder / "stranger.yaml"
    path.write_text(json.dumps(content))
    return str(path)


def label_yaml(folder: Path, **content: object) -> str:
    problems = {"source": str(write_problems(folder, 2))}
    policy = {"engine": "scripted"}
    return write_yaml(
        folder, **({"problems": problems, "policy": policy, "ray": {"address": "none"}} | content)
    )


@pytest.mark.parametrize(
    ("content", "key", "name"),
    [
        ({"checker": "OWN:is_right"}, "checker.kind", "OWN:is_right"),
        ({"checker": {"kind": "OWN:is_right", "arguments": {}}}, "checker.kind", "OWN:is_right"),
        ({"estimator": {"kind": "OWN:Mine"}}, "estimator.kind", "OWN:Mine"),
        ({"policy": {"engine": "OWN:Engine"}}, "policy.engine.kind", "OWN:Engine"),
        ({"problems": {"source": "OWN:read"}}, "problems.kind", "OWN:read"),
        ({"problems": {"kind": "OWN:read", "source": "x"}}, "problems.kind", "OWN:read"),
    ],
)
def test_a_file_imports_nothing_by_itself(
    tmp_path: Path, module: str, content: dict[str, object], key: str, name: str
) -> None:
    content = json.loads(json.dumps(content).replace("OWN", module))
    config = label_yaml(tmp_path, **content)
    for more in ([], ["--dry-run"]):
        result = CliRunner().invoke(main, ["label", config, f"out={tmp_path}/out", *more])
        message = " ".join(result.output.split())
        name = name.replace("OWN", module)
        assert result.exit_code == 2 and not is_imported(tmp_path, module)
        assert (
            f"{key.removesuffix('.kind')}: {name} is code that is named only in a file" in message
        )
        assert f"pass --allow {module}, or {key}={name} on the command line" in message


@pytest.mark.parametrize("key", ["target", "weights", "loss"])
def test_a_training_file_imports_nothing_by_itself(tmp_path: Path, module: str, key: str) -> None:
    config = write_yaml(tmp_path, **{key: f"{module}:is_right"}, base="arith:strong", labels=["x"])
    message = (
        rf"{key}: {module}:is_right is code .* pass --allow {module}, or {key}={module}:is_right on"
    )
    with pytest.raises(ConfigError, match=message):
        load_config(TrainConfig, config, [f"out={tmp_path}/out"])
    assert not is_imported(tmp_path, module)
    load_config(TrainConfig, config, [f"out={tmp_path}/out"], allow=[module])
    load_config(TrainConfig, config, [f"out={tmp_path}/out", f"{key}={module}:is_right"])


@pytest.mark.parametrize(
    "more",
    [
        ["checker=OWN:is_right"],
        ["checker={kind: OWN:is_right}"],
        ["checker.kind=OWN:is_right"],
        ["--allow", "OWN"],
        ["--allow=OWN:is_right"],
    ],
)
def test_what_the_command_line_names_runs(tmp_path: Path, module: str, more: list[str]) -> None:
    config = label_yaml(tmp_path, checker=f"{module}:is_right")
    more = [argument.replace("OWN", module) for argument in more]
    run_verb(["label", config, f"out={tmp_path}/out", *more])


def test_another_name_of_a_module_is_not_allowed_by_one(tmp_path: Path, module: str) -> None:
    config = label_yaml(tmp_path, checker=f"{module}:is_right")
    with pytest.raises(ConfigError, match="is_right is code that is named only in a file"):
        load_config(
            LabelConfig, config, ["out=x"], allow=[f"{module}:read", module[:-1], f"{module}.sub"]
        )
    with pytest.raises(ConfigError, match="is_right is code that is named only in a file"):
        load_config(LabelConfig, config, ["out=x", f"problems.source={module}:read"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("subprocess.getoutput", "subprocess is another module"),
        ("os.path.exists", "os is another module"),
        (
            "FixedEstimator",
            "estimators.fixed:FixedEstimator is the actual object of .*FixedEstimator",
        ),
    ],
)
def test_an_allowed_module_lends_nothing_that_it_imports(
    tmp_path: Path, module: str, name: str, message: str
) -> None:
    config = label_yaml(tmp_path, checker=f"{module}:{name}")
    with pytest.raises(ConfigError, match=message):
        load_config(LabelConfig, config, ["out=x"], allow=[module])


def test_a_python_caller_names_what_it_likes(tmp_path: Path, module: str) -> None:
    assert mc.grade("so it is 12", "12", checker=f"{module}:is_right").verdict == "right"
    assert find_component("estimators", f"{module}:Mine").__name__ == "Mine"


@pytest.mark.parametrize(
    ("kind", "content", "key", "value"),
    [
        (LabelConfig, {"policy": {"trust_remote_code": True}}, "policy.trust_remote_code", "true"),
        (
            LabelConfig,
            {"completers": [{"model": "arith:strong", "trust_remote_code": True}]},
            "completers.0.trust_remote_code",
            "true",
        ),
        (TrainConfig, {"trust_remote_code": True}, "trust_remote_code", "true"),
        (BestOfNConfig, {"trust_remote_code": ["a"]}, "trust_remote_code", '["a"]'),
        (LabelConfig, {"ray": {"address": "evil:6379"}}, "ray.address", '"evil:6379"'),
        (
            LabelConfig,
            {
                "policy": {
                    "engine": {
                        "kind": "openai",
                        "endpoints": ["http://evil/v1"],
                        "api_key_env": "AWS_SECRET_ACCESS_KEY",
                    }
                }
            },
            "policy.engine.api_key_env",
            '"AWS_SECRET_ACCESS_KEY"',
        ),
        *(
            (
                LabelConfig,
                {"policy": {"engine": {"kind": "vllm", "engine_args": {name: value}}}},
                f"policy.engine.engine_args.{name}",
                json.dumps(value),
            )
            for name, value in {
                "worker_cls": "evil.Worker",
                "worker_extension_cls": "evil.Worker",
                "logits_processors": ["evil:Processor"],
                "hf_overrides": {"architectures": ["Evil"]},
                "kv_transfer_config": {"kv_connector_module_path": "evil"},
                "compilation_config": {"backend": "evil.compile"},
            }.items()
        ),
    ],
)
def test_a_file_alone_trusts_no_other_code(
    tmp_path: Path, kind: type, content: dict[str, object], key: str, value: str
) -> None:
    needed = {"base": "arith:strong", "labels": ["x"]} if kind is TrainConfig else {}
    config = write_yaml(tmp_path, **needed, **content)
    message = (
        rf"  {re.escape(key)}: .*, so a file alone must not .* pass {re.escape(f'{key}={value}')}"
    )
    with pytest.raises(ConfigError, match=message):
        load_config(kind, config, ["out=x"])
    with pytest.raises(ConfigError, match=message):
        load_config(kind, config, ["out=x"], allow=["evil"])
    load_config(kind, config, ["out=x", f"{key}={value}"])


def test_harmless_values_of_a_file_stand(tmp_path: Path) -> None:
    engine = {"kind": "vllm", "engine_args": {"enforce_eager": True, "block_size": 16, "x": None}}
    config = write_yaml(
        tmp_path, policy={"engine": engine, "trust_remote_code": False}, ray={"address": "auto"}
    )
    loaded = load_config(LabelConfig, config, ["out=x"])
    assert loaded.policy.engine.model_dump()["engine_args"] == engine["engine_args"]


def labelled_run(folder: Path, *changes: str) -> Path:
    config = label_yaml(folder, estimator={"kind": "fixed", "rollouts": 2})
    out = folder / "run"
    run_verb(["label", config, f"out={out}", *changes])
    return out


def change_record(run: Path, **changes: object) -> None:
    """Change the recorded configuration of a run, and update the digest."""
    manifest, _ = parse_checked_object((run / "run.json").read_bytes())
    manifest["config"] |= changes
    (run / "run.json").write_text(json.dumps(add_digest(manifest)))


def run_regrade(run: Path, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["regrade", str(run), "-o", f"{run}-again", *more])
    return result.exit_code, " ".join(result.output.split())


def test_a_recorded_checker_is_not_called(tmp_path: Path) -> None:
    run, canary = labelled_run(tmp_path), tmp_path / "canary"
    change_record(
        run,
        checker={
            "kind": "subprocess:getoutput",
            "arguments": {"cmd": f"touch {canary}"},
            "version": "1",
        },
    )
    code, message = run_regrade(run)
    assert code == 2 and not canary.exists()
    assert "checker: subprocess:getoutput is code that is named only in a file" in message
    assert "pass --allow subprocess, or checker.kind=subprocess:getoutput" in message
    assert run_regrade(run, "checker=math", "--change-checker")[0] == 0 and not canary.exists()


def test_a_recorded_estimator_is_not_imported(tmp_path: Path, module: str) -> None:
    run = labelled_run(tmp_path)
    change_record(run, estimator={"kind": f"{module}:Mine", "rollouts": 2})
    for more in ([], ["checker=math"], [f"checker={module}:is_right"]):
        code, message = run_regrade(run, *more)
        assert (
            code == 2
            and f"its estimator {module}:Mine is code that is named only in a file" in message
        )
        assert f"pass --allow {module}" in message and not is_imported(tmp_path, module)
    code, message = run_regrade(run, f"--allow={module}:Mine")
    assert code == 0, message
    assert is_imported(tmp_path, module)
