"""Requests and memory of one problem are bounded, whatever its settings and its texts are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.core.records import Completion, GivenSolution, Problem
from mclabel.core.settings import Settings
from mclabel.engines.chat import PromptParts
from mclabel.engines.scripted import ScriptedEngine
from mclabel.engines.text import PolicyText
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.labeling import rollouts, sampling
from mclabel.labeling.config import LabelConfig, LabelSettings
from mclabel.labeling.estimators.fixed import FixedEstimator, OutcomeEstimator
from mclabel.labeling.problem import ProblemLabels, label_problem
from mclabel.labeling.sampling import SolutionSettings
from mclabel.prm.examples.encode import StepEncoder, TooLongError
from tests.support.labelled import arith_text
from tests.support.one_engine import on_one_engine
from tests.support.scripted_jobs import scripted

PROBLEM = Problem(id="p", text="P [answer 4]", answer="4")


class Counting(ScriptedEngine):
    """A scripted engine that records its most live completions and refuses to encode long texts."""

    def __init__(self, *, max_context: int | None = None) -> None:
        super().__init__(scripted(max_context=max_context))
        self.most = 0

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        completion = asyncio.ensure_future(
            super().sample(prompt, prefix, seed=seed, priority=priority)
        )
        await asyncio.sleep(0)
        self.most = max(self.most, self.stats().num_live)
        return await completion

    def encode(self, text: str) -> tuple[int, ...]:
        assert len(text) < 1000, "tokenised"
        return super().encode(text)


def label(
    policy: Counting,
    problem: Problem = PROBLEM,
    *given_solutions: GivenSolution,
    solutions: int,
    per: int,
) -> ProblemLabels:
    estimator = FixedEstimator.Settings(rollouts=per) if per else OutcomeEstimator.Settings()
    settings = LabelSettings(
        seed=1, solutions=SolutionSettings(per_problem=solutions), estimator=estimator
    )
    return asyncio.run(
        label_problem(problem, on_one_engine(policy, settings), given=given_solutions)
    )


def test_rollouts_are_asked_for_a_bounded_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "MAX_RUNNING", 50)
    policy = Counting()
    result = label(policy, solutions=1, per=100)
    assert policy.most == 50
    (solution,) = result.labeled
    assert len(result.rollouts) == 100 * (len(solution.steps) - 1)
    monkeypatch.setattr(rollouts, "MAX_RUNNING", 10_000)
    free = Counting()
    # another order of requests, but the same labels
    assert label(free, solutions=1, per=100) == result
    assert free.most > 50


def test_solutions_are_asked_for_a_bounded_number_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampling, "MAX_RUNNING", 20)
    policy = Counting()
    result = label(policy, solutions=70, per=0)
    assert [row.solution.sample_index for row in result.labeled] == list(range(70))
    assert policy.most == 20
    monkeypatch.setattr(sampling, "MAX_RUNNING", 10_000)
    assert label(Counting(), solutions=70, per=0) == result


def test_a_text_that_cannot_fit_is_refused_untokenised() -> None:
    long = Problem(id="p", text="x" * 10_000_000 + " [answer 4]", answer="4")
    result = label(Counting(max_context=500), long, solutions=1, per=1)
    assert result.set_aside is not None and result.set_aside.reason == "prompt_too_long"
    assert "10,000,011 characters, more than could ever be 500 tokens" in result.set_aside.detail
    long_solution = GivenSolution(text="y" * 5000)
    result = label(Counting(max_context=500), PROBLEM, long_solution, solutions=1, per=1)
    assert result.set_aside is not None and result.set_aside.reason == "solution_too_long"
    assert "its solution 0 has 5,000 characters" in result.set_aside.detail


def test_no_text_that_fits_is_refused_by_its_length() -> None:
    from mclabel.domains.arith import bundled_model

    text = PolicyText.load(str(bundled_model("policy")), PromptParts())
    for content in ("a b c\n" * 300, " " * 3000, "½²③ ﬁ" * 300, "12345678901234567890" * 90):
        assert len(content) <= text.max_token_chars * len(text.encode(content))


@pytest.mark.parametrize(
    ("kind", "override", "reason"),
    [
        (
            LabelConfig,
            "estimator={kind: fixed, rollouts: 1000000000}",
            "at most 16,384, not 1,000,000,000",
        ),
        (LabelConfig, "solutions.per_problem=1000000000", "held in memory until its block is"),
        (LabelConfig, "block_problems=1000000000", "a block is held in memory"),
        (
            LabelConfig,
            "estimator={kind: bisect, rollouts: 5000}",
            "kind=fixed allows more",
        ),
        (
            LabelConfig,
            "estimator={kind: posterior, every: 17}",
            "at most rollouts=16",
        ),
        (LabelConfig, "policy.engine.max_live=1000000", "memory is set aside for every one"),
        (BestOfNConfig, "samples=1000000000", "at most 16,384"),
    ],
)
def test_numbers_have_upper_bounds_that_say_why(
    kind: type[Settings], override: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(kind, None, ["out=x", override])


HUGE = "a " * 5_000_000


def test_a_scorer_refuses_huge_texts_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = StepEncoder(arith_text(), step_id=None, max_tokens=100)

    def refuse(self: PolicyText, text: str) -> tuple[int, ...]:
        raise AssertionError("it was tokenised")

    monkeypatch.setattr(PolicyText, "encode", refuse)
    for problem, solution in [(HUGE, "1\n"), ("p", HUGE)]:
        with pytest.raises(TooLongError, match="10,000,000 characters"):
            encoder.encode_text(problem, solution)
