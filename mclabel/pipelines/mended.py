"""A labelling run goes on with a mended checker, where no verdict of the former one is on record.

A checker that fails on all that it grades ends its job (`mclabel.checkers.guarded`). Mending it
changes its version, which decides about labels, and so the run would be one of another
configuration. What such a job has left are samples without a verdict, which any checker may grade.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.data.shards.catalog import read_catalog
from mclabel.data.shards.journal import FOLDER, journal_lines
from mclabel.data.shards.store import Store
from mclabel.errors import CheckerError, ShardError
from mclabel.labeling.journal import holds_verdict

VERSION = "checker.version"


def may_mend(store: Store, changed: Sequence[str]) -> bool:
    """Whether a run may have another configuration than its own; see `Run.check`.

    Args:
        store: of the run.
        changed: keys that differ.

    Raises:
        ShardError: the version of the checker is all that has changed, and verdicts of the former
            one are on record.
    """
    if changed != [VERSION]:
        return False
    if read_catalog(store).blocks or _has_verdicts(store):
        raise ShardError(
            f"{store.location}: holds a run of another configuration: its verdicts are of another "
            f"version of the checker ({VERSION}). Choose another out=…, restore the checker to "
            "resume that run, or grade its results again with the current checker: mclabel "
            f"regrade {store.location} -o NEW"
        )
    return True


def with_committed(error: CheckerError, store: Store) -> CheckerError:
    """The error of a checker that fails, with what becomes of blocks that were committed."""
    count = len(read_catalog(store).blocks)
    if not count:
        return error
    return CheckerError(
        f"{error}. {count:,} blocks are committed and keep their verdicts, or the lack of them; "
        f"mclabel regrade {store.location} -o NEW grades them again"
    )


def _has_verdicts(store: Store) -> bool:
    """Whether a journal rests on a verdict; one that cannot be read may."""
    for name in store.names(FOLDER):
        if (content := store.read(name)) is None:
            continue
        try:
            if any(map(holds_verdict, journal_lines(content))):
                return True
        except (ValueError, LookupError, TypeError):  # damaged, or of another mclabel
            return True
    return False
