"""The reference of keys: the output of `--keys`, and docs/keys.md."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Annotated, Literal

import pytest
from click.testing import CliRunner
from pydantic import Field

from mclabel.cli import main
from mclabel.core.config.keys import Key, find_keys, list_configuration_keys
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.core.settings import OPERATIONAL, Chosen, Settings, at_most
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.judge.job import JudgeConfig, ScoreConfig
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators import EstimatorSettings
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.prm.config import TrainConfig
from mclabel.quickstart.toy import QuickstartConfig
from mclabel.rl.config import ServeRewardsConfig
from mclabel.search.config import SearchConfig, ServeSearchConfig
from tests.support.commands import run_verb

ROOT = Path(__file__).parents[1]
CONFIGURATIONS = (
    *(LabelConfig, TrainConfig, ScoreConfig, JudgeConfig, SearchConfig),
    *(ServeSearchConfig, ServeRewardsConfig, BestOfNConfig, QuickstartConfig),
)


class Inner(Settings):
    how: Annotated[Literal["one", "two"] | None, OPERATIONAL] = None
    """Either of them,
    or none."""


class Outer(Settings):
    out: str
    count: Annotated[int, at_most(9, "no more are there")] = Field(4, gt=0)
    """How many."""
    names: list[str] = Field([], max_length=2)
    pair: tuple[str, float] = ("a", 1.5)
    inner: Inner = Inner()
    estimator: Annotated[EstimatorSettings, Chosen("estimators", default="fixed")]
    """Which one."""


def list_keys(kind: type[Settings]) -> dict[str, Key]:
    return {key.name: key for key in list_configuration_keys(kind)}


@pytest.mark.parametrize(
    ("name", "type_", "default", "sentence"),
    [
        ("out", "string", None, ""),
        ("count", "integer <= 9, > 0", "4", "How many."),
        ("names", "list of string at most 2", "[]", ""),
        ("pair", "list of 2: string, number", '["a", 1.5]', ""),
        ("inner.how", "one | two or null", "null", "Either of them, or none."),
    ],
)
def test_a_key_says_type_range_default_and_sentence(
    name: str, type_: str, default: str | None, sentence: str
) -> None:
    key = list_keys(Outer)[name]
    assert (sorted(key.type), key.default, key.sentence) == (sorted(type_), default, sentence)
    assert key.is_operational == (name == "inner.how")


def test_a_component_has_its_name_and_its_own_keys() -> None:
    keys = list_keys(Outer)
    assert keys["estimator.kind"].default == "fixed"
    assert "posterior" in keys["estimator.kind"].type
    assert keys["estimator.root_rollouts"].components == ("fixed",)
    assert {"fixed", "posterior", "tree"} <= set(keys["estimator.truncated"].components)
    key = list_keys(LabelConfig)["checker.units_optional"]
    assert (key.type, key.default, key.components) == ("true or false", "true", ("math",))


def test_words_are_sought_in_names_then_in_sentences() -> None:
    keys = list_configuration_keys(Outer)
    assert [key.name for key in find_keys(keys, "COUNT")] == ["count"]
    assert [key.name for key in find_keys(keys, "either")] == ["inner.how"]
    assert {k.name for k in find_keys(keys, "bisect")} > {"estimator.batch"}
    with pytest.raises(ConfigError, match=r"--keys cuont: no key .*did you mean count\?"):
        find_keys(keys, "cuont")


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_every_key_has_a_sentence(kind: type[Settings]) -> None:
    assert [key.name for key in list_configuration_keys(kind) if not key.sentence] == []


@pytest.mark.parametrize(
    "words", [("label", "configs/label/own-data.yaml"), ("train",), ("eval", "best-of-n")]
)
def test_verbs_print_their_keys(words: tuple[str, ...]) -> None:
    result = run_verb([*words, "--keys"])
    assert result.output.count(";") >= len(
        list_configuration_keys(
            {"label": LabelConfig, "train": TrainConfig}.get(words[0], BestOfNConfig)
        )
    )
    assert (
        f"seed: integer >= 0, <= {2**63 - 1}; default 0"
        in CliRunner().invoke(main, [*words, "--keys", "seed"]).output.splitlines()
    )


def _page_script() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("keys_page", ROOT / "scripts" / "keys.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["keys_page"] = script
    spec.loader.exec_module(script)
    return script


def test_the_page_is_up_to_date() -> None:
    script = _page_script()
    assert script.PAGE.read_text() == script.make_page(), "run: python scripts/keys.py"


def test_the_page_begins_with_ten_keys_whose_examples_can_be_used() -> None:
    script = _page_script()
    lines = script.make_page().partition("## The ten keys that people set")[2].splitlines()
    assert [line.partition("=")[0] for line in lines[5:16]] == [
        "|---|---|---|",
        *(f"| `{name}" for name in script.OFTEN_SET),
    ]
    assert "| `split.by=blank_line` | `line` | Rule that splits a solution into steps. |" in lines
    config = load_config(
        LabelConfig, None, [f"{name}={example}" for name, example in script.OFTEN_SET.items()]
    )
    assert (config.problems.kind, config.policy.engine.kind) == ("file", "vllm")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("mclabel lab", ["plain,label", "plain,labels"]),
        ("mclabel label x.yaml estimator.root", ["plain,estimator.root_rollouts="]),
        ("mclabel train x.yaml head_", ["plain,head_lr="]),
    ],
)
def test_what_is_completed(words: str, offered: list[str]) -> None:
    assert (
        CliRunner()
        .invoke(
            main,
            prog_name="mclabel",
            env=(
                {
                    "COMP_WORDS": words,
                    "COMP_CWORD": str(len(words.split()) - 1),
                    "_MCLABEL_COMPLETE": "bash_complete",
                }
            ),
        )
        .output.split()
        == offered
    )


class Thrice(FixedEstimator):
    """An estimator that always makes three rollouts."""

    class Settings(FixedEstimator.Settings):
        """Settings of an estimator without an entry point."""

        patience: int = Field(3, ge=1)
        """Number of rollouts without news after which a prefix is left."""


def test_keys_of_a_component_without_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("mine_of_keys")
    module.Thrice, module.number = Thrice, 5  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine_of_keys", module)
    shown = run_verb(["label", "--keys", "mine_of_keys:Thrice"])
    assert (
        "estimator.patience [kind=mine_of_keys:Thrice]: integer >= 1; default 3"
        in shown.output.splitlines()
    )
    assert "policy.engine" not in shown.output and "checker" not in shown.output
    assert (
        "mine_of_keys:Twice: cannot be imported"
        in run_verb(["label", "--keys", "mine_of_keys:Twice"], code=2).output
    )
    assert (
        "no key contains this word"
        in run_verb(["label", "--keys", "mine_of_keys:number"], code=2).output
    )
