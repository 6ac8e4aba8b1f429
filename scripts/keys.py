"""Writes docs/keys.md, the reference of every configuration key, from the settings' declarations.

python scripts/keys.py
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from mclabel.config import (
    BestOfNConfig,
    JudgeConfig,
    LabelConfig,
    QuickstartConfig,
    RLConfig,
    ScoreConfig,
    SearchConfig,
    SearchEvalConfig,
    SelectConfig,
    ServeRewardsConfig,
    ServeSearchConfig,
    TrainConfig,
)
from mclabel.config.keys import Key, configuration_keys
from mclabel.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "keys.md"
CONFIGURATIONS: dict[str, type[Settings]] = {
    "mclabel label": LabelConfig,
    "mclabel train": TrainConfig,
    "mclabel score": ScoreConfig,
    "mclabel select": SelectConfig,
    "mclabel judge": JudgeConfig,
    "mclabel search": SearchConfig,
    "mclabel serve-search": ServeSearchConfig,
    "mclabel rl": RLConfig,
    "mclabel serve-rewards": ServeRewardsConfig,
    "mclabel eval best-of-n": BestOfNConfig,
    "mclabel eval search": SearchEvalConfig,
    "mclabel quickstart": QuickstartConfig,
}
HEAD = """# Every key

`python scripts/keys.py` writes this page from the declarations of the settings. The terminal
shows the same:

```
mclabel label --keys             # all keys of a labelling job
mclabel label --keys rollouts    # keys with this word in their name, or else in their meaning
mclabel train --keys
mclabel score --keys
mclabel select --keys
mclabel judge --keys
mclabel search --keys
mclabel serve-search --keys
mclabel rl --keys
mclabel serve-rewards --keys
mclabel eval best-of-n --keys
mclabel eval search --keys
mclabel quickstart --keys
```

Set a key in the YAML file, or pass `key=value` after it on the command line. Values are written in
YAML: `null` means no value, and `[a, b]` is a list. Keys marked * may change when a run is resumed.
The others determine the output, so a run is not resumed after one of them has changed.
"""


OFTEN_SET = {
    "problems.source": "my_problems.jsonl",
    "policy.model": "Qwen/Qwen2.5-1.5B-Instruct",
    "policy.engine.kind": "vllm",
    "out": "runs/mine",
    "solutions.per_problem": "8",
    "estimator.kind": "fixed",
    "estimator.rollouts": "32",
    "policy.temperature": "0.7",
    "policy.max_tokens": "2048",
    "split.by": "blank_line",
}
"""Keys of `mclabel label` with which the page begins, each with an example value."""


def page() -> str:
    """The whole page."""
    parts = [HEAD, _often_set()]
    for verb, configuration in CONFIGURATIONS.items():
        parts.append(f"## {verb}\n\n{_line(configuration.__doc__)}\n")
        keys = sorted(configuration_keys(configuration, built_in=True), key=_group)
        for group, found in groupby(keys, key=_group):
            parts.append(f"### {_short(verb)}: {group or 'the job itself'}\n\n{_table(found)}")
    return "\n".join(parts)


def _often_set() -> str:
    """A line for each key of `OFTEN_SET`: an example, and the first sentence of its meaning."""
    known = {key.name: key for key in reversed(configuration_keys(LabelConfig, built_in=True))}
    rows = ["| key and example value | default | meaning |", "|---|---|---|"]
    for name, example in OFTEN_SET.items():
        key = known[name]
        default = "required" if key.default is None else f"`{key.default}`"
        meaning = key.sentence.partition(". ")[0].removesuffix(".")
        rows.append(f"| `{name}={example}` | {default} | {meaning}. |")
    text = "These are the keys of a labelling job that are set most often."
    return "\n".join(["## The ten keys that people set\n", text, "", *rows, ""])


def _short(verb: str) -> str:
    """The last word of a verb, or the last two where the last one is a verb itself."""
    *_, group, last = verb.split()
    is_verb = group != "mclabel" and f"mclabel {last}" in CONFIGURATIONS
    return f"{group} {last}" if is_verb else last


def _group(key: Key) -> str:
    return key.name.partition(".")[0] if "." in key.name else ""


def _table(keys: Iterable[Key]) -> str:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in keys:
        default = "required" if key.default is None else f"`{key.default}`"
        mark = "*" if key.is_operational else ""
        of = f" (of {', '.join(key.components)})" if key.components else ""
        cells = (f"`{key.name}`{mark}{of}", key.type, default, key.sentence)
        rows.append(f"| {' | '.join(_line(cell).replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
