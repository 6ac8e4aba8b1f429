"""What `mkdocs build` does beside rendering docs/.

- A page of API reference for each room of the package, so that none can be forgotten.
- The pages `docs/extending-*.md` stand under *Extending*, whichever there are.
- Links from a page to a file of the repository outside docs/ are checked, and shown as its path:
  the site holds no copy of it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mclabel"
LEFT_OUT = {"__init__", "__main__", "cli"}
"""Rooms without a reference: the command line has `--help`."""
OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation."""
    assert config.nav is not None
    sections: dict[str, Any] = {name: part for one in config.nav for name, part in one.items()}
    for path in sorted(Path(config.docs_dir).glob("extending-*.md")):
        sections["Extending"].append(path.name)
    api: list[dict[str, str]] = [{"Overview": "api/index.md"}]
    config.nav.append({"API": api + [{room: f"api/{room}.md"} for room in _rooms()]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference."""
    rows = "".join(f"| [`mclabel.{room}`]({room}.md) | {_summary(room)} |\n" for room in _rooms())
    overview = (
        "# API\n\n```python\nimport mclabel as mc\n```\n\n::: mclabel\n"
        "    options:\n      show_submodules: false\n\n"
        f"## Rooms\n\n| | |\n|---|---|\n{rows}"
    )
    pages = {"index": overview, **{room: f"# {room}\n\n::: mclabel.{room}\n" for room in _rooms()}}
    for name, content in pages.items():
        files.append(File.generated(config, f"api/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show links to files outside docs/ as paths.

    Raises:
        PluginError: there is no such file.
    """

    def shown(link: re.Match[str]) -> str:
        text, target = link.groups()
        place = ((Path(config.docs_dir) / page.file.src_uri).parent / target).resolve()
        if place.is_relative_to(config.docs_dir):
            return link[0]
        if not place.exists():
            raise PluginError(f"{page.file.src_uri}: {target} leads nowhere")
        return f"{text} (`{place.relative_to(ROOT)}`)"

    return OUTSIDE.sub(shown, markdown)


def _rooms() -> list[str]:
    found = {path.stem for path in PACKAGE.glob("*.py")}
    found |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    return sorted(found - LEFT_OUT)


def _summary(room: str) -> str:
    path = PACKAGE / room / "__init__.py"
    tree = ast.parse((path if path.is_file() else path.parent.with_suffix(".py")).read_text())
    return (ast.get_docstring(tree) or "").split("\n")[0]
