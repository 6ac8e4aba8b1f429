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
    config = load_config(kind, None, [f"out={out}", *overrides])
    return jobs.train(config, lambda step, total, loss: None)


def test_five_faults_are_named_at_once_and_nothing_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        train(
            tmp_path / "prm", "labels=[no-such-run]", "base=no-such-base", "head=likelihood",
            "step_token=<|x|>", "target=neutral", "shard=true",
            "batch_size=0", "epoch=2",
        )  # fmt: skip
    for fault in (
        "batch_size=0: must be at least",
        "epoch: unknown key; did you mean epochs?",
        "head=likelihood: target=neutral has three classes, which only head=token can learn",
        "step_token='<|x|>': head=likelihood scores each step at its last token",
        "shard=true: shards a trained base over several workers, but workers=1",
    ):
        assert fault in str(caught.value)
    assert "no such" not in str(caught.value)
    assert not (tmp_path / "prm").exists()


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["states=true"], "states=true: works only with head=likelihood, not with head=token"),
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
    operational = {n for n, i in TrainConfig.model_fields.items() if OPERATIONAL in i.metadata}
    assert set(config.semantic()) == set(TrainConfig.model_fields) - operational


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
    rule = r"beyond: derive gave \[0\]=2\.0 \(float\), must be less than or equal to 1"
    with pytest.raises(ComponentError, match=rule):
        train(tmp_path / "none", *common, "target=own_targets:beyond")
