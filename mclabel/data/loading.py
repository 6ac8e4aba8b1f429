"""Labels and rollouts of a run as Hugging Face data sets or as records.

The one way to read a run that holds at any time: `labels/*.parquet` lacks what `mclabel compact`
has merged, and `rollouts/*.parquet` has what attempts left that were killed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING

from mclabel.data.given import place_of
from mclabel.records import LabeledSolution

if TYPE_CHECKING:
    import datasets


def load_labels(
    run: str | PathLike[str], *, cache_dir: str | PathLike[str] | None = None
) -> datasets.Dataset:
    """The labels of a run, one row a solution; docs/formats.md explains the columns.

    Shards are written one after another to a file that the data set maps, so that memory stays
    small. It is removed when the process ends.

    A warning says where a finished run lacks what it had at its end.

    Args:
        run: folder or URL, also of a job under way: what is committed now.
        cache_dir: where the file is written, by default the cache of `datasets`.

    Raises:
        ConfigError: `run` is no name of a place.
        ShardError: no run, or a damaged shard.
    """
    from mclabel.data.arrow import labels_dataset

    place, cache = place_of(run, "run"), _cache(cache_dir)
    _warn_of_losses(place)
    return labels_dataset(place, cache)


def load_rollouts(
    run: str | PathLike[str], *, cache_dir: str | PathLike[str] | None = None
) -> datasets.Dataset:
    """The rollouts that the labels of a run rest on, one row a rollout; see `load_labels`.

    Of a run that has kept none (`keep_rollouts=false`) there are no rows.
    """
    from mclabel.data.arrow import rollouts_dataset

    place, cache = place_of(run, "run"), _cache(cache_dir)
    _warn_of_losses(place)
    return rollouts_dataset(place, cache)


def read_labels(run: str | PathLike[str]) -> Iterator[LabeledSolution]:
    """Every labelled solution of a run, in a fixed order; see `load_labels`."""
    from mclabel.data.shards.labels import read_labels as read
    from mclabel.data.shards.store import Store

    place = place_of(run, "run")
    _warn_of_losses(place)
    return read(Store(place))


def _cache(folder: str | PathLike[str] | None) -> str | None:
    return None if folder is None else place_of(folder, "cache_dir")


def _warn_of_losses(run: str) -> None:
    """Warn where a finished run lacks what it had at its end."""
    from mclabel.data.shards.catalog import read_catalog
    from mclabel.data.shards.finished import lost_since, read_finished
    from mclabel.data.shards.store import Store

    store = Store(run)
    if (finished := read_finished(store)) is None:
        return
    blocks = read_catalog(store).blocks
    if lost := lost_since(store, finished, blocks, len(blocks)):
        warnings.warn(
            f"{run}: its finished job had {finished.num_blocks:,} blocks, and {lost} are missing. "
            f"`mclabel verify {run}` lists them; run the job again to restore them",
            stacklevel=3,
        )
