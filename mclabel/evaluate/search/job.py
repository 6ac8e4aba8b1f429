"""A comparison of search methods from its configuration.

Every search is a run of its own, which `mclabel search` could have made, so each resumes:

    OUT/NAME            a method, steered by the scorer
    OUT/oracle/NAME     the same method, steered by the truth (`oracle=true`)
    OUT/best_of_n       the reference, with as many solutions as its largest N
    OUT/search.json, search.png, search.svg, provenance.json
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from pydantic import Field

from mclabel.core.components import derived_class
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.settings import Chosen, at_most, rule
from mclabel.data.readers.problems import read_problems
from mclabel.domains.registry import carries_truth
from mclabel.evaluate.grouping import GROUP_KEYS
from mclabel.evaluate.search.figures import SearchComparison, SearchRun, compare_searches, row_name
from mclabel.evaluate.search.show import search_plot
from mclabel.prm.scoring.manifest import write_provenance
from mclabel.run.outputs import RUN, SEARCH_EVAL, check_places
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import read_trees
from mclabel.run.tally import JobState
from mclabel.search.base import MAX_WIDTH, MethodSettings, SearchMethod
from mclabel.search.config import SearchConfig, SharedSearchConfig
from mclabel.search.job import model_sizes, search
from mclabel.search.levels import BestOfNSearch
from mclabel.search.scorers import ExactScorer, StepScorerSettings, make_scorer
from mclabel.show.figures import save_plot
from mclabel.show.texts import json_text

REFERENCE = "best_of_n"
"""Folder of the reference, and its name."""


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RESERVED = ("best_of_n", "oracle", "scores", "trees")
"""Names of folders and files in an output, which no method may have."""


class SearchEvalConfig(SharedSearchConfig):
    """Comparison of search methods, with each other and with best-of-N at equal cost."""

    methods: dict[str, Annotated[MethodSettings, Chosen("searches", default="beam")]] = Field(
        min_length=1
    )
    """Methods to compare, as NAME: {kind: beam, n: 16}."""
    best_of_n: list[
        Annotated[int, Field(ge=1), at_most(MAX_WIDTH, "all of a problem's are held in memory")]
    ] = Field([4, 16, 64], min_length=1)
    """Values of N for the best-of-N reference, in rising order."""
    oracle: bool = False
    """Run every method also with the scorer `exact` (arith and pyarith only)."""

    @rule
    def _method_names_are_folder_names(self) -> str | None:
        for name in self.methods:
            if not _NAME.fullmatch(name) or name.lower() in RESERVED:
                return (
                    f"methods.{name[:80]}: names a folder, so it must have 1 to 64 letters, digits "
                    "and . _ -, begin with a letter or digit, and be none of "
                    f"{', '.join(RESERVED)}. Rename it"
                )
        return None

    @rule
    def _names_differ(self) -> str | None:
        first: dict[str, str] = {}
        for name in self.methods:
            if (other := first.setdefault(name.lower(), name)) != name:
                return (
                    f"methods.{name}: differs from methods.{other} only in capital letters, which "
                    "some file systems do not distinguish. Rename one of the two"
                )
        return None

    @rule
    def _sizes_rise(self) -> str | None:
        if any(a >= b for a, b in pairwise(self.best_of_n)):
            return (
                f"best_of_n={self.best_of_n}: sizes must rise. Write "
                f"best_of_n={sorted(set(self.best_of_n))}"
            )
        return None


@dataclass(frozen=True, kw_only=True)
class SearchEvalReport:
    """Results of a comparison of searches."""

    result: SearchComparison
    num_left_out: int
    """Number of problems left out because some search has set them aside; the reasons are in the
    rejects.jsonl of its run."""


def eval_search(
    config: SearchEvalConfig,
    on_state: Callable[[str, JobState], None] = lambda name, state: None,
) -> SearchEvalReport:
    """Run every search that is not done, and compare them; resumes.

    Args:
        config: configuration of the comparison.
        on_state: called with the name of a search and its state.

    Raises:
        ConfigError: a method or a scorer is missing or lacks what it needs, or a problem carries no
            truth for `oracle`.
        DataError: the input cannot be read, or no problem is left.
        ShardError: a folder in `out` holds another run.
    """
    plans = list(_plans(config))
    _check_config(config, plans)
    runs = [_run_search(plan, on_state) for plan in plans]
    kept = set.intersection(*({tree.problem_id for tree in run.trees} for run in runs))
    every = set.union(*({tree.problem_id for tree in run.trees} for run in runs))
    num_left_out = len(read_problems(config.problems)) - len(kept)
    if not kept:
        raise DataError(
            f"no problem has been searched by every method; {len(every)} have been by some. See "
            f"the rejects.jsonl in the folders of {config.out}"
        )
    runs = [_restricted_to(run, kept) for run in runs]
    result = compare_searches(
        runs[:-1], runs[-1], config.best_of_n, group_by=GROUP_KEYS, seed=config.seed
    )
    report = SearchEvalReport(result=result, num_left_out=num_left_out)
    out = Path(config.out)
    (out / "search.json").write_text(json_text(report), encoding="utf-8")
    write_provenance(
        out / "provenance.json",
        config=config.semantic(),
        problems=config.problems.model_dump(),
        scorer=make_scorer(config.scorer).known(),
    )
    save_plot(search_plot(result), out / "search")
    return report


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """A search to be run."""

    name: str
    config: SearchConfig
    is_oracle: bool = False

    @property
    def shown(self) -> str:
        """The name that the progress shows for this run."""
        return row_name(self.name, is_oracle=self.is_oracle)


def _plans(config: SearchEvalConfig) -> Iterator[_Plan]:
    """Yield all searches, the reference last."""
    out = config.out.rstrip("/")
    for name, method in config.methods.items():
        yield _Plan(name=name, config=_config(config, f"{out}/{name}", method))
    for name, method in config.methods.items() if config.oracle else ():
        oracle_config = _config(
            config, f"{out}/oracle/{name}", method, scorer=ExactScorer.Settings()
        )
        yield _Plan(name=name, config=oracle_config, is_oracle=True)
    most = BestOfNSearch.Settings.model_validate(
        {"kind": REFERENCE, "n": config.best_of_n[-1], "aggregate": "last"}
    )
    whole = _config(config, f"{out}/{REFERENCE}", most)
    yield _Plan(name=REFERENCE, config=whole.model_copy(update={"tokens": None}))


def _config(
    config: SearchEvalConfig,
    out: str,
    method: MethodSettings,
    *,
    scorer: StepScorerSettings | None = None,
) -> SearchConfig:
    shared = {name: getattr(config, name) for name in SharedSearchConfig.model_fields}
    own = {"out": out, "search": method, "scorer": scorer or config.scorer}
    return SearchConfig.model_validate({**shared, **own})


def _check_config(config: SearchEvalConfig, plans: Sequence[_Plan]) -> None:
    """Refuse a faulty configuration before anything is sampled."""
    check_places(config.out, SEARCH_EVAL)
    for plan in plans:
        check_places(plan.config.out, RUN)
        derived_class(plan.config.search, SearchMethod)
    for problem in read_problems(config.problems) if config.oracle else ():
        if not carries_truth(problem.meta):
            raise ConfigError(
                "oracle=true: the scorer exact works only for arith and pyarith, and problem "
                f"{problem.id} is not one. Set oracle=false"
            )


def _run_search(plan: _Plan, on_state: Callable[[str, JobState], None]) -> SearchRun:
    """Return a search that is done, once it is."""
    search(plan.config, lambda state: on_state(plan.shown, state))
    store, method = Store(plan.config.out), plan.config.search
    return SearchRun(
        name=plan.name,
        method=_method_text(method),
        n=method.n,
        trees=list(read_trees(store)),
        models=model_sizes(store),
        is_oracle=plan.is_oracle,
    )


def _method_text(method: MethodSettings) -> str:
    """Return a method and its settings that are not the default, without n."""
    own = method.model_dump(exclude={"n", "kind"}, exclude_defaults=True)
    return ", ".join([method.kind, *(f"{key}={value}" for key, value in own.items())])


def _restricted_to(run: SearchRun, kept: set[str]) -> SearchRun:
    """Return a search of some problems alone, by id."""
    by_id = {tree.problem_id: tree for tree in run.trees}
    return replace(run, trees=[by_id[identity] for identity in sorted(kept)])
