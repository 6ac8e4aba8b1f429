"""Combines the labels of a run with the opinions of judges and people, and writes a new run.

A *source* is a judge or a person with opinions on the run's solutions. A *rule* derives one label
from the opinions of all sources; the rule `posterior` also uses the run's rollouts.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.annotate.storage import is_annotation_folder
from mclabel.core.components import find_component_name
from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import Consensus, LabeledSolution, Rollout, SourceOpinion
from mclabel.core.seeds import content_id
from mclabel.judge.consensus.posterior import ROLLOUTS, fuse_judges_with_rollouts
from mclabel.judge.consensus.rules import JUDGE, POSTERIOR, RULES, same_location
from mclabel.judge.consensus.sources import (
    PERSON,
    RunEvidence,
    Source,
    check_same_solutions,
    collect_opinions,
    make_judge_model,
    read_people_sources,
    read_sources,
)
from mclabel.judge.opinions import read_text_digests
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.judging import find_most_likely_first_error
from mclabel.labeling.rewritten import (
    SUPERSEDED,
    RewrittenRun,
    SourceBlock,
    begin_rewritten_run,
    check_rollouts_kept,
    hash_superseded_rows,
    iter_source_blocks,
    read_recorded_config,
)
from mclabel.run.run import make_location_absolute
from mclabel.run.shards.manifest import MANIFEST, read_manifest_config
from mclabel.run.shards.store import Store

LEARNED_FROM = "learned_from"
"""Key of a combined run's configuration. Its value is a hash of the rollouts and labels from which
the rule `posterior` learns. If the run changes, the hash differs, so `combine` refuses the old
output."""
FEW = 400
"""Number of solutions below which the summary calls learned error rates uncertain."""
Posteriors = Mapping[str, NDArray[np.float64]]
"""Maps a solution id to the probabilities of its first errors: one entry per step, then one for no
error."""


@dataclass(kw_only=True)
class CombineReport:
    """Results of `combine`. It counts only solutions of blocks that this call has combined."""

    rule: str
    num_blocks: int = 0
    num_blocks_resumed: int = 0
    num_solutions: int = 0
    num_kept: int = 0
    """Number of solutions that the rule keeps for training and exports."""
    num_first_errors_changed: int = 0
    """Number of solutions whose first error differs from that of the original run."""
    num_unknown: Counter[str] = field(default_factory=Counter)
    """Maps each source to the number of solutions that it has judged without reaching a
    decision."""
    num_unjudged: Counter[str] = field(default_factory=Counter)
    """Maps each source to the number of solutions that it has not judged, such as solutions that
    were added to the run later."""
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Maps each judge to the error rates that the rule `posterior` has learned."""
    groups: Sequence[Sequence[str]] = ()
    """Groups of sources whose errors are correlated, as found by the rule `posterior`."""

    def lines(self) -> list[str]:
        """Return the lines of the summary for the user."""
        if self.num_blocks_resumed == self.num_blocks:
            return [f"all {self.num_blocks:,} blocks were already combined by {self.rule}"]
        lines = []
        if self.num_blocks_resumed:
            lines.append(
                f"{self.num_blocks_resumed:,} of {self.num_blocks:,} blocks were done before"
            )
        if self.rule == POSTERIOR and self.num_solutions < FEW:
            lines.append(
                f"{self.num_solutions:,} solutions are few to learn error rates from, so the "
                f"rates below are uncertain. Use at least {FEW}"
            )
        for name, count in sorted(self.num_unjudged.items()):
            if name.startswith(PERSON):
                lines.append(f"{name}: {count:,} solutions are not labelled by this person")
                continue
            lines.append(
                f"{name}: {count:,} solutions are not judged, because they were added to the run "
                "later, have no steps, or were set aside. Run `mclabel judge` again with the same "
                "settings to judge new solutions"
            )
        for name, count in sorted(self.num_unknown.items()):
            lines.append(f"{name}: no opinion on {count:,} judged solutions")
        for name, rates in self.rates.items():
            shown = ", ".join(
                f"{rate_name.replace('_', ' ')} {rate:.3f}" for rate_name, rate in rates.items()
            )
            if shown:
                lines.append(f"{name}, learned rates per step: {shown}")
        for first, *others in self.groups:
            lines.append(
                f"{', '.join(others)} repeats errors of {first}, so only its additional evidence "
                "counts"
                if len(others) == 1
                else f"{', '.join(others)} repeat errors of {first} and of each other, so only "
                "their additional evidence counts"
            )
        return [
            *lines,
            f"Combined by {self.rule}: {self.num_kept:,} of {self.num_solutions:,} solutions are "
            "kept for training and exports.",
            f"Labels that differ: the first error changed in {self.num_first_errors_changed:,} of "
            f"{self.num_solutions:,} solutions.",
        ]


LEAST_BELIEF = 0.5
"""Default minimum probability of the likeliest first error with which the rule `posterior` keeps a
solution. It equals the default of `estimator.min_belief`."""


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

    The new run contains all solutions. Each row stores the opinions of all sources and whether the
    rule keeps the solution. Training and exports use only kept solutions. Calling this function
    again resumes an interrupted call.

    Args:
        run: folder or URL of the labels. The rule `posterior` also needs its rollouts.
        opinions: runs of `mclabel judge` over that run, each as `RUN` or `NAME=RUN`, and folders of
            `mclabel annotate`, in which each person is a source.
        out: folder or URL of the new run.
        rule: `posterior`, `same_location` or `judge`; see `mclabel.judge.consensus.rules`.
        least_belief: minimum probability of the likeliest first error with which the rule
            `posterior` keeps a solution, between 0 and 1; None takes `LEAST_BELIEF`.
        on_progress: function that is called with the number of finished blocks and the number of
            all blocks.

    Raises:
        ConfigError: there is no such rule, or the run is the output.
        DataError: opinions are on other solutions, or the run has not kept its rollouts.
        ShardError: there is no run, there are no opinions, `out` holds another run, or the run or
            its opinions have changed since `out` was written.
    """
    sources = _read_all_sources(opinions)
    _check_rule_fits_arguments(rule, least_belief, sources)
    if rule == POSTERIOR and least_belief is None:
        least_belief = LEAST_BELIEF
    source = Store(run)
    config = _read_uncombined_config(run, source)
    identities = _hash_sources(sources)
    check_same_solutions(run, read_text_digests(source), sources)
    report = CombineReport(rule=rule)
    learned = _LearnedPosterior()
    if rule == POSTERIOR:
        learned = _learn_posterior(source, config, sources)
        report.rates, report.groups = learned.error_rates, learned.groups
    combined = {
        "run": make_location_absolute(run),
        "rule": rule,
        "least_belief": least_belief,
        "opinions": identities,
        **learned.identity,
        **hash_superseded_rows(source),
    }
    target, provenance = begin_rewritten_run(
        run,
        out,
        {**config, "combined": combined},
        action="combined",
        may_change=partial(_refuse_changed_run, run),
    )
    provenance["judge_rates"] = report.rates
    rewritten = RewrittenRun(source, target, provenance, action="combined")
    report.num_blocks, report.num_blocks_resumed = rewritten.num_blocks, rewritten.num_resumed
    judged = {judged_source.name: judged_source.run.num_steps for judged_source in sources}
    for block in rewritten.iter_missing_blocks(on_progress):
        labeled = [
            _label_by_judge(row, sources[0])
            if rule == JUDGE
            else _label_by_rule(
                row, collect_opinions(row, sources), rule, least_belief or 0.0, learned.posteriors
            )
            for row in block.rows
        ]
        rewritten.copy_priors(block)
        rewritten.commit(block, labeled, block.rollouts)
        _count_rows(report, block, labeled, judged)
    rewritten.finish()
    return report


def _refuse_changed_run(run: str, out: Store, changed_keys: Sequence[str]) -> bool:
    """Refuse an output if the run has changed since it was combined.

    Args:
        run: folder or URL of the run.
        out: store of the output.
        changed_keys: keys in which the output's configuration differs from that of this command.

    Returns:
        False: the output may not be resumed. The caller reports changes of other keys.

    Raises:
        ShardError: only the run, and possibly its opinions, have changed.
    """
    from_run = {f"combined.{key}" for key in (LEARNED_FROM, SUPERSEDED)}
    others = [key for key in changed_keys if not key.startswith("combined.opinions.")]
    if others and from_run.issuperset(others):
        raise ShardError(
            f"{out.location}: {run} or its opinions have changed since this output was written "
            f"from them. Choose another -o, or delete {out.location} first"
        )
    return False


def _check_rule_fits_arguments(
    rule: str, least_belief: float | None, sources: Sequence[Source]
) -> None:
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
            f"steps, not of {', '.join(judge.name for judge in sources)}. Give one such judge, or "
            "another rule"
        )


def _read_uncombined_config(run: str, source: Store) -> dict[str, Any]:
    """Return the configuration of a run. Raise an error if the run is already a combined run."""
    config = read_recorded_config(source)
    if "combined" in config:
        raise ConfigError(
            f"{run}: is already a combined run. Give the run from which it was combined, with all "
            "opinions"
        )
    return config


def _read_all_sources(places: Sequence[str]) -> list[Source]:
    """Return the judges and people whose opinions are at the given places.

    Raises:
        ConfigError: two sources have the same name, or a folder of people's labels is given a name.
    """
    people: list[Source] = []
    others = []
    for place in places:
        name, is_named, folder = place.partition("=")
        if is_named and is_annotation_folder(folder):
            raise ConfigError(
                f"{place}: people have the names that they label under. Give {folder} without "
                f"{name}="
            )
        if is_annotation_folder(place):
            people += read_people_sources(place)
        else:
            others.append(place)
    return read_sources(others, people)


def _hash_sources(sources: Sequence[Source]) -> dict[str, str]:
    """Return a hash of each source's opinions, by name of the source.

    Raises:
        ConfigError: two runs have the same opinions, which would count twice.
    """
    identities: dict[str, str] = {}
    for source in sources:
        identity = _hash_source(source)
        for name, other in identities.items():
            if other == identity:
                raise ConfigError(
                    f"{source.name}: has the same opinions as {name}, which would count twice. "
                    "Give them once"
                )
        identities[source.name] = identity
    return identities


def _hash_source(source: Source) -> str:
    """Return a hash of a source's configuration and of its opinions."""
    recorded = read_manifest_config(Store(source.run.location), MANIFEST)
    contents = [
        [name, opinion.is_known, opinion.first_error, list(opinion.scores)]
        for name, opinion in sorted(source.run.opinions.items())
    ]
    return content_id(recorded, contents)


@dataclass(frozen=True, kw_only=True)
class _LearnedPosterior:
    """Posteriors and error rates that the rule `posterior` has learned from the whole run."""

    posteriors: Posteriors = field(default_factory=dict)
    """Posteriors computed from rollouts and judges."""
    error_rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    groups: Sequence[Sequence[str]] = ()
    identity: Mapping[str, str] = field(default_factory=dict)
    """Hash of the data from which the rates were learned, under the key `LEARNED_FROM`."""


def _learn_posterior(
    source: Store, config: Mapping[str, Any], sources: Sequence[Source]
) -> _LearnedPosterior:
    recorded = config.get("estimator", {})
    own = recorded.get("kind") == find_component_name("estimators", PosteriorEstimator)
    settings = PosteriorEstimator.Settings(
        agreement=recorded.get("agreement", True) if own else True,
        truncated=recorded.get("truncated", "wrong"),
    )
    evidence, labels = RunEvidence(settings), dict[str, int]()
    for block in iter_source_blocks(source):
        check_rollouts_kept(source.location, block, "combined")
        for rows, rollouts in _group_by_problem(block):
            evidence.add(rows, rollouts)
            for row in (row for row in rows if row.is_decided):
                named = row.first_error
                labels[row.solution.id] = len(row.steps) if named is None else named
    solutions, num_steps, chances = evidence.compute_first_error_chances()
    if not solutions:
        raise DataError(f"{source.location}: holds no solution with steps")
    models = {
        judged_source.name: make_judge_model(judged_source, solutions, num_steps)
        for judged_source in sources
    }
    named_by_run = np.array([labels.get(name, -1) for name in solutions], dtype=np.int64)
    fused = fuse_judges_with_rollouts(chances, num_steps, models, labels=named_by_run)
    return _LearnedPosterior(
        posteriors={
            name: row[: steps + 1]
            for name, row, steps in zip(solutions, fused.chances, num_steps.tolist(), strict=True)
        },
        error_rates={
            name: {rate_name: round(rate, 4) for rate_name, rate in model.error_rates().items()}
            for name, model in fused.models.items()
        },
        groups=fused.groups,
        identity={LEARNED_FROM: _hash_learning_data(solutions, chances, named_by_run)},
    )


def _hash_learning_data(
    solution_ids: Sequence[str],
    first_error_chances: NDArray[np.float64],
    named_first_errors: NDArray[np.int64],
) -> str:
    """Return a hash of the evidence and labels from which the judges' error rates are learned.

    Opinions are left out, since the run's configuration already contains a hash of them.
    """
    order = np.argsort(np.array(solution_ids))
    # Round the probabilities, since their last digits may differ on a machine that resumes the job.
    seen = np.ascontiguousarray(first_error_chances[order].round(6) + 0.0).tobytes()
    digest = hashlib.sha256(
        seen + np.ascontiguousarray(named_first_errors[order]).tobytes()
    ).hexdigest()
    return content_id(sorted(solution_ids), digest)


def _group_by_problem(
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


def _label_by_rule(
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
        chances = posteriors[row.solution.id]
        error, kept = find_most_likely_first_error(chances, row.solution.outcome, least_belief)
        row = replace(row, posterior=tuple(chances.tolist()))
    else:
        error, kept = opinions[0].first_error, same_location(opinions)
    consensus = Consensus(rule=rule, kept=kept, opinions=opinions)
    if row.is_decided and error == row.first_error:
        return replace(row, consensus=consensus)
    return replace(row.with_first_error(error), consensus=consensus)


def _label_by_judge(row: LabeledSolution, source: Source) -> LabeledSolution:
    """Return the row with a judge's labels: its first error, and its scores as values."""
    opinion = source.run.opinions.get(row.solution.id)
    is_known = opinion is not None and opinion.is_known and bool(row.steps)
    consensus = Consensus(rule=JUDGE, kept=is_known, opinions=collect_opinions(row, [source]))
    if opinion is None or not is_known:
        return replace(row, consensus=consensus)
    error, scores = opinion.first_error, opinion.scores or [None] * len(row.steps)
    return replace(
        row,
        first_error=error,
        steps=tuple(
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
        ),
        posterior=None,
        consensus=consensus,
    )


def _count_rows(
    report: CombineReport,
    block: SourceBlock,
    labeled: Sequence[LabeledSolution],
    judged: Mapping[str, Collection[str]],
) -> None:
    """Count the rows of a block in the report.

    Args:
        report: report in which the rows are counted.
        block: block of the source run, with the rows before combining.
        labeled: the same rows after combining.
        judged: ids of the solutions that each source has judged, by name of the source.
    """
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
