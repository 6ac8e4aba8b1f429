"""A job's state for tests of its displays and summaries."""

from __future__ import annotations

from mclabel.labeling.task import LABEL_OUTPUTS
from mclabel.run.tally import JobState

STATE = JobState(
    words=LABEL_OUTPUTS.words,
    num_blocks=100,
    num_blocks_done=10,
    num_items=800,
    num_items_done=80,
    num_items_resumed=80,
    num_workers=2,
    counters=LABEL_OUTPUTS.words.counters,
    gauges={"kv_usage": None, "cache_hits": None},
)
