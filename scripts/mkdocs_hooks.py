"""Hooks for `mkdocs build`.

- Each module and package directly under `mclabel` gets a page of API reference.
- All pages `docs/extending-*.md` are added to the section *Extending*.
- Links from a page to a file of the repository outside docs/ are checked, and shown as the path of
  the file, because the site does not contain the file.
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
"""Modules and packages without a page of reference. The command line has `--help`."""
OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)(?:#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages on extending and the API reference to the navigation."""
    assert config.nav is not None
    sections: dict[str, Any] = {name: part for one in config.nav for name, part in one.items()}
    for path in sorted(Path(config.docs_dir).glob("extending-*.md")):
        sections["Extending"].append(path.name)
    api: list[dict[str, str]] = [{"Overview": "api/index.md"}]
    config.nav.append({"API": api + [{room: f"api/{room}.md"} for room in _list_packages()]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the API reference."""
    rows = "".join(
        f"| [`mclabel.{room}`]({room}.md) | {_read_docstring_summary(room)} |\n"
        for room in _list_packages()
    )
    overview = (
        "# API\n\n```python\nimport mclabel as mc\n```\n\n::: mclabel\n"
        "    options:\n      show_submodules: false\n\n"
        f"## Modules\n\n| | |\n|---|---|\n{rows}"
    )
    pages = {
        "index": overview,
        **{room: f"# {room}\n\n::: mclabel.{room}\n" for room in _list_packages()},
    }
    for name, content in pages.items():
        files.append(File.generated(config, f"api/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show links to files outside docs/ as paths.

    Raises:
        PluginError: a linked file does not exist.
    """

    def shown(link: re.Match[str]) -> str:
        text, target = link.groups()
        place = ((Path(config.docs_dir) / page.file.src_uri).parent / target).resolve()
        if place.is_relative_to(config.docs_dir):
            return link[0]
        if not place.exists():
            raise PluginError(f"{page.file.src_uri}: the linked file {target} does not exist")
        return f"{text} (`{place.relative_to(ROOT)}`)"

    return OUTSIDE.sub(shown, markdown)


def _list_packages() -> list[str]:
    """Return the names of the modules and packages that have a page of reference."""
    found = {path.stem for path in PACKAGE.glob("*.py")}
    found |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    return sorted(found - LEFT_OUT)


def _read_docstring_summary(room: str) -> str:
    path = PACKAGE / room / "__init__.py"
    tree = ast.parse((path if path.is_file() else path.parent.with_suffix(".py")).read_text())
    return (ast.get_docstring(tree) or "").split("\n")[0]
