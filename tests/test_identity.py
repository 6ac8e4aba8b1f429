"""Identity of a run: its contents, and additions by later releases that keep it the same."""

from __future__ import annotations

from typing import Annotated

import pytest

from mclabel.core.config.load import load_config
from mclabel.core.seeds import content_id
from mclabel.core.settings import OPERATIONAL, Settings
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.job import make_semantic_config
from mclabel.run.shards.manifest import describe_differences

GOLDEN = {
    "estimator={kind: fixed, rollouts: 8}": "4192363d8cb4fb91",
    "estimator={kind: posterior, rollouts: 64, min_gain: 0.08}": "fd282dd27ccd5f2b",
    "policy={temperature: 0.7, template: 'Q: {problem}'}": "3a3a1be569a1459b",
    "split={by: step, max_steps: 12}": "92556d9a0cefd584",
}
"""Ids of configurations. A changed id orphans all its runs, because runs are resumed by id."""


def make_config(*overrides: str) -> LabelConfig:
    return load_config(
        LabelConfig, None, ["out=x", "policy.engine=scripted", "problems.limit=1", *overrides]
    )


@pytest.mark.parametrize(("override", "golden"), GOLDEN.items())
def test_identities_stay_from_release_to_release(override: str, golden: str) -> None:
    assert content_id("run", make_config(override).identity()) == golden


def test_a_setting_at_its_default_is_not_part_of_the_identity() -> None:
    plain = make_semantic_config(make_config("estimator=bisect"))
    assert (
        plain.identity
        == make_semantic_config(
            make_config("estimator={kind: bisect, rollouts: 16, batch: 4}", "seed=0")
        ).identity
    )
    assert plain.identity["estimator"] == {"kind": "bisect"}
    assert plain.config["estimator"]["batch"] == 4  # recorded, but not part of the identity


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("policy.template_variables={a: 1}", "  policy.template_variables: [] there, [['a', 1]]"),
        ("policy.engine.num_steps=9", "  policy.engine.num_steps: not set there, 9 here"),
    ],
)
def test_what_one_record_lacks_is_a_difference_of_variables_and_engines(
    override: str, shown: str
) -> None:
    plain, changed = (
        make_semantic_config(make_config()).config,
        make_semantic_config(make_config(override)).config,
    )
    assert describe_differences(plain, plain) == []
    (line,) = describe_differences(plain, changed)
    assert line.startswith(shown)
    assert describe_differences(changed, plain)


def test_an_operational_setting_is_no_part_of_it() -> None:
    class Some(Settings):
        path: Annotated[str, OPERATIONAL] = "a"
        nested: Annotated[FixedEstimator.Settings, OPERATIONAL] = FixedEstimator.Settings()

    assert Some(path="b").identity() == {} and Some(path="b").semantic() == {}
