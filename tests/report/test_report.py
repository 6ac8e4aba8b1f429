"""The report: a single page, no executable content but its own scripts, clear errors."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from mclabel.core.errors import ShardError
from mclabel.report.page.facts import GatheredRun, compute_agreement
from mclabel.report.page.html import make_template_environment
from mclabel.run.kinds import find_runs
from mclabel.run.shards.digest import add_digest
from mclabel.show.figures import Plot, Series
from mclabel.show.texts import DESCRIBED, SELECTED, find_answer_kind
from tests.support.labelled import arith_rows
from tests.support.shown import hostile_run, plain_run, report_page, solution, write_run


def write_page(tmp_path: Path, *runs: str) -> str:
    return report_page(runs, str(tmp_path / "report.html")).read_text(encoding="utf-8")


def test_a_page_says_what_was_run(tmp_path: Path) -> None:
    page = write_page(tmp_path, plain_run(tmp_path / "run"))
    assert "estimator.rollouts" in page and "not recorded" in page
    rows = dict(re.findall(r'<th scope="row">([^<]+)</th><td class="figure">([^<]+)</td>', page))
    # There are 2 + 3 + 2 steps. The last step of each solution has its outcome, and each other
    # prefix has 4 rollouts.
    steps = {"steps: sound": "4", "steps: wrong": "3"}
    assert (
        rows.items()
        >= {"solutions": "3", "rollouts": "16", "rollout tokens": "160", **steps}.items()
    )
    assert "By level" in page and "By answer type" in page


def test_runs_are_compared_side_by_side(tmp_path: Path) -> None:
    first = plain_run(tmp_path / "one")
    second = write_run(
        tmp_path / "two", [solution(0, ["We add $1$ and $2$.\n", "So \\boxed{3}."], [0, 4])], None
    )
    assert "Agreement of runs" in write_page(tmp_path, first, second)
    (row,) = compute_agreement([GatheredRun(run) for run in find_runs([first, second])])
    assert list(row.values()) == ["one, two", 1, 0.0, 0.0]


def test_a_run_of_selected_solutions_says_what_its_figures_describe(tmp_path: Path) -> None:
    """Solutions drawn at random represent the pool; solutions chosen by a rule only themselves."""
    rows = arith_rows(4)
    assert "were selected" not in write_page(tmp_path, write_run(tmp_path / "whole", rows, None))
    drawn = [replace(row, selection_probability=0.25, chosen_by_outcome=True) for row in rows]
    page = write_page(tmp_path, write_run(tmp_path / "drawn", drawn, None))
    assert SELECTED in page and DESCRIBED["pool"] in page
    page = write_page(
        tmp_path,
        write_run(
            tmp_path / "ruled", [replace(row, selection_probability=1.0) for row in drawn], None
        ),
    )
    assert DESCRIBED["selection"] in page and DESCRIBED["pool"] not in page


def test_undecided_solutions_are_not_shown_as_free_of_errors(tmp_path: Path) -> None:
    sound, wrong, open_ = (solution(n, [f"{n}\n", "b"], [4 * (n != 1), 4]) for n in range(3))
    open_ = replace(open_, steps=((replace(open_.steps[0], hard=None), open_.steps[1])))
    folder = write_run(tmp_path / "run", [sound, wrong, open_], None)
    page = write_page(tmp_path, folder)
    assert re.findall(
        r'<th scope="row">(none|undecided)</th><td class="figure">([.\d]+)', page
    ) == [("none", "0.333"), ("undecided", "0.333")]
    assert "undecided</dt>" in page
    run = GatheredRun(find_runs([folder])[0])
    assert run.compute_facts()["shares"]["undecided"].value == pytest.approx(1 / 3)
    # an undecided label agrees with no other label
    assert list(run.first_errors.values()) == [None, 0]


def test_only_the_scripts_of_the_package_may_run(tmp_path: Path) -> None:
    page = write_page(tmp_path, hostile_run(tmp_path / "run"))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    directives = dict(d.strip().split(" ", 1) for d in policy[1].split(";"))
    assert directives["default-src"] == "'none'" and "unsafe" not in directives["script-src"]
    for kind in ("script", "style"):
        named = [
            f"'sha256-{base64.b64encode(digest).decode()}'"
            for digest in [
                hashlib.sha256(content.encode()).digest()
                for content in re.findall(f"<{kind}>(.*?)</{kind}>", page, flags=re.DOTALL)
            ]
        ]
        assert named and directives[f"{kind}-src"] == " ".join(named)


def test_what_was_lost_and_survived_is_summed_over_starts(tmp_path: Path) -> None:
    run = Path(plain_run(tmp_path / "run"))
    lines = [
        {"elapsed_s": 10.0, "gpu_hours": 0.1, "num_failures": 0, "num_replayed": 0},
        {"elapsed_s": 20.0, "gpu_hours": 0.2, "num_failures": 1, "num_replayed": 0},
        {"elapsed_s": 5.0, "gpu_hours": 0.4, "num_failures": 1, "num_replayed": 7},
    ]
    (run / "progress.jsonl").write_text(
        "".join(json.dumps(add_digest(line)) + "\n" for line in lines) + '{"elapsed_s": 6'
    )
    job = GatheredRun(find_runs([str(run)])[0]).compute_facts()["job"]
    assert job == {
        "num_starts": 2,
        "elapsed_s": 25.0,
        "gpu_hours": pytest.approx(0.6),
        "num_failures": 2,
        "num_replayed": 7,
    }


def test_an_evaluation_of_another_version_is_refused(tmp_path: Path) -> None:
    best = tmp_path / "best"
    best.mkdir()
    (best / "best_of_n.json").write_text('{"result": {"accuracy": {}}}')
    with pytest.raises(ShardError, match="was written by another version"):
        write_page(tmp_path, str(best))


def test_a_folder_stands_for_the_runs_in_it(tmp_path: Path) -> None:
    plain_run(tmp_path / "all" / "b")
    plain_run(tmp_path / "all" / "a")
    (tmp_path / "all" / "prm").mkdir()
    (tmp_path / "all" / "prm" / "train.json").write_text("{}")
    assert [(run.kind, run.name) for run in find_runs([str(tmp_path / "all")])] == [
        ("labels", "a"),
        ("labels", "b"),
        ("prm", "prm"),
    ]
    plain_run(tmp_path / "other" / "a")
    assert [run.name for run in find_runs([str(tmp_path / "all/a"), str(tmp_path / "other")])] == [
        "all/a",
        "other/a",
    ]


def test_text_is_escaped_and_bounded() -> None:
    draw = make_template_environment()
    render = draw.from_string("{{ it }}").render
    assert render(it="<b>&\x00\u202e") == "&lt;b&gt;&amp;\\u0000\\u202e"
    assert len(render(it="x" * 10_000)) < 2100
    with pytest.raises(UndefinedError, match="'it' is undefined"):
        render()
    macros: Any = draw.get_template("macros.html").module
    plots = [
        Plot(
            title="<b>",
            x_label="<b>",
            series=[Series(name="</script><script>", x=range(num), y=range(num), hue=0)],
        )
        for num in (1, 2)
    ]
    one_point, two_points = (macros.chart("f", plot, "<b>") for plot in plots)
    assert "<svg" in two_points and "<svg" not in one_point  # a single point is printed as a figure
    assert not re.search(
        "</?script>|<b>",
        (one_point + two_points + macros.table("<b>", [{"<b>": "<b>", "<b>a": "<b>"}])),
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("12", "integer"),
        ("-1,000", "integer"),
        ("1,2", "list"),
        ("3.5", "decimal"),
        ("3/4", "fraction"),
        (r"$\frac34$", "fraction"),
        (r"\text{(C)}", "choice"),
        ("(1, 2]", "interval or point"),
        (r"2\sqrt{2}", "expression"),
        ("Monday", "text"),
    ],
)
def test_answers_are_told_by_looks(answer: str, kind: str) -> None:
    assert find_answer_kind(answer) == kind
