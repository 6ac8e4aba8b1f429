"""Training settings: no duplicates, all errors in one message, and ids that stay stable."""

from __future__ import annotations

import pytest

from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.core.settings import OPERATIONAL
from mclabel.prm.config import TrainConfig


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
