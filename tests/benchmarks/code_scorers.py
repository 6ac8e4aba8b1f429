"""PRMs of code, of arithmetic and of both, trained from one base and tested on both domains."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from tests.benchmarks.figures import Numbers, numbers
from tests.benchmarks.pieces import Piece
from tests.benchmarks.scorer_figures import OF_PRM
from tests.benchmarks.scorers import Run, Training

DOMAINS = {"arith": "quickstart.yaml", "pyarith": "pyarith.yaml"}
"""Configurations for labelling with the bundled policy of each domain."""
CHECKERS = {"arith": "math", "pyarith": "code"}
ESTIMATOR = {"kind": "posterior", "rollouts": 64, "min_gain": 0.08}
TRAINED = {
    "arith": ("arith-0", "arith-1"),
    "pyarith": ("pyarith-0", "pyarith-1"),
    "both": ("arith-0", "pyarith-0"),
}
"""Runs whose labels train each PRM. Each PRM gets equally many solutions."""
BASE = "pyarith:policy"
UNTRAINED = "nothing: the base's likelihood"
"""The base before training; its likelihood of a solution also serves as a score."""
PARTS = ("validation", "test")
EACH = 4
"""Number of labelled solutions per problem."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Amounts of labelled problems, test problems and samples, and limits of the training."""

    labelled: int
    """Number of problems in each run with labels."""
    validation: int
    """Number of validation problems. `test` is the number of test problems."""
    test: int
    samples: int
    """Number of samples for each validation or test problem."""
    training: Sequence[str] = ()
    """Configuration overrides of every training."""


def label_runs(amounts: Amounts) -> list[Run]:
    """Return two runs with labels and two runs with samples for each domain."""
    made = []
    for domain, config in DOMAINS.items():
        for number in range(2):
            changes = [f"problems.limit={amounts.labelled}", f"problems.seed={5 + number}"]
            changes += ["problems.split=train", f"solutions.per_problem={EACH}"]
            changes += [f"estimator={json.dumps(ESTIMATOR)}", "keep_rollouts=false"]
            name = f"{domain}-{number}"
            made.append(Run(name=name, config=config, overrides=[*changes, "block_problems=8"]))
        for part, count in zip(PARTS, (amounts.validation, amounts.test), strict=True):
            changes = [f"problems.split={part}", f"problems.limit={count}", "problems.seed=11"]
            changes += [f"solutions.per_problem={amounts.samples}", "estimator={kind: outcome}"]
            changes += ["keep_rollouts=false", "block_problems=8"]
            made.append(Run(name=f"{domain}-{part}", config=config, overrides=changes))
    return made


def trainings(amounts: Amounts) -> list[Training]:
    """Return the trainings of the three PRMs."""
    return [
        Training(
            kind=name, seed=0, labels=labels, overrides=amounts.training, config="pyarith.yaml"
        )
        for name, labels in TRAINED.items()
    ]


def evaluations(out: Path, amounts: Amounts) -> list[Piece]:
    """Return the evaluations of all PRMs on the samples of each domain and part."""
    return [
        Piece(
            result=_evaluation_path(out, domain, part) / "best_of_n.json",
            work=partial(_evaluate, out, domain, part, amounts),
        )
        for domain in DOMAINS
        for part in PARTS
    ]


class Scored:
    """Results of the PRMs on test problems, with the aggregate chosen on validation problems."""

    def __init__(self, out: Path, amounts: Amounts) -> None:
        """Read the evaluations.

        Args:
            out: folder of the benchmark.
            amounts: amounts of the evaluated pieces.
        """
        self._size = str(amounts.samples)
        self._found: dict[tuple[str, str], dict[str, Any]] = {}
        for domain in DOMAINS:
            for part in PARTS:
                text = (_evaluation_path(out, domain, part) / "best_of_n.json").read_text()
                self._found[domain, part] = json.loads(text)["result"]

    def method(self, trained: str, domain: str) -> str:
        """Return the PRM's method that chooses best on validation problems; pairs break ties."""
        validation = self._found[domain, "validation"]

        if trained == UNTRAINED:
            methods = [f"likelihood:base:{how}" for how in ("sum", "min")]
        else:
            methods = [f"{trained}:{how}" for how in OF_PRM]

        def worth(method: str) -> tuple[float, float]:
            pairs = validation["pair_accuracy"][method]["value"]
            return validation["accuracy"][method][self._size]["value"], pairs or 0.0

        return max(methods, key=worth)

    def accuracy(self, method: str, domain: str) -> Numbers:
        """Return the share of the chosen samples that are right."""
        return _numbers(self._found[domain, "test"]["accuracy"][method][self._size])

    def figures(self, trained: str, domain: str) -> dict[str, Numbers]:
        """Return the figures of a PRM on the test problems of a domain.

        `pairs` is the share of pairs, within a problem, in which a right sample scores higher than
        a wrong one. `right` is the share of chosen samples that are right. `less_majority` is the
        paired difference of `right` from majority voting.
        """
        test_report, method = self._found[domain, "test"], self.method(trained, domain)
        return {
            "pairs": _numbers(test_report["pair_accuracy"][method]),
            "right": self.accuracy(method, domain),
            "less_majority": _numbers(test_report["differences"][self._size][method]["majority"]),
        }


def _numbers(estimate: dict[str, Any]) -> Numbers:
    return numbers(Estimate(**{name: estimate[name] for name in ("value", "low", "high")}))


def _evaluation_path(out: Path, domain: str, part: str) -> Path:
    return out / "best-of-n" / f"{domain}-{part}"


def _evaluate(out: Path, domain: str, part: str, amounts: Amounts) -> None:
    scorers = {training.kind: str(training.folder(out)) for training in trainings(amounts)}
    keys = [
        *(f"run={out / 'runs' / f'{domain}-{part}'}", f"out={_evaluation_path(out, domain, part)}"),
        *(f"samples={amounts.samples}", f"scorers={json.dumps(scorers)}", "threads=1"),
        *(f"likelihood={{base: {BASE}}}", f"checker={CHECKERS[domain]}"),
        f"aggregate={json.dumps(list(OF_PRM))}",
    ]
    jobs.best_of_n(
        load_config(BestOfNConfig, None, keys),
        on_state=lambda state: None,
        on_score=lambda name, done, total: None,
    )
