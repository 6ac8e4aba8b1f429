"""Reads opinions of judges and people on a run's solutions, and first errors from its rollouts.

A *source* is a judge or a person who has opinions on the solutions.

`RunEvidence` computes probabilities of first errors from the rollouts of a whole run. The run may
have used any estimator. As in the posterior estimator (`mclabel.labeling.estimators.posterior`),
the probabilities follow from the rollouts by all completers, the solution's own outcome, and the
agreement of other samples. The priors are fitted to the whole run. The estimator cannot do this
during the run, since it has not sampled all rollouts yet.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mclabel.annotate.folder import AnnotationFolder
from mclabel.annotate.gold import is_run_solution
from mclabel.annotate.items import OVERSEER
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import AUTHOR, LabeledSolution, Rollout, SourceOpinion
from mclabel.judge.base import Opinion
from mclabel.judge.consensus.models import SURENESS, FirstErrorJudgeModel, JudgeModel, ScorerModel
from mclabel.judge.consensus.posterior import ROLLOUTS
from mclabel.judge.opinions import OpinionRun, hash_texts
from mclabel.labeling.estimators import ProblemPaths, classify_gold_answer
from mclabel.labeling.estimators.posterior.chain import Evidence, average_first_error_posterior
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.evidence import (
    compute_external_likelihoods,
    compute_prior_first_error_chances,
)
from mclabel.labeling.estimators.posterior.fit import (
    EvidenceByCompleter,
    EvidenceReadings,
    fit_priors_to_readings,
)
from mclabel.labeling.estimators.posterior.judging import geometric_mean_posterior
from mclabel.labeling.estimators.posterior.plan import ChainEvidence, infer_first_errors
from mclabel.labeling.estimators.posterior.priors import Priors
from mclabel.labeling.labeled import get_row_completers
from mclabel.labeling.prefixes import PrefixTable

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A judge or a person whose opinions are combined."""

    name: str
    """Unique name of the source."""
    run: OpinionRun


def read_sources(places: Sequence[str], people: Sequence[Source] = ()) -> list[Source]:
    """Read runs of judges, and return them as sources with unique names.

    Args:
        places: folders or URLs of runs, each as `PLACE` or `NAME=PLACE`. The default name is the
            name of the judge.
        people: people as sources, which are appended; their names must differ from those of the
            judges.

    Raises:
        ConfigError: two sources have the same name, or there is no source.
        ShardError: a place is not a run of a judge.
    """
    sources = [*people]
    for place in places:
        name, is_named, location = place.partition("=")
        if not is_named or "/" in name or ":" in name:
            name, location = "", place
        elif not re.fullmatch(_NAME, name):
            raise ConfigError(
                f"{place}: must be a run, or NAME=RUN with a name of letters, digits, '.', '_' and "
                "'-'. Give another name"
            )
        run = OpinionRun.read(location)
        sources.append(Source(name=name or run.judge.rpartition(":")[2], run=run))
    for name, count in Counter(source.name for source in sources).items():
        if count > 1 or name == ROLLOUTS:
            fault = (
                "the run's own labels have this name"
                if name == ROLLOUTS
                else f"{count} runs of opinions have this name, which is the name of their judge"
            )
            raise ConfigError(
                f"{name}: {fault}. Give different names, as in first={sources[0].run.location}"
            )
    if not sources:
        raise ConfigError("no opinions are given. Give the `out` of one or more `mclabel judge`")
    return sources


def check_same_solutions(
    run: str, text_digests: Mapping[str, str], sources: Sequence[Source]
) -> None:
    """Raise an error if opinions are not on the solutions of a run.

    Args:
        run: folder or URL of the run, for messages.
        text_digests: digest of each solution's texts (`hash_texts`), by solution id.
        sources: sources of opinions.

    Raises:
        DataError: a judge has judged no solution of the run, or another text of one.
    """
    for source in sources:
        if not source.run.num_steps:
            raise DataError(
                f"{source.run.location}: contains no opinions, because its judge set all solutions "
                f"aside or shards are missing. Check it with mclabel verify {source.run.location}"
            )
        shared = source.run.num_steps.keys() & text_digests.keys()
        if not shared:
            raise DataError(
                f"{source.run.location}: has no opinion on the solutions of {run}, only on those "
                f"of {source.run.solutions!r}. Run mclabel judge on {run}"
            )
        if differ := sorted(
            name for name in shared if source.run.texts[name] != text_digests[name]
        ):
            raise DataError(
                f"{source.run.location}: {len(differ):,} solutions of {run} have other texts than "
                f"those that were judged, the first being {differ[0]}. Judge the run again, into a "
                "new folder"
            )


def collect_opinions(row: LabeledSolution, sources: Sequence[Source]) -> tuple[SourceOpinion, ...]:
    """Return the run's own label of a solution as an opinion, then the opinions of all sources."""
    own = SourceOpinion(
        source=ROLLOUTS, claim="where", is_known=row.is_decided, first_error=row.first_error
    )
    return (
        own,
        *(
            _make_source_opinion(source, source.run.opinions.get(row.solution.id))
            for source in sources
        ),
    )


def _make_source_opinion(source: Source, opinion: Opinion | None) -> SourceOpinion:
    is_known = opinion is not None and opinion.is_known
    return SourceOpinion(
        source=source.name,
        claim=source.run.claim,
        is_known=is_known,
        first_error=opinion.first_error if opinion is not None and is_known else None,
        flags=opinion.flags if opinion is not None else (),
    )


def make_judge_model(
    source: Source, solutions: Sequence[str], num_steps: NDArray[np.int64]
) -> JudgeModel:
    """Return a model of a judge's opinions on solutions, whose error rates are not fitted yet.

    Args:
        source: source of the opinions.
        solutions: ids of the solutions.
        num_steps: numbers of steps of these solutions, [solution].
    """
    opinions = [source.run.opinions.get(name) for name in solutions]
    known_opinions = [
        opinion if opinion is not None and opinion.is_known else None for opinion in opinions
    ]
    if source.run.claim == "scores" and any(
        opinion is not None and opinion.scores for opinion in known_opinions
    ):
        return ScorerModel.from_scores(
            [opinion.scores if opinion and opinion.scores else None for opinion in known_opinions],
            num_steps,
        )
    named = [
        -1
        if opinion is None
        else int(steps)
        if opinion.first_error is None
        else opinion.first_error
        for opinion, steps in zip(known_opinions, num_steps, strict=True)
    ]
    sure = np.array(
        [0.0 if opinion is None else opinion.sureness or 0.0 for opinion in known_opinions]
    )
    cuts = np.unique(np.quantile(sure, np.arange(1, SURENESS) / SURENESS))
    return FirstErrorJudgeModel(
        num_steps=num_steps,
        named_steps=np.array(named, dtype=np.int64),
        sureness_classes=np.searchsorted(cuts, sure, side="right").astype(np.int64),
    )


PERSON = "person:"
"""Prefix of a person's name as a source."""


def read_people_sources(folder: str) -> list[Source]:
    """Return each person who has submitted solutions, as a source `person:NAME`.

    Ratings after the first bad step are ignored. A person's opinion is unknown if the person was
    unsure before the first bad step, gave up, or called the problem bad. If the overseer has
    decided a solution on which people disagreed, their opinions are kept all the same, so that
    their learned error rates are not too low.

    Raises:
        DataError: nobody has submitted a solution, or a file is damaged.
    """
    annotated = AnnotationFolder.read(folder)
    items = {item.id: item for item in annotated.items if is_run_solution(item)}
    sources = []
    for person in (*annotated.settings.people, OVERSEER):
        events = {
            name: event
            for name in items
            if (event := annotated.last_events.get((person, name))) is not None
        }
        if not events:
            continue
        run = OpinionRun(
            location=folder,
            judge=f"{PERSON}{person}",
            claim="where",
            solutions=annotated.settings.run,
            opinions={
                name: Opinion(is_known=True, first_error=event.first_error)
                if event.is_sure
                else Opinion(is_known=False, reason=event.note or event.finish)
                for name, event in events.items()
            },
            num_steps={name: len(items[name].steps) for name in events},
            texts={name: hash_texts(items[name].problem, items[name].steps) for name in events},
        )
        sources.append(Source(name=run.judge, run=run))
    if not sources:
        raise DataError(
            f"{folder}: nobody has submitted a solution yet, so there are no opinions to combine. "
            "Submit a solution in mclabel annotate"
        )
    return sources


Floats = NDArray[np.float64]
MAX_FITTED = 2000
"""Maximum number of problems per answer class to which priors are fitted. If there are more,
problems at even distances are taken."""


@dataclass(frozen=True, kw_only=True)
class _ProblemEvidence:
    """Rollout evidence on the solutions to one problem."""

    answer_class: str
    """Class of the gold answer, which chooses the priors."""
    solution_ids: tuple[str, ...]
    """Ids of the solutions with steps."""
    evidence: EvidenceReadings


class RunEvidence:
    """Collects the rollouts of a run as counts per step, and computes first errors."""

    def __init__(self, settings: PosteriorEstimator.Settings) -> None:
        """Begin without problems.

        Args:
            settings: settings of the posterior estimator.
        """
        self._settings = settings
        self._problems: list[_ProblemEvidence] = []

    def add(self, rows: Sequence[LabeledSolution], rollouts: Sequence[Rollout]) -> None:
        """Add one problem.

        Args:
            rows: labelled solutions of the problem.
            rollouts: rollouts from prefixes of these solutions. If the steps of a rollout are not
                recorded, as with some estimators, only its outcome is used, not whether its steps
                agree with those of the solutions.
        """
        rows = [row for row in rows if row.steps]
        if not rows:
            return
        first = rows[0]
        completers = get_row_completers(first)
        table = PrefixTable(
            first.problem,
            [row.solution for row in rows],
            kept_regardless_of_outcome=not first.chosen_by_outcome,
            completers=[completer.name for completer in completers],
        )
        numbers = {prefix.id: number for number, prefix in enumerate(table.prefixes)}
        kind = classify_gold_answer(first.problem)
        paths = ProblemPaths(paths=table.paths, answer_class=kind, completers=completers)
        estimator = PosteriorEstimator(self._settings, paths)
        for rollout in rollouts:
            if rollout.prefix_id in numbers:
                received = table.to_recorded_rollout(numbers[rollout.prefix_id], rollout)
                estimator.record(replace(received, is_requested=False))
        names = tuple(row.solution.id for row in rows)
        self._problems.append(
            _ProblemEvidence(answer_class=kind, solution_ids=names, evidence=estimator.evidence())
        )

    def compute_first_error_chances(self) -> tuple[list[str], NDArray[np.int64], Floats]:
        """Return the probabilities of first errors in the solutions of all added problems.

        Returns:
            Ids of the solutions; their numbers of steps, [solution]; probabilities of first errors,
            [solution, T + 1], where T is the longest solution's number of steps. Column t is a
            first error at the 0-based step t, the column at the number of steps is no error, and
            later columns are padding.
        """
        priors = self._fit_priors()
        first_errors = [
            own
            for problem in self._problems
            for own in _compute_first_error_chances(problem, priors)
        ]
        ids = [name for problem in self._problems for name in problem.solution_ids]
        num_steps = np.array([len(own) - 1 for own in first_errors], dtype=np.int64)
        chances = np.zeros((len(first_errors), int(num_steps.max(initial=0)) + 1))
        for row, own in enumerate(first_errors):
            chances[row, : len(own)] = own
        return ids, num_steps, chances

    def _fit_priors(self) -> Priors:
        by_class: dict[str, list[EvidenceReadings]] = defaultdict(list)
        for problem in self._problems:
            by_class[problem.answer_class].append(problem.evidence)
        chosen = {
            name: [all_of[i] for i in _choose_evenly_spaced_indices(len(all_of), MAX_FITTED)]
            for name, all_of in sorted(by_class.items())
        }
        return fit_priors_to_readings(chosen).rounded_as_stored


def _choose_evenly_spaced_indices(length: int, max_indices: int) -> list[int]:
    """Return at most `max_indices` evenly spread indices in [0, count)."""
    return sorted({round(i) for i in np.linspace(0, length - 1, min(length, max_indices))})


def _compute_first_error_chances(problem: _ProblemEvidence, priors: Priors) -> list[Floats]:
    """Return for each solution the probability of a first error at each step, then of no error."""
    readings, kind = problem.evidence, problem.answer_class
    by_reading = [_compute_chances_from_reading(readings.outcomes, priors, kind, rare_luck=False)]
    if readings.agreement is not None and priors.agreement is not None:
        by_reading.append(
            _compute_chances_from_reading(
                readings.agreement, priors.agreement, kind, rare_luck=True
            )
        )
    return [geometric_mean_posterior(of_solution) for of_solution in zip(*by_reading, strict=True)]


def _compute_chances_from_reading(
    reading: EvidenceByCompleter, priors: Priors, answer_class: str, *, rare_luck: bool
) -> list[Floats]:
    own, bare = [], []
    if len(reading) == 1:
        hypotheses = priors.make_luck_hypotheses(answer_class, rare_luck=rare_luck)
        return _reorder_chances_by_step(
            reading[AUTHOR], average_first_error_posterior(reading[AUTHOR], hypotheses)
        )
    for name, evidence in reading.items():
        mine = priors.for_completer(name).for_class(answer_class)
        counts = np.stack(
            [
                evidence.right,
                evidence.wrong,
                evidence.num_taking_same_step,
                evidence.num_reaching_prefix,
            ]
        )
        request = ChainEvidence(
            num_steps=evidence.num_steps,
            counts=counts,
            outcome=evidence.outcome,
            external_likelihood=np.ones_like(evidence.external_likelihood),
            priors=mine,
            previous_plan=None,
            changed_chains=range(len(evidence.num_steps)),
        )
        own += infer_first_errors([request])
        if name != AUTHOR:
            bare.append(
                compute_prior_first_error_chances(evidence.num_steps, mine, counts.shape[2])
            )
    return _reorder_chances_by_step(
        reading[AUTHOR], own[0] * compute_external_likelihoods(own, bare)[0]
    )


def _reorder_chances_by_step(author_evidence: Evidence, chances: Floats) -> list[Floats]:
    """Reorder first-error probabilities, which are given by number of remaining steps.

    Args:
        author_evidence: counts of the policy's own rollouts, which hold the solutions' numbers of
            steps.
        chances: probabilities, [solution, R + 1]. Column r > 0 is a first error at the step with r
            steps left, itself included; column 0 is no error.

    Returns:
        For each solution the probabilities in the order of its steps, then that of no error.
    """
    by_solution = []
    for row, steps in zip(chances, author_evidence.num_steps.tolist(), strict=True):
        ordered = np.append(row[steps:0:-1], row[0])
        by_solution.append(ordered / ordered.sum())
    return by_solution
