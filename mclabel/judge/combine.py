"""Labels of a run combined with the opinions of judges, as a run of its own."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.annotate.storage import is_annotations
from mclabel.core.components import component_name
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import Consensus, LabeledSolution, Rollout, SourceOpinion
from mclabel.core.seeds import content_id
from mclabel.judge.consensus.posterior import ROLLOUTS, fuse
from mclabel.judge.consensus.rules import JUDGE, POSTERIOR, RULES, same_location
from mclabel.judge.consensus.sources import (
    PERSON,
    RunEvidence,
    Source,
    check_same_solutions,
    judge_model,
    named_sources,
    opinions_on,
    people_sources,
)
from mclabel.judge.opinions import text_digests
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.judging import likeliest
from mclabel.labeling.rewritten import (
    RewrittenRun,
    SourceBlock,
    begin_rewritten,
    check_kept,
    place_of,
    recorded_config,
    source_blocks,
    superseded_rows,
)
from mclabel.run.shards.manifest import MANIFEST, claimed_config
from mclabel.run.shards.store import Store

FEW = 400
"""Solutions under which learned error rates are said to be uncertain."""
Posteriors = Mapping[str, NDArray[np.float64]]
"""For each id of a solution, chances of each first error, last of none."""


@dataclass(kw_only=True)
class CombineReport:
    """Results of combining. Counts are of this call; a resumed one has fewer."""

    rule: str
    num_blocks: int = 0
    num_blocks_resumed: int = 0
    num_blocks_replaced: int = 0
    """Number of blocks that were combined again, because a change of the run changed the learned
    rates."""
    num_solutions: int = 0
    num_kept: int = 0
    """Solutions whose sources agree as the rule demands."""
    num_first_errors_changed: int = 0
    """Number of solutions whose first error differs from the run's."""
    num_relearned: int = 0
    """Number of these that change even without a judge, because of the rollouts of the whole
    run."""
    num_unknown: Counter[str] = field(default_factory=Counter)
    """Maps each source to its number of judged solutions on which it has no opinion."""
    num_unjudged: Counter[str] = field(default_factory=Counter)
    """Maps each source to its number of solutions without a judgement, such as solutions that the
    run gained later.
    """
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Maps each judge to the error rates that the rule `posterior` has learned."""
    groups: Sequence[Sequence[str]] = ()
    """Names of the sources that repeat each other's errors, by the rule `posterior`."""

    def lines(self) -> list[str]:
        """Return the lines of the summary for the user."""
        if self.num_blocks_resumed == self.num_blocks:
            return [f"all {self.num_blocks:,} blocks were already combined by {self.rule}"]
        lines = []
        if self.num_blocks_resumed:
            lines.append(
                f"{self.num_blocks_resumed:,} of {self.num_blocks:,} blocks were done before"
            )
        if self.num_blocks_replaced:
            lines.append(
                "the run has changed since it was combined, so all of its solutions were combined "
                f"anew, those of {self.num_blocks_replaced:,} blocks that were done before included"
            )
        if self.rule == POSTERIOR and self.num_solutions < FEW:
            lines.append(
                f"{self.num_solutions:,} solutions are few to learn error rates from, so the "
                f"rates below are uncertain. Use at least {FEW}"
            )
        for name, count in sorted(self.num_unjudged.items()):
            if name.startswith(PERSON):
                lines.append(f"{name}: {count:,} of them are not labelled by this person")
                continue
            lines.append(
                f"{name}: {count:,} of them are not judged: they came to the run later, have no "
                "steps, or were set aside. Run `mclabel judge` again with the same settings to "
                "judge new ones"
            )
        for name, count in sorted(self.num_unknown.items()):
            lines.append(f"{name}: no opinion on {count:,} of them")
        for name, rates in self.rates.items():
            shown = ", ".join(
                f"{rate_name.replace('_', ' ')} {rate:.3f}" for rate_name, rate in rates.items()
            )
            if shown:
                lines.append(f"{name}, as learned: {shown} a step")
        for first, *others in self.groups:
            lines.append(
                f"{', '.join(others)} repeats errors of {first}, so it counts only for what it adds"
                if len(others) == 1
                else f"{', '.join(others)} repeat errors of {first} and of each other, so they "
                "count only for what they add"
            )
        relearned = (
            f", {self.num_relearned:,} of them because rollouts are read again with rates of the "
            "whole run"
            if self.num_relearned
            else ""
        )
        return [
            *lines,
            f"Combined by {self.rule}: {self.num_kept:,} of {self.num_solutions:,} solutions are "
            "kept for training and exports.",
            f"Labels that differ: the first error changed in {self.num_first_errors_changed:,} of "
            f"{self.num_solutions:,} solutions{relearned}.",
        ]


LEAST_BELIEF = 0.5
"""Default least belief of the rule `posterior`, like `min_belief` of the estimator."""


def combine(
    run: str,
    opinions: Sequence[str],
    out: str,
    *,
    rule: str = POSTERIOR,
    least_belief: float | None = None,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> CombineReport:
    """Combine a run's labels with judges' opinions, and write the result as a new run.

    Nothing is left out: each row says what every source said, and whether the rule keeps it.
    Training and exports take what is kept. Running it again resumes it.

    Args:
        run: folder or URL of the labels; for `posterior` with its rollouts.
        opinions: runs of `mclabel judge` over that run, or `NAME=RUN`, and folders of `mclabel
            annotate`, in which each person is a source.
        out: folder or URL of the new run.
        rule: rule of `mclabel.judge.consensus.rules.RULES`.
        least_belief: least belief of `posterior`: chance of the likeliest first error from
            which a row is kept; None takes `LEAST_BELIEF`.
        on_progress: called with blocks done and in all.

    Raises:
        ConfigError: there is no such rule, or the run is the output.
        DataError: opinions are on other solutions, or rollouts were not kept.
        ShardError: no run, no opinions, or `out` holds another run.
    """
    sources = _sources(opinions)
    _check_rule(rule, least_belief, sources)
    if rule == POSTERIOR and least_belief is None:
        least_belief = LEAST_BELIEF
    source = Store(run)
    config = _uncombined_config(run, source)
    semantic = {
        **config,
        "combined": {
            "run": place_of(run),
            "rule": rule,
            "least_belief": least_belief,
            "opinions": _identities(sources),
            **superseded_rows(source),
        },
    }
    check_same_solutions(run, text_digests(source), sources)
    report = CombineReport(rule=rule)
    learned = _Learned()
    if rule == POSTERIOR:
        learned = _learned(source, config, sources)
        report.rates, report.groups = learned.rates, learned.groups
    target, provenance = begin_rewritten(run, out, semantic, action="combined")
    rewritten = RewrittenRun(
        source,
        target,
        {**provenance, "judge_rates": report.rates},
        action="combined",
        fit=learned.fit,
    )
    report.num_blocks, report.num_blocks_resumed = rewritten.num_blocks, rewritten.num_resumed
    report.num_blocks_replaced = rewritten.num_replaced
    judged = {judged_source.name: judged_source.run.num_steps for judged_source in sources}
    for block in rewritten.missing(on_progress):
        labeled = [
            _judged(row, sources[0])
            if rule == JUDGE
            else _combined(
                row, opinions_on(row, sources), rule, least_belief or 0.0, learned.posteriors
            )
            for row in block.rows
        ]
        rewritten.copy_priors(block)
        rewritten.commit(block, labeled, block.rollouts)
        _count(report, block, labeled, judged)
        if rule == POSTERIOR:
            report.num_relearned += _num_relearned(block, labeled, learned.alone)
    rewritten.finish()
    return report


def _check_rule(rule: str, least_belief: float | None, sources: Sequence[Source]) -> None:
    """Raise an error if there is no such rule, or if it does not fit the other arguments."""
    if rule not in RULES:
        raise ConfigError(f"--rule {rule}: must be one of {', '.join(RULES)}")
    if rule != POSTERIOR and least_belief is not None:
        raise ConfigError(
            f"--least-belief: works only with --rule {POSTERIOR}, not {rule}. Leave it out"
        )
    if rule == JUDGE and (len(sources) > 1 or sources[0].run.claim == "at_or_before"):
        raise ConfigError(
            f"--rule {JUDGE}: takes the labels of one judge that names first errors or scores "
            f"steps, not of {', '.join(judge.name for judge in sources)}. Give one, or another rule"
        )


def _uncombined_config(run: str, source: Store) -> dict[str, Any]:
    """Return the configuration of a run. Raise an error if the run is combined already."""
    config = recorded_config(source)
    if "combined" in config:
        raise ConfigError(
            f"{run}: is combined already. Combine the run that it was made from, with all opinions"
        )
    return config


def _sources(places: Sequence[str]) -> list[Source]:
    """Return the sources of opinions: judges and people.

    Raises:
        ConfigError: two have one name, or people are given another.
    """
    people: list[Source] = []
    others = []
    for place in places:
        name, is_named, folder = place.partition("=")
        if is_named and is_annotations(folder):
            raise ConfigError(
                f"{place}: people have the names that they label under. Give {folder} without "
                f"{name}="
            )
        if is_annotations(place):
            people += people_sources(place)
        else:
            others.append(place)
    return named_sources(others, people)


def _identities(sources: Sequence[Source]) -> dict[str, str]:
    """Return the identity of each judge's opinions.

    Raises:
        ConfigError: two are the same, which would count twice.
    """
    identities: dict[str, str] = {}
    for source in sources:
        identity = _identity(source)
        for name, other in identities.items():
            if other == identity:
                raise ConfigError(
                    f"{source.name}: has the same opinions as {name}, which would count twice. "
                    "Give them once"
                )
        identities[source.name] = identity
    return identities


def _identity(source: Source) -> str:
    """Return the identity of a judge's opinions: the judge and the content of its opinions."""
    recorded = claimed_config(Store(source.run.location), MANIFEST)
    contents = [
        [name, opinion.is_known, opinion.first_error, list(opinion.scores)]
        for name, opinion in sorted(source.run.opinions.items())
    ]
    return content_id(recorded, contents)


@dataclass(frozen=True, kw_only=True)
class _Learned:
    """Chances and rates that the rule `posterior` has learned from the whole run."""

    posteriors: Posteriors = field(default_factory=dict)
    alone: Posteriors = field(default_factory=dict)
    """Without judges."""
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    groups: Sequence[Sequence[str]] = ()
    fit: str | None = None
    """Names what it was learned from; None if nothing was."""


def _learned(source: Store, config: Mapping[str, Any], sources: Sequence[Source]) -> _Learned:
    recorded = config.get("estimator", {})
    own = recorded.get("kind") == component_name("estimators", PosteriorEstimator)
    settings = PosteriorEstimator.Settings(
        agreement=recorded.get("agreement", True) if own else True,
        truncated=recorded.get("truncated", "wrong"),
    )
    evidence, labels = RunEvidence(settings), dict[str, int]()
    for block in source_blocks(source):
        check_kept(source.location, block, "combined")
        for rows, rollouts in _by_problem(block):
            evidence.add(rows, rollouts)
            for row in (row for row in rows if row.is_decided):
                named = row.first_error
                labels[row.solution.id] = len(row.steps) if named is None else named
    solutions, num_steps, chances = evidence.chances()
    if not solutions:
        raise DataError(f"{source.location}: holds no solution with steps")
    models = {
        judged_source.name: judge_model(judged_source, solutions, num_steps)
        for judged_source in sources
    }
    named_by_run = np.array([labels.get(name, -1) for name in solutions], dtype=np.int64)
    fused = fuse(chances, num_steps, models, labels=named_by_run)
    posteriors, alone = (
        {
            name: row[: steps + 1]
            for name, row, steps in zip(solutions, chances_by_row, num_steps.tolist(), strict=True)
        }
        for chances_by_row in (fused.chances, chances)
    )
    rates = {
        name: {rate_name: round(rate, 4) for rate_name, rate in model.rates().items()}
        for name, model in fused.models.items()
    }
    return _Learned(
        posteriors=posteriors,
        alone=alone,
        rates=rates,
        groups=fused.groups,
        fit=_fit(solutions, chances, named_by_run),
    )


def _fit(solutions: Sequence[str], chances: NDArray[np.float64], named: NDArray[np.int64]) -> str:
    """Names what was learned from: the opinions are in the run's configuration."""
    order = np.argsort(np.array(solutions))
    # Rounded, since last digits may differ between machines, where a job may go on.
    seen = np.ascontiguousarray(chances[order].round(6) + 0.0).tobytes()
    digest = hashlib.sha256(seen + np.ascontiguousarray(named[order]).tobytes()).hexdigest()
    return content_id(sorted(solutions), digest)


def _by_problem(
    block: SourceBlock,
) -> Iterator[tuple[list[LabeledSolution], list[Rollout]]]:
    rows: dict[str, list[LabeledSolution]] = defaultdict(list)
    rollouts: dict[str, list[Rollout]] = defaultdict(list)
    for row in block.rows:
        rows[row.problem.id].append(row)
    for rollout in block.rollouts or ():
        rollouts[rollout.problem_id].append(rollout)
    for name, mine in rows.items():
        yield sorted(mine, key=lambda row: row.solution.sample_index), rollouts[name]


def _combined(
    row: LabeledSolution,
    opinions: tuple[SourceOpinion, ...],
    rule: str,
    least_belief: float,
    posteriors: Posteriors,
) -> LabeledSolution:
    """Return the row with the label that a rule derives from all opinions."""
    if not row.steps:
        return replace(row, consensus=Consensus(rule=rule, kept=False, opinions=opinions))
    if rule == POSTERIOR:
        row, error, kept = _by_posterior(row, least_belief, posteriors)
    else:
        error, kept = opinions[0].first_error, same_location(opinions)
    consensus = Consensus(rule=rule, kept=kept, opinions=opinions)
    if row.is_decided and error == row.first_error:
        return replace(row, consensus=consensus)
    return replace(row.with_first_error(error), consensus=consensus)


def _judged(row: LabeledSolution, source: Source) -> LabeledSolution:
    """Return the row with a judge's labels: its first error, and its scores as the means."""
    opinion = source.run.opinions.get(row.solution.id)
    is_known = opinion is not None and opinion.is_known and bool(row.steps)
    consensus = Consensus(rule=JUDGE, kept=is_known, opinions=opinions_on(row, [source]))
    if opinion is None or not is_known:
        return replace(row, consensus=consensus)
    error, scores = opinion.first_error, opinion.scores or [None] * len(row.steps)
    steps = tuple(
        replace(
            step,
            hard=error is None or number < error,
            source=JUDGE,
            value=None,
            low=None,
            high=None,
            mean=score,
        )
        for number, (step, score) in enumerate(zip(row.steps, scores, strict=True))
    )
    return replace(row, first_error=error, steps=steps, posterior=None, consensus=consensus)


def _by_posterior(
    row: LabeledSolution, least_belief: float, posteriors: Posteriors
) -> tuple[LabeledSolution, int | None, bool]:
    """Return the row with its posterior, its likeliest first error, and whether it is kept."""
    chances = posteriors[row.solution.id]
    error, kept = likeliest(chances, row.solution.outcome, least_belief)
    return replace(row, posterior=tuple(chances.tolist())), error, kept


def _num_relearned(
    block: SourceBlock, labeled: Sequence[LabeledSolution], alone: Posteriors
) -> int:
    """Count the solutions of a block whose first error changes even without a judge."""
    own = (_by_posterior(row, 0.0, alone) for row in block.rows if row.steps)
    named = {row.solution.id: error for row, error, _ in own}
    return sum(
        now.first_error != before.first_error
        and named.get(now.solution.id, before) == now.first_error
        for before, now in zip(block.rows, labeled, strict=True)
    )


def _count(
    report: CombineReport,
    block: SourceBlock,
    labeled: Sequence[LabeledSolution],
    judged: Mapping[str, Collection[str]],
) -> None:
    """Count rows of a block; `judged` has the ids of the solutions that each source has judged."""
    for before, now in zip(block.rows, labeled, strict=True):
        assert now.consensus is not None
        report.num_solutions += 1
        report.num_kept += now.consensus.kept
        report.num_first_errors_changed += before.first_error != now.first_error
        for opinion in now.consensus.opinions:
            if opinion.is_known or opinion.source == ROLLOUTS:
                continue
            is_judged = now.solution.id in judged[opinion.source]
            (report.num_unknown if is_judged else report.num_unjudged)[opinion.source] += 1
