"""Whether a run can be the source of a labelling job: its solutions must be the same policy's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from mclabel.config import LabelConfig
from mclabel.data.readers.selected import read_selected
from mclabel.data.shards.catalog import read_catalog
from mclabel.data.shards.manifest import MANIFEST, Semantic, claimed_config, differences, run_id
from mclabel.data.shards.plan import planned_blocks
from mclabel.data.shards.store import Store
from mclabel.errors import ConfigError, ShardError
from mclabel.labeling.source import SourceRun
from mclabel.records import AUTHOR

logger = logging.getLogger(__name__)

_SAME = ("policy", "split", "checker")
"""Parts of the configuration that solutions and rollouts rest on."""


def source_identity(location: str) -> str:
    """What a run is known by, wherever it lies.

    Raises:
        ConfigError: it is no run of `mclabel label`.
    """
    found = run_id(Store(location))
    if found is None:
        raise ConfigError(
            f"solutions.run={location!r}: is not a run of mclabel label. Give the folder or URL "
            "of one; pass a file of solutions as solutions.path"
        )
    return f"run:{found}"


def open_source(config: LabelConfig, semantic: Semantic) -> SourceRun | None:
    """The run that is the source of a job; None if there is none.

    Args:
        config: of the job.
        semantic: what its labels depend on.

    Raises:
        ConfigError: it is no labelling run, its solutions are another policy's, or a completer of
            the same name is another model.
        ShardError: it has no labels, or they cannot be read.
    """
    location = config.solutions.run
    if location is None:
        return None
    try:
        source_identity(location)
    except ShardError as error:
        raise ConfigError(f"solutions.run={location!r}: {error}") from error
    theirs = claimed_config(Store(location), MANIFEST) or {}
    if "policy" not in theirs:
        raise ConfigError(
            f"solutions.run={location!r}: its labels do not come from rollouts of mclabel label, "
            "so there is nothing to reuse. Export it, and pass its solutions as solutions.path"
        )
    ours = semantic.config
    changed = differences(
        {name: theirs.get(name) for name in _SAME}, {name: ours.get(name) for name in _SAME}
    )
    mine = _by_name(ours)
    for name, completer in _by_name(theirs).items():
        if name in mine:
            place = f"completers.{name}"
            changed += differences({place: completer}, {place: mine[name]})
    if changed:
        lines = "\n".join(changed)
        raise ConfigError(
            f"solutions.run={location!r}: its solutions and rollouts were sampled with other "
            f"settings:\n{lines}\nGive the same values here. A completer that is another model "
            "needs another name"
        )
    try:
        manifest = config.solutions.select
        source = SourceRun.read(location, read_selected(manifest) if manifest else None)
    except ShardError as error:
        raise ConfigError(f"solutions.run={location!r}: {error}") from error
    _warn_of_gaps(source, {one.called for one in config.completers} or {AUTHOR})
    return source


def _warn_of_gaps(source: SourceRun, names: set[str]) -> None:
    """Say what a source lacks, or what of it is not used."""
    store = Store(source.location)
    planned, done = planned_blocks(store), len(read_catalog(store).blocks)
    if planned is not None and done < len(planned.names):
        logger.warning(
            "%s is not finished: %d of its %d blocks are labelled, and the rest is left out",
            source.location,
            done,
            len(planned.names),
        )
    if not source.keeps_rollouts:
        logger.warning(
            "%s has kept no rollouts (keep_rollouts=false), so all rollouts are sampled again",
            source.location,
        )
    if unused := sorted(source.completers - names):
        logger.warning(
            "%s has rollouts by %s, which completers does not name: they are left out",
            source.location,
            ", ".join(unused),
        )


def _by_name(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The completers of a configuration, without what they cost."""
    return {
        one["name"]: {key: value for key, value in one.items() if key not in ("name", "cost")}
        for one in config.get("completers") or []
    }
