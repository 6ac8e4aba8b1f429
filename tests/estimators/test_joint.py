"""One posterior of several completers, compared with brute force and with known rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mclabel.core.errors import ComponentError
from mclabel.core.records import AUTHOR, Counts, Outcome
from mclabel.core.stats.values import NOTHING
from mclabel.labeling.estimators import (
    CheckedEstimator,
    Completer,
    Estimator,
    Judgement,
    Probe,
    ProblemEstimator,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
    begin_estimator,
    decide_together,
)
from mclabel.labeling.estimators.begin import SeparateEstimators, make_problem_for_completer
from mclabel.labeling.estimators.posterior.chain import Evidence, infer_beliefs
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.evidence import make_empty_evidence
from mclabel.labeling.estimators.posterior.priors import (
    GRID,
    ClassPriors,
    Priors,
    make_uninformed_priors,
)
from mclabel.labeling.estimators.posterior.views import CompleterView, update_plans
from tests.benchmarks.simulation.measure import Measurement, SimulatedRun, measure
from tests.benchmarks.simulation.replay import Case, Game, Replay
from tests.estimators.test_batches import make_rough
from tests.support.estimating import settings_of

RIGHT, WRONG = Outcome.RIGHT, Outcome.WRONG
NAMES = (AUTHOR, "weak", "lucky")


def some_classes() -> list[ClassPriors]:
    """Return priors of three completers that differ in initial, falling and final values."""
    wide = make_uninformed_priors().for_class("any")
    root, leaf = GRID / GRID.sum(), wide.leaf.copy()
    leaf[:2] = leaf[:2].mean(0) * np.array([0.7, 0.3])[:, None, None]
    leaf[:2] /= leaf[:2].sum((0, 2), keepdims=True)
    fallen = wide.wrong.sum(-1, keepdims=True) * np.flip(root)
    return [
        replace(wide, agreement=np.array([[3.0, 1.0], [0.5, 2.0], [1.0, 1.5]])),
        replace(wide, root=np.broadcast_to(root, wide.root.shape)),
        replace(wide, leaf=leaf, wrong=np.broadcast_to(fallen, wide.wrong.shape)),
    ]


def knowledge_of(classes: Sequence[ClassPriors]) -> Priors:
    author, *others = (
        Priors(classes={"pooled": class_priors}, num_solutions=1) for class_priors in classes
    )
    return replace(author, completers=dict(zip(NAMES[1:], others, strict=True)))


CLASSES = some_classes()
KNOWN = knowledge_of(CLASSES)


def problem_of(rng: np.random.Generator, names: Sequence[str] = NAMES) -> Case:
    """Return 2 or 3 solutions of 2 or 3 steps, some with shared beginnings, and random rollouts."""
    paths, num_prefixes = [], 1
    for _ in range(rng.integers(2, 4)):
        steps = int(rng.integers(2, 4))
        begin = (1,) if paths and rng.random() < 0.5 else (num_prefixes,)
        rest = range(num_prefixes + 1, num_prefixes + steps - 1)
        num_prefixes += steps
        keys = tuple(str(rng.integers(2)) for _ in range(steps))
        outcome = RIGHT if rng.random() < 0.4 else WRONG
        paths.append(SolutionPath(prefixes=(*begin, *rest), outcome=outcome, step_keys=keys))
    ends = rng.random((len(names), num_prefixes, 32)) < rng.random((len(names), num_prefixes, 1))

    def draw(probe: Probe, index: int) -> RecordedRollout:
        return RecordedRollout(
            prefix=probe.prefix,
            completer=probe.completer,
            outcome=RIGHT if ends[probe.completer, probe.prefix, index] else WRONG,
            num_tokens=10,
        )

    completers = tuple(Completer(name=name, cost=1.0 + 0.5 * (name != AUTHOR)) for name in names)
    return Case(
        id="",
        paths=tuple(paths),
        num_prefixes=num_prefixes,
        answer_class="number",
        truth=(None,) * len(paths),
        draw=draw,
        completers=completers,
    )


def estimator_of(case: Case, knowledge: Priors = KNOWN, **settings: object) -> PosteriorEstimator:
    chosen = settings_of("posterior", **{"rollouts": 16, "min_gain": 0.06, **settings})
    return PosteriorEstimator.begin(chosen, case.problem, knowledge=knowledge)


def rolled_out(case: Case, rng: np.random.Generator, **settings: object) -> list[CompleterView]:
    """Return the views of a problem after each completer rolled out some prefixes."""
    estimator = estimator_of(case, **settings)
    for completer in range(len(case.completers)):
        for prefix in {0, *(prefix for path in case.paths for prefix in path.prefixes)}:
            for index in range(rng.integers(0, 5)):
                estimator.record(case.draw(Probe(prefix, completer), index))
    return (estimator._agreement_views or estimator._outcome_views).views


def without_other_completers(evidence: Evidence) -> Evidence:
    """Return the evidence of a chain without the likelihood from other completers."""
    return replace(evidence, external_likelihood=np.ones_like(evidence.external_likelihood))


def product_over_chains(views: Sequence[CompleterView]) -> np.ndarray:
    """Return the first-error posterior, [solution, R + 1], as a product over separate chains.

    For completers other than the author, "no error" and "error in the last step" share one
    likelihood, that of both cases together.
    """
    product = np.ones(1)
    for number, view in enumerate(views):
        evidence = without_other_completers(view.evidence())
        count, width = evidence.right.shape
        own_chances = infer_beliefs(evidence, view.priors).first_error.T[:count]
        if number:
            bare = np.ones((count, width))
            for row, steps in enumerate(evidence.num_steps.tolist()):
                chances = infer_beliefs(
                    make_empty_evidence(np.array([steps])), view.priors
                ).first_error[:, 0]
                bare[row, : steps + 1] = chances
            both = own_chances[:, :2].sum(1, keepdims=True) / bare[:, :2].sum(1, keepdims=True)
            own_chances = np.concatenate(
                [np.repeat(both, 2, axis=1), own_chances[:, 2:] / bare[:, 2:]], axis=1
            )
        product = product * own_chances
    return np.asarray(product / product.sum(-1, keepdims=True))


def posteriors(views: Sequence[CompleterView]) -> list[np.ndarray]:
    """Return the posteriors, [solution, R + 1], of all views whose completer can roll out."""
    beliefs = []
    for view in views:
        if view.can_roll_out:
            beliefs.append(view.plan.first_error[view.table.chain_index])
    return beliefs


SOME_NAMES = [NAMES, NAMES[:2], NAMES[1:], (NAMES[2], AUTHOR), NAMES[1:2]]


@pytest.mark.parametrize("names", SOME_NAMES)
@pytest.mark.parametrize("agreement", [True, False])
def test_the_posterior_is_the_product_of_what_the_chains_say(
    names: Sequence[str], agreement: bool
) -> None:
    rng = np.random.default_rng(5)
    for _ in range(12):
        views = rolled_out(problem_of(rng, names), rng, agreement=agreement)
        update_plans([views])
        assert len(posteriors(views)) == len(names)
        for posterior in posteriors(views):
            # The product does not have the lower bound of 1e-9 on likelihoods.
            assert np.allclose(posterior, product_over_chains(views), rtol=1e-5, atol=1e-8)


def test_what_others_know_is_no_evidence_of_ones_own() -> None:
    # Otherwise a fit would count the evidence twice and would never depart from its first beliefs.
    views = rolled_out(problem_of(np.random.default_rng(6)), np.random.default_rng(6))
    before = [view.evidence() for view in views]
    update_plans([views])
    for view, old in zip(views, before, strict=True):
        assert not (view.external_likelihood == 1).all()
        for evidence in (old, view.evidence(), view.evidence_counted_once()):
            assert (evidence.external_likelihood == 1).all()


def test_who_is_asked_is_decided_together_as_alone_to_the_last_bit() -> None:
    knowledge = knowledge_of([make_rough(class_priors) for class_priors in CLASSES])

    def games() -> list[Game]:
        rng = np.random.default_rng(4)
        cases = [problem_of(rng, SOME_NAMES[number % 5]) for number in range(30)]
        return [
            Game(estimator_of(case, knowledge, agreement=number % 2 == 0), case)
            for number, case in enumerate(cases)
        ]

    one_by_one, together = games(), games()
    for game in one_by_one:
        while game.move():
            decide_together(game.checked.estimators)
    playing = list(range(len(together)))
    rng = np.random.default_rng(0)
    while playing := [number for number in playing if together[number].move()]:
        decide_together(
            [
                estimator
                for n in rng.permutation(playing).tolist()
                for estimator in together[n].checked.estimators
            ]
        )
    for alone, batched in zip(one_by_one, together, strict=True):
        assert alone.end() == batched.end()
    assert sum(game.num_recorded for game in together) > 0


class FixedJudgement(Estimator):
    """An estimator that returns a given judgement."""

    def __init__(self, problem: ProblemPaths, judgement: Judgement) -> None:
        self.recorded: list[RecordedRollout] = []
        self._problem, self._judgement = problem, judgement

    def wanted(self) -> list[int]:
        return [0, 1] if not self.recorded else []

    def record(self, rollout: RecordedRollout) -> None:
        self.recorded.append(rollout)

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        return [self._judgement for _ in self._problem.paths]


def test_the_strongest_judges() -> None:
    path = SolutionPath(prefixes=(1,), outcome=WRONG)
    completers = [Completer(name=str(cost), cost=cost) for cost in (1.0, 3.0, 2.0)]
    problem = ProblemPaths(paths=[path], completers=completers)
    judgements = [
        Judgement(
            hard=(False, False), sources=(source, source), first_error=0, estimates=(NOTHING,) * 2
        )
        for source in ("cheap", "strong", "middling")
    ]
    parts = [
        CheckedEstimator(FixedJudgement(problem, judgement), problem) for judgement in judgements
    ]
    assert SeparateEstimators(parts, problem).judge([[Counts()] * 2 for _ in parts]) == [
        judgements[1]
    ]


def test_each_is_asked_for_its_own_and_sees_its_own() -> None:
    path = SolutionPath(prefixes=(1,), outcome=WRONG)
    problem = ProblemPaths(paths=[path], completers=[Completer(), Completer(name="other")])
    assert [seen_path.sampled for seen_path in make_problem_for_completer(problem, 0).paths] == [
        True
    ]
    assert [seen_path.sampled for seen_path in make_problem_for_completer(problem, 1).paths] == [
        False
    ]
    probes = begin_estimator(settings_of("fixed", rollouts=1, root_rollouts=2), problem).wanted(2)
    assert sorted(probes) == [
        Probe(p, who) for p, who in sorted([(0, 0), (0, 1)] * 2 + [(1, 0), (1, 1)])
    ]
    separate = SeparateEstimators(
        [CheckedEstimator(FixedJudgement(problem, Judgement), problem) for _ in range(2)],
        problem,
    )
    assert separate.wanted(2) == [Probe(0, 0), Probe(1, 0), Probe(0, 1), Probe(1, 1)]
    separate.record(RecordedRollout(prefix=1, outcome=RIGHT, completer=1))
    first, second = separate.estimators
    assert not first.recorded
    assert second.recorded == [RecordedRollout(prefix=1, outcome=RIGHT, completer=0)]


@pytest.mark.parametrize("completer", [2, -1])
def test_a_completer_that_is_not_there_cannot_be_asked(completer: int) -> None:
    class Astray(PosteriorEstimator):
        """An estimator that requests a rollout from a completer that does not exist."""

        def wanted(self) -> list[int | Probe]:
            return [Probe(1, 0), Probe(1, completer)]

    case = problem_of(np.random.default_rng(1), NAMES[:2])
    checked = CheckedEstimator(Astray(settings_of("posterior"), case.problem), case.problem)
    with pytest.raises(ComponentError) as caught:
        checked.wanted(case.num_prefixes)
    message = str(caught.value)
    rule = "but the problem has completers 0 to 1"
    assert f"asked for completer {completer}, {rule}" in message and "\n" not in message
    assert "Astray" in message and "wanted" in message


def test_priors_of_several_completers_survive_being_written() -> None:
    priors = replace(KNOWN, values=KNOWN.classes).rounded_as_stored
    again = Priors.from_json(priors.to_json())
    assert again.to_json() == priors.to_json() and again.id == priors.id
    assert set(again.completers) == set(NAMES[1:])
    for name in NAMES:
        restored, original = (
            again.for_completer(name).for_class("number"),
            priors.for_completer(name).for_class("number"),
        )
        for field in ("root", "sound", "wrong", "unsound", "leaf", "agreement"):
            assert np.array_equal(getattr(restored, field), getattr(original, field))
    assert again.for_completer("nobody").num_solutions == 0  # an unknown completer gets wide priors


def simulate_cases(
    rates: Sequence[tuple[float, float]],
    count: int,
    *,
    seed: int,
    hazard: float = 0.2,
    sampled: bool = False,
) -> list[Case]:
    """Return problems of 2 to 4 solutions with 3 to 6 steps, and completers with these rates.

    Args:
        rates: blindness and luck of each completer, the author first. The value of each prefix
            scatters around them.
        count: number of problems.
        seed: seed of all random numbers.
        hazard: chance that a step is wrong.
        sampled: whether the solutions count as rollouts of the problem alone.
    """
    rng = np.random.default_rng(seed)
    completers = tuple(Completer(name=name) for name in (AUTHOR, *"bcd"[: len(rates) - 1]))
    cases = []
    for number in range(count):
        paths, truth, sound, to_go = [], [], [True], [6]
        for _ in range(rng.integers(2, 5)):
            steps = int(rng.integers(3, 7))
            wrong = rng.random(steps) < hazard
            error = int(wrong.argmax()) if wrong.any() else None
            begin = len(sound)
            sound += [error is None or t < error for t in range(steps - 1)]
            to_go += range(steps - 1, 0, -1)
            lucky = error is not None and error < steps - 1 and rng.random() < rates[0][1]
            path = SolutionPath(
                prefixes=tuple(range(begin, len(sound))),
                outcome=RIGHT if error is None or lucky else WRONG,
                sampled=sampled,
                step_tokens=(10,) * steps,
            )
            paths.append(path)
            truth.append(error)
        means = np.array([np.where(sound, 1 - blind, luck) for blind, luck in rates])
        spread = np.clip(means, 1e-9, 1 - 1e-9) * 10
        values = np.where(means == np.round(means), means, rng.beta(spread, 10 - spread))
        ends = rng.random((*values.shape, 64)) < values[..., None]

        def draw(
            probe: Probe, index: int, ends: np.ndarray = ends, to_go: list[int] = to_go
        ) -> RecordedRollout:
            return RecordedRollout(
                prefix=probe.prefix,
                completer=probe.completer,
                outcome=RIGHT if ends[probe.completer, probe.prefix, index] else WRONG,
                num_tokens=10 * to_go[probe.prefix],
            )

        case = Case(
            id=str(number),
            paths=tuple(paths),
            num_prefixes=len(sound),
            answer_class="number",
            truth=tuple(truth),
            draw=draw,
            completers=completers,
        )
        cases.append(case)
    return cases


def run_over(cases: Sequence[Case]) -> tuple[SimulatedRun, Measurement]:
    """Run the estimator over the cases and fit its priors after each case."""
    run = SimulatedRun(settings_of("posterior", rollouts=32, min_gain=0.006, min_belief=0.0))

    def learn(case: Case, checked: ProblemEstimator, done: Replay) -> None:
        run.record(case, checked, done)
        run.fit()

    return run, measure(run.begin, cases, on_done=learn, at_a_time=16)


@pytest.mark.slow
@pytest.mark.parametrize(("hazard", "sampled"), [(0.2, False), (0.1, True)])
def test_a_worthless_completer_does_no_harm_and_is_hardly_asked(
    hazard: float, sampled: bool
) -> None:
    # Where most solutions are right, their author easily appears lucky.
    cases = simulate_cases([(0.1, 0.02), (1.0, 0.0)], 100, seed=0, hazard=hazard, sampled=sampled)
    plain_cases = [replace(case, completers=case.completers[:1]) for case in cases]
    run, measurement = run_over(cases)
    plain_run, plain = run_over(plain_cases)
    assert measurement.first_error_accuracy > plain.first_error_accuracy - 0.03
    # Label the same problems again with the learned priors.
    num_requested = np.zeros(2)

    def count(case: Case, checked: ProblemEstimator, done: Replay) -> None:
        nonlocal num_requested
        num_requested += [
            sum(tally.num_rollouts for tally in prefix_counts) for prefix_counts in done.counts
        ]

    later = measure(run.begin, cases, on_done=count)
    assert (
        abs(later.first_error_accuracy - measure(plain_run.begin, plain_cases).first_error_accuracy)
        < 0.05
    )
    assert num_requested[1] < 0.05 * num_requested.sum()
