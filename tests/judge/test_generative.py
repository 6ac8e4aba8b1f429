"""A generative PRM: scores from its chains, and its use by every verb that takes a PRM."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM

from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import Problem, Step
from mclabel.engines import PolicySettings, make_engine
from mclabel.engines.chat import PromptParts
from mclabel.engines.text import PolicyText
from mclabel.judge.generative import GenerativePRM, find_prm_identity
from mclabel.judge.generative_chains import VerdictTokens
from mclabel.prm.examples.encode import TooLongError
from mclabel.prm.scoring.aggregate import UnscoredError
from mclabel.prm.scoring.scorer import ScorerSettings, load_scorer
from mclabel.search.prm_scorer import PrmScorer
from mclabel.search.scorers import Beginning, make_scorer
from tests.prm.test_public_prms import CHATML, byte_level
from tests.support.commands import run_verb
from tests.support.labelled import tiny_model
from tests.support.verifier_engines import SURE

ENGINES = "tests.support.verifier_engines"
STEPS = ["one\n", "two\n", "three"]


def make_settings(engine: str = "SureEngine", **generative: Any) -> dict[str, Any]:
    """Return the fields of a scorer."""
    policy = {"engine": {"kind": f"{ENGINES}:{engine}"}, **generative.pop("policy", {})}
    return {"prm": "m", "format": "generative", "generative": {**generative, "policy": policy}}


@contextmanager
def open_prm(engine: str = "SureEngine", **generative: Any) -> Iterator[GenerativePRM]:
    scorer = load_scorer(ScorerSettings(**make_settings(engine, **generative)))
    assert isinstance(scorer, GenerativePRM)
    try:
        yield scorer
    finally:
        scorer.close()


def make_keys(place: str, engine: str = "SureEngine") -> list[str]:
    """Return the same fields as command-line keys, with a prefix for the place of the scorer."""
    kind = f"{place}generative.policy.engine.kind={ENGINES}:{engine}"
    return [f"{place}prm=m", f"{place}format=generative", kind]


def run_cli(*arguments: str) -> str:
    return run_verb(arguments).output


@pytest.mark.parametrize(
    ("engine", "error", "scores"),
    [
        ("SureEngine", -1, [1, 1, SURE]),
        ("SureEngine", 0, [1 - SURE, 1 - SURE, 1 - SURE]),
        ("SureEngine", 1, [1, 1 - SURE, 1 - SURE]),
        ("KnowingEngine", -1, [1, 1, 1]),
        ("KnowingEngine", 2, [1, 1, 0]),
    ],
)
def test_a_chain_locates_the_error_and_its_answer_says_how_sure(
    engine: str, error: int, scores: list[float]
) -> None:
    with open_prm(engine) as prm:
        assert prm.score([f"p [error {error}]"], [STEPS]) == [pytest.approx(scores)]


@pytest.mark.parametrize("read", ["token", "text"])
def test_each_step_is_a_turn_that_sees_the_judgements_before(read: str) -> None:
    low, high = (1 - SURE, SURE) if read == "token" else (0, 1)
    with open_prm("TurnEngine", template="genprm", read=read) as prm:
        right, wrong, unknown = prm.score(
            ["p [error -1]", "p [error 1]", "p [error 1] [unknown]"], [STEPS] * 3
        )
    assert (right, wrong) == (pytest.approx([high] * 3), pytest.approx([high, low, low]))
    assert isinstance(unknown, UnscoredError) and "truncated at step 1 (4)" in str(unknown)


def test_unfinished_chains_are_unknown_and_count_for_nothing() -> None:
    with open_prm() as prm:
        cut, silent = prm.score(["p [error 0] [unknown]", "p [error 0] [silent]"], [STEPS] * 2)
    assert isinstance(cut, UnscoredError) and isinstance(silent, UnscoredError)
    assert str(cut) == "none of 4 chains gives a verdict: truncated (4)"
    assert cut.num_tokens > 0


def test_more_chains_are_sampled_where_they_disagree_and_order_does_not_matter() -> None:
    texts = [f"p{number} [torn] [error -1]" for number in range(12)] + ["q [error -1]"]
    with open_prm("KnowingEngine", least_chains=2, most_chains=8) as prm:
        encoded = [prm.encode(text, STEPS) for text in texts]
        together = prm.estimate_encoded(encoded)
        alone = [prm.estimate_encoded([solution])[0] for solution in reversed(encoded)]
    assert together == alone[::-1]
    scores = [
        estimate.scores[0] for estimate in together if not isinstance(estimate, UnscoredError)
    ]
    assert scores[-1] == 1 and any(0 < score < 1 for score in scores)
    tokens = [estimate.num_tokens for estimate in together]
    assert max(tokens) > 2 * tokens[-1]


def test_the_chance_is_the_softmax_of_the_models_own_logits(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    engine = make_engine(PolicySettings(model=folder, temperature=0.3, top_k=1))

    async def read_chances() -> tuple[VerdictTokens, list[int], float | None, float | None]:
        await engine.start()
        verdict_tokens = VerdictTokens.from_texts(engine, " = ", ("1", "2"))
        with pytest.raises(ConfigError, match=r"'yes' is 3 tokens .* Set generative\.read=text"):
            VerdictTokens.from_texts(engine, " = ", ("yes", "no"))
        prompt, prefix = engine.prompt_ids("A boy has 1 apple."), engine.encode("1 + 1")
        chances = [
            await verdict_tokens.estimate_correct_probability(engine, prompt, prefix)
            for _ in range(2)
        ]
        await engine.close()
        return (
            verdict_tokens,
            [*prompt, *prefix, *verdict_tokens.question_ids],
            chances[0],
            chances[1],
        )

    tokens, ids, chance, again = asyncio.run(read_chances())
    with torch.inference_mode():
        logits = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([ids])).logits[0, -1]
    exact = logits.double()[[tokens.correct_id, tokens.incorrect_id]].softmax(0)[0].item()
    assert chance == again == pytest.approx(exact, abs=1e-5)
    assert 0.01 < exact < 0.99


def test_a_chat_stops_behind_its_last_question() -> None:
    tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], CHATML)
    text = PolicyText(tokenizer, PromptParts(system="a"))
    rendered = text.decode(text.chat_ids([("q1", "b"), ("q2 <|im_end|>", "c")], "q1"))
    turns = [("system", "a"), ("user", "q1"), ("assistant", "b"), ("user", "q2 <|im_end|>")]
    turns += [("assistant", "c"), ("user", "q1")]
    assert rendered == "".join(
        f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns
    )


def test_a_scorer_that_is_closed_ends_what_it_was_asked() -> None:
    slow = {"engine": {"kind": f"{ENGINES}:SlowEngine"}}
    with ThreadPoolExecutor(1) as pool, open_prm(policy=slow) as prm:
        scoring = pool.submit(prm.score, ["p [error 1]"], [STEPS])
        while not prm.stats().num_live:
            sleep(0.01)
        prm.close()
        with pytest.raises(CancelledError):
            scoring.result(timeout=60)


# Every verb that takes a PRM


def test_the_unknown_has_null_scores_in_a_file(tmp_path: Path) -> None:
    row = {"steps": STEPS, "final_answer_correct": False}
    rows = [row | {"problem": text} for text in ("p [error 1]", "p [unknown]")]
    file, out = str(tmp_path / "in.jsonl"), tmp_path / "out.jsonl"
    Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    printed = run_cli(
        "score", "m", file, "-o", str(out), "--format", "generative", make_keys("")[-1]
    )
    scored, unknown = map(json.loads, out.read_text().splitlines())
    assert scored["scores"] == pytest.approx([1, 0.1, 0.1]) and "unknown" not in scored
    assert unknown["scores"] is unknown["min"] is unknown["last"] is None
    assert "truncated (4)" in unknown["unknown"]
    assert "1 solutions scored" in printed and "1 solutions have no scores" in printed
    chosen = run_cli(
        "select", file, "-o", f"{tmp_path}/chosen.parquet", "--scores", str(out),
        "--rule", "convincing", "--budget", "1",
    )  # fmt: skip
    assert "1 of them have no scores" in chosen


def test_best_of_n_ranks_the_unknown_last(tmp_path: Path) -> None:
    rows = [{"problem": f"P{i} [answer {i}]", "answer": str(i)} for i in range(8)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scorer = json.dumps({"v": make_settings()})
    command = (
        "eval", "best-of-n", "/dev/null", f"problems.source={tmp_path}/p.jsonl", "samples=8",
        "policy.engine=scripted", "ray.address=none", f"out={tmp_path}/out", f"scorers={scorer}",
    )  # fmt: skip
    assert "samples could not be scored" in run_cli(*command)
    report = json.loads((tmp_path / "out" / "best_of_n.json").read_text())
    assert 0 < report["num_unscored"] < 64
    best, drawn = (report["result"]["accuracy"][name]["8"] for name in ("v:min", "random"))
    assert best["value"] > drawn["value"] + 0.2


def test_a_search_is_given_scores_or_an_error() -> None:
    scorer = make_scorer(PrmScorer.Settings(**make_settings()))

    async def score_texts(*texts: str) -> list[Any]:
        scorer.check_ready()
        await scorer.start()
        steps = tuple(Step(text=step_text, end=i + 1) for i, step_text in enumerate(STEPS))
        requests = [
            Beginning(
                problem=Problem(id="p", text=text, answer="1"),
                steps=steps, ids=(1, 2, 3), num_new=3, parent=None,
            )
            for text in texts
        ]  # fmt: skip
        results = await asyncio.gather(*map(scorer.score, requests), return_exceptions=True)
        await scorer.close()
        return results

    scored, unknown = asyncio.run(score_texts("p [error 2]", "p [unknown]"))
    assert scored.scores == pytest.approx((1, 1, 1 - SURE)) and scored.num_computed > 0
    assert isinstance(unknown, DataError)


# Refused settings and requests


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format": "qwen"}, "generative: configures a generative PRM"),
        ({"url": "http://h:1"}, r"run by an engine.*engine\.kind=openai"),
        ({"device": "cpu"}, r"Set generative\.policy\.engine\.device"),
        ({"layout": {"separator": "a"}}, "layout: does not apply"),
        ({"generative": {"template": "thinkprn"}}, "must be thinkprm or genprm, or a string"),
        ({"generative": {"template": "{problem}"}}, r"add \{steps\}"),
        ({"generative": {"least_chains": 5}}, "least_chains=5: must be at most most_chains=4"),
        ({"generative": {"policy": {"model": "x"}}}, "are taken from prm"),
        ({"generative": {"policy": {"trust_remote_code": True}}}, "are taken from prm"),
        ({"generative": {"policy": {"few_shot": "f.jsonl"}}}, "does not apply to a generative PRM"),
    ],
)
def test_settings_that_do_not_fit(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ScorerSettings(**{**make_settings(), **changed})


SMALL = {"engine": {"kind": f"{ENGINES}:SureEngine", "max_context": 1_000}}


@pytest.mark.parametrize(
    ("generative", "says"),
    [
        ({"policy": SMALL}, r"max_tokens=4096: leaves no room .* 1,000 tokens"),
        ({"template": "genprm"}, "genprm: needs a chat template"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(generative: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says), open_prm(**generative):
        pass


def test_solutions_that_cannot_be_judged_are_refused() -> None:
    with open_prm(policy={**SMALL, "max_tokens": 500}) as prm:
        for error, says, problem, steps in (
            (TooLongError, r"=500 .* the model accepts at most 1,000\. Lower", "p" * 300, STEPS),
            (DataError, "row 2: no steps", "p", []),
            (DataError, "row 2: a step without text", "p", ["one", " \n"]),
        ):
            with pytest.raises(error, match=says):
                prm.encode(problem, steps, "row 2")


def test_the_wording_and_the_model_are_known(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "model")
    provenances = [
        find_prm_identity(
            ScorerSettings(prm=folder, format="generative", generative={"template": template})
        )
        for template in ("thinkprm", "genprm", "{problem} {steps}")
    ]
    assert len({provenance["wording"] for provenance in provenances}) == 3
    assert provenances[0]["prm"].startswith("weights:")
