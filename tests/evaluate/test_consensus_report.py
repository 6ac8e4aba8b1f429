"""Quality of the sources of a combined run, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mclabel.core.records import Consensus, LabeledSolution, Outcome, SourceOpinion
from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.labels.consensus import ConsensusReport, KeptQuality, measure_consensus
from mclabel.evaluate.labels.quality import LabelQuality
from tests.support.rows import row, step

UNKNOWN = -1
TRUTH: dict[str, int | None] = {
    "a.0": 1, "a.1": None, "b.0": 0, "b.1": 3, "c.0": None, "c.1": 2, "c.2": None,
}  # fmt: skip
RATES = {"critic": {"false_alarm": 0.08, "detection": 0.7, "later": 0.4}}


def make_opinions(
    rollouts: int | None, critic: int | None, flagged: int | None
) -> tuple[SourceOpinion, ...]:
    """Return the opinions of rollouts, of a judge that names steps and of one that flags steps."""
    return tuple(
        SourceOpinion(
            source=source,
            claim="at_or_before" if source == "symbolic" else "where",
            is_known=error != UNKNOWN,
            first_error=None if error == UNKNOWN else error,
        )
        for source, error in (("rollouts", rollouts), ("critic", critic), ("symbolic", flagged))
    )


def make_combined_solution(
    name: str,
    outcome: Outcome,
    label: int | None,
    belief: float,
    opinions: tuple[SourceOpinion, ...],
    *,
    num_steps: int = 4,
    rule: str = "posterior",
) -> LabeledSolution:
    problem, _, sample = name.partition(".")
    steps = [step() for _ in range(num_steps)]
    labelled = row(
        problem,
        steps,
        label,
        sample=int(sample),
        outcome=outcome,
        posterior=((1 - belief, belief) if num_steps else None),
    )
    return replace(labelled, consensus=Consensus(rule=rule, kept=num_steps > 0, opinions=opinions))


def rows() -> list[LabeledSolution]:
    return [
        make_combined_solution("a.0", Outcome.WRONG, 1, 0.9, make_opinions(1, 1, 3)),
        make_combined_solution("a.1", Outcome.RIGHT, None, 0.85, make_opinions(None, 2, None)),
        # a right answer through a wrong step
        make_combined_solution("b.0", Outcome.RIGHT, 2, 0.6, make_opinions(None, 2, 0)),
        make_combined_solution("b.1", Outcome.WRONG, 3, 0.5, make_opinions(2, UNKNOWN, 2)),
        make_combined_solution("c.0", Outcome.RIGHT, None, 0.8, make_opinions(None, None, None)),
        # The truncated solution counts for the rates of judges, but not for labels.
        make_combined_solution(
            "c.1", Outcome.TRUNCATED, None, 1.0, make_opinions(UNKNOWN, 2, None)
        ),
    ]


def measured(rows: list[LabeledSolution]) -> ConsensusReport:
    measurement = measure_consensus(rows, lambda row: TRUTH[row.solution.id], RATES)
    assert measurement is not None
    return measurement


def quality(labels: KeptQuality | None) -> LabelQuality:
    assert labels is not None and labels.quality is not None
    return labels.quality


def figures(labels: KeptQuality | None) -> tuple[float | None, ...]:
    """Return five figures of labels, or None for each missing one.

    The figures are the share kept, the first-error accuracy, the accuracy on wrong solutions, the
    share of sound steps called wrong, and the share of lucky solutions found.
    """
    label_quality = quality(labels)
    assert labels is not None
    return (
        labels.kept.value,
        label_quality.first_error_accuracy.value,
        label_quality.first_error_accuracy_wrong.value,
        label_quality.false_positive_rate.value,
        label_quality.lucky_found.value,
    )


def values(*estimates: Estimate) -> list[float | None]:
    return [estimate.value for estimate in estimates]


def test_each_source_alone() -> None:
    sources = measured(rows()).sources
    assert list(sources) == ["rollouts", "critic", "symbolic"]
    # Of 12 sound steps, the third step of b.1 is called wrong.
    assert figures(sources["rollouts"].labels) == (1, 3 / 5, 1 / 3, 1 / 12, 0)
    # There is no opinion on b.1. Of the other 9 sound steps, two steps of a.1 are called wrong.
    assert figures(sources["critic"].labels) == (4 / 5, 2 / 4, 1 / 2, 2 / 9, 1)
    assert figures(sources["symbolic"].labels) == (1, None, None, 1 / 12, 1)
    flags = sources["symbolic"].flags
    assert flags is not None
    # The flags on a.0 (after the error) and on b.0 (at the error) hold. The flag on b.1, before the
    # error, does not.
    assert values(flags.flagged, flags.holding, flags.flagged_sound) == [3 / 5, 2 / 3, 0]
    assert sources["rollouts"].flags is None and sources["critic"].flags is None


def test_error_rates_of_judges() -> None:
    sources = measured(rows()).sources
    critic, symbolic = sources["critic"].rates, sources["symbolic"].rates
    assert critic is not None and symbolic is not None and sources["rollouts"].rates is None
    # Sound steps read: 1 of a.0, 3 of a.1 (the last is named), 4 of c.0, 2 of c.1. Errors reached:
    # a.0 and c.1, which the judge names, and b.0, which it passes. In b.0 it then reads two steps
    # and names the second.
    assert values(critic.false_alarm, critic.detection, critic.later) == [1 / 10, 2 / 3, 1 / 2]
    # Sound steps read: 1 of a.0, 4 of a.1, 3 of b.1 (the last is named), 4 of c.0, 2 of c.1. Errors
    # reached: b.0, which the judge names, and a.0 and c.1, which it passes. It then reads two steps
    # of a.0 (the second is named) and one of c.1.
    assert values(symbolic.false_alarm, symbolic.detection, symbolic.later) == [
        *(1 / 14, 1 / 3, 1 / 3)
    ]
    assert sources["critic"].learned_rates == RATES["critic"]
    assert sources["symbolic"].learned_rates == {}


def test_agreement_beside_as_many_of_which_the_posterior_is_surest() -> None:
    measurement = measured(rows())
    # All sources agree on a.0 and c.0, and the most confident labels are those of a.0 and a.1.
    assert figures(measurement.same_location.labels) == (2 / 5, 1, 1, 0, None)
    assert figures(measurement.same_location.surest) == (2 / 5, 1, 1, 0, None)
    assert measurement.rule == "posterior"
    assert figures(measurement.labels) == (1, 4 / 5, 2 / 3, 0, 1)
    assert figures(measurement.surest) == (3 / 5, 1, 1, 0, None)


def test_solutions_without_steps_are_not_kept() -> None:
    measurement = measured(
        [
            *rows(),
            make_combined_solution(
                "c.2", Outcome.RIGHT, None, 0, make_opinions(None, None, None), num_steps=0
            ),
        ]
    )
    assert values(measurement.labels.kept, measurement.same_location.labels.kept) == [5 / 6, 2 / 6]
    assert measurement.sources["critic"].labels.kept.value == 4 / 6


def test_a_run_that_was_combined_by_a_rule_has_no_posterior_of_its_own() -> None:
    measurement = measured(
        [
            replace(
                combined_row,
                consensus=replace(combined_row.consensus, rule="same_location", kept=False),
            )
            for combined_row in rows()
            if combined_row.consensus is not None
        ]
    )
    assert (
        measurement.surest is measurement.same_location.surest is None
        and measurement.labels.kept.value == 0
    )


def test_without_truth_there_are_shares_and_learned_rates() -> None:
    measurement = measure_consensus(rows(), None, RATES)
    assert measurement is not None
    assert (
        measurement.labels.quality is None and measurement.same_location.labels.kept.value == 2 / 5
    )
    assert (
        measurement.sources["symbolic"].flags is None
        and measurement.sources["critic"].rates is None
    )
    assert measurement.sources["critic"].learned_rates == RATES["critic"]
    nothing = measured(
        [
            combined_row
            for combined_row in rows()
            if combined_row.solution.outcome is Outcome.TRUNCATED
        ]
    )
    assert nothing.labels.kept.value is None and quality(nothing.labels).num_solutions == 0


@pytest.mark.parametrize("order", [1, -1])
def test_of_equal_beliefs_the_order_of_rows_decides_nothing(order: int) -> None:
    measurement = measured(
        [replace(combined_row, posterior=(0.5, 0.5)) for combined_row in rows()][::order]
    )
    # Ties go by id: a.0 and a.1, then b.0, whose error is named too late.
    assert figures(measurement.same_location.surest) == (2 / 5, 1, 1, 0, None)
    assert figures(measurement.surest) == (3 / 5, 2 / 3, 1 / 2, 0, 1)
