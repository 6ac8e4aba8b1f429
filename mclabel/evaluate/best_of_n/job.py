"""Runs a best-of-N evaluation from its configuration."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from pathlib import Path

from mclabel.checkers import make_checker
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.engines.chat import PromptParts
from mclabel.engines.hub import resolve_model
from mclabel.engines.pretrained import name_option_in_code_errors
from mclabel.engines.text import check_model
from mclabel.evaluate.best_of_n.choosing import ProblemSamples
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.evaluate.best_of_n.figures import BestOfN
from mclabel.evaluate.best_of_n.figures import measure_best_of_n as measure
from mclabel.evaluate.best_of_n.scores import ScoreCache
from mclabel.evaluate.best_of_n.show import plot_accuracy_curves
from mclabel.evaluate.grouping import GROUP_KEYS
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators.fixed import OutcomeEstimator
from mclabel.labeling.job import label
from mclabel.labeling.sampling import SolutionSettings
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder
from mclabel.prm.scoring import OWN_FORMAT
from mclabel.prm.scoring.aggregate import UnscoredError, aggregate
from mclabel.prm.scoring.manifest import write_provenance
from mclabel.prm.scoring.scorer import close_scorer, load_scorer
from mclabel.run.outputs import BEST_OF_N, RUN, check_output_is_usable
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.manifest import MANIFEST
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobState
from mclabel.show.figures import save_plot

MAX_FOOLED = 10
"""Maximum number of problems per scorer that a report shows as `FoolingSolution`."""
MAX_TEXT = 2000
"""Maximum number of characters of a problem or a solution in a report."""


@dataclass(frozen=True, kw_only=True)
class FoolingSolution:
    """A problem on which a scorer gave a wrong solution a higher score than every right one."""

    problem_id: str
    problem: str
    answer: str
    """Gold answer of the problem."""
    chosen: str
    """Wrong solution with the highest score."""
    score: float
    right: str
    """Right solution with the highest score among right solutions."""
    right_score: float


@dataclass(frozen=True, kw_only=True)
class BestOfNReport:
    """Results of a best-of-N evaluation."""

    result: BestOfN
    num_excluded: int
    """Number of problems left out because they are in the runs of the setting `exclude`, on which
    the scorers were trained."""
    num_rejected: int
    """Number of rows and problems for which no solutions were sampled; `samples/rejects.jsonl` has
    the reasons."""
    num_too_few: int
    """Number of problems left out because the run has fewer than `samples` solutions of them."""
    num_unscored: int
    """Number of samples that some scorer cannot score, because they have no steps or are too long.
    Methods of this scorer choose such samples only if there are no others."""
    fooled: dict[str, list[FoolingSolution]]
    """Problems on which the scorer's choice was most clearly wrong, by scorer. Problems with the
    widest score gap come first."""
    num_fooled: dict[str, int]
    """Number of problems on which the scorer chose a wrong sample although a right sample existed,
    by scorer."""
    num_right: int
    """Number of samples that are right."""
    num_ungraded: int
    """Number of samples without a verdict, which do not count as right."""

    @property
    def no_result_message(self) -> str | None:
        """Reason why the evaluation cannot compare methods, as a message; None if it can."""
        total = self.result.num_problems * self.result.num_samples
        if self.num_ungraded == total:
            return f"none of the {total:,} samples could be graded, so nothing was measured"
        if not self.num_right:
            return f"none of the {total:,} samples is right, so every method has accuracy 0"
        return None


def best_of_n(
    config: BestOfNConfig,
    *,
    on_state: Callable[[JobState], None],
    on_score: Callable[[str, int, int], None],
) -> BestOfNReport:
    """Sample or read solutions, score them, and measure every method.

    Write `samples/` (a labelling run without rollouts), `scores/`, `best_of_n.json`,
    `provenance.json` and the plot as PNG and SVG into `out`. An interrupted evaluation is resumed.

    Args:
        config: configuration of the comparison.
        on_state: function that is called with the state of the sampling job.
        on_score: function that is called with a scorer's name, its number of scored solutions, and
            the number of all solutions.
    """
    _check_config(config)
    num_rejected = 0
    if config.run is None:
        run = _get_samples_folder(config.out)
        num_rejected = label(_make_sampling_config(config, run), on_state).num_rejected
    else:
        run = _locate_samples_run(config.run)
    excluded_texts = {
        _normalise_problem_text(row)
        for other in config.exclude
        for row in read_labels(Store(other))
    }
    by_problem, too_few = _read_samples(run, config.samples, strict=config.strict)
    fresh = [rows for rows in by_problem if _normalise_problem_text(rows[0]) not in excluded_texts]
    if not fresh:
        raise DataError(
            f"exclude: all {len(by_problem)} problems are in the excluded runs, so no problem is "
            "left to evaluate. Give other problems"
        )
    samples, num_unscored = _score_samples(config, fresh, on_score)
    result = measure(
        samples,
        seed=config.seed,
        references=config.references,
    )
    graded = [row.solution.outcome for rows in fresh for row in rows]
    fooled = {
        name: _list_fooling_solutions(name, samples, fresh) for name in result.over_optimisation
    }
    report = BestOfNReport(
        result=result,
        num_excluded=len(by_problem) - len(fresh),
        num_rejected=num_rejected,
        num_too_few=len(too_few),
        num_unscored=num_unscored,
        fooled={name: examples[:MAX_FOOLED] for name, examples in fooled.items()},
        num_fooled={name: len(examples) for name, examples in fooled.items()},
        num_right=graded.count(Outcome.RIGHT),
        num_ungraded=graded.count(Outcome.UNGRADED),
    )
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "best_of_n.json").write_text(json.dumps(asdict(report), indent=1) + "\n")
    write_provenance(out / "provenance.json", config=config.semantic())
    title = f"Best of N, {result.num_problems:,} problems"
    save_plot(
        plot_accuracy_curves(title, result.accuracy, references=result.references),
        out / "best_of_n",
    )
    return report


def _get_samples_folder(out: str) -> str:
    return f"{out.rstrip('/')}/samples"


def _locate_samples_run(location: str) -> str:
    """Return the location of the labelling run that has the solutions.

    Args:
        location: location of a labelling run, or of a best-of-N evaluation, whose samples are a
            run.
    """
    samples, store = _get_samples_folder(location), Store(location)
    has_samples = store.read(MANIFEST) is None and store.read(f"samples/{MANIFEST}") is not None
    return samples if has_samples else location


def _read_samples(
    run: str, count: int, *, strict: bool
) -> tuple[list[list[LabeledSolution]], list[str]]:
    """Return the first `count` solutions of each problem of a run.

    Returns:
        Solutions by problem, and the ids of problems with fewer than `count` solutions, which are
        left out.

    Raises:
        DataError: all problems have too few solutions. With `strict`, also if a single problem has.
    """
    by_problem: dict[str, list[LabeledSolution]] = defaultdict(list)
    for row in read_labels(Store(run)):
        by_problem[row.problem.id].append(row)
    too_few = sorted(name for name, rows in by_problem.items() if len(rows) < count)
    if too_few and (strict or len(too_few) == len(by_problem)):
        raise DataError(
            f"{run}: problem {too_few[0]} has {len(by_problem[too_few[0]])} solutions, fewer than "
            f"samples={count}. Lower samples, or sample more solutions"
        )
    for rows in by_problem.values():
        rows.sort(key=lambda row: row.solution.sample_index)
    chosen = sorted(by_problem.keys() - set(too_few))
    return [by_problem[identity][:count] for identity in chosen], too_few


def _check_config(config: BestOfNConfig) -> None:
    """Raise an error if the configuration has a fault, before anything is sampled."""
    from mclabel.prm.scoring.score import PRM

    check_output_is_usable(config.out, BEST_OF_N)
    if config.run is None:
        check_output_is_usable(_get_samples_folder(config.out), RUN)
    if both := sorted(set(config.scorers) & set(config.likelihood)):
        raise ConfigError(
            f"names must be unique, but scorers and likelihood both contain {', '.join(both)}. "
            "Rename it in one of the two"
        )
    names = {*config.scorers, *config.likelihood}
    if unknown := sorted(set(config.trust_remote_code) - names):
        raise ConfigError(
            f"trust_remote_code={unknown}: must be among the names of scorers and likelihood: "
            f"{', '.join(sorted(names)) or 'there are none'}. Correct or remove the names"
        )
    if unknown := sorted(set(config.references) - names):
        raise ConfigError(
            f"references={unknown}: must be among the names of scorers and likelihood: "
            f"{', '.join(sorted(names)) or 'there are none'}. Correct or remove the names"
        )
    for name in config.scorers:
        chosen = config.scorer(name)
        with name_option_in_code_errors(f"trust_remote_code=[{name}]"):
            chosen.check_prm()
            if chosen.format == OWN_FORMAT:
                PRM.load(chosen.prm, trust_remote_code=chosen.trust_remote_code)
    for name, model in config.likelihood.items():
        key = f"likelihood.{name}"
        check_model(
            resolve_model(model, setting_key=key),
            PromptParts(template=config.policy.template, system=config.policy.system),
            trust_remote_code=name in config.trust_remote_code,
            setting_key=key,
        )
    for other in [*config.exclude, *([_locate_samples_run(config.run)] if config.run else [])]:
        next(read_labels(Store(other)))


def _make_sampling_config(config: BestOfNConfig, run: str) -> LabelConfig:
    return LabelConfig(
        out=run,
        seed=config.seed,
        problems=config.problems,
        solutions=SolutionSettings(per_problem=config.samples),
        split=config.split,
        policy=config.policy,
        estimator=OutcomeEstimator.Settings(),
        checker=config.checker,
        block_problems=config.block_problems,
        keep_rollouts=False,
        ray=config.ray,
        strict=config.strict,
    )


def _normalise_problem_text(row: LabeledSolution) -> str:
    return " ".join(row.problem.text.split()).casefold()


def _score_samples(
    config: BestOfNConfig,
    problems: Sequence[Sequence[LabeledSolution]],
    on_score: Callable[[str, int, int], None],
) -> tuple[list[ProblemSamples], int]:
    """Return the samples of each problem with all scores, and the number of unscored samples.

    A sample is unscored if at least one scorer cannot score it.
    """
    rows = [row for samples in problems for row in samples]
    cache = ScoreCache(Path(config.out) / "scores", threads=config.threads)
    scores: dict[str, list[float]] = {}
    weights: dict[str, list[float]] = {}
    unscored: set[int] = set()
    for name in config.scorers:
        by_row, is_orm = _compute_step_scores(name, rows, cache, config, partial(on_score, name))
        unscored |= set(range(len(rows))) - by_row.keys()
        weights[name] = [by_row[n][-1] if n in by_row else 0.0 for n in range(len(rows))]
        for how in ["last"] if is_orm else config.aggregate:
            scores[name if is_orm else f"{name}:{how}"] = [
                aggregate(by_row[n], how) if n in by_row else -inf for n in range(len(rows))
            ]
    for name in config.likelihood:
        pairs = _compute_likelihoods(name, rows, cache, config, partial(on_score, name))
        unscored |= set(range(len(rows))) - pairs.keys()
        for part, how in enumerate(("sum", "min")):
            scores[f"likelihood:{name}:{how}"] = [
                pairs[n][part] if n in pairs else -inf for n in range(len(rows))
            ]
    votes = make_checker(config.checker).group(
        [[row.solution.prediction for row in group] for group in problems]
    )
    samples, start = [], 0
    for group, keys in zip(problems, votes, strict=True):
        part_of = slice(start, start + len(group))
        start = part_of.stop
        problem = group[0].problem
        samples.append(
            ProblemSamples(
                problem_id=problem.id,
                answer_keys=tuple(keys),
                is_right=tuple(row.solution.outcome is Outcome.RIGHT for row in group),
                scores={name: tuple(values[part_of]) for name, values in scores.items()},
                vote_weights={name: tuple(values[part_of]) for name, values in weights.items()},
                groups={k: problem.meta[k] for k in GROUP_KEYS if k in problem.meta},
            )
        )
    return samples, len(unscored)


def _compute_step_scores(
    name: str,
    rows: Sequence[LabeledSolution],
    cache: ScoreCache,
    config: BestOfNConfig,
    on_progress: Callable[[int, int], None],
) -> tuple[dict[int, list[float]], bool]:
    """Return the step scores by 0-based index of the row, and True if the scorer is an ORM.

    Rows that the scorer cannot score are left out. An ORM gives one score per solution.
    """
    from mclabel.prm.scoring.aggregate import check_scores
    from mclabel.prm.scoring.manifest import find_model_folder
    from mclabel.prm.scoring.score import PRM

    settings = config.scorer(name)
    encoded: dict[int, EncodedSolution]
    scored: Sequence[list[float] | UnscoredError]
    if settings.format == OWN_FORMAT:
        prm = PRM.load(
            settings.prm, threads=config.threads, trust_remote_code=settings.trust_remote_code
        )
        is_orm, encoded = prm.manifest.kind == "orm", _encode_rows(rows, prm.encoder)
        scored = cache.get_prm_scores(
            prm, find_model_folder(settings.prm), list(encoded.values()), on_progress
        )
    else:
        with name_option_in_code_errors(f"trust_remote_code=[{name}]"):
            scorer = load_scorer(settings, threads=config.threads)
        is_orm, encoded = False, {}
        try:
            for number, row in enumerate(rows):
                steps = [step.text for step in row.solution.steps]
                with suppress(DataError):  # no steps, or too long
                    encoded[number] = scorer.encode(
                        row.problem.text, steps, _describe_solution(row)
                    )
            scored = cache.get_scorer_scores(scorer, settings, list(encoded.values()), on_progress)
        finally:
            close_scorer(scorer)
    check_scores(settings.prm, scored, [_describe_solution(rows[number]) for number in encoded])
    pairs = zip(encoded, scored, strict=True)
    return {
        n: step_scores for n, step_scores in pairs if not isinstance(step_scores, UnscoredError)
    }, is_orm


def _compute_likelihoods(
    name: str,
    rows: Sequence[LabeledSolution],
    cache: ScoreCache,
    config: BestOfNConfig,
    on_progress: Callable[[int, int], None],
) -> dict[int, Sequence[float]]:
    """Return the sum and the minimum of each solution's token log-probabilities, in nats.

    The results are by 0-based index of the row. Rows that the model cannot read are left out.
    """
    from mclabel.prm.scoring.aggregate import check_scores
    from mclabel.prm.scoring.reading import LikelihoodScorer

    model = config.likelihood[name]
    scorer = LikelihoodScorer(
        resolve_model(model),
        template=config.policy.template,
        system=config.policy.system,
        trust_remote_code=name in config.trust_remote_code,
        setting_key=f"likelihood.{name}",
    )
    encoded = _encode_rows(rows, scorer.encoder)
    pairs = scorer.extract_total_and_minimum(
        cache.get_likelihoods(scorer.network, list(encoded.values()), on_progress)
    )
    check_scores(model, pairs, [_describe_solution(rows[number]) for number in encoded])
    return dict(zip(encoded, pairs, strict=True))


def _describe_solution(row: LabeledSolution) -> str:
    return f"problem {row.problem.id}, solution {row.solution.sample_index}"


def _list_fooling_solutions(
    name: str,
    samples: Sequence[ProblemSamples],
    problems: Sequence[Sequence[LabeledSolution]],
) -> list[FoolingSolution]:
    """Return the problems on which a scorer prefers a wrong sample to all right samples.

    Problems with the widest score gap come first.
    """
    fooled = []
    for problem_samples, rows in zip(samples, problems, strict=True):
        scores = problem_samples.scores[name]
        best = {
            flag: _find_best_sample(scores, problem_samples.is_right, flag)
            for flag in (True, False)
        }
        right, wrong = best[True], best[False]
        if right is None or wrong is None or not -inf < scores[right] < scores[wrong]:
            continue
        fooled.append(
            FoolingSolution(
                problem_id=problem_samples.problem_id,
                problem=rows[0].problem.text[:MAX_TEXT],
                answer=rows[0].problem.answer[:MAX_TEXT],
                chosen=rows[wrong].solution.text[:MAX_TEXT],
                score=scores[wrong],
                right=rows[right].solution.text[:MAX_TEXT],
                right_score=scores[right],
            )
        )
    return sorted(fooled, key=lambda f: (f.right_score - f.score, f.problem_id))


def _find_best_sample(scores: Sequence[float], right: Sequence[bool], is_right: bool) -> int | None:
    """Return the 0-based index of the sample with the highest score; None if there is none.

    Args:
        scores: scores of the samples.
        right: True for each sample that is right.
        is_right: True to choose among right samples, False among wrong ones.
    """
    among = [i for i, r in enumerate(right) if r is is_right]
    return max(among, key=lambda i: scores[i], default=None)


def _encode_rows(
    rows: Sequence[LabeledSolution], encoder: StepEncoder
) -> dict[int, EncodedSolution]:
    """Return the encoded solutions by 0-based index of the row.

    Rows that have no steps or are too long for the model are left out.
    """
    by_text: dict[tuple[str, str], EncodedSolution] = {}
    encoded = {}
    for number, row in enumerate(rows):
        key = row.problem.id, row.solution.text
        with suppress(DataError):  # counted by the caller, and chosen last
            encoded[number] = by_text.get(key) or encoder.encode_labelled(row)
            by_text[key] = encoded[number]
    return encoded
