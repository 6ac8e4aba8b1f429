"""Labels of traces that correct themselves, by source of evidence, and what they cost. On arith.

    python -m tests.benchmarks.long_traces [--smoke | --quick] [--out FOLDER] [--minutes 30]

1. The bundled policy that errs and corrects itself (`arith:reflective`) writes traces, which are
   labelled by the estimator `trace` on outcomes alone; beside them on answers on the way, on what
   solutions agree on, on both, on answers at once, on rollouts; on all of them; with half of the
   answers on the way left out; and with a source beside them that shows nothing (a completer whose
   answer is given). In the same table:
   `posterior`, and the constant rule that does best on these traces, "a wrong trace errs at step
   k". All rows are of the same traces, and each samples for itself.
2. Whether a PRM that learns `states` ranks traces that end right behind a repair above wrong ones,
   one that learns `hard`, where all behind the first error is wrong, and one that learns `outcome`,
   how the trace ended, which needs no label of a step.
3. What answers on the way find by themselves in ProcessBench's given solutions, whose golds are
   those of GSM8K and MATH; without these files it is left out.
4. Seconds and megabytes of each verb for a trace of 30,000 tokens and 500 steps, and for a tenth.

Intervals: 95%, bootstrap over problems. What is under `--out` is not done again. The last line is
JSON.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from mclabel import jobs
from mclabel.core.config.load import bundled_config, load_config
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.core.stats.bootstrap import interval, resample_weights
from mclabel.evaluate.labels.report import exact_states, state_quality
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators import ProblemPaths
from mclabel.labeling.estimators.trace.estimator import TraceEstimator
from mclabel.labeling.estimators.trace.rates import TraceRates
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.benchmarks.long_given import by_answers, given_solutions
from tests.benchmarks.pieces import Piece, Pieces, write_json
from tests.benchmarks.scorers import Training, read_scores
from tests.benchmarks.sizes import SizedParser

CONFIG = "label/traces.yaml"
POLICY = "{model: policy}"
FORCED = r'{model: policy, force: "</think>\nThe answer is \\boxed{", max_tokens: 8}'
TOLD = r"</think>\nThe answer is \\boxed{1}."
WORTHLESS = f'{{model: policy, force: "{TOLD}", name: one, max_tokens: 2}}'
TARGETS = ("states", "hard", "outcome")
NOTHING = 1000.0
"""A least gain that no completion has."""
NUM_DRAWS = 1000


class Dropping(TraceEstimator):
    """Leaves out some of the answers on the way, and what solutions agree on."""

    share: ClassVar[float]
    agrees: ClassVar[bool] = False

    def __init__(
        self,
        settings: TraceEstimator.Settings,
        problem: ProblemPaths,
        *,
        rates: TraceRates | None = None,
        min_gain_per_token: float | None = None,
    ) -> None:
        paths = [
            replace(
                path,
                commitments=tuple(
                    one if _chance(path.prefixes, n) >= self.share else None
                    for n, one in enumerate(path.commitments)
                ),
                step_keys=path.step_keys if self.agrees else (),
            )
            for path in problem.paths
        ]
        problem = replace(problem, paths=paths)
        super().__init__(settings, problem, rates=rates, min_gain_per_token=min_gain_per_token)


class Deaf(Dropping):
    """Knows neither."""

    share = 1.0


class Agreeing(Deaf):
    """Knows what solutions agree on."""

    agrees = True


class Alone(Dropping):
    """Knows answers on the way."""

    share = 0.0


class HalfDeaf(Agreeing):
    """Knows both, but of the answers half."""

    share = 0.5


def _chance(prefixes: Sequence[int], step: int) -> float:
    digest = hashlib.sha256(f"{tuple(prefixes)} {step}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A row of the table."""

    completers: Sequence[str] = (POLICY,)
    kind: str = "trace"
    gain: float | None = None
    """Least gain a token; None for that of the size."""

    def piece(self, out: Path, name: str, amounts: Amounts) -> Piece:
        """Labels the traces by it."""
        gain = amounts.gain if self.gain is None else self.gain
        changes = [
            *(f"completers=[{', '.join(self.completers)}]", f"solutions.run={out / 'runs/test'}"),
            *("estimator.kind=" + self.kind, f"estimator.min_gain_per_token={gain}"),
        ]
        return labelling(out, _folder(name), amounts.test, *changes)


def rules(amounts: Amounts) -> dict[str, Rule]:
    """By name."""
    here = __name__ if __name__ != "__main__" else "tests.benchmarks.long_traces"
    deaf, half, alone, agreeing = (
        f"{here}:{one}" for one in ("Deaf", "HalfDeaf", "Alone", "Agreeing")
    )
    both = (POLICY, FORCED)
    return {
        "outcomes": Rule(kind=deaf, gain=NOTHING),
        "answers on the way": Rule(kind=alone, gain=NOTHING),
        "agreement": Rule(kind=agreeing, gain=NOTHING),
        "answers on the way, agreement": Rule(gain=NOTHING),
        "answers at once": Rule(kind=deaf, completers=(FORCED,)),
        "rollouts": Rule(kind=deaf, gain=amounts.rollouts_gain),
        "all": Rule(completers=both),
        "all, half of the answers on the way": Rule(kind=half, completers=both),
        "all, and a source that shows nothing": Rule(completers=(*both, WORTHLESS)),
        "posterior": Rule(kind="posterior"),
    }


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much is sampled, labelled and trained."""

    test: int
    """Problems, four traces each."""
    train: int
    steps: int
    """Of each training."""
    seeds: int
    gain: float = 5e-4
    rollouts_gain: float = 2e-4
    """Of rollouts alone, so low that more of them change little."""
    long: int = 500
    """Steps of the long trace, of 60 tokens each; also of a tenth. 0 leaves that out: two dozen
    processes take minutes to begin."""


SMOKE = Amounts(test=2, train=2, steps=1, seeds=1, gain=0.05, rollouts_gain=0.05, long=0)
QUICK = Amounts(test=25, train=25, steps=40, seeds=1, long=500)
FULL = Amounts(test=100, train=200, steps=160, seeds=2)


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--out", type=Path, help="keep all pieces here, and go on")
    parser.add_argument("--minutes", type=float, help="begin no piece after so many minutes")
    args = parser.read()
    torch.set_num_threads(1)
    amounts = args.size.pick(smoke=SMOKE, quick=QUICK, full=FULL)
    with tempfile.TemporaryDirectory() as scratch:
        pieces = Pieces(workers=1, minutes=args.minutes)
        out = args.out or Path(scratch)
        found = run(out, amounts, pieces, Console(emoji=False, width=220))
    print(json.dumps(found))


def run(out: Path, amounts: Amounts, pieces: Pieces, console: Console) -> dict[str, Any]:
    """Do what is left, and print the tables."""
    pieces.run(list(label_pieces(out, amounts)))
    table = quality(out, amounts)
    console.print(_quality_table(table))
    pieces.run(list(training_pieces(out, amounts)))
    ranking = ranks(out, amounts)
    console.print(f"Right behind a repair above wrong, AUROC of the last step's score: {ranking}")
    costs = _costs(out, amounts, pieces)
    given = given_solutions()
    processbench = None if given is None else by_answers(given)
    console.print(f"ProcessBench, answers on the way alone: {processbench}")
    spent = {name: (row["tokens"] or [0.0])[0] for name, row in table.items()}
    return {
        "rules": table,
        "tokens_to_rollouts": round(spent["all"] / max(1.0, spent["rollouts"]), 4),
        "ranking": ranking,
        "processbench": processbench,
        "seconds_30k": {verb: seconds for verb, (seconds, _) in costs[1].items()},
        "seconds_3k": {verb: seconds for verb, (seconds, _) in costs[0].items()},
        "megabytes_30k": {verb: size for verb, (_, size) in costs[1].items()},
    }


def labelling(out: Path, name: str, problems: int, *changes: str) -> Piece:
    """A run of labels under `out`."""
    folder = out / "runs" / name
    work = partial(_label, folder, [f"problems.limit={problems}", *changes])
    return Piece(result=folder / "finished.json", work=work)


def _label(folder: Path, changes: Sequence[str]) -> None:
    torch.set_num_threads(1)
    config = load_config(
        LabelConfig,
        bundled_config(CONFIG),
        ["ray.address=none", *changes, f"out={folder}"],
        allow=["tests.benchmarks.long_traces"],
    )
    jobs.label(config, lambda state: None)


def label_pieces(out: Path, amounts: Amounts) -> Iterator[Piece]:
    """The traces, and their labels by every rule."""
    yield labelling(out, "test", amounts.test, "estimator.kind=outcome", "problems.split=test")
    for name, rule in rules(amounts).items():
        yield rule.piece(out, name, amounts)
    both = f"completers=[{POLICY}, {FORCED}]"
    yield labelling(out, "train", amounts.train, both, "problems.split=train")


def training_pieces(out: Path, amounts: Amounts) -> Iterator[Piece]:
    """PRMs of both targets, and their scores of the test traces."""
    for training in _trainings(amounts):
        yield training.piece(out)
        yield training.scoring(out, "test")


def _trainings(amounts: Amounts) -> list[Training]:
    steps = f"max_steps={amounts.steps}"
    overrides = ("base=arith:reflective", steps, "max_tokens=1024")
    return [
        Training(
            kind=target, seed=seed, labels="train", size=0,
            overrides=[f"target={target}", *overrides],
        )
        for target in TARGETS
        for seed in range(amounts.seeds)
    ]  # fmt: skip


def _rows(out: Path, name: str) -> list[LabeledSolution]:
    return sorted(read_labels(Store(str(out / "runs" / name))), key=lambda row: row.solution.id)


def quality(out: Path, amounts: Amounts) -> dict[str, dict[str, list[float] | None]]:
    """By rule: first errors, repairs, sound steps called wrong, and tokens a trace.

    `first_error` is of all traces, the likeliest counting as found where a label is undecided;
    `among_decided` of those that the labels decide.
    """
    found: dict[str, dict[str, list[float] | None]] = {}
    for name, rule in rules(amounts).items():
        rows = _rows(out, _folder(name))
        tokens = [[s.counts.num_tokens for s in row.steps] for row in rows]
        spent = _mean(rows, [float(sum(one)) for one in tokens])
        hits = [float(_likeliest(row) == _true_error(row)) for row in rows]
        if rule.kind == "posterior":
            found[name] = _row(_mean(rows, hits), spent)
            continue
        states = state_quality(rows)
        assert states is not None
        decided = [row for row in rows if row.is_decided]
        right = [hit for row, hit in zip(rows, hits, strict=True) if row.is_decided]
        found[name] = {
            "first_error": _mean(rows, hits),
            "decided": _mean(rows, [float(row.is_decided) for row in rows]),
            "among_decided": _mean(decided, right) if decided else None,
            "states": _figure(states.agreement),
            "recovered_f1": _figure(states.recovered_f1),
            "sound_called_wrong": _figure(states.false_alarms),
            "belief": _mean(rows, [max(row.posterior or (0.0,)) for row in rows]),
            "tokens": spent,
        }
    rows = _rows(out, "test")
    best = max((_constant(rows, k) for k in range(40)), key=lambda one: one[0])
    found["constant"] = _row(best, [0.0, 0.0, 0.0])
    return found


def _row(first_error: list[float], tokens: list[float]) -> dict[str, list[float] | None]:
    """A row of a rule that labels no states."""
    none = dict.fromkeys((
        "decided", "among_decided", "states", "recovered_f1", "sound_called_wrong", "belief",
    ))  # fmt: skip
    return {"first_error": first_error, **none, "tokens": tokens}


def _folder(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def _constant(rows: Sequence[LabeledSolution], step: int) -> list[float]:
    """The rule that a wrong trace errs at a step, and a right one nowhere."""
    hits = [
        float(_true_error(row) == (None if row.solution.outcome is Outcome.RIGHT else step))
        for row in rows
    ]
    return _mean(rows, hits)


def _likeliest(row: LabeledSolution) -> int | None:
    assert row.posterior is not None
    mode = int(np.argmax(row.posterior))
    return mode if mode < len(row.steps) else None


def _true_error(row: LabeledSolution) -> int | None:
    states = exact_states(row)
    return states.index("error") if "error" in states else None


def _figure(estimate: Any) -> list[float] | None:
    if estimate.value is None:
        return None
    return [round(one, 4) for one in (estimate.value, estimate.low, estimate.high)]


def _mean(rows: Sequence[LabeledSolution], values: Sequence[float]) -> list[float]:
    """Mean with its interval over problems."""
    by_problem: dict[str, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        by_problem.setdefault(row.problem.id, []).append(value)
    sums = np.array([[sum(one), len(one)] for _, one in sorted(by_problem.items())])
    rng = np.random.default_rng(0)
    drawn = [sums[rng.integers(0, len(sums), len(sums))].sum(0) for _ in range(NUM_DRAWS)]
    low, high = interval(np.array([a / b for a, b in drawn]), len(sums))
    total, count = sums.sum(0)
    return [round(float(one), 4) for one in (total / count, low, high)]


def ranks(out: Path, amounts: Amounts) -> dict[str, list[float] | None]:
    """How often a trace that is right behind a repair has a higher last score than a wrong one.

    Returns:
        By target, over all pairs and the mean of its seeds, with an interval over problems; and
        by how much `states` has more than each other target, on the same resamples. None where
        there are no such pairs.
    """
    from tests.benchmarks.scorers import load_pool

    rows = load_pool(out / "runs" / "test").rows
    problems, number = np.unique([row.problem.id for row in rows], return_inverse=True)
    wrong = np.array([row.solution.outcome is Outcome.WRONG for row in rows])
    repaired = np.array([
        row.solution.outcome is Outcome.RIGHT and "recovered" in exact_states(row) for row in rows
    ])  # fmt: skip
    weights = np.stack([np.ones(len(problems)), *resample_weights(len(problems), 0)])
    place = np.eye(len(problems))[number]  # [row, problem]

    def weighed(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
        by_problem = place[repaired].T @ pairs @ place[wrong]
        return np.einsum("rp,pq,rq->r", weights, by_problem, weights)

    count = weighed(np.ones((repaired.sum(), wrong.sum())))
    if not count[0]:
        return dict.fromkeys(TARGETS)
    found: dict[str, NDArray[np.float64]] = {}
    for training in _trainings(amounts):
        last = np.array([one[-1] for one in read_scores(out, training.name, "test")])
        less = last[repaired][:, None] - last[wrong][None]
        share = weighed((np.sign(less) + 1) / 2) / np.where(count, count, np.nan)
        found[training.kind] = found.get(training.kind, 0) + share / amounts.seeds
    others = [name for name in TARGETS if name != "states"]
    found |= {f"states less {name}": found["states"] - found[name] for name in others}
    return {name: _spread(one, len(problems)) for name, one in found.items()}


def _spread(shares: NDArray[np.float64], num_problems: int) -> list[float]:
    """The first, and the interval of the others."""
    return [round(one, 4) for one in (float(shares[0]), *interval(shares[1:], num_problems))]


def _costs(out: Path, amounts: Amounts, pieces: Pieces) -> list[dict[str, tuple[float, float]]]:
    """Seconds and megabytes by verb, of a tenth and of the whole."""
    if not amounts.long:
        return [{}, {}]
    files = [out / f"costs-{steps}.json" for steps in (amounts.long // 10, amounts.long)]
    pieces.run([
        Piece(result=file, work=partial(_measure, file, steps))
        for file, steps in zip(files, (amounts.long // 10, amounts.long), strict=True)
    ])  # fmt: skip
    return [
        {verb: (one[0], one[1]) for verb, one in json.loads(file.read_text()).items()}
        for file in files
    ]


def _measure(file: Path, steps: int) -> None:
    from tests.benchmarks.long_cost import costs

    with tempfile.TemporaryDirectory() as folder:
        write_json(file, costs(Path(folder) / "costs", steps, 60))


def _quality_table(found: dict[str, dict[str, list[float] | None]]) -> Table:
    table = Table(title="Traces of arith:reflective", title_justify="left")
    errors = ("first error", "decided", "of those right")
    states = ("steps", "repairs, F1", "sound called wrong")
    for name in ("evidence", *errors, *states, "belief", "tokens"):
        table.add_column(name)
    for name, row in found.items():
        shares = [_shown(row[key], ".3f") for key in list(row)[:-1]]
        table.add_row(name, *shares, _shown(row["tokens"], ",.0f"))
    return table


def _shown(one: list[float] | None, form: str) -> str:
    return "-" if one is None else f"{one[0]:{form}} [{one[1]:{form}}, {one[2]:{form}}]"


if __name__ == "__main__":
    main()
