"""Writes docs/keys.md, the reference of every configuration key, from the settings' declarations.

python scripts/keys.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from mclabel.core.config.keys import Key, configuration_keys
from mclabel.core.settings import Settings
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.evaluate.search.config import SearchEvalConfig
from mclabel.judge.config import JudgeConfig, ScoreConfig
from mclabel.labeling.config import LabelConfig
from mclabel.prm.config import TrainConfig
from mclabel.quickstart.config import QuickstartConfig
from mclabel.rl.config import RLConfig, ServeRewardsConfig
from mclabel.search.config import SearchConfig, ServeSearchConfig
from mclabel.select.config import SelectConfig

Rows = dict[str, str]
"""Rows of a table, each with the name of its key."""
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
    """The whole page. What an earlier verb has in the same words is not repeated."""
    parts = [HEAD, _often_set()]
    written: dict[str, dict[str, Rows]] = {}
    for verb, configuration in CONFIGURATIONS.items():
        parts.append(f"## {verb}\n\n{_line(configuration.__doc__)}\n")
        keys = sorted(configuration_keys(configuration, built_in=True), key=_group)
        for group, found in groupby(keys, key=_group):
            title = f"{_short(verb)}: {group or 'the job itself'}"
            rows, before = {_row(key): key.name for key in found}, written.setdefault(group, {})
            parts.append(f"### {title}\n\n{_section(rows, before)}")
            before[title] = rows
    return "\n".join(parts)


def _section(rows: Rows, before: Mapping[str, Rows]) -> str:
    """A table, or what differs from the section before that is most like it."""
    title = max(before, key=lambda one: len(rows.keys() & before[one].keys()), default="")
    like = before.get(title, {})
    if 2 * len(rows.keys() & like.keys()) < len(rows):
        return _table(rows)
    changed = {row: name for row, name in rows.items() if row not in like}
    lacking = dict.fromkeys(name for name in like.values() if name not in rows.values())
    without = f" without {', '.join(f'`{name}`' for name in lacking)}" if lacking else ""
    anchor = re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
    text = f"The keys of [{title}](#{anchor}){without}"
    return f"{text}; these differ:\n\n{_table(changed)}" if changed else f"{text}.\n"


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


def _table(rows: Iterable[str]) -> str:
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _row(key: Key) -> str:
    default = "required" if key.default is None else f"`{key.default}`"
    mark = "*" if key.is_operational else ""
    of = f" (of {', '.join(key.components)})" if key.components else ""
    cells = (f"`{key.name}`{mark}{of}", key.type, default, key.sentence)
    return f"| {' | '.join(_line(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
