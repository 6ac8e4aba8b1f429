"""`mclabel eval processbench --opinions`: scripted judges whose figures are computed by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mclabel.run.shards.opinions import SCHEMA, commit_opinions, make_opinions_shard_name
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb

STEPS = ("One.", "Two.", "Three.", "The answer is 4.")
CLASSES = {"a": "RowJudge", "b": "RowJudge", "s": "FlaggingRowJudge", "t": "FlaggingRowJudge"}
TOY: Sequence[tuple[int, Any, Any, Any]] = (
    # label, the steps that judges a and b name, the step at or before which s sees an error
    (2, 2, 2, None),
    (1, 1, 3, None),
    (0, 1, 1, 1),
    (3, "unknown", 3, None),
    (-1, None, None, None),
    (-1, None, 2, None),
    (-1, 0, None, 1),
    (1, 2, 2, 1),
)


def toy_rows(prefix: str = "toy") -> list[dict[str, Any]]:
    return [
        {
            "id": f"{prefix}-{number}",
            "problem": f"{prefix} {number}?",
            "steps": list(STEPS),
            "label": label,
            "says": {"a": a, "b": b, "s": s, "t": None},
        }
        for number, (label, a, b, s) in enumerate(TOY)
    ]


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(*arguments: str, code: int = 0) -> str:
    result = run_verb(arguments, code=code)
    return " ".join((result.stdout if code == 0 else result.output).split())


def write_opinions(source: str, out: Path, name: str, kind: str | None = None) -> str:
    """Write the opinions of a scripted judge on a file, and return the folder."""
    judge = f"tests.support.row_judges:{kind or CLASSES[name]}"
    run(
        "judge",
        source,
        "-o",
        str(out),
        "ray.address=none",
        "--allow",
        "tests",
        f"judge.kind={judge}",
        f"judge.name={name}",
    )
    return str(out)


def measured(files: Sequence[str], opinions: Sequence[str], *more: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(
        run(
            "eval",
            "processbench",
            *files,
            *[word for opinion_file in opinions for word in ("--opinions", opinion_file)],
            "--json",
            *more,
        )
    )
    return report


def values(split: Mapping[str, Any]) -> tuple[float, float, float]:
    return tuple(split[key]["value"] for key in ("wrong_accuracy", "right_accuracy", "f1"))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a split, the judges' runs on it, and another split with its own run, by name."""
    root = tmp_path_factory.mktemp("toy")
    file = write(root / "processbench_toy.jsonl", toy_rows())
    other_file = write(root / "other.jsonl", toy_rows("other"))
    return {
        "file": file,
        "other": other_file,
        "other-a": write_opinions(other_file, root / "oa", "a"),
        **{name: write_opinions(file, root / name, name) for name in CLASSES},
    }


@pytest.mark.parametrize(
    ("judge", "expected", "missing"),
    [
        # Wrong ones found: 0 and 1 of 0, 1, 2, 7. Right ones: 4 and 5 of 4, 5, 6.
        ("a", (2 / 4, 2 / 3, 4 / 7), ["toy-3"]),
        # Found: 0 and 3 of 0, 1, 2, 3, 7. Right: 4 and 6.
        ("b", (2 / 5, 2 / 3, 1 / 2), []),
        # A flag names its step, and no flag means no error. Found: 7 of five. Right: 4 and 5.
        ("s", (1 / 5, 2 / 3, 4 / 13), []),
        # This judge never flags a step, so it finds no errors.
        ("t", (0, 1, 0), []),
    ],
)
def test_one_judge_by_hand(
    toy: dict[str, str], judge: str, expected: tuple[float, ...], missing: list[str]
) -> None:
    report = measured([toy["file"]], [toy[judge]])
    split = report["splits"]["toy"]
    assert values(split) == pytest.approx(expected)
    assert report["mean_f1"] == split["f1"]
    assert split["missing"] == missing
    assert split["reasons"] == ({"no_opinion": 1} if missing else {})
    assert (split["kept"], report["threshold"]) == (None, None)
    assert report["panel"]["judges"] == {
        "toy": [
            {
                "name": (f"tests.support.row_judges:{CLASSES[judge]}"),
                "claim": ("at_or_before" if judge in "st" else "where"),
            }
        ]
    }


def test_a_scorer_keeps_its_own_threshold(toy: dict[str, str], tmp_path: Path) -> None:
    assert values(
        measured(
            [toy["file"]],
            [write_opinions(toy["file"], tmp_path / "scorer", "b", "ScoringRowJudge")],
        )["splits"]["toy"]
    ) == pytest.approx((2 / 5, 2 / 3, 1 / 2))


@pytest.mark.parametrize(
    ("judges", "expected", "left_out"),
    [
        # Rows 0 and 4 agree, and so does row 2, which is late. In row 7, s sees an error before the
        # step that both others name.
        ("abs", (1 / 2, 1, 2 / 3), "13567"),
        # Opinions are never compared with those of a judge that names no step.
        ("sba", (1 / 2, 1, 2 / 3), "13567"),
        # Without s, row 6 and the late row 7 are left to a and b.
        ("ab", (1 / 3, 1, 1 / 2), "1356"),
        # s and a alone: s contradicts a only in row 7. Rows 0 and 1 are found, 4 and 5 are right.
        # In row 6, a names step 0, before step 1 of s.
        ("as", (2 / 3, 2 / 3, 2 / 3), "37"),
    ],
)
def test_agreement_by_hand(
    toy: dict[str, str], judges: str, expected: tuple[float, ...], left_out: str
) -> None:
    report = measured([toy["file"]], [toy[name] for name in judges])
    split = report["splits"]["toy"]
    assert values(split) == pytest.approx(expected)
    assert split["missing"] == [f"toy-{number}" for number in left_out]
    assert split["reasons"] == {"not_kept": len(left_out)}
    assert split["kept"]["value"] == 1 - len(left_out) / 8
    assert 0 <= split["kept"]["low"] < split["kept"]["value"] < split["kept"]["high"] <= 1
    order = [name for name in judges if name in "ab"] + [name for name in judges if name in "s"]
    assert [judge["name"].partition(":")[2] for judge in report["panel"]["judges"]["toy"]] == [
        CLASSES[name] for name in order
    ]


def test_the_files_that_are_written_and_the_table(toy: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed = run(
        "eval",
        "processbench",
        toy["file"],
        "--opinions",
        toy["a"],
        "--opinions",
        toy["s"],
        "-o",
        str(out),
    )
    assert " toy 3 3 2 0.75 " in printed
    assert "Kept: share of the split's solutions" in printed
    assert "Reasons: 2 without agreement of the judges." in printed
    left_out = [json.loads(line) for line in (out / "left_out.jsonl").read_text().splitlines()]
    assert [reject["id"] for reject in left_out] == ["toy-3", "toy-7"]
    first, second = (f"tests.support.row_judges:{CLASSES[n]} ({toy[n]})" for n in "as")
    assert [reject["detail"] for reject in left_out] == [
        f"{first}: no_opinion, the script says nothing; {second}: nothing",
        f"{first}: first error 2; {second}: an error at or before 1",
    ]
    assert [
        row["prediction"]
        for row in [
            json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()
        ]
    ] == [2, 1, 1, -1, -1, 0]
    runs = [
        (opinion_run["location"], opinion_run["run"])
        for opinion_run in json.loads((out / "provenance.json").read_text())["opinions"]["toy"]
    ]
    assert runs == list(
        zip(
            [toy["a"], toy["s"]],
            [json.loads((Path(toy[name]) / "run.json").read_text())["id"] for name in "as"],
            strict=True,
        )
    )


def test_each_run_finds_its_split(toy: dict[str, str]) -> None:
    report = measured([toy["file"], toy["other"]], [toy["other-a"], toy["b"]])
    assert values(report["splits"]["toy"]) == pytest.approx((2 / 5, 2 / 3, 1 / 2))
    assert values(report["splits"]["other"]) == pytest.approx((2 / 4, 2 / 3, 4 / 7))
    assert report["mean_f1"]["value"] == pytest.approx((1 / 2 + 4 / 7) / 2)


def test_solutions_that_a_run_lacks_or_knows_otherwise(toy: dict[str, str], tmp_path: Path) -> None:
    rows = toy_rows()[:6]
    rows[0]["steps"] = rows[0]["steps"][:3]
    rows[1]["steps"] = [*rows[1]["steps"][:3], "The answer is 5."]
    rows[4]["steps"] = [f" {step}\n" for step in rows[4]["steps"]]  # whitespace is not a difference
    short = write_opinions(write(tmp_path / "short.jsonl", rows), tmp_path / "short", "b")
    split = measured([toy["file"]], [short], "-o", str(tmp_path / "out"))["splits"]["toy"]
    assert split["missing"] == ["toy-0", "toy-1", "toy-6", "toy-7"]
    assert split["reasons"] == {"not_in_run": 2, "other_steps": 1, "other_text": 1}
    assert (
        json.loads((tmp_path / "out" / "left_out.jsonl").read_text().splitlines()[0])["detail"]
        == "3 steps in the run, 4 in the file"
    )
    # Together with another judge, the rows are unknown.
    toy_split = measured([toy["file"]], [toy["a"], short])["splits"]["toy"]
    assert toy_split["missing"] == [f"toy-{number}" for number in (0, 1, 3, 5, 6, 7)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("FILE", "give either --model or --labels or --opinions"),
        ("FILE --opinions A --model A", "give either --model or --labels or --opinions"),
        ("FILE --opinions A --labels A", "give either --model or --labels or --opinions"),
        ("FILE --opinions A --threshold 0.5", "--threshold works only with --model"),
        (
            "FILE --opinions S --opinions T",
            "--opinions: no judge of the split toy names first errors",
        ),
        (
            "FILE --opinions A --opinions A/",
            "--opinions A/: is the same run as A. Give each run once",
        ),
        ("FILE OTHER --opinions A", "OTHER: none of the --opinions has judged it. Run mclabel"),
        (
            "OTHER --opinions A",
            "--opinions A: none of its 8 solutions is in OTHER: its rows have ids such as "
            "'toy-0', the file has ids such as 'other-0'. Give a run over the file",
        ),
        (
            "FILE TWIN --opinions A",
            "--opinions A: the ids of its rows are in FILE and in TWIN",
        ),
        ("FILE --opinions NAMELESS", "--opinions NAMELESS: none of its 1 solutions is in FILE: its "
         "rows have no id"),
        ("FILE --opinions NOWHERE", "NOWHERE"),
        ("FILE --opinions BROKEN", "BROKEN: the input of solution '1' is not a valid row"),
        ("FILE --opinions DEEP", "DEEP: the input of solution '1' is not a valid row"),
        ("FILE --opinions LIST", "LIST: the input of solution '1' is not a valid row (must be"),
        ("FILE --opinions TORN", "TORN/opinions/"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_message(
    toy: dict[str, str], tmp_path: Path, arguments: str, message: str
) -> None:
    places = {
        **{"FILE": toy["file"], "OTHER": toy["other"], "OA": toy["other-a"]},
        **{name.upper(): toy[name] for name in CLASSES},
        "A/": toy["a"] + "/",
        "NOWHERE": str(tmp_path / "nowhere"),
        "TWIN": write(tmp_path / "twin.jsonl", toy_rows()),
    }
    faulty = {"BROKEN": "{", "DEEP": "[" * 100_000, "LIST": "[1]", "TORN": "{}"}
    faulty["NAMELESS"] = '{"problem": "p", "steps": ["s"]}'
    for name in faulty.keys() & set(arguments.split()):
        places[name] = str(tmp_path / name.lower())
        _write_faulty(toy, Path(places[name]), faulty[name], is_torn=name == "TORN")
    printed = run(
        "eval", "processbench", *[places.get(word, word) for word in arguments.split()], code=2
    )
    for name, place in sorted(places.items(), key=lambda item: -len(item[1])):
        printed = printed.replace(place, name)
    assert message in printed


def _write_faulty(toy: Mapping[str, str], out: Path, content: str, *, is_torn: bool) -> None:
    """Write a run of one opinion whose row in the input is `content`."""
    out.mkdir()
    (out / "run.json").write_bytes((Path(toy["a"]) / "run.json").read_bytes())
    row: dict[str, Any] = {field.name: None for field in SCHEMA}
    row |= {name: [] for name in ("votes", "scores", "flags", "answers")}
    row |= {"id": "1", "row": 1, "input": content, "num_steps": 1, "is_known": True}
    row |= {"reason": "", "num_tokens": 0}
    commit_opinions(Store(str(out)), "0" * 16, "x", [row], {"set_aside": {}})
    if is_torn:
        shard = out / make_opinions_shard_name("0" * 16)
        shard.write_bytes(shard.read_bytes()[:-99])
