"""The head of the report: what matters most.

Figures with intervals (what was labelled, at what cost, how good it is, what a scorer brings), one
solution step by step, and the plot of choosing among samples. Tables follow below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mclabel.core.stats.bootstrap import FEW_PROBLEMS, Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, RANDOM
from mclabel.evaluate.best_of_n.figures import is_reference
from mclabel.evaluate.best_of_n.show import curves_plot
from mclabel.report.page.choices import estimates
from mclabel.report.page.example import example_part
from mclabel.report.page.facts import RunFacts
from mclabel.report.page.html import (
    Fact,
    Html,
    amount,
    card,
    draw,
    duration,
    figure,
    percent,
    percent_range,
    plural,
    points,
    points_range,
    range_bar,
    ranged,
    table,
)
from mclabel.run.kinds import is_code
from mclabel.show.texts import DESCRIBED, SELECTED

MAX_CHOICES = 3
"""Evaluations that stand at the head; the others have sections of their own."""
_RANGES = "Ranges are 95% intervals over problems; points are percentage points."
_PLAIN = (MAJORITY, RANDOM, PASS)


def headline(
    runs: Sequence[RunFacts],
    evaluations: Mapping[str, Mapping[str, Any]],
    trainings: Mapping[str, Mapping[str, Any]],
) -> Html:
    """The head.

    Args:
        runs: labelling runs.
        evaluations: by name, what `read_evaluation` gives.
        trainings: by name, `report.json` of scorers; shown where nothing else is there.
    """
    choices = {
        name: main_choice(report["result"])
        for name, report in list(evaluations.items())[:MAX_CHOICES]
    }
    many = len(choices) > 1
    cards = [*_label_cards(runs)] if len(runs) == 1 else []
    cards += [choice_card(choice, name if many else "") for name, choice in choices.items()]
    if not choices:
        cards.append(_trained(trainings) if trainings else _nothing_chosen())
    example = next((run for run in runs if run.example is not None), None)
    below = []
    if example is not None and example.example is not None:
        name = example.name if len(runs) > 1 else ""
        below.append(example_part(example.example, run=name, is_code=is_code(example.config)))
    if choices:
        name, choice = next(iter(choices.items()))
        below.append(choice_plot(choice, "choice", name if len(evaluations) > 1 else ""))
    if len(cards) == len(below) == 1:  # one card fits beside what is below it
        cards, below = [], [*below, *cards]
    beside = _side_by_side(runs) if len(runs) > 1 else ""
    note = _RANGES if len(runs) == 1 or choices else ""
    return draw("headline", runs=beside, cards=cards, note=note, below=below)


def _label_cards(runs: Sequence[RunFacts]) -> list[Html]:
    run = runs[0]
    if not run.all.num_solutions:
        return [_nothing_labelled()]
    return [draw("stack", cards=[_labelled(run), _cost(run)]), _quality(run)]


def _labelled(run: RunFacts) -> Html:
    right, error, open_ = run.shares.right, run.shares.with_error, run.shares.undecided
    steps = plural(sum(run.hard.values()), "step")
    return card(
        "What was labelled",
        plural(run.all.num_solutions, "solution"),
        f"to {plural(run.all.num_problems, 'problem')}, in {steps}",
        [
            Fact("end right", percent(right), percent_range(right)),
            Fact("labelled with an error", percent(error), percent_range(error)),
            *([Fact("undecided", percent(open_), percent_range(open_))] if open_.value else []),
            *([Fact("kept", run.kept)] if run.kept else []),
        ],
        note="" if run.describes is None else SELECTED,
    )


def _cost(run: RunFacts) -> Html:
    per, alone = run.cost.tokens_per_solution, run.cost.tokens_per_solution_unshared
    facts = [Fact("tokens a solution", f"{per:,.0f}")]
    if alone > per:
        facts.append(Fact("if no prefix were shared", f"{alone:,.0f}"))
    if run.job is None:
        facts.append(Fact("time", "not recorded"))
    else:
        starts = f"in {run.job.num_starts} starts" if run.job.num_starts > 1 else ""
        facts.append(Fact("time", duration(run.job.elapsed_s), starts))
        gpus = run.job.gpu_hours
        facts.append(Fact("GPU-hours", f"{gpus:,.2f}" if gpus else "none"))
    return card(
        "At what cost",
        f"{amount(per * run.all.num_solutions)} tokens",
        f"in {plural(run.num_rollouts, 'rollout')}",
        facts,
    )


def _quality(run: RunFacts) -> Html:
    title, quality, gap = "How good the labels are", run.all.quality, run.shares.gap
    remark = ", too high" if (gap.value or 0.0) > 0 else ", too low"
    held = [] if gap.value is None else [_difference("values less outcomes", gap, remark)]
    if quality is None or quality.first_error_accuracy.value is None:
        return card(
            title,
            "Not known",
            "Which steps are wrong in truth is not known of these problems. Values less outcomes: "
            "mean value of steps less the share of them whose solution ends right.",
            held,
            note=Html(
                "<code>mclabel eval labels</code> compares labels with human ones, "
                "or another run's."
            ),
            quiet=True,
        )
    found = quality.first_error_accuracy
    facts = [
        Fact(name, percent(one), percent_range(one))
        for name, one in (
            ("where there is one", quality.first_error_accuracy_wrong),
            ("step precision", quality.precision),
            ("step recall", quality.recall),
        )
    ]
    note = (
        "Against exact truth. Step precision and recall: of wrong steps. Values less outcomes: "
        "mean value of steps less the share of them whose solution ends right."
    )
    if quality.num_problems < FEW_PROBLEMS:
        note += f" Under {FEW_PROBLEMS} problems: the intervals are too narrow."
    if run.describes is not None:
        note += f" {DESCRIBED[run.describes]}"
    return card(
        title,
        percent(found),
        f"of first errors labelled where they truly are, none for none ({percent_range(found)})",
        [*facts, *held],
        bar=range_bar(found),
        note=note,
    )


def _side_by_side(runs: Sequence[RunFacts]) -> Html:
    """What one would compare of several runs."""
    rows: list[list[object]] = []
    for run in runs:
        quality = run.all.quality
        found = [] if quality is None else [quality.first_error_accuracy]
        there = [] if quality is None else [quality.first_error_accuracy_wrong]
        rows.append(
            [
                run.name,
                f"{run.all.num_solutions:,}",
                *(_measured(e) for e in (run.shares.right, run.shares.with_error)),
                f"{run.cost.tokens_per_solution:,.0f}",
                *(_measured(e[0]) if e else "-" for e in (found, there)),
            ]
        )
    head = [
        "run",
        "solutions",
        "end right",
        "with an error",
        "rollout tokens a solution",
        "first errors found",
        "where there is one",
    ]
    return table(head, rows, caption="The runs in short, 95% intervals")


def _measured(estimate: Estimate) -> Html:
    if estimate.value is None:
        return Html("-")
    shown = {"figure": percent(estimate), "range": percent_range(estimate)}
    return draw("measured", bar=range_bar(estimate), **shown)


def _trained(trainings: Mapping[str, Mapping[str, Any]]) -> Html:
    facts = []
    for name, report in list(trainings.items())[:MAX_CHOICES]:
        auc = (report.get("validation") or {}).get("auc")
        measured = f"AUC on held-out ones {auc:.2f}" if isinstance(auc, float) else ""
        count = report.get("num_solutions")
        trained_on = "not ended" if count is None else plural(count, "solution")
        facts.append(Fact(name, trained_on, measured))
    note = Html("What they bring: <code>mclabel eval best-of-n</code>")
    return card(
        "What was trained", plural(len(trainings), "scorer"), "trained on", facts, note=note
    )


def _nothing_chosen() -> Html:
    return card(
        "What a PRM brings",
        "Not measured",
        Html(
            "<code>mclabel train</code> trains one on labels, "
            "<code>mclabel eval best-of-n</code> measures what it brings."
        ),
        quiet=True,
    )


def _nothing_labelled() -> Html:
    return card(
        "What was labelled",
        "No solution",
        "All problems were left out or set aside; the log of the job has the reasons.",
        quiet=True,
    )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The methods of an evaluation that stand at the head.

    Neither is one of its references. The scorer is the first that the evaluation names, by its
    first aggregation: taking the one that did best here would overstate it. The likelihood is the
    best one, which understates what the scorer brings against it.
    """

    result: Mapping[str, Any]
    scorer: str | None
    likelihood: str | None

    @property
    def size(self) -> str:
        """The largest N."""
        return str(self.result["num_samples"])

    def accuracy(self, method: str) -> Estimate:
        """At the largest N."""
        return _estimate(self.result["accuracy"][method][self.size])

    def gain(self, other: str) -> Estimate:
        """Accuracy of the scorer less that of another method, at the largest N."""
        return _estimate(self.result["differences"][self.size][self.scorer][other])

    @property
    def methods(self) -> list[str]:
        """Of the plot."""
        return [m for m in (self.scorer, self.likelihood, MAJORITY, RANDOM) if m is not None]


def main_choice(result: Mapping[str, Any]) -> Choice:
    """The figures of an evaluation that stand at the head."""
    accuracy, size = result["accuracy"], str(result["num_samples"])
    references = result.get("references", ())
    methods = [method for method in accuracy if not is_reference(method, references)]
    likelihoods = [method for method in methods if method.startswith("likelihood:")]
    scorers = [
        method
        for method in methods
        if method not in (*_PLAIN, *likelihoods) and not method.startswith("vote:")
    ]
    return Choice(
        result=result,
        scorer=next(iter(scorers), None),
        likelihood=max(likelihoods, key=lambda m: accuracy[m][size]["value"], default=None),
    )


def choice_card(choice: Choice, name: str) -> Html:
    """The gain over majority vote, and the accuracies behind it.

    Args:
        choice: of an evaluation.
        name: of the evaluation, empty for the only one.
    """
    kind = "PRM" if ":" in (choice.scorer or "") else "scorer"
    title = f"What the {kind} brings{f': {name}' if name else ''}"
    vote, likelihood = choice.accuracy(MAJORITY), choice.likelihood
    names = {MAJORITY: "majority vote", PASS: "some sample is right"}
    solved = [
        Fact(names.get(method, method), percent(one), percent_range(one))
        for method in (choice.scorer, likelihood, MAJORITY, PASS)
        if method is not None
        for one in [choice.accuracy(method)]
    ]
    num_problems = choice.result["num_problems"]
    note = f"Shares of {num_problems:,} problems solved by choosing one of {choice.size} samples."
    if num_problems < FEW_PROBLEMS:
        note += f" Under {FEW_PROBLEMS} problems: the intervals are too narrow."
    if choice.scorer is None:
        words = f"solved by majority vote ({percent_range(vote)}); no scorer took part"
        return card(title, percent(vote), words, solved, bar=range_bar(vote), note=note)
    gain = choice.gain(MAJORITY)
    if _is_unclear(gain):  # a number as a headline would be read as a gain or a loss
        head, words = "No clear gain", f"over majority vote ({points_range(gain)} points)"
    else:
        worse = ": worse" if (gain.value or 0.0) < 0 else ""
        head, words = points(gain), f"over majority vote ({points_range(gain)}){worse}"
    if likelihood is not None:
        solved.insert(0, _difference("over the best likelihood", choice.gain(likelihood)))
    bar = range_bar(gain, signed=True)
    return card(title, head, words, solved, bar=bar, note=note)


def choice_plot(choice: Choice, identity: str, name: str) -> Html:
    """Accuracy by N of the few methods that matter most.

    Args:
        choice: of an evaluation.
        identity: of the plot in the page.
        name: of the evaluation, empty for the only one.
    """
    accuracy = estimates(choice.result["accuracy"])
    shown = {method: accuracy[method] for method in choice.methods}
    title = f"Choosing among samples{f': {name}' if name else ''}"
    plot = curves_plot(title, shown, size=(5.2, 3.8))
    rows = [
        [method, *(ranged(e.value, e.low, e.high) for e in shown[method].values())]
        for method in sorted(shown, key=lambda m: -(choice.accuracy(m).value or 0.0))
    ]
    head = ["method", *(f"N={n}" for n in accuracy[MAJORITY])]
    numbers = table(head, rows, caption="Share of problems solved")
    first = "its first aggregation, not the one that did best here; " if choice.scorer else ""
    note = (
        f"{choice.scorer}: the first scorer named, by {first}likelihood: the best one. "
        if choice.scorer and choice.likelihood
        else ""
    )
    return figure(
        identity, plot, numbers, f"{note}Bands: 95% intervals by bootstrap over problems."
    )


def _difference(name: str, found: Estimate, remark: str = "") -> Fact:
    """A difference between shares; a figure only where its interval does not hold zero."""
    if _is_unclear(found):
        return Fact(name, "no clear difference", f"{points_range(found)} points")
    return Fact(name, points(found), points_range(found) + remark)


def _is_unclear(found: Estimate) -> bool:
    return found.low is not None and found.high is not None and found.low <= 0 <= found.high


def _estimate(content: Mapping[str, Any]) -> Estimate:
    return Estimate(value=content["value"], low=content["low"], high=content["high"])
