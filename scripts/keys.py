"""Writes docs/keys.md, the reference of every configuration key, from the settings' declarations.

python scripts/keys.py
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from mclabel.config import (
    BestOfNConfig,
    LabelConfig,
    QuickstartConfig,
    ScoreConfig,
    TrainConfig,
)
from mclabel.config.keys import Key, configuration_keys
from mclabel.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "keys.md"
CONFIGURATIONS: dict[str, type[Settings]] = {
    "mclabel label": LabelConfig,
    "mclabel train": TrainConfig,
    "mclabel score": ScoreConfig,
    "mclabel eval best-of-n": BestOfNConfig,
    "mclabel quickstart": QuickstartConfig,
}
HEAD = """# Every key

Written by `python scripts/keys.py` from the settings themselves. The terminal shows the same:

```
mclabel label --keys             # all keys of a labelling job
mclabel label --keys rollouts    # those with a word in their name, else in their meaning
mclabel train --keys
mclabel score --keys
mclabel eval best-of-n --keys
mclabel quickstart --keys
```

A key is set in the YAML file or as `key=value` after it. Values are YAML: `null` is no value, a
list is `[a, b]`. Keys with a * may change when a run is resumed; the others are part of what the
output is, and a changed one is refused.
"""


OFTEN_SET = (
    *("problems.source", "policy.model", "policy.engine.kind", "out", "solutions.per_problem"),
    *("estimator.kind", "estimator.rollouts", "policy.temperature", "policy.max_tokens"),
    "split.by",
)
"""Keys of `mclabel label` with which the page begins."""


def page() -> str:
    """The whole page."""
    known = {key.name: key for key in reversed(configuration_keys(LabelConfig, built_in=True))}
    often = _table(replace(known[name], components=()) for name in OFTEN_SET)
    parts = [HEAD, f"## The ten that most people set\n\nOf a labelling job:\n\n{often}"]
    for verb, configuration in CONFIGURATIONS.items():
        parts.append(f"## {verb}\n\n{_line(configuration.__doc__)}\n")
        keys = sorted(configuration_keys(configuration, built_in=True), key=_group)
        for group, found in groupby(keys, key=_group):
            parts.append(f"### {verb.split()[-1]}: {group or 'the job itself'}\n\n{_table(found)}")
    return "\n".join(parts)


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
