"""The state of a job, for tests of what is made of it."""

from __future__ import annotations

from mclabel.work.job import JobState

STATE = JobState(
    num_blocks=100,
    num_blocks_done=10,
    num_problems=800,
    num_problems_done=80,
    num_problems_resumed=80,
    num_steps=0,
    num_completions=0,
    num_truncated=0,
    num_ungraded=0,
    num_replayed=0,
    num_tokens=0,
    num_prefill_tokens=0,
    num_cached_tokens=None,
    num_preemptions=0,
    num_live=0,
    num_waiting=0,
    kv_usage=None,
    loop_lag_s=0.0,
    num_workers=2,
    num_starting=0,
    num_failures=0,
    gpu_hours=0.0,
)
