"""Components of a package that pip installed, found by their entry points and used in a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.own_package import install_package, mclabel, mclabel_here
from tests.support.scripted_jobs import scripted_overrides, write_problems

PACKAGE = {
    "mclabel_outside/__init__.py": "",
    "mclabel_outside/estimator.py": '''
from collections.abc import Sequence

from pydantic import Field

from mclabel.labeling.estimators import Estimator, Judgement, RecordedRollout, RolloutSettings
from mclabel.core.records import Counts
from mclabel.core.stats.values import estimate_fixed


class LastPrefix(Estimator):
    """Rolls out the last prefix of each solution, and no other."""

    class Settings(RolloutSettings):
        """Of the last prefix."""

        skip: int = Field(0, ge=0)
        """Steps before the last that are passed over."""

    def __init__(self, settings, problem):
        self._settings, self._problem, self._asked = settings, problem, False

    def wanted(self) -> Sequence[int]:
        if self._asked:
            return ()
        self._asked = True
        last = {path.prefixes[-1 - self._settings.skip] for path in self._problem.paths
                if len(path.prefixes) > self._settings.skip}
        return sorted(last) * self._settings.rollouts

    def record(self, rollout: RecordedRollout) -> None:
        pass

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        found = []
        for path in self._problem.paths:
            estimates = [estimate_fixed(counts[p]) for p in path.prefixes]
            hard = [None if e.value is None else e.value > 0 for e in estimates]
            ends = path.outcome.value == "right"
            found.append(Judgement(
                hard=(*hard, ends),
                sources=(*("last" for _ in hard), "outcome"),
                first_error=next((i for i, h in enumerate([*hard, ends]) if h is False), None),
                estimates=(*estimates, estimate_fixed(Counts(num_right=ends, num_wrong=not ends))),
            ))
        return found
''',
    "mclabel_outside/checker.py": '''
from mclabel.checkers import Checker, Grade
from mclabel.core.records import Verdict


class BoxChecker(Checker):
    """Right where the gold stands in a box."""

    def __init__(self, settings):
        self.name, self.version = settings.kind, "7"

    async def grade(self, items, run_blocking):
        return [
            Grade(verdict=Verdict.RIGHT if "boxed{%s}" % i.problem.answer in i.completion
                  else Verdict.WRONG, answer="box")
            for i in items
        ]
''',
}
ENTRY_POINTS = """\
[mclabel.estimators]
last = mclabel_outside.estimator:LastPrefix

[mclabel.checkers]
box = mclabel_outside.checker:BoxChecker
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which pip has installed the package."""
    return install_package(
        tmp_path_factory.mktemp("outside"), "mclabel_outside", PACKAGE, ENTRY_POINTS
    )


def make_command(folder: Path, *overrides: str) -> list[str]:
    base = scripted_overrides(folder / "problems.jsonl", folder / "out", "ray.address=none")
    (folder / "empty.yaml").write_text("{}")
    return ["label", str(folder / "empty.yaml"), *base, *overrides]


@pytest.mark.slow
def test_a_job_with_components_of_another_package(installed: Path, tmp_path: Path) -> None:
    write_problems(tmp_path, 4)
    done = mclabel(
        installed, *make_command(tmp_path, "estimator={kind: last, rollouts: 5}", "checker=box")
    )
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "out" / "run.json").read_text())["config"]
    assert config["estimator"] == {"kind": "last", "rollouts": 5, "skip": 0, "truncated": "wrong"}
    assert config["checker"] == {"kind": "box", "version": "7"}
    run, rows = str(tmp_path / "out"), str(tmp_path / "rows")
    shown = mclabel_here(installed, "export", run, "--to", "parquet", "-o", rows)
    assert shown.exit_code == 0, shown.output
    again = mclabel_here(installed, "regrade", run, "-o", str(tmp_path / "again"))
    assert again.exit_code == 0, again.output
    assert "0 changed outcomes, 0 changed first errors" in " ".join(again.output.split())
