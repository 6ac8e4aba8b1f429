"""Write docs/llms.txt, the list of pages for language models (llmstxt.org), from the pages.

    python scripts/llms_txt.py

Sections and titles are those of the navigation in mkdocs.yml. Each title is followed by its entry
in `PAGE_SUMMARIES`, or else by the first sentence of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TARGET = DOCS / "llms.txt"
BESIDE = ("ARCHITECTURE.md", "AGENTS.md", "examples/README.md", "recipes/README.md")
"""Pages outside docs/. The installed package does not contain them."""
PAGE_SUMMARIES = {
    "concepts.md": "How a label is made, and what each term means.",
    "labelling.md": "Settings of problems, solutions, steps and budgets for your own data.",
    "own-model.md": "From a first look at your problems to a PRM, step by step.",
    "estimators.md": "Which estimator to use, with the quality and the cost of its labels.",
    "evaluation.md": "Labels against truth, people or another run; ProcessBench; health of a run.",
    "annotate.md": "A page on which people rate the steps of a run's solutions.",
    "extending.md": "How your own components are named, configured and checked.",
    "extending-engine.md": "The interface of your own engine, which continues token ids.",
    "select.md": "Selection of the solutions of a pool to label next, within a budget.",
    "judges.md": "Opinions of judges on steps without rollouts, combined with labels.",
    "generative.md": "A PRM that writes a check of each step before its verdict; how to train one.",
    "traces.md": "Labels for long traces of reasoning models, which repair their errors (`trace`).",
    "rl.md": "A server of rewards and of credit for every step.",
    "rl-trainers.md": "Step rewards by HTTP, and adapters for TRL, verl and OpenRLHF.",
    "search.md": "Beam and tree search, steered by a PRM.",
    "exactness.md": "Which results are identical to the last bit when a command runs again.",
    "security.md": "What is safe with models, data and configurations from others.",
    "engines.md": "transformers, vLLM and OpenAI-compatible servers; a GPU, and how to check it.",
    "cluster.md": "Ray clusters: nodes, engines, lost nodes, monitoring and recipes.",
    "training.md": "How to train a PRM on labels, and how to choose answers by its scores.",
    "viewer.md": "The viewer of runs in the browser, and the report as one HTML file.",
    "answers.md": "Which answers the checker proves equal, and when its verdict is unknown.",
    "benchmarks.md": "The script behind each figure.",
    "keys.md": "Every setting of every verb, with type, default and meaning.",
    "formats.md": "Files and columns of a run, and how to read them; the output of `--json`; other"
    " formats.",
    "studies/estimators.md": "Quality and cost of labels by each estimator.",
    "studies/posterior.md": "Experiments on the estimator `posterior`, and their gains.",
    "studies/completers.md": "Rollouts by the policy, compared with rollouts by a stronger model.",
    "studies/judges.md": "The gain from judges' opinions in addition to rollouts.",
    "studies/prm-and-orm.md": "PRMs against outcome reward models, by source and number of labels.",
    "studies/scorer-settings.md": "Settings for a scorer that is trained from a small policy.",
    "studies/generative.md": "A small verifier that writes a chain about each step, against PRMs.",
    "studies/selection.md": "Rules that choose what to label, against random choice at equal cost.",
    "studies/search.md": "Search against best-of-N at equal cost.",
    "studies/pyarith.md": "Labels and PRMs of short Python functions.",
    "studies/throughput.md": "Throughput of jobs, compared with the bare engine and other systems.",
    "recipes/README.md": "A container image, Kubernetes, Slurm, and a script for uv.",
}
"""Summaries of pages whose first sentence does not describe their content."""

COMMANDS = """\
`mclabel --help` lists the verbs. `mclabel VERB --help` explains one, `mclabel VERB --keys WORD` its
settings, and `mclabel VERB --json` prints its results as JSON. The package contains the
configurations that the pages mention, and the pages themselves in its folder `docs`.
`mclabel doctor` prints the location of the package.

```
pip install '.[run]'                # in a clone
mclabel quickstart --size small     # label, train and evaluate, on a CPU
mclabel label configs/label/own-data.yaml problems.source=problems.jsonl \\
    policy.model=MODEL out=runs/mine
mclabel labels runs/mine --json
mclabel train configs/train/own-labels.yaml labels=[runs/mine] base=MODEL out=runs/prm
mclabel score runs/prm solutions.jsonl -o scored.jsonl
```
"""
"""First commands for an agent."""


def llms_txt() -> str:
    """Return the text of llms.txt."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    sections: dict[str, list[str]] = {"Start": []}
    for entry in site["nav"]:
        ((title, place),) = entry.items()
        if isinstance(place, str):
            sections["Start"].append(_format_page_line(title, place))
        else:
            sections[title] = [_format_page_line(*next(iter(page.items()))) for page in place]
    sections["Extending"] += [_format_page_line(*page) for page in _list_extending_pages()]
    sections["Code, in a clone"] = [
        f"- `{name}`: {_summarise_page(ROOT / name)}" for name in BESIDE
    ]
    parts = [f"# {site['site_name']}\n\n> {site['site_description']}\n", COMMANDS]
    parts += ["## " + title + "\n\n" + "\n".join(lines) + "\n" for title, lines in sections.items()]
    return "\n".join(parts)


def _list_extending_pages() -> Iterator[tuple[str, str]]:
    """Yield title and file name of the pages that scripts/mkdocs_hooks.py adds to the site."""
    for path in sorted(DOCS.glob("extending-*.md")):
        yield path.read_text().split("\n")[0].removeprefix("# "), path.name


def _format_page_line(title: str, place: str) -> str:
    return f"- [{title}]({place}): {_summarise_page(DOCS / place)}"


def _summarise_page(page: Path) -> str:
    name = str(page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT))
    return PAGE_SUMMARIES.get(name) or _find_first_sentence(page.read_text())


def _find_first_sentence(page: str) -> str:
    """Return the first sentence of at least six words outside headings, code blocks and tables."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        if re.match(r"[A-Za-z`\[]", paragraph.strip()):
            plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(paragraph.split()))
            for sentence in re.split(r"(?<=[.:])\s+(?=[A-Z`])", plain):
                if len(sentence.split()) >= 6:
                    return sentence.rstrip(":.") + "."
    raise ValueError("the page has no sentence")


if __name__ == "__main__":
    TARGET.write_text(llms_txt())
