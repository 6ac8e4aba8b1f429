"""Write docs/llms.txt, the list of pages for language models (llmstxt.org), from the pages.

    python scripts/llms_txt.py

Sections and titles are those of the navigation in mkdocs.yml. What stands beside a title is the
first sentence of the page, or what `SAID` has of it.
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
"""Pages outside docs/, which the installed package lacks."""
SAID = {
    "concepts.md": "The way of a label, and what each term means.",
    "labelling.md": "Problems, solutions, steps, budgets: what to set for your own data.",
    "own-model.md": "From a first look at your problems to a PRM, step by step.",
    "estimators.md": "Which estimator to take, and how good its labels are at which cost.",
    "evaluation.md": "Labels against truth, people or another run; ProcessBench; health of a run.",
    "annotate.md": "A page in which people rate the steps of a run's solutions.",
    "extending.md": "How components of your own are named, set and checked.",
    "extending-engine.md": "What an engine of your own must do: continue token ids.",
    "select.md": "Which solutions of a pool to label next, on a budget.",
    "judges.md": "Opinions of judges on steps without rollouts, combined with labels.",
    "generative.md": "A PRM that writes a check of each step before its verdict; how to train one.",
    "traces.md": "Labels for long traces of reasoning models, which repair their errors (`trace`).",
    "rl.md": "`mclabel rl` trains a policy with credit for every step.",
    "rl-trainers.md": "Step rewards by HTTP, and adapters for TRL, verl, SkyRL and OpenRLHF.",
    "search.md": "Beam and tree search, steered by a PRM.",
    "exactness.md": "Which results are the same to the last bit when a command runs again.",
    "security.md": "What is safe with models, data and configurations of strangers.",
    "engines.md": "transformers, vLLM and OpenAI-compatible servers; a GPU, and how to check it.",
    "cluster.md": "Ray clusters: nodes, engines, lost nodes, what to watch; recipes for them.",
    "training.md": "How to train a PRM on labels, and to choose among answers by its scores.",
    "viewer.md": "A run in the browser, and as one HTML file.",
    "answers.md": "Which answers the checker proves equal, and when it says unknown.",
    "benchmarks.md": "The script behind each figure.",
    "keys.md": "Every setting of every verb, with type, default and meaning.",
    "formats.md": "Files and columns of a run, and how to read them; what `--json` prints;"
    " formats of others.",
    "studies/estimators.md": "Quality and cost of labels by each estimator.",
    "studies/posterior.md": "What was tried for the posterior, and what it was worth.",
    "studies/completers.md": "Rollouts by the policy, or by a stronger model.",
    "studies/judges.md": "What opinions without rollouts add to rollouts.",
    "studies/prm-and-orm.md": "PRMs against outcome reward models, by source and number of labels.",
    "studies/scorer-settings.md": "Settings for a scorer that is trained from a small policy.",
    "studies/generative.md": "A small verifier that writes a chain about each step, against PRMs.",
    "studies/selection.md": "Rules that choose what to label, against random choice at equal cost.",
    "studies/search.md": "Search against best-of-N at equal cost.",
    "studies/rl.md": "Credit for steps in reinforcement learning, against exact values.",
    "studies/pyarith.md": "Labels and PRMs of short Python functions.",
    "studies/throughput.md": "What a job reaches of its engine, and beside other systems.",
    "recipes/README.md": "A container image, Kubernetes, Slurm, and a script for uv.",
}
"""What is said of pages whose first sentence does not say what they hold."""

COMMANDS = """\
`mclabel --help` lists the verbs. `mclabel VERB --help` explains one, `mclabel VERB --keys WORD` its
settings, and `--json` its figures. The configurations that pages name come with the package, and
so do the pages, in its folder `docs`; `mclabel doctor` prints where the package is.

```
pip install '.[run]'                # in a clone
mclabel quickstart --size small     # the whole way, on a CPU
mclabel label configs/label/own-data.yaml problems.source=problems.jsonl \\
    policy.model=MODEL out=runs/mine
mclabel labels runs/mine --json
mclabel train configs/train/own-labels.yaml labels=[runs/mine] base=MODEL out=runs/prm
mclabel score runs/prm solutions.jsonl -o scored.jsonl
```
"""
"""What an agent types first."""


def llms_txt() -> str:
    """The file's text."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    sections: dict[str, list[str]] = {"Start": []}
    for entry in site["nav"]:
        ((title, place),) = entry.items()
        if isinstance(place, str):
            sections["Start"].append(_line(title, place))
        else:
            sections[title] = [_line(*next(iter(page.items()))) for page in place]
    sections["Extending"] += [_line(*page) for page in _extending()]
    sections["Code, in a clone"] = [f"- `{name}`: {_said(ROOT / name)}" for name in BESIDE]
    parts = [f"# {site['site_name']}\n\n> {site['site_description']}\n", COMMANDS]
    parts += ["## " + title + "\n\n" + "\n".join(lines) + "\n" for title, lines in sections.items()]
    return "\n".join(parts)


def _extending() -> Iterator[tuple[str, str]]:
    """Pages that scripts/mkdocs_hooks.py adds to the navigation."""
    for path in sorted(DOCS.glob("extending-*.md")):
        yield path.read_text().split("\n")[0].removeprefix("# "), path.name


def _line(title: str, place: str) -> str:
    return f"- [{title}]({place}): {_said(DOCS / place)}"


def _said(page: Path) -> str:
    name = str(page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT))
    return SAID.get(name) or _first_sentence(page.read_text())


def _first_sentence(page: str) -> str:
    """The first sentence of prose, of at least six words: of no heading, fence or table."""
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
