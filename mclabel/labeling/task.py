"""Labelling as a task: problems are its items, and labels shards what its blocks leave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mclabel.engines import Policy
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.estimators import Completer
from mclabel.labeling.given import SourceRun
from mclabel.labeling.journal import read_entry
from mclabel.labeling.runner import LabelRunner
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.journal import JournalEntry, Line
from mclabel.run.shards.labels import check_not_cut_off, delete_losers, read_labels
from mclabel.run.shards.rejects import Reject, set_aside
from mclabel.run.shards.store import Store
from mclabel.run.task import CommittedBlocks, TaskWords


class LabelOutputs:
    """The labels shards of a run."""

    words = TaskWords(
        item="problem",
        items="problems",
        content="text, gold or given solution",
        done="labelled",
        block_setting="block_problems",
        same_text="its text is there under another id: its gold has changed, or its id",
        counters={
            "num_steps": 0,
            "num_completions": 0,
            "num_truncated": 0,
            "num_ungraded": 0,
            "num_prefill_tokens": 0,
            "num_cached_tokens": None,
            "num_preemptions": 0,
        },
        gauges=("kv_usage",),
        rates={"num_completions": "rollouts"},
        shown_counters={
            "num_steps": "steps",
            "num_preemptions": "preempted",
            "num_truncated": "truncated",
            "num_ungraded": "ungraded",
        },
        shown_shares={"kv_usage": "KV", "cache_hits": "cache"},
    )

    def committed(self, store: Store) -> CommittedBlocks:
        """The blocks whose labels are there, in shards of their own or in merged ones."""
        catalog = read_catalog(store)
        check_not_cut_off(store, catalog)
        return CommittedBlocks(blocks=catalog.blocks.keys(), foreign=catalog.foreign)

    def sweep(self, store: Store) -> None:
        """Remove rollouts shards that no labels shard names."""
        delete_losers(store)

    def set_aside(self, store: Store) -> Iterator[Reject]:
        """The problems that committed blocks have no labels for."""
        return set_aside(store)

    def texts(self, store: Store, blocks: Collection[str]) -> Mapping[str, str]:
        """Texts of the problems of some blocks."""
        done = set(blocks) & read_catalog(store).blocks.keys()
        return (
            {row.problem.id: row.problem.text for row in read_labels(store, done)} if done else {}
        )

    def derived(self, counters: Mapping[str, int | None]) -> Mapping[str, float | None]:
        """The share of prompt tokens that were found in the prefix cache."""
        cached = counters.get("num_cached_tokens")
        if cached is None:
            return {"cache_hits": None}
        looked_up = (counters.get("num_prefill_tokens") or 0) + cached
        return {"cache_hits": cached / looked_up if looked_up else None}


LABEL_OUTPUTS = LabelOutputs()


@dataclass(frozen=True, kw_only=True)
class LabelTask:
    """Labels the steps of solutions to problems."""

    make_policy: Callable[[], Policy]
    """Called on each worker, where the engine is to live."""
    completers: Sequence[Completer] = (Completer(),)
    """What rolls out."""
    make_completers: Mapping[str, Callable[[], Policy]] = field(default_factory=dict)
    """By name, the same as `make_policy` of each completer that is not the policy itself."""
    forces: Mapping[str, str] = field(default_factory=dict)
    """By name, the text after which a completer answers at once."""
    take_turns: bool = False
    """Whether the engines of a worker are loaded one at a time."""
    settings: LabelSettings
    provenance: Mapping[str, Any]
    """Metadata of every shard."""
    source: SourceRun | None = None
    """A run whose solutions are labelled, and whose rollouts are taken over."""
    keep_rollouts: bool = True
    """Whether rollout texts are written."""

    @property
    def outputs(self) -> LabelOutputs:
        """The labels shards of a run."""
        return LABEL_OUTPUTS

    def runner(self, store: Store) -> LabelRunner:
        """The task on one engine."""
        return LabelRunner(
            policy=self.make_policy,
            completers=self.completers,
            make_completers=self.make_completers,
            forces=self.forces,
            take_turns=self.take_turns,
            source=self.source,
            settings=self.settings,
            store=store,
            provenance=self.provenance,
            keep_rollouts=self.keep_rollouts,
        )

    def read_entry(self, line: Line) -> JournalEntry:
        """The solution or rollout in a line of a journal."""
        return read_entry(line)
