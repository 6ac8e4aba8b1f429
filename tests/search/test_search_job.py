"""Search jobs: consistent trees, runs that other commands read, and exact results after kills."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from mclabel.data.readers.generated import ArithReader
from mclabel.engines import PolicySettings, make_engine
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import read_trees
from mclabel.run.verify.run import verify
from mclabel.search import SEARCHES
from mclabel.search.config import SearchSettings
from mclabel.search.problem import SearchContext, SearchResult, search_problem
from mclabel.search.scorers import make_scorer
from tests.support.commands import run_verb
from tests.support.scripted_jobs import write_problems
from tests.support.searches import check_trees

POLICY = {"model": "arith:policy", "max_tokens": 160, "temperature": 0.8}
SIZES = {"n": 4}


def run_searches(
    settings: SearchSettings, num_problems: int = 2, **policy: object
) -> list[SearchResult]:
    """Search problems of arith together, and compare the ledger with the engine's counters."""

    async def search() -> list[SearchResult]:
        engine = make_engine(PolicySettings.model_validate({**POLICY, **policy}))
        scorer = make_scorer(settings.scorer)
        await engine.start()
        await scorer.start()
        shared = SearchContext(policy=engine, scorer=scorer, settings=settings)
        results = await asyncio.gather(
            *(
                search_problem(arith_problem, shared)
                for arith_problem in [
                    problem
                    for _, problem in ArithReader(
                        ArithReader.Settings(limit=num_problems, num_steps=(3, 4))
                    ).rows()
                ]
            )
        )
        stats = engine.stats()
        assert sum(result.cost.num_sampled for result in results) == stats.num_sampled_tokens
        assert stats.num_prefill_tokens == sum(result.cost.num_prompt - 1 for result in results)
        await scorer.close()
        await engine.close()
        return results

    return asyncio.run(search())


@pytest.mark.parametrize(("method", "every"), [*((method, 1) for method in SEARCHES), ("beam", 2)])
def test_every_method_finds_solutions_and_its_ledger_is_the_engines(
    method: str, every: int
) -> None:
    settings = SearchSettings.model_validate(
        {"search": {"kind": method, "every": every, **SIZES}, "scorer": "exact", "seed": every}
    )
    for result in run_searches(settings, num_problems=2 if method == "beam" else 1):
        assert result.weights
        for name in result.weights:
            entry = result.tree.nodes[name]
            assert entry.node.is_finished and len(entry.node.scores) == entry.node.depth
            assert (
                result.tree.steps(name)[-1].end
                == len(result.tree.ids(name))
                == entry.node.num_tokens
            )
        assert not result.is_spent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "tokens"), [*((method, 160) for method in SEARCHES), ("beam", 300)]
)
def test_no_search_samples_more_than_its_limit(method: str, tokens: int) -> None:
    for result in run_searches(
        SearchSettings.model_validate(
            {"search": {"kind": method, "n": 16}, "scorer": "constant", "tokens": tokens}
        )
    ):
        assert result.cost.num_sampled <= tokens
        # one solution is finished with the tokens reserved for it
        assert result.is_spent and result.weights


def make_command(out: Path, *more: str) -> list[str]:
    keys = ["problems.limit=4", "problems.num_steps=[3,4]", "policy.max_tokens=160"]
    keys += ["search.n=4", "scorer=exact"]
    return ["search", "configs/search/arith-beam.yaml", *keys, f"out={out}", *more]


def test_the_run_is_one_that_other_commands_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "on 4 problems" in " ".join(run_verb(make_command(out)).output.split())
    rows, trees = list(read_labels(Store(str(out)))), list(read_trees(Store(str(out))))
    check_trees(trees, {row.problem.id for row in rows})
    for tree in trees:
        own_rows = [row for row in rows if row.problem.id == tree.problem_id]
        assert len(own_rows) == len(tree.results)
        assert all(r.solution.origin == "searched" and r.chosen_by_outcome for r in own_rows)
        assert (
            min(own_rows, key=lambda row: row.solution.sample_index).solution.outcome == "right"
        ) == tree.is_chosen_right
    assert verify(Store(str(out))).is_sound
    run_verb(make_command(out))
    assert list(read_trees(Store(str(out)))) == trees
    assert "search.n" in run_verb(make_command(out, "search.n=8"), code=2).output
    run_verb(
        [
            "label",
            "configs/label/quickstart.yaml",
            "--solutions",
            str(out),
            f"out={tmp_path / 'labelled'}",
            "policy.max_tokens=160",
            "ray.address=none",
            "estimator=fixed",
            "estimator.rollouts=2",
        ]
    )
    assert len(list(read_labels(Store(str(tmp_path / "labelled"))))) == len(rows)


def test_problems_without_golds_are_searched_and_their_answers_written(tmp_path: Path) -> None:
    rows = [
        {"problem": "P0 [answer 0]", "answer": "0"},
        {"problem": "P1 [answer 1]"},
        {"id": "mine", "problem": "P2 [answer 2]", "answer": None, "topic": "sums"},
        {"topic": "no problem"},
    ]
    source, out = tmp_path / "problems.jsonl", tmp_path / "out"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["search", "configs/search/arith-beam.yaml", f"problems.source={source}"]
    command += [f"out={out}", "scorer=constant", "policy.max_tokens=100", "policy.engine=scripted"]
    command += ["search=best_of_n", "search.n=16", "choose=majority"]
    printed = run_verb(command).output
    for part in (
        "on 1 problems",
        "1 problems were left out",
        "score 0.50, ",
        f"in {out}/answers.jsonl",
    ):
        assert part in printed
    answers = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    assert [row["outcome"] for row in answers][1:] == [None, None]
    assert (answers[0]["outcome"] == "right") == (answers[0]["answer"] == "0")
    assert answers[2]["problem_id"] == "mine"
    assert all(row["answer"] and 4 <= row["votes"] <= row["of_votes"] <= 16 for row in answers)
    assert (
        "no answer: looked for gold"
        in run_verb(
            [*command, f"out={tmp_path / 'named'}", "problems.answer_column=gold"], code=2
        ).output
    )


def test_a_search_that_leaves_out_every_problem_is_a_failure(tmp_path: Path) -> None:
    source, out = write_problems(tmp_path, 2), tmp_path / "out"
    keys = [f"problems.source={source}", f"out={out}", "scorer=constant", "policy.max_tokens=100"]
    keys += ["search=beam", "search.n=2", "search.width=2"]
    narrow = "policy.engine={kind: scripted, max_context: 10}"
    for _ in range(2):  # a second run changes nothing
        assert (
            "no problem could be searched: all were left out"
            in run_verb(["search", "/dev/null", *keys, narrow], code=1).output
        )
    assert len((out / "rejects.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["tokens=100"], "tokens=100: is less than policy.max_tokens=160"),
        (["search.width=3"], "must divide n=4"),
        (["search.wide=3"], "search.wide: not a setting of kind=beam"),
        (["search=deep"], "deep: is not among the searches"),
        (["split.by=step"], "Set split.by=line or split.by=blank_line"),
        (["split.by=sentence"], "Set split.by=line or split.by=blank_line"),
        (["scorer=prm", "scorer.prm=nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_clear_word(tmp_path: Path, keys: list[str], message: str) -> None:
    result = run_verb(make_command(tmp_path / "out", *keys), code=2)
    assert message in " ".join(result.output.split()), result.output
    assert not (tmp_path / "out").exists()


def test_a_dry_run_checks_and_forecasts_and_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    keys = ["search", "configs/search/arith-beam.yaml", f"out={out}", "scorer=exact", "search.n=4"]
    keys += ["problems.limit=6", "problems.num_steps=[3,4]", "block_problems=2"]
    fresh = run_verb([*keys, "--dry-run"]).output
    assert "search: beam, n=4" in fresh and f"{out}: the search has not begun" in fresh
    assert not out.exists()
    run_verb(keys)
    before = sorted(path.name for path in out.rglob("*"))
    done = run_verb([*keys, "--dry-run"]).output
    sampled = sum(tree.cost.num_sampled for tree in read_trees(Store(str(out))))
    assert f"3 of 3 blocks are done\ntokens in all: {sampled:,}\n" in done
    (expected,) = re.findall(
        r"3 of 6 blocks.*\ntokens in all: ([\d,]+) \(",
        run_verb([*keys, "problems.limit=12", "--dry-run"]).output,
    )
    assert 1.3 * sampled < float(expected.replace(",", "")) < 3 * sampled
    assert sorted(path.name for path in out.rglob("*")) == before
