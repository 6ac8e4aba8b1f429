"""Training settings: no duplicates, all errors in one message, and ids that stay stable."""

from __future__ import annotations

from pathlib import Path

import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ComponentError, ConfigError
from mclabel.core.records import LabeledSolution
from mclabel.core.settings import OPERATIONAL
from mclabel.prm.config import TrainConfig
from mclabel.prm.job import TrainReport
from tests.support.labelled import arith_rows


def train(out: Path, *overrides: str, kind: type[TrainConfig] = TrainConfig) -> TrainReport:
    return jobs.train(
        load_config(kind, None, [f"out={out}", *overrides]), lambda step, total, loss: None
    )


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["states=true"], "states=true: works only with head=likelihood, not with head=token"),
        (
            ["head=likelihood", "target=neutral"],
            "head=likelihood: target=neutral has three classes",
        ),
        (
            ["head=likelihood", "step_token=<|x|>"],
            "step_token='<|x|>': head=likelihood scores each",
        ),
        (["shard=true"], "shard=true: shards a trained base over several workers, but workers=1"),
        (["target=neutral", "loss=mse"], "loss=mse: target=neutral has three classes"),
        (
            ["lora_rank=2", "backbone_lr=0"],
            "lora_rank=2: adapters are trained at the rate backbone_lr",
        ),
        (["patience=1", "validation=0"], "patience=1: early stopping needs validation problems"),
        (["workers=2", "batch_size=7"], "batch_size=7: must be a multiple of workers=2"),
        (["target=sotf"], "target: sotf: is not among the targets. did you mean soft?"),
        (["weights=none_such"], "weights: none_such: is not among the weights"),
        (["loss=json:nothing"], "loss: json:nothing: cannot be imported"),
        (["head=tokn"], "head='tokn': must be 'token' or 'likelihood'"),
    ],
)
def test_settings_that_contradict_one_another(overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(TrainConfig, None, ["out=o", "labels=[l]", "base=b", *overrides])
    assert fault in str(caught.value)


def test_the_identity_of_a_training() -> None:
    """The golden identity holds all settings that affect the weights, except those at defaults."""
    config = load_config(
        TrainConfig,
        None,
        ["out=o", "labels=[l]", "base=b", "target=soft", "threads=4", "epochs=3", "seed=1"],
    )
    assert config.identity() == {"base": "b", "target": "soft", "seed": 1}
    assert set(config.semantic()) == set(TrainConfig.model_fields) - {
        n for n, i in TrainConfig.model_fields.items() if OPERATIONAL in i.metadata
    }


def half(row: LabeledSolution) -> tuple[float | None, ...]:
    """Return custom targets: for every other step, a tenth of its index."""
    return tuple(None if number % 2 else number / 10 for number in range(len(row.steps)))


def beyond(row: LabeledSolution) -> tuple[float | None, ...]:
    """Return invalid targets, which exceed 1."""
    return (2.0,) * len(row.steps)


def test_a_target_of_ones_own_is_a_function(
    base: str, labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_targets.py").write_text(Path(__file__).read_text())
    monkeypatch.syspath_prepend(tmp_path)
    common = [f"labels=[{labels}]", f"base={base}", "max_steps=1"]
    report = train(tmp_path / "prm", *common, "target=own_targets:half")
    assert report.num_solutions + report.num_validation == len(arith_rows(60))
    with pytest.raises(
        ComponentError,
        match=r"beyond: derive gave \[0\]=2\.0 \(float\), must be less than or equal to 1",
    ):
        train(tmp_path / "none", *common, "target=own_targets:beyond")
