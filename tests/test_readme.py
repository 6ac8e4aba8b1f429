"""The commands and names in the README, the pages and the configurations exist."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path

import click
import pytest

from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.judge.job import JudgeConfig
from mclabel.labeling.config import LabelConfig
from mclabel.prm.config import TrainConfig
from mclabel.search.config import SearchConfig

ROOT = Path(__file__).parents[1]
TEXTS = [
    ROOT / "README.md",
    ROOT / "AGENTS.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.md")),
    ROOT / "recipes" / "README.md",
]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [*TEXTS, *sorted((ROOT / "configs").rglob("*.yaml"))]
}
MAX_WORDS = 950
ANY = re.compile(r"\bCONFIG\b")
"""A placeholder for a reader's configuration, for which the test uses a bundled one."""


def join_blocks(text: str, *languages: str) -> str:
    """Return the text of fenced blocks in some languages; "" means blocks without a language."""
    fenced = re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(body for language, body in fenced if language in languages)


def list_commands() -> list[tuple[str, list[str]]]:
    """Return page and words of every `mclabel …` line, with continuation lines joined."""
    page_commands = []
    for page, text in PAGES.items():
        shell = text if page.endswith(".yaml") else join_blocks(text, "", "sh", "bash")
        joined = re.sub(r"\\\n#?", " ", shell)
        lines = re.findall(r"^(?:# )?(?:pip install \S+ && )?mclabel (.+)$", joined, re.MULTILINE)
        page_commands += [(page, shlex.split(line, comments=True)) for line in lines]
    return page_commands


def test_there_are_commands_to_check() -> None:
    assert len(list_commands()) >= 40
    assert {"README.md", "docs/evaluation.md", "docs/labelling.md", "docs/training.md"} <= {
        page for page, _ in list_commands()
    }


@pytest.mark.parametrize(
    ("page", "words"), list_commands(), ids=lambda v: v if isinstance(v, str) else " ".join(v)
)
def test_verbs_exist_and_configurations_load(page: str, words: list[str]) -> None:
    verb, *arguments = words
    command: click.Command = main.commands[verb]
    while isinstance(command, click.Group):
        verb = arguments.pop(0)
        command = command.commands[verb]
    if "|" in arguments or any(word.startswith(("[", "(")) for word in arguments):  # a synopsis
        options = {option for param in command.params for option in param.opts}
        assert set(re.findall(r"(?<!\w)--?[a-z-]+", " ".join(arguments))) <= options
        return
    context = command.make_context(verb, arguments, resilient_parsing="--keys" in arguments)
    kinds = {
        "label": LabelConfig,
        "train": TrainConfig,
        "best-of-n": BestOfNConfig,
        "judge": JudgeConfig,
        "search": SearchConfig,
    }
    params = context.params
    places = [f"{name}={params[name]}" for name in ("solutions", "out") if verb == "judge"]
    if (kind := kinds.get(verb)) and params["config"] and not ANY.search(params["config"]):
        load_config(kind, ROOT / params["config"], [*places, *params["overrides"]])


def test_the_first_commands_of_the_readme_install_and_run() -> None:
    lines = join_blocks(PAGES["README.md"], "", "sh", "bash").splitlines()
    typed = [line for line in lines if re.match(r"(pip|mclabel|pytest|python|make) ", line)]
    assert typed[:2] == [
        "pip install '.[run]' && mclabel quickstart",
        "pip install --no-compile '.[dev]' && pytest",
    ]


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].split()) <= MAX_WORDS


def test_who_has_no_clone_is_not_sent_to_the_tests() -> None:
    """`tests/` is not installed, so a page that names a file in it must mention a clone."""
    for page, text in PAGES.items():
        if page.startswith("docs/") and re.search(r"\btests[./]\w", text):
            assert re.search(r"\bin\s+a\s+clone\b", text, flags=re.IGNORECASE), page


def test_links_lead_somewhere() -> None:
    links = {
        (path, link)
        for path in TEXTS
        for link in re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", path.read_text())
        if not link.startswith("api/")  # generated when the pages are built
    }
    assert [link for link in links if not (link[0].parent / link[1]).exists()] == []
    installed = (ROOT / "docs", ROOT / "configs")  # both are side by side in the package, too
    outside = [
        (page, link)
        for page, link in links
        if page.is_relative_to(installed[0])
        and not any((page.parent / link).resolve().is_relative_to(place) for place in installed)
    ]
    assert outside == [], "leads nowhere in the installed package: name the path in a clone"


def list_anchors(text: str) -> set[str]:
    """Return the anchors of headings, on GitHub and on the built pages."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_into_pages_meet_a_heading() -> None:
    for path in TEXTS:
        for link, anchor in re.findall(r"\]\(([^):#]*)#([^)]+)\)", path.read_text()):
            target = (path.parent / link).resolve() if link else path
            assert anchor in list_anchors(target.read_text()), f"{path.name}: {link}#{anchor}"


def test_places_on_the_map_exist() -> None:
    package = ROOT / "mclabel"
    text = (ROOT / "ARCHITECTURE.md").read_text()
    places = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", text))
    assert len(places) > 40
    # the row of a package also names the package's files
    parts = {str(path.relative_to(package)) for path in package.rglob("*")}
    for place in places - {"mclabel/"}:
        place = place.replace("NAME.py", "")
        assert any(f"/{part}/".endswith(f"/{place.rstrip('/')}/") for part in parts), place
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    assert packages <= {place.rstrip("/") for place in places}, "a package is not on the map"


@pytest.mark.parametrize(
    "script",
    sorted({s for text in PAGES.values() for s in re.findall(r"python -m (tests[\w.]+)", text)}),
)
def test_benchmarks_exist_and_take_what_is_quoted(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(script).main()
    taken = set(re.findall(r"--?[\w-]+", capsys.readouterr().out))
    for text in PAGES.values():
        for options in re.findall(rf"python -m {re.escape(script)}((?: --?[\w-]+)+)", text):
            assert {*options.split()} <= taken


@pytest.mark.parametrize(
    ("page", "code"),
    [
        (page, code)
        for page, text in PAGES.items()
        for code in re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    ],
    ids=lambda v: v[:40],
)
def test_python_on_the_pages_parses_and_its_imports_exist(page: str, code: str) -> None:
    import importlib

    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("mclabel"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name), f"{page}: {node.module}.{alias.name}"
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "mc"
        ):
            assert hasattr(importlib.import_module("mclabel"), node.attr), f"{page}: {node.attr}"


def targets_of_make() -> set[str]:
    return set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_targets_of_make_exist() -> None:
    named = {
        target
        for text in PAGES.values()
        for words in re.findall(r"(?:^|`)make((?: [a-z]+)+)(?:$|`)", text, flags=re.MULTILINE)
        for target in words.split()
    }
    assert {"test", "lint", "docs", "bench"} <= targets_of_make()
    assert named <= targets_of_make()


def test_scripts_that_make_runs_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for module in re.findall(r"-m (tests[\w.]+)", makefile):
        assert (ROOT / (module.replace(".", os.sep) + ".py")).exists(), module
    for script in re.findall(r"\$\(PYTHON\) (\S+\.py)", makefile):
        assert (ROOT / script).exists(), script


def test_extras_are_installed_from_a_folder() -> None:
    """The package is on no index, so a name alone finds nothing, or a foreign package."""
    installs = {
        (str(path.relative_to(ROOT)), target)
        for folder in ("mclabel", "docs", "configs", "scripts", "examples", ".")
        for path in (ROOT / folder).glob("*" if folder == "." else "**/*")
        if path.suffix in (".py", ".md", ".yaml", ".sh", ".ipynb")
        for target in re.findall(
            r"pip install\s+(?:-\S+ )*['\"]?([^\s'\"`]*\[[\w,]+\])", path.read_text()
        )
    }
    assert {("README.md", ".[dev]"), ("docs/engines.md", ".[gpu]")} <= installs
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for place, target in installs:
        folder, extras = target.rstrip("]").split("[")
        assert folder.startswith((".", "/", "$")), f"{place}: pip install {target}"
        assert set(extras.split(",")) <= set(project["optional-dependencies"]), place
