"""Write docs/keys.md, the reference of all configuration keys, from the declarations of settings.

python scripts/keys.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from mclabel.core.config.keys import Key, list_configuration_keys
from mclabel.core.settings import Settings
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.judge.job import JudgeConfig, ScoreConfig
from mclabel.labeling.config import LabelConfig
from mclabel.prm.config import TrainConfig
from mclabel.quickstart.toy import QuickstartConfig
from mclabel.rl.config import ServeRewardsConfig
from mclabel.search.config import SearchConfig, ServeSearchConfig
from mclabel.select.job import SelectConfig

PAGE = Path(__file__).parents[1] / "docs" / "keys.md"
CONFIGURATIONS: dict[str, type[Settings]] = {
    "mclabel label": LabelConfig,
    "mclabel train": TrainConfig,
    "mclabel score": ScoreConfig,
    "mclabel select": SelectConfig,
    "mclabel judge": JudgeConfig,
    "mclabel search": SearchConfig,
    "mclabel serve-search": ServeSearchConfig,
    "mclabel serve-rewards": ServeRewardsConfig,
    "mclabel eval best-of-n": BestOfNConfig,
    "mclabel quickstart": QuickstartConfig,
}
HEAD = """# Every key

In the terminal:

```
mclabel label --keys             # all keys of a verb
mclabel label --keys rollouts    # keys with this word in their name, or else in their meaning
mclabel eval best-of-n --keys
```

Set a key in the YAML file, or pass `key=value` after it. Values are YAML: `[a, b]` is a list. Here
each key has its default, as in `seed=0`. `null` is allowed only where it is the default: it sets no
limit or disables the feature, unless the meaning says otherwise. Keys marked * may change when a
run is resumed. Names in parentheses are the values of `kind` that have the key. A `kind` may also
be [a class of your own](extending.md). A range `1..9` includes both ends.
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


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table. Keys that differ only in component, type or default share a row."""

    name: str
    """Name of the key. In comparisons with rows of other sections, it has no section prefix."""
    components: tuple[str, ...]
    """Values of `kind` that have the key; empty if all have it."""
    type: str
    default: str
    meaning: str
    mark: str = field(compare=False)
    """`*` if the key may change when a run is resumed."""


@dataclass(frozen=True, kw_only=True)
class DescribedKeys:
    """Keys with a common prefix that an earlier section of the page describes."""

    title: str
    """Heading of the section."""
    prefix: str
    rows: dict[str, Row]
    """Rows by the name of the key without the prefix."""


LONG = 8
"""Minimum number of words of a key's meaning from which a repeated key becomes a reference."""
TESTS_ONLY = ("scripted",)
"""Components that only tests use. The page leaves out their keys; `--keys` prints them."""
MIN_SHARED = 3
"""Minimum number of keys with a common prefix from which a reference replaces their rows."""
ALIKE = re.compile(r"`[\w.]+`: as \[(\w+): (\w+)\](\(#[\w-]+\))")
"""Pattern of a reference to a section of another verb without further remarks."""
MIN_LIKENESS = 0.51
"""Minimum share of equal keys of two sections from which the later section refers to the earlier
one."""


def make_page() -> str:
    """Return the page. Keys that an earlier section has under another prefix become references."""
    parts, written, once = (
        [HEAD, _format_often_set_table()],
        list[DescribedKeys](),
        dict[Row, str](),
    )
    for verb, configuration in CONFIGURATIONS.items():
        parts.append(f"## {verb}\n\n{_join_into_one_line(configuration.__doc__)}\n")
        rows = _make_rows(_select_shown_keys(list_configuration_keys(configuration, built_in=True)))
        shared, differing = list[str](), list[Row]()
        for group, found in groupby(sorted(rows, key=_get_section_prefix), key=_get_section_prefix):
            own = list(found)
            if reference := _find_reference(group, own, written):
                shared.append(reference[0])
                differing += reference[1]
                continue
            title = f"{_shorten_verb(verb)}: {group or 'the job itself'}"
            parts.append(f"### {title}\n\n{_format_section(own, group, title, written, once)}")
        if shared:
            parts.append(
                _format_references(
                    shared, differing, f"### {_shorten_verb(verb)}: as elsewhere\n\n"
                )
            )
    return "\n".join(parts)


def _replace_repeated(
    rows: list[Row], title: str, once: dict[Row, str]
) -> tuple[list[Row], list[str]]:
    """Return the rows that no earlier section has, and references in place of the other rows.

    Args:
        rows: rows of the section.
        title: title of the section.
        once: title of the section that has each row, by the row without its prefix. The function
            adds the rows of this section.
    """
    bare = {row: replace(row, name=row.name.rpartition(".")[2], components=()) for row in rows}
    earlier: dict[str, list[Row]] = {}
    for row, alike in bare.items():
        if (place := once.setdefault(alike, title)) != title:
            earlier.setdefault(place, []).append(row)
    references, repeated = list[str](), list[Row]()
    for place, found in earlier.items():
        if len(found) >= MIN_SHARED or any(len(one.meaning.split()) >= LONG for one in found):
            names = ", ".join(
                f"`{one.name}`{one.mark}{_format_component_note(one)}" for one in found
            )
            references.append(f"{names}: as in {_format_link(place)}")
            repeated += found
    return [row for row in rows if row not in repeated], references


def _format_section(
    rows: list[Row], group: str, title: str, written: list[DescribedKeys], once: dict[Row, str]
) -> str:
    """Return a section's table, and references for prefixes that earlier sections describe."""
    shared, differing, left = list[str](), list[Row](), rows
    found = [DescribedKeys(title=title, prefix=group, rows=_strip_prefix(group, rows))]
    parents = {row.name.rpartition(".")[0] for row in rows}
    parents |= {parent.rpartition(".")[0] for parent in parents}
    for prefix in sorted(parents - {group, ""}, key=lambda one: (one.count("."), one)):
        below = [row for row in left if row.name.startswith(f"{prefix}.")]
        if len(below) < MIN_SHARED:
            continue
        if reference := _find_reference(prefix, below, written):
            shared.append(reference[0])
            differing += reference[1]
            left = [row for row in left if row not in below]
        else:
            found.append(
                DescribedKeys(title=title, prefix=prefix, rows=_strip_prefix(prefix, below))
            )
    written += found
    left, references = _replace_repeated(left, title, once)
    shared = references + shared
    return _format_table(left) + (f"\n{_format_references(shared, differing)}" if shared else "")


def _find_reference(
    prefix: str, rows: list[Row], written: list[DescribedKeys]
) -> tuple[str, list[Row]] | None:
    """Return a reference to an earlier section with similar rows, and the rows that differ.

    Returns:
        None if no earlier section is similar enough.
    """
    own = _strip_prefix(prefix, rows)

    def likeness(one: DescribedKeys) -> float:
        return len(own.items() & one.rows.items()) / len(own.keys() | one.rows.keys())

    like = max(written, key=likeness, default=None)
    if like is None or likeness(like) < MIN_LIKENESS:
        return None
    before, defaults, differing = like.rows, list[str](), list[Row]()
    for row, (name, relative) in zip(rows, own.items(), strict=True):
        earlier = before.get(name)
        if earlier and replace(earlier, default=relative.default) == relative:
            if earlier != relative:
                defaults.append(f"; `{name}` is {row.default} by default")
        else:
            differing.append(row)
    lacking = [f"`{name}`" for name in before if name not in own]
    without = f" without {', '.join(lacking)}" if lacking else ""
    without += "".join(defaults)
    is_part = like.prefix not in ("", like.title.rpartition(": ")[2])
    part = f"`{like.prefix}` in " if is_part else ""
    what = f"`{prefix}`" if prefix else "the job itself"
    return (
        f"{what}: as {part}{_format_link(like.title)}{without}"
        f"{_describe_changeable_keys(own, before)}",
        differing,
    )


def _format_link(title: str) -> str:
    return f"[{title}](#{re.sub(r'[^a-z0-9 -]', '', title.lower()).replace(' ', '-')})"


def _describe_changeable_keys(own: dict[str, Row], before: dict[str, Row]) -> str:
    """Return which keys may change when a run is resumed; empty if they are the same as before."""
    if all(row.mark == before[name].mark for name, row in own.items() if name in before):
        return ""
    marked = [f"`{name}`" for name, row in own.items() if row.mark]
    return f"; {', '.join(marked) or 'none'} may change when resumed"


def _format_references(references: Iterable[str], differing: list[Row], heading: str = "") -> str:
    plain: dict[str, list[str]] = {}
    lines = ""
    for reference in references:
        if found := ALIKE.fullmatch(reference):
            plain.setdefault(found[1], []).append(f"[{found[2]}]{found[3]}")
        else:
            lines += f"- {reference}\n"
    lines = "".join(f"- same as {verb}: {', '.join(own)}\n" for verb, own in plain.items()) + lines
    return f"{heading}{lines}" + (
        f"\nThese differ:\n\n{_format_table(differing)}" if differing else ""
    )


def _strip_prefix(prefix: str, rows: Iterable[Row]) -> dict[str, Row]:
    """Return the rows by name without the prefix, and without components that have all the rows."""
    rows = list(rows)
    kinds = {row.name.removesuffix("kind") for row in rows if row.name.endswith("kind")}
    relative = {}
    for row in rows:
        name = row.name.removeprefix(f"{prefix}.")
        components = row.components if any(row.name.startswith(kind) for kind in kinds) else ()
        key = f"{name} of {', '.join(components)}" if components else name
        relative[key] = replace(row, name=name, components=components)
    return relative


def _make_rows(keys: Iterable[Key]) -> list[Row]:
    """Return one row for each pair of name and meaning."""
    alike: dict[tuple[str, str, bool], list[Key]] = {}
    for key in keys:
        alike.setdefault((key.name, key.sentence, key.is_operational), []).append(key)
    return [
        Row(
            name=name,
            components=tuple(one for key in same for one in key.components),
            type=_join_by_component(same, [_shorten_type(key) for key in same]),
            default=_join_by_component(
                same, ["required" if key.default is None else f"`{key.default}`" for key in same]
            ),
            meaning=sentence,
            mark="*" if is_operational else "",
        )
        for (name, sentence, is_operational), same in alike.items()
    ]


def _select_shown_keys(keys: list[Key]) -> Iterator[Key]:
    """Yield the keys without those that only tests use.

    A key that all values of `kind` have gets no components.
    """
    kinds: dict[str, set[str]] = {}
    for key in keys:
        for one in key.components:
            kinds.setdefault(key.name.rpartition(".")[0], set()).add(one)
    for key in keys:
        if key.name.endswith(".kind"):
            type_ = key.type
            for one in TESTS_ONLY:
                type_ = type_.replace(f"{one}, ", "")
            yield replace(key, type=type_)
        elif not key.components:
            yield key
        elif components := tuple(one for one in key.components if one not in TESTS_ONLY):
            is_all = len(components) > 1 and set(components) == kinds[key.name.rpartition(".")[0]]
            yield replace(key, components=() if is_all else components)


def _join_by_component(keys: list[Key], texts: list[str]) -> str:
    """Return the common text of all keys, or the different texts, each with its components."""
    if len(set(texts)) == 1:
        return texts[0]
    pairs = zip(keys, texts, strict=True)
    return "; ".join(f"{text} ({', '.join(key.components)})" for key, text in pairs)


def _shorten_type(key: Key) -> str:
    """Return a type with its range in short. A default of null shows that null is allowed."""
    text = re.sub(r">= (\S+), <= (\S+)", _shorten_range, key.type)
    text = re.sub(r"> (\S+), <= (\S+)", lambda m: m[0] if float(m[2]) < 1e3 else f"> {m[1]}", text)
    text = re.sub(r">= (\d+)$|>= (\d+)(?= or )", lambda m: f"{m[1] or m[2]}..", text)
    text = re.sub(r"keys: (\w+, ){3,}\w+", "keys", text).replace(" at least 1", "")
    text = text.replace(" or null", "") if key.default == "null" else text
    text = text.replace(", or module:Class of your own", "").replace(" | ", ", ")
    return text.replace("true or false", "bool").rstrip(",")


def _shorten_range(found: re.Match[str]) -> str:
    least, most = found.groups()
    return f"{least}.." if float(most) >= 1e5 else f"{least}..{most}"


def _format_often_set_table() -> str:
    """Return a table of `OFTEN_SET`, with the first sentence of the meaning of each key."""
    known = {key.name: key for key in reversed(list_configuration_keys(LabelConfig, built_in=True))}
    rows = ["| key and example value | default | meaning |", "|---|---|---|"]
    for name, example in OFTEN_SET.items():
        key = known[name]
        default = "required" if key.default is None else f"`{key.default}`"
        meaning = key.sentence.partition(". ")[0].removesuffix(".")
        rows.append(f"| `{name}={example}` | {default} | {meaning}. |")
    text = "These keys of `mclabel label` are set most often:"
    return "\n".join(["## The ten keys that people set\n", text, "", *rows, ""])


def _shorten_verb(verb: str) -> str:
    """Return the last word of a verb, or its last two words if the last one is a verb itself."""
    *_, group, last = verb.split()
    is_verb = group != "mclabel" and f"mclabel {last}" in CONFIGURATIONS
    return f"{group} {last}" if is_verb else last


def _get_section_prefix(row: Row) -> str:
    return row.name.partition(".")[0] if "." in row.name else ""


def _format_table(rows: Iterable[Row]) -> str:
    lines = ["| key and default | type | meaning |", "|---|---|---|", *map(_format_table_row, rows)]
    return "\n".join(lines) + "\n"


def _format_table_row(row: Row) -> str:
    has_one = row.default.startswith("`") and row.default.count("`") == 2
    name = f"`{row.name}={row.default[1:]}" if has_one else f"`{row.name}`"
    more = "" if has_one else f", {row.default}"
    cells = (f"{name}{row.mark}{_format_component_note(row)}{more}", row.type, row.meaning)
    return (
        f"| {' | '.join(_join_into_one_line(cell).replace('|', chr(92) + '|') for cell in cells)} |"
    )


def _format_component_note(row: Row) -> str:
    is_said = "; " in row.type + row.default  # type or default already has the components
    return f" ({', '.join(row.components)})" if row.components and not is_said else ""


def _join_into_one_line(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
