"""What a scorer brings, at the head of the report: one figure, what it is against, one plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mclabel.core.stats.bootstrap import FEW_PROBLEMS, Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, RANDOM
from mclabel.evaluate.best_of_n.figures import is_reference
from mclabel.evaluate.best_of_n.show import curves_plot
from mclabel.report.page.choices import estimates
from mclabel.report.page.html import (
    Fact,
    Html,
    card,
    figure,
    percent,
    percent_range,
    points,
    points_range,
    range_bar,
    ranged,
    table,
)

_PLAIN = (MAJORITY, RANDOM, PASS)


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
    head, verdict = points(gain), _verdict(gain)
    words = f"over majority vote ({points_range(gain)}){verdict}"
    if verdict == _UNCLEAR:  # a number as a headline would be read as a gain or a loss
        head, words = "No clear gain", f"over majority vote: {head} ({points_range(gain)})"
    if likelihood is not None:
        over = choice.gain(likelihood)
        name = f"over the best likelihood{_verdict(over)}"
        solved.insert(0, Fact(name, points(over), points_range(over)))
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


_UNCLEAR = ": no clear difference"


def _verdict(difference: Estimate) -> str:
    """A remark on a difference whose interval is not above zero; else nothing."""
    if difference.low is None or difference.high is None or difference.low > 0:
        return ""
    return ": worse" if difference.high < 0 else _UNCLEAR


def _estimate(content: Mapping[str, Any]) -> Estimate:
    return Estimate(value=content["value"], low=content["low"], high=content["high"])
