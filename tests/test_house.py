"""What `make house` counts, and that this checkout holds its bars."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import house
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def this() -> dict[str, house.Figure]:
    """Figures of this checkout."""
    return house.measure(ROOT / "mclabel")


@pytest.mark.parametrize("name", [*house.MOST, *house.LEAST])
def test_this_checkout_holds_the_bar(this: dict[str, house.Figure], name: str) -> None:
    assert name not in house.missed(this), "\n".join([str(this[name].value), *this[name].found])


def found(folder: Path, name: str, files: dict[str, str]) -> list[str]:
    """What a figure counts in a package of these files."""
    for path, text in {"__init__.py": "", **files}.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(dedent(text))
    return list(house.measure(folder)[name].found)


MODEL = """
class FixedSettings(Settings):
    rollouts: Annotated[int, at_most(9, "why")] = Field(16, ge=1)
    width: float = 0.2
    batch: int = 4
    out: str
"""


@pytest.mark.parametrize(
    ("other", "repeats"),
    [
        ("class Config(BaseModel):\n    rollouts: int = 16\n    width: float = 0.2\n", False),
        (
            "class JobConfig(BaseModel):\n"
            "    rollouts: int = 16\n    width: float = 0.2\n    batch: int = 4\n",
            True,
        ),
        (
            "class Wider(FixedSettings):\n"
            "    rollouts: int = 16\n    width: float = 0.2\n    batch: int = 4\n",
            False,
        ),
        ("def run(*, rollouts=16, width=0.2, batch=4): ...\n", True),
        ("def run(*, rollouts=16, width=0.2, batch=8): ...\n", False),
        (
            "class Plain:\n    rollouts: int = 16\n    width: float = 0.2\n    batch: int = 4\n",
            True,
        ),
    ],
)
def test_settings_that_stand_twice(tmp_path: Path, other: str, repeats: bool) -> None:
    files = {"room/fixed.py": MODEL, "room/other.py": other}
    assert bool(found(tmp_path, "settings_declared_twice", files)) == repeats


def test_choices_that_stand_twice(tmp_path: Path) -> None:
    files = {
        "a.py": 'How = Literal["one", "two"]\nAlone = Literal["one"]\n',
        "b.py": 'def f(how: Literal["two", "one"], alone: Literal["one"]) -> None: ...\n',
    }
    assert found(tmp_path, "choices_declared_twice", files) == ["one, two: a:1 and b:1"]


def test_circles_of_rooms_count_imports_in_functions(tmp_path: Path) -> None:
    files = {
        "a/__init__.py": "",
        "a/one.py": "from mclabel.b import two\n",
        "b/__init__.py": "",
        "b/two.py": "def f():\n    from mclabel.a.one import g\n",
        "c.py": "import mclabel.a.one\n",
    }
    assert found(tmp_path, "package_circles", files) == ["a <-> b"]
    assert found(tmp_path, "module_circles", files) == []


def test_a_module_of_a_folder_is_no_import_of_the_folder(tmp_path: Path) -> None:
    inside = {
        "a/__init__.py": "from mclabel.a.one import f\n",
        "a/one.py": "from mclabel.a import two\n",
        "a/two.py": "",
    }
    assert found(tmp_path, "module_circles", inside) == []
    back = {**inside, "a/two.py": "from mclabel.a import f\n"}
    assert found(tmp_path, "module_circles", back) == ["a <-> a.one <-> a.two"]


LAZY = "def f():\n    from mclabel.a.one import g\n"
TYPES = "if TYPE_CHECKING:\n    from mclabel.a.one import G\n"


@pytest.mark.parametrize("back", [LAZY, TYPES])
def test_circles_that_lazy_imports_hide(tmp_path: Path, back: str) -> None:
    files = {"a/one.py": "from mclabel.a.two import f\n", "a/two.py": back}
    assert found(tmp_path, "lazy_circles", files) == ["a.one <-> a.two"]
    assert found(tmp_path, "module_circles", files) == []


@pytest.mark.parametrize("imports", [LAZY, TYPES])
def test_lazy_imports_one_way_are_no_circle(tmp_path: Path, imports: str) -> None:
    files = {
        "a/__init__.py": "from mclabel.a.one import g\nfrom mclabel.a.two import f\n",
        "a/one.py": "",
        "a/two.py": imports,
    }
    assert found(tmp_path, "lazy_circles", files) == []


READERS = {"a/readers/rows.py": "from mclabel.a.shards import store\n", "a/shards/store.py": ""}


@pytest.mark.parametrize(
    ("files", "circles"),
    [
        ({}, []),
        (
            {"a/shards/plan.py": "def f():\n    from mclabel.a.readers.table import g\n"},
            ["a.readers <-> a.shards"],
        ),
        (
            {
                "a/shards/plan.py": "from mclabel.a.table import g\n",
                "a/table.py": "if TYPE_CHECKING:\n    from mclabel.a.readers.rows import G\n",
            },
            ["a.readers <-> a.shards <-> a.table"],
        ),
        # A file beside the folder that it serves.
        (
            {
                "a/readers/base.py": "from mclabel.a.table import g\n",
                "a/table.py": "from mclabel.a.readers.more import h\n",
            },
            [],
        ),
        # An __init__ that only offers, of the room and of a folder.
        (
            {
                "a/__init__.py": "from mclabel.a.readers.rows import f\nimport mclabel.a.shards\n",
                "a/readers/__init__.py": "",
                "a/shards/__init__.py": (
                    '"""Shards."""\nfrom mclabel.a.readers.table import g\n__all__ = ["g"]\n'
                ),
            },
            [],
        ),
        # An __init__ that also does something.
        (
            {"a/shards/__init__.py": "from mclabel.a.readers.table import g\ng()\n"},
            ["a.readers <-> a.shards"],
        ),
        # Folders of two rooms: a circle of rooms.
        (
            {
                "b/c/one.py": "import mclabel.a.readers.rows\n",
                "a/shards/b.py": "import mclabel.b.c\n",
            },
            [],
        ),
    ],
)
def test_circles_of_the_second_level(
    tmp_path: Path, files: dict[str, str], circles: list[str]
) -> None:
    table = {"a/readers/table.py": "", "a/readers/more.py": ""}
    assert found(tmp_path, "second_level_circles", {**READERS, **table, **files}) == circles


def test_long_files(tmp_path: Path) -> None:
    for folder in ("scripts", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "long.py").write_text("x = 1\n" * 401)
    files = {"a/long.py": "x = 1\n" * 402, "a/fits.py": "x = 1\n" * 400}
    long = ["mclabel/a/long.py (402)", "scripts/long.py (401)"]
    assert found(tmp_path / "mclabel", "files_over_400_lines", files) == long
    assert found(tmp_path / "other", "files_over_400_lines", {}) == ["scripts/long.py (401)"]


def test_long_functions(tmp_path: Path) -> None:
    body = "    x = 1\n"
    files = {"a.py": f"class C:\n  def long(self):\n{body * 80}\n  def fits(self):\n{body * 79}"}
    assert found(tmp_path, "long_functions", files) == ["a.C.long (81)"]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ('if settings.kind == "outcome": ...', True),
        ('if step.source == "outcome": ...', False),
        ('if name == "bisect": ...', True),
        ('if label.source in ("bisect", "given"): ...', False),
        ("match kind:\n    case 'bisect': ...", True),
        ("isinstance(one, base.BisectEstimator)", True),
        ('PRICES = {"bisect": 1, "tree": 2}', True),
        ('MARKS = {"outcome": 1, "tree": 2}', False),
        ('Kind = Literal["tree", "bisect"]', True),
        ('chosen = {"kind": "bisect"}', False),
    ],
)
def test_names_outside_their_room(tmp_path: Path, text: str, asks: bool) -> None:
    files = {
        "estimators/__init__.py": 'ESTIMATORS: M = {"tree": "x:Tree", "outcome": "x:Outcome"}\n',
        "estimators/bisect.py": f"class BisectEstimator(Estimator): ...\n{text}\n",
        "records.py": "class Row:\n    outcome: str\n",
        "work/job.py": text + "\n",
    }
    assert bool(found(tmp_path, "names_outside_their_room", files)) == asks


def test_files_that_an_estimator_touches(tmp_path: Path) -> None:
    files = {
        "estimators/__init__.py": 'X = {"sequential": "e.sequential:SequentialEstimator"}\n',
        "estimators/sequential.py": "class SequentialEstimator: ...\n",
        "config.py": 'Kind = Literal["sequential", "fixed"]\n',
        "stats.py": '"""Of sequential tests."""\n',
        "table.py": "from e import SequentialEstimator\nx = SequentialEstimator.Settings()\n",
        "work.py": "kinds = [SequentialEstimator]\n",
    }
    assert found(tmp_path, "files_an_estimator_touches", files) == ["config", "estimators", "work"]


def test_documented(tmp_path: Path) -> None:
    text = """
    def f():
        \"\"\"Says what it is for.\"\"\"
        def inside(): ...
    def g(): ...
    def _private(): ...
    class C:
        @property
        def x(self):
            \"\"\"As f.\"\"\"
        @x.setter
        def x(self, value): ...
        def y(self): ...
    class _Private:
        def z(self): ...
    """
    assert found(tmp_path, "documented_percent", {"a.py": text}) == ["a.g", "a.C.y"]
    assert house.measure(tmp_path)["documented_percent"].value == 50.0


@pytest.mark.slow
def test_an_older_checkout_beside_this_one(
    this: dict[str, house.Figure], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["house.py", "--root", str(ROOT), "--root", str(ROOT / "mclabel"), "--json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", arguments)
        house.main()
    printed = capsys.readouterr().out
    figures = {name: figure.value for name, figure in this.items()}
    assert json.loads(printed) == [figures, figures]


def test_the_script_runs_from_any_folder(tmp_path: Path) -> None:
    found(tmp_path / "mclabel", "lazy_circles", {"a.py": "import mclabel.b\n", "b.py": ""})
    command = [sys.executable, str(ROOT / "scripts" / "house.py"), "--root", ".", "--graph"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "a: b\nb: -\n"
