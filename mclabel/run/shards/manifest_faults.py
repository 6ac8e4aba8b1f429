"""Compares a run's manifest with its plan and its shards, the Parquet files of results.

If a manifest is lost or was copied from another run, a job with another configuration could
continue the run. To prevent this, the configuration is also checked against the plan and the
shards: the ids of planned blocks are hashes that include the configuration's identity, and every
shard stores the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.core.errors import ShardError
from mclabel.run.shards.digest import check_parquet_digest
from mclabel.run.shards.finished import read_completion_marker
from mclabel.run.shards.manifest import (
    MANIFEST,
    SemanticConfig,
    describe_differences,
    get_plan_identity,
    read_manifest,
)
from mclabel.run.shards.plan import FOLDER as PLAN
from mclabel.run.shards.plan import is_plan_for_identity
from mclabel.run.shards.shard import METADATA_KEY
from mclabel.run.shards.store import Store

_FOLDERS = ("labels", "opinions")
REMEDY = (
    f"Restore {MANIFEST} from a copy. If there is none, delete {MANIFEST} if it exists, and run "
    "the original command again, which writes it"
)
"""Remedy for a manifest that is lost or belongs to another run, for messages."""


def check_plan_and_shards_match(
    store: Store, recorded_manifest: Mapping[str, Any] | None, semantic: SemanticConfig
) -> None:
    """Raise an error if a run's plan or shards were made for another configuration.

    Args:
        store: the run's store.
        recorded_manifest: the run's manifest, which has the job's configuration; None if it is
            missing.
        semantic: semantic configuration of the job that resumes the run.

    Raises:
        ShardError: the configurations differ. The error names the differences and the remedy.
    """
    is_ours = is_plan_for_identity(
        store,
        semantic.identity if recorded_manifest is None else get_plan_identity(recorded_manifest),
    )
    if is_ours:
        return
    recorded = _read_recorded_config(store)
    lines = [] if recorded is None else describe_differences(recorded, semantic.config)
    if is_ours is None and not lines:  # without a plan, the configuration in the shards decides
        return
    is_there = recorded_manifest is not None
    fault = "belongs to another run" if is_there else "is missing"
    raise ShardError(
        "\n".join(
            [
                f"{store.location}: {MANIFEST} {fault}, and the run's plan and shards were made "
                "with another configuration:",
                *(lines or ["  (its values are not recorded, because no block is done yet)"]),
                "Choose another out=…, or restore these values"
                + (f", delete {MANIFEST}" if is_there else "")
                + " and run the job again",
            ]
        )
    )


def find_lost_run_id(store: Store) -> str | None:
    """Return the `id` of a run whose manifest is lost, from `finished.json`; None if the job has
    not finished.
    """
    finished = read_completion_marker(store)
    return None if finished is None else finished.run


def find_manifest_faults(
    store: Store, shard_metadata: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield a description of each disagreement between a run's manifest and its plan or shards.

    Args:
        store: the run's store.
        shard_metadata: metadata of shards, by name; one shard per configuration is enough.

    Raises:
        DamagedFile: the manifest, or the plan, is damaged.
    """
    manifest = read_manifest(store, MANIFEST)
    configs = {name: stamp["config"] for name, stamp in shard_metadata.items() if "config" in stamp}
    if manifest is None:
        if configs:
            yield "missing, though shards carry its configuration"
        elif store.names(PLAN):
            yield "missing, though the run has a plan"
        return
    if is_plan_for_identity(store, get_plan_identity(manifest)) is False:
        yield "of another configuration than the plan beside it"
    others = {
        name: lines
        for name, config in configs.items()
        if (lines := describe_differences(config, manifest["config"]))
    }
    if others:
        name, lines = next(iter(others.items()))
        yield (
            f"of another configuration than shards beside it, such as {name}:\n" + "\n".join(lines)
        )


def _read_recorded_config(store: Store) -> dict[str, Any] | None:
    """Return the configuration stored in an undamaged shard; None if no shard stores one."""
    for name in chain.from_iterable(map(store.iter_names, _FOLDERS)):
        content = store.read(name) if name.endswith(".parquet") else None
        if content is None or check_parquet_digest(content) != "sound":
            continue
        try:
            raw = (pq.read_schema(pa.BufferReader(content)).metadata or {}).get(METADATA_KEY)
            stamp = json.loads(raw) if raw else None
        except (pa.ArrowException, OSError, ValueError, RecursionError):
            continue  # the file is not a shard of mclabel
        if isinstance(stamp, dict) and isinstance(config := stamp.get("config"), dict):
            return config
    return None
