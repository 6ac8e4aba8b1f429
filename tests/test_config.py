from __future__ import annotations

from pathlib import Path

import pytest

from mclabel.config import BestOfNConfig, LabelConfig, TrainConfig, load_config
from mclabel.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[1] / "configs").rglob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_config_loads_and_opens_with_its_command(path: Path) -> None:
    kind = {"label": LabelConfig, "train": TrainConfig, "eval": BestOfNConfig}[path.parent.name]
    labels = ["labels=[runs/labels]"] if kind is TrainConfig else []
    load_config(kind, path, ["out=somewhere", *labels])
    assert path.read_text().startswith("# mclabel ")


def test_unknown_keys_name_the_nearest_one_and_all_faults_come_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(
            LabelConfig, None, ["estimator.rolouts=3", "policy.max_token=1", "estimator.batch=0"]
        )
    message = str(caught.value)
    assert "estimator.rolouts: unknown key; did you mean estimator.rollouts?" in message
    assert "policy.max_token: unknown key; did you mean policy.max_tokens?" in message
    assert "estimator.batch=0: input should be greater than or equal to 1" in message
    assert "out: required" in message


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("estimator.rollouts=0", "estimator.rollouts=0: input should be greater"),
        (
            "estimator.kind=magic",
            "estimator.kind='magic': input should be 'fixed', 'first_error', 'bisect'",
        ),
        ("policy.top_p=0", "policy.top_p=0: input should be greater than 0"),
        ("seed", "overrides are written key=value"),
        ("seed.deeper.still=1", "seed"),
    ],
)
def test_bad_overrides(override: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        load_config(LabelConfig, None, ["out=x", override])


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        load_config(LabelConfig, tmp_path / "no.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1")
    with pytest.raises(ConfigError, match="not a readable YAML file"):
        load_config(LabelConfig, broken)
    broken.write_text("- 1")
    with pytest.raises(ConfigError, match="must hold keys and values"):
        load_config(LabelConfig, broken)


def test_operational_fields_are_not_semantic() -> None:
    plain = load_config(LabelConfig, None, ["out=a"])
    moved = load_config(
        LabelConfig, None, ["out=b", "ray.address=none", "policy.max_live=9", "keep_rollouts=false"]
    )
    other = load_config(LabelConfig, None, ["out=a", "policy.temperature=1"])
    assert plain.semantic() == moved.semantic()
    assert plain.semantic() != other.semantic()
