"""Rollouts by another model than the author of the solutions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.core.records import Problem, Rollout, add_counts
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelConfig, LabelSettings
from mclabel.labeling.estimators import Completer, find_strongest_completer_index
from mclabel.labeling.job import make_semantic_config
from mclabel.labeling.policy import PreparedModels
from mclabel.labeling.problem import ProblemLabels, RolloutModel, label_problem
from tests.support.one_engine import on_one_engine
from tests.support.scripted_jobs import scripted

PROBLEM = Problem(id="p", text="Problem [answer 7]", answer="7")
STRONG = "completers=[{model: arith:strong, max_tokens: 200, engine: {kind: hf, max_live: 64}}]"


class Shifted(ScriptedEngine):
    """The scripted policy with another vocabulary: its ids are code points plus 1,000."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(char) + 1000 for char in text)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(number - 1000) for number in ids)


class SmallVocabulary(Shifted):
    """A shifted policy whose vocabulary lacks the letter d."""

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode(ids).replace("d", "?")


def label_with_completer(
    completer: ScriptedEngine | None,
    kind: str = "fixed",
    *,
    with_author: bool = False,
    **estimator: int,
) -> ProblemLabels:
    """Label the problem with an optional completer.

    `with_author` adds rollouts by the author, which cost half as much as those of the completer.
    """
    settings = LabelSettings.model_validate(
        {
            "solutions": {"per_problem": 3},
            "estimator": {"kind": kind, "rollouts": 8, **estimator},
        }
    )
    shared = on_one_engine(ScriptedEngine(scripted()), settings)
    rolling = []
    if with_author:
        rolling.append(RolloutModel(completer=Completer(), policy=shared.policy))
    if completer is not None:
        rolling.append(RolloutModel(completer=Completer(name="other", cost=2.0), policy=completer))
    return asyncio.run(label_problem(PROBLEM, replace(shared, completers=rolling)))


@pytest.mark.parametrize("kind", ["fixed", "bisect", "posterior", "tree"])
def test_a_completer_of_another_vocabulary_rolls_out_from_the_same_texts(kind: str) -> None:
    """The completer's ids differ from the author's; texts, outcomes and labels are the same."""
    same, shifted = (
        label_with_completer(engine(scripted()), kind) for engine in (ScriptedEngine, Shifted)
    )

    def without_ids(rollout: Rollout) -> Rollout:
        return rollout if kind != "tree" else replace(rollout, prefix_id="", seed=0)

    if kind != "tree":  # the prefix ids and seeds of `tree` depend on token ids
        assert [*map(without_ids, same.rollouts)] == [*map(without_ids, shifted.rollouts)]
        assert same.labeled == shifted.labeled
    assert [row.solution for row in same.labeled] == [row.solution for row in shifted.labeled]
    assert len(shifted.rollouts) > 0


def test_solutions_of_the_author_are_no_rollouts_of_a_completer() -> None:
    without_completer, with_completer = (
        label_with_completer(None),
        label_with_completer(ScriptedEngine(scripted())),
    )
    assert without_completer.labeled[0].siblings.num_rollouts == 3
    # sibling counts estimate the policy's own value
    assert with_completer.labeled[0].siblings == without_completer.labeled[0].siblings
    # `fixed` makes no rollouts from the problem alone
    assert with_completer.labeled[0].root_value is None
    assert [row.solution for row in without_completer.labeled] == [
        row.solution for row in with_completer.labeled
    ]


def test_a_tokenizer_that_cannot_spell_a_step_sets_the_problem_aside() -> None:
    result = label_with_completer(SmallVocabulary(scripted()))
    assert result.labeled == []
    assert result.set_aside.reason == "other_tokens"
    assert "the completer's tokenizer does not reproduce" in result.set_aside.detail


def job(out: Path, *overrides: str) -> LabelConfig:
    base = [
        *("problems.source=arith", "problems.limit=6", "solutions.per_problem=2"),
        *("policy.max_tokens=200", "policy.engine.max_live=64", "ray.address=none"),
        *("estimator.kind=fixed", "estimator.rollouts=3", "block_problems=2", f"out={out}"),
    ]
    return load_config(LabelConfig, None, [*base, *overrides])


def test_counts_are_kept_by_completer() -> None:
    both = label_with_completer(ScriptedEngine(scripted()), with_author=True)
    for row in both.labeled:
        author, completer = row.completers
        assert [counts.name for counts in row.completers] == ["policy", "other"]
        assert [counts.cost for counts in row.completers] == [1.0, 2.0]
        for label, a, b in zip(row.steps, author.steps, completer.steps, strict=True):
            assert label.counts == add_counts([a, b])
        assert row.root == add_counts([author.root, completer.root])
        assert row.values_of == "other"
    alone = {
        row.solution.id: row for row in label_with_completer(ScriptedEngine(scripted())).labeled
    }
    for row in both.labeled:
        assert row.completers[1] == replace(alone[row.solution.id].completers[0], cost=2.0)
        same = alone[row.solution.id].steps
        assert [label.value for label in row.steps] == [label.value for label in same]
    names = [r.completer for r in both.rollouts]
    assert names.count("policy") == names.count("other") == len(names) / 2


def test_a_run_with_a_completer_is_another_run(tmp_path: Path) -> None:
    plain = make_semantic_config(job(tmp_path)).identity
    with_completer = make_semantic_config(job(tmp_path, STRONG)).identity
    assert "completers" not in plain
    assert {name: with_completer[name] for name in plain} == plain
    assert (
        with_completer["completers"][0]["model"].startswith("content:")
        or with_completer["completers"][0]["model"]
    )


@pytest.mark.parametrize(
    ("completers", "message"),
    [
        ("[{temperature: 0.5}]", "completers.0.model"),
        (
            "[{model: arith:policy, max_tokens: 200, name: x}]",
            "completers.0: describes the policy itself",
        ),
        ("[{model: a}, {model: a, name: b, cost: 2}]", "completers.1: repeats completers.0"),
        (
            "[{model: a}, {model: x/a}]",
            "completers.1: has the same name 'a' as completers.0",
        ),
        ("[{model: policy, temperature: 0.5}]", "Remove temperature"),
        ("[{model: arith:policy}]", "is reserved for the policy"),
        ("[{model: a, name: policy}]", "the name 'policy' is reserved"),
        ("[{model: a, name: 'a b'}]", "completers.0.name"),
        ("[{model: a, cost: 0}]", "completers.0.cost"),
        (
            "[{model: a, cost: 2}, {model: b}]",
            "completers.1.cost: is not set, but completers.0.cost is",
        ),
        ("[{model: m/Ω.}]", "cannot be used as a name in labels"),
        ("[{model: a, samples: 1}]", "completers.0.samples"),
        ("arith:strong", "completers"),
    ],
)
def test_unusable_completers_are_refused_by_name(
    tmp_path: Path, completers: str, message: str
) -> None:
    with pytest.raises((ConfigError, ValidationError), match=message):
        job(tmp_path, f"completers={completers}")


def test_only_a_listed_completer_has_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no element '3' in a list of 1"):
        job(tmp_path, STRONG, "completers.3.model=x")


def test_several_completers_have_a_cost(tmp_path: Path) -> None:
    two = "completers=[{model: policy}, {model: other, engine: scripted}]"
    with pytest.raises(ConfigError, match=r"Set completers\.1\.cost"):
        PreparedModels.prepare_all(job(tmp_path, two))
    costs = two.replace("policy}", "policy, cost: 3}").replace("scripted", "scripted, cost: 1")
    models = PreparedModels.prepare_all(job(tmp_path, costs))
    assert [completer.cost for completer in models.estimator_completers] == [3.0, 1.0]


def test_the_costs_of_models_are_their_parameters(tmp_path: Path) -> None:
    models = PreparedModels.prepare_all(job(tmp_path, STRONG.replace("[{", "[{model: policy}, {")))
    author, strong = (completer.settings.cost for completer in models.completers)
    assert author == models.author.engine.num_parameters() and author > 1e5
    assert [completer.cost for completer in models.estimator_completers] == [
        1.0,
        (strong or 0) / author,
    ]
    assert (
        find_strongest_completer_index(models.estimator_completers) == 1
    )  # among models of equal size, the strongest is not the author
