"""What the README and the configurations tell a user to type exists."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from mclabel.cli import main
from mclabel.config import BestOfNConfig, LabelConfig, TrainConfig, load_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [README, *(path.read_text() for path in (ROOT / "configs").rglob("*.yaml"))]


def commands() -> list[list[str]]:
    """Words of every `mclabel …` line, continuation lines joined."""
    text = re.sub(r"\\\n#?", " ", "\n".join(PAGES))
    lines = re.findall(r"^(?:# )?(?:pip install \. && )?mclabel (.+)$", text, flags=re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 7


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_verbs_exist_and_label_commands_load(words: list[str]) -> None:
    verb, *arguments = words
    command: click.Command = main.commands[verb]
    while isinstance(command, click.Group):
        verb = arguments.pop(0)
        command = command.commands[verb]
    given = command.make_context(verb, arguments).params
    kinds = {"label": LabelConfig, "train": TrainConfig, "best-of-n": BestOfNConfig}
    if kind := kinds.get(verb):
        load_config(kind, ROOT / given["config"], given["overrides"])


@pytest.mark.parametrize("path", re.findall(r"\]\(([^):]+)\)", README))
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()


def test_places_on_the_map_exist() -> None:
    rows = re.findall(r"^\| (`.+?) \|", README, flags=re.MULTILINE)
    places = [p for row in rows for p in re.findall(r"`([\w./]+)`", row)]
    assert len(places) > 10
    for place in places:
        assert (ROOT / place).exists() or (ROOT / "mclabel" / place).exists(), place


INSTALLS = sorted(
    {
        (str(path.relative_to(ROOT)), target)
        for folder in ("mclabel", "docs", "configs", "scripts", ".")
        for path in (ROOT / folder).glob("*" if folder == "." else "**/*")
        if path.suffix in (".py", ".md", ".yaml", ".sh")
        for target in re.findall(r"pip install (?:-q )?['\"]?([^\s'\"`]*\[\w+\])", path.read_text())
    }
)


@pytest.mark.parametrize(("place", "target"), INSTALLS)
def test_extras_are_installed_from_a_folder(place: str, target: str) -> None:
    """The package is on no index: a name alone finds nothing, or somebody else's."""
    folder, extra = target.rstrip("]").split("[")
    assert folder.startswith((".", "/", "$")), f"{place}: pip install {target}"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extra in extras["optional-dependencies"]


def test_there_are_installs_to_check() -> None:
    assert {("README.md", ".[dev]"), ("README.md", ".[gpu]")} <= set(INSTALLS)
