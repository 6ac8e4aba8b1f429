"""Opinions of judges and people on the solutions of one run, side by side with its rollouts.

`RunEvidence` is what the rollouts of a whole run show of first errors, whatever estimator asked for
them. The evidence of every problem is that of the posterior estimator
(`mclabel.labeling.estimators.posterior`): rollouts by all completers, the solution's own outcome,
and the agreement of other samples. Its priors are fitted to the run as a whole, which a run that is
under way cannot do.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mclabel.annotate.folder import Annotated
from mclabel.annotate.gold import is_of_run
from mclabel.annotate.items import OVERSEER
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import AUTHOR, LabeledSolution, Rollout, SourceOpinion
from mclabel.judge.base import Opinion
from mclabel.judge.consensus.models import SURENESS, JudgeModel, Locations, Scores
from mclabel.judge.consensus.posterior import ROLLOUTS
from mclabel.judge.opinions import OpinionRun, text_digest
from mclabel.labeling.estimators import ProblemPaths, answer_class
from mclabel.labeling.estimators.posterior.chain import Evidence
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.evidence import bare_errors, elsewhere
from mclabel.labeling.estimators.posterior.fit import ByCompleter, Readings, fit_readings
from mclabel.labeling.estimators.posterior.judging import pooled
from mclabel.labeling.estimators.posterior.plan import PlanRequest, error_beliefs
from mclabel.labeling.estimators.posterior.priors import Priors
from mclabel.labeling.labeled import completers_of
from mclabel.labeling.prefixes import PrefixTable

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A judge whose opinions are combined."""

    name: str
    run: OpinionRun


def named_sources(places: Sequence[str], people: Sequence[Source] = ()) -> list[Source]:
    """Read runs of judges, each under a name.

    Args:
        places: folders or URLs, or `NAME=PLACE`; a name is that of the judge by default.
        people: further sources, which have names.

    Raises:
        ConfigError: two have one name, or none is given.
        ShardError: one holds no opinions.
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
                else f"{count} of the runs of opinions have this name, that of their judge"
            )
            raise ConfigError(
                f"{name}: {fault}. Give names that differ, as in first={sources[0].run.location}"
            )
    if not sources:
        raise ConfigError("no opinions are given. Give the `out` of one or more `mclabel judge`")
    return sources


def check_same_solutions(run: str, rows: Mapping[str, str], sources: Sequence[Source]) -> None:
    """Refuse opinions on other solutions than the run's.

    Args:
        run: its name.
        rows: by id of its solutions, digests of their texts (`text_digest`).
        sources: the judges.

    Raises:
        DataError: a judge knows none of them, or has judged another text of one.
    """
    for source in sources:
        if not source.run.num_steps:
            raise DataError(
                f"{source.run.location}: holds an opinion on no solution: its judge set all aside, "
                f"or shards are missing (mclabel verify {source.run.location})"
            )
        shared = source.run.num_steps.keys() & rows.keys()
        if not shared:
            raise DataError(
                f"{source.run.location}: has opinions on other solutions (of "
                f"{source.run.solutions!r}), none on those of {run}. Judge that run"
            )
        if differ := sorted(name for name in shared if source.run.texts[name] != rows[name]):
            raise DataError(
                f"{source.run.location}: judged other texts than {run} has now of {len(differ):,} "
                f"of its solutions, the first being {differ[0]}. Judge the run again, into a new "
                "folder"
            )


def opinions_on(row: LabeledSolution, sources: Sequence[Source]) -> tuple[SourceOpinion, ...]:
    """Return what the run's labels and each judge say of a solution, the labels first."""
    own = SourceOpinion(
        source=ROLLOUTS, claim="where", is_known=row.is_decided, first_error=row.first_error
    )
    return (own, *(_of(source, source.run.opinions.get(row.solution.id)) for source in sources))


def _of(source: Source, opinion: Opinion | None) -> SourceOpinion:
    is_known = opinion is not None and opinion.is_known
    return SourceOpinion(
        source=source.name,
        claim=source.run.claim,
        is_known=is_known,
        first_error=opinion.first_error if opinion is not None and is_known else None,
        flags=opinion.flags if opinion is not None else (),
    )


def judge_model(
    source: Source, solutions: Sequence[str], num_steps: NDArray[np.int64]
) -> JudgeModel:
    """Return how a judge's opinions on solutions depend on their first errors, before it is known.

    Args:
        source: the judge.
        solutions: ids.
        num_steps: number of steps of each solution.
    """
    opinions = [source.run.opinions.get(name) for name in solutions]
    known_opinions = [
        opinion if opinion is not None and opinion.is_known else None for opinion in opinions
    ]
    if source.run.claim == "scores" and any(
        opinion is not None and opinion.scores for opinion in known_opinions
    ):
        return Scores.of(
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
    return Locations(
        num_steps=num_steps,
        named=np.array(named, dtype=np.int64),
        sureness=np.searchsorted(cuts, sure, side="right").astype(np.int64),
    )


PERSON = "person:"
"""Beginning of the name of a person as a source."""


def people_sources(folder: str) -> list[Source]:
    """Each person who has submitted something, as a source `person:NAME`.

    Ratings after the first bad step are none; a person who was unsure before it, gave up or called
    the problem bad knows nothing. Where the overseer has settled a solution, the others' opinions
    stay, or they would seem to err less than they do.

    Raises:
        DataError: nobody has submitted anything, or a file is damaged.
    """
    annotated = Annotated.read(folder)
    items = {item.id: item for item in annotated.items if is_of_run(item)}
    sources = []
    for person in (*annotated.settings.people, OVERSEER):
        events = {
            name: event
            for name in items
            if (event := annotated.latest.get((person, name))) is not None
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
            texts={name: text_digest(items[name].problem, items[name].steps) for name in events},
        )
        sources.append(Source(name=run.judge, run=run))
    if not sources:
        raise DataError(
            f"{folder}: nobody has submitted a solution yet, so there are no opinions to combine"
        )
    return sources


Floats = NDArray[np.float64]
MAX_FITTED = 2000
"""Problems of an answer class, evenly chosen, that priors are fitted to."""


@dataclass(frozen=True, kw_only=True)
class _Problem:
    answer_class: str
    solutions: tuple[str, ...]
    """Ids of those with steps."""
    evidence: Readings


class RunEvidence:
    """Collects the evidence of a run's problems, a few numbers a step."""

    def __init__(self, settings: PosteriorEstimator.Settings) -> None:
        """Begin with nothing.

        Args:
            settings: settings of the estimator whose evidence it is.
        """
        self._settings = settings
        self._problems: list[_Problem] = []

    def add(self, rows: Sequence[LabeledSolution], rollouts: Sequence[Rollout]) -> None:
        """Add one problem.

        Args:
            rows: its labelled solutions.
            rollouts: from their prefixes. Where their steps are not on record (estimators that
                do not follow them) their outcomes count, and their agreement does not.
        """
        rows = [row for row in rows if row.steps]
        if not rows:
            return
        first = rows[0]
        completers = completers_of(first)
        table = PrefixTable(
            first.problem,
            [row.solution for row in rows],
            free_outcomes=not first.chosen_by_outcome,
            completers=[completer.name for completer in completers],
        )
        numbers = {prefix.id: number for number, prefix in enumerate(table.prefixes)}
        kind = answer_class(first.problem)
        paths = ProblemPaths(paths=table.paths, answer_class=kind, completers=completers)
        estimator = PosteriorEstimator(self._settings, paths)
        for rollout in rollouts:
            if rollout.prefix_id in numbers:
                received = table.received(numbers[rollout.prefix_id], rollout)
                estimator.record(replace(received, asked=False))
        names = tuple(row.solution.id for row in rows)
        evidence = estimator.evidence()
        self._problems.append(_Problem(answer_class=kind, solutions=names, evidence=evidence))

    def chances(self) -> tuple[list[str], NDArray[np.int64], Floats]:
        """Return what the evidence shows.

        Returns:
            Ids of the solutions; their numbers of steps [solution]; chances of each first error
            [solution, T + 1], that of none at the index of the number of steps.
        """
        priors = self._fitted()
        first_errors: list[Floats] = []
        for problem in self._problems:
            first_errors += _first_errors(problem, priors)
        ids = [name for problem in self._problems for name in problem.solutions]
        num_steps = np.array([len(own) - 1 for own in first_errors], dtype=np.int64)
        chances = np.zeros((len(first_errors), int(num_steps.max(initial=0)) + 1))
        for row, own in enumerate(first_errors):
            chances[row, : len(own)] = own
        return ids, num_steps, chances

    def _fitted(self) -> Priors:
        by_class: dict[str, list[Readings]] = defaultdict(list)
        for problem in self._problems:
            by_class[problem.answer_class].append(problem.evidence)
        chosen = {
            name: [all_of[i] for i in _evenly(len(all_of), MAX_FITTED)]
            for name, all_of in sorted(by_class.items())
        }
        return fit_readings(chosen).as_written


def _evenly(count: int, most: int) -> list[int]:
    """So many of the indices, evenly spread."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))})


def _first_errors(problem: _Problem, priors: Priors) -> list[Floats]:
    """Chances of each first error of each solution [T + 1], the last being that of none."""
    readings, kind = problem.evidence, problem.answer_class
    by_reading = [_of_reading(readings.outcomes, priors, kind, rare_luck=False)]
    if readings.agreement is not None and priors.agreement is not None:
        by_reading.append(_of_reading(readings.agreement, priors.agreement, kind, rare_luck=True))
    return [pooled(of_solution) for of_solution in zip(*by_reading, strict=True)]


def _of_reading(
    reading: ByCompleter, priors: Priors, answer_class: str, *, rare_luck: bool
) -> list[Floats]:
    own, bare = [], []
    for name, evidence in reading.items():
        mine = priors.by(name).of(answer_class)
        if rare_luck and name == AUTHOR and len(reading) == 1:
            mine = mine.with_rare_luck
        counts = np.stack([evidence.right, evidence.wrong, evidence.same, evidence.others])
        request = PlanRequest(
            num_steps=evidence.num_steps,
            counts=counts,
            outcome=evidence.outcome,
            elsewhere=np.ones_like(evidence.elsewhere),
            priors=mine,
            previous=None,
            changed=range(len(evidence.num_steps)),
        )
        own += error_beliefs([request])
        if name != AUTHOR:
            bare.append(bare_errors(evidence.num_steps, mine, counts.shape[2]))
    author: Evidence = reading[AUTHOR]
    chances = own[0] * elsewhere(own, bare)[0] if bare else own[0]
    by_solution = []
    for row, steps in zip(chances, author.num_steps.tolist(), strict=True):
        ordered = np.append(row[steps:0:-1], row[0])
        by_solution.append(ordered / ordered.sum())
    return by_solution
