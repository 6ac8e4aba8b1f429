"""Rollouts by another model than the one that wrote the solutions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.core.records import LabeledSolution, Problem, Rollout, total_counts
from mclabel.engines import make_engine
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelConfig, LabelSettings
from mclabel.labeling.estimators import Completer, strongest
from mclabel.labeling.job import semantic_config
from mclabel.labeling.policy import PreparedModels
from mclabel.labeling.problem import ProblemLabels, Rolling, label_problem
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from tests.support.one_engine import on_one_engine
from tests.support.scripted_jobs import scripted

PROBLEM = Problem(id="p", text="Problem [answer 7]", answer="7")
STRONG = "completers=[{model: arith:strong, max_tokens: 200, engine: {kind: hf, max_live: 64}}]"


class Shifted(ScriptedEngine):
    """The scripted policy with another vocabulary: its ids are code points plus a thousand."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(char) + 1000 for char in text)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(number - 1000) for number in ids)


class Deaf(Shifted):
    """Its vocabulary lacks the letter d."""

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode(ids).replace("d", "?")


def labelled(
    completer: ScriptedEngine | None,
    kind: str = "fixed",
    *,
    with_author: bool = False,
    **estimator: int,
) -> ProblemLabels:
    """With the author, that rolls out beside the completer, and costs half of it."""
    settings = LabelSettings.model_validate(
        {
            "solutions": {"per_problem": 3},
            "estimator": {"kind": kind, "rollouts": 8, **estimator},
        }
    )
    shared = on_one_engine(ScriptedEngine(scripted()), settings)
    rolling = []
    if with_author:
        rolling.append(Rolling(completer=Completer(), policy=shared.policy))
    if completer is not None:
        rolling.append(Rolling(completer=Completer(name="other", cost=2.0), policy=completer))
    return asyncio.run(label_problem(PROBLEM, replace(shared, rolling=rolling)))


@pytest.mark.parametrize("kind", ["fixed", "bisect", "posterior", "tree"])
def test_a_completer_of_another_vocabulary_rolls_out_from_the_same_texts(kind: str) -> None:
    """Its own words differ from the author's tokens; texts, ways and labels are the same."""
    same, other = (labelled(one(scripted()), kind) for one in (ScriptedEngine, Shifted))

    def seen(rollout: Rollout) -> Rollout:
        return rollout if kind != "tree" else replace(rollout, prefix_id="", seed=0)

    if kind != "tree":  # whose grown prefixes are named by tokens, and seeds with them
        assert [*map(seen, same.rollouts)] == [*map(seen, other.rollouts)]
        assert same.labeled == other.labeled
    assert [row.solution for row in same.labeled] == [row.solution for row in other.labeled]
    assert len(other.rollouts) > 0


def test_solutions_of_the_author_are_no_rollouts_of_a_completer() -> None:
    own, other = labelled(None), labelled(ScriptedEngine(scripted()))
    assert own.labeled[0].siblings.num_rollouts == 3
    assert other.labeled[0].siblings == own.labeled[0].siblings  # of the policy's value
    assert other.labeled[0].root_value is None  # `fixed` rolls out no bare problem
    assert [row.solution for row in own.labeled] == [row.solution for row in other.labeled]


def test_a_tokenizer_that_cannot_spell_a_step_sets_the_problem_aside() -> None:
    result = labelled(Deaf(scripted()))
    assert result.labeled == []
    assert result.set_aside is not None
    assert result.set_aside.reason == "other_tokens"
    assert "the completer's tokenizer does not reproduce" in result.set_aside.detail


def rows(out: Path) -> tuple[list[LabeledSolution], list[Rollout]]:
    return list(read_labels(Store(str(out)))), list(read_rollouts(Store(str(out))))


def job(out: Path, *overrides: str) -> LabelConfig:
    base = [
        *("problems.source=arith", "problems.limit=6", "solutions.per_problem=2"),
        *("policy.max_tokens=200", "policy.engine.max_live=64", "ray.address=none"),
        *("estimator.kind=fixed", "estimator.rollouts=3", "block_problems=2", f"out={out}"),
    ]
    return load_config(LabelConfig, None, [*base, *overrides])


@pytest.mark.slow
def test_the_bundled_strong_model_completes_what_the_policy_wrote(tmp_path: Path) -> None:
    """Its rollouts are those of the strong model on these solutions, given; regrading keeps all.

    The job is stopped between its blocks, and goes on.
    """
    first = tmp_path / "both"
    config = job(first, STRONG)
    few = jobs.label(config, lambda state: None, choose=lambda blocks: next(blocks.sizes())[:1])
    assert few.num_blocks_left == 2
    jobs.label(config, lambda state: None)
    labels, rollouts = rows(first)

    given = tmp_path / "given.jsonl"
    given.write_text(
        "".join(
            json.dumps({"problem_id": row.problem.id, "solution": row.solution.text}) + "\n"
            for row in labels
        )
    )
    alone = job(tmp_path / "alone", "policy.model=arith:strong", f"solutions.path={given}")
    jobs.label(alone, lambda state: None)
    _, strong = rows(tmp_path / "alone")
    assert len({rollout.prefix_id for rollout in rollouts}) > 10
    assert {r.completer for r in rollouts} == {"strong"}
    assert sorted((r.prefix_id, r.index) for r in rollouts) == sorted(
        (r.prefix_id, r.index) for r in strong
    )
    assert [row.values_of for row in labels] == ["strong"] * len(labels)
    own, others = (sum(r.outcome == "right" for r in some) for some in (rollouts, strong))
    assert abs(own - others) < 5 * len(rollouts) ** 0.5  # other seeds, the same chances
    prefixes = {
        label.prefix_id: row.solution.ids[: step.end]
        for row in labels
        for step, label in zip(row.solution.steps, row.steps, strict=True)
    }
    asyncio.run(check_who_sampled(config, labels, prefixes, rollouts))

    regraded = tmp_path / "again"
    jobs.regrade(str(first), str(regraded))
    again = {row.solution.id: row for row in rows(regraded)[0]}
    assert again == {row.solution.id: replace(row, num_missing=0) for row in labels}


async def check_who_sampled(
    config: LabelConfig,
    labels: Sequence[LabeledSolution],
    prefixes: Mapping[str, tuple[int, ...]],
    rollouts: Sequence[Rollout],
) -> None:
    """The completer's engine, asked by each seed from the solution's prefix, says the same again.

    The models share a tokenizer.
    """
    engine = make_engine(config.completers[0], seed=config.seed)
    await engine.start()
    prompts = {row.problem.id: engine.prompt_ids(row.problem.text) for row in labels}
    again = await asyncio.gather(
        *(
            engine.sample(prompts[r.problem_id], prefixes[r.prefix_id], seed=r.seed)
            for r in rollouts
        )
    )
    await engine.close()
    assert [r.text for r in rollouts] == [one.text for one in again]


def test_counts_are_kept_by_completer() -> None:
    both = labelled(ScriptedEngine(scripted()), with_author=True)
    for row in both.labeled:
        author, other = row.completers
        assert [one.name for one in row.completers] == ["policy", "other"]
        assert [one.cost for one in row.completers] == [1.0, 2.0]
        for label, a, b in zip(row.steps, author.steps, other.steps, strict=True):
            assert label.counts == total_counts([a, b])
        assert row.root == total_counts([author.root, other.root])
        assert row.values_of == "other"
    alone = {row.solution.id: row for row in labelled(ScriptedEngine(scripted())).labeled}
    for row in both.labeled:
        assert row.completers[1] == replace(alone[row.solution.id].completers[0], cost=2.0)
        same = alone[row.solution.id].steps
        assert [label.value for label in row.steps] == [label.value for label in same]
    names = [r.completer for r in both.rollouts]
    assert names.count("policy") == names.count("other") == len(names) / 2


def test_the_posterior_asks_both_and_values_are_those_of_the_costlier() -> None:
    both = labelled(ScriptedEngine(scripted()), "posterior", with_author=True, every=2)
    assert {row.values_of for row in both.labeled} == {"other"}
    assert {r.completer for r in both.rollouts} == {"policy", "other"}


def test_a_run_with_a_completer_is_another_run(tmp_path: Path) -> None:
    plain = semantic_config(job(tmp_path)).identity
    other = semantic_config(job(tmp_path, STRONG)).identity
    assert "completers" not in plain
    assert {name: other[name] for name in plain} == plain
    assert other["completers"][0]["model"].startswith("content:") or other["completers"][0]["model"]


@pytest.mark.parametrize(
    ("completers", "message"),
    [
        ("[{temperature: 0.5}]", "completers.0.model"),
        ("[{model: arith:policy, max_tokens: 200, name: x}]", "completers.0: is the policy itself"),
        ("[{model: a}, {model: a, name: b, cost: 2}]", "completers.1: repeats completers.0"),
        (
            "[{model: a}, {model: x/a}]",
            "completers.1: has the name 'a', which completers.0 has, too",
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


def test_several_completers_have_a_cost(tmp_path: Path) -> None:
    two = "completers=[{model: policy}, {model: other, engine: scripted}]"
    with pytest.raises(ConfigError, match=r"Set completers\.1\.cost"):
        PreparedModels.of(job(tmp_path, two))
    given = two.replace("policy}", "policy, cost: 3}").replace("scripted", "scripted, cost: 1")
    models = PreparedModels.of(job(tmp_path, given))
    assert [one.cost for one in models.rolling] == [3.0, 1.0]


def test_the_costs_of_models_are_their_parameters(tmp_path: Path) -> None:
    models = PreparedModels.of(job(tmp_path, STRONG.replace("[{", "[{model: policy}, {")))
    author, strong = (one.settings.cost for one in models.completers)
    assert author == models.author.engine.num_parameters() and author > 1e5
    assert [one.cost for one in models.rolling] == [1.0, (strong or 0) / author]
    assert strongest(models.rolling) == 1  # of models as large it is not the author


@pytest.mark.slow
def test_the_policy_named_as_completer_is_the_policy_alone(tmp_path: Path) -> None:
    found = {}
    for name, more in (("alone", []), ("named", ["completers=[{model: policy}]"])):
        jobs.label(job(tmp_path / name, *more), lambda state: None)
        found[name] = rows(tmp_path / name)
    for alone, named in zip(found["alone"], found["named"], strict=True):  # blocks' ids differ
        assert sorted(alone, key=repr) == sorted(named, key=repr)


def test_a_file_alone_does_not_trust_the_code_of_a_completer(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("out: x\ncompleters: [{model: arith:strong, trust_remote_code: true}]\n")
    with pytest.raises(ConfigError, match=r"pass completers\.0\.trust_remote_code=true"):
        load_config(LabelConfig, path)
    allowed = load_config(LabelConfig, path, ["completers.0.trust_remote_code=true"])
    assert allowed.completers[0].trust_remote_code
    with pytest.raises(ConfigError, match="there is no element '3' in a list of 1"):
        load_config(LabelConfig, path, ["completers.3.model=x"])
