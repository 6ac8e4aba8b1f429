"""What a vLLM engine reports after every step, kept for `Policy.stats`.

vLLM hands its loggers the scheduler's state (running, waiting, use of the KV cache) and what the
step did. Ours takes the place of vLLM's Prometheus logger, which records several latencies of
every live completion in every step; the job's metrics go to Ray.
"""

from __future__ import annotations

from typing import Any

from mclabel.engines.base import EngineStats


class EngineLog:
    """Counters of one engine, from its loading on."""

    def __init__(self, *, max_live: int) -> None:
        """Begin with counters at zero.

        Args:
            max_live: completions the engine samples at a time.
        """
        self._max_live = max_live
        self._num_waiting = self._num_sampled = self._num_preemptions = 0
        self._num_computed = self._num_cached = 0
        self._kv_usage = 0.0

    def logger(self) -> type:
        """What to give `AsyncLLM` as one of its `stat_loggers`."""
        from vllm.v1.metrics.loggers import PrometheusStatLogger

        log = self

        class Logger(PrometheusStatLogger):  # type: ignore[misc]
            def __init__(self, vllm_config: Any, engine_indexes: Any = None) -> None:
                """Nothing is registered."""

            def record(
                self,
                scheduler_stats: Any,
                iteration_stats: Any,
                mm_cache_stats: Any = None,
                engine_idx: int = 0,
            ) -> None:
                log.record(scheduler_stats, iteration_stats)

            def log_engine_initialized(self) -> None:
                """Log nothing."""

            def record_admission_rejection(self, reason: str) -> None:
                """Nothing is turned away: no limit is set."""

            def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
                """The engine never sleeps."""

        return Logger

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Take vLLM's `SchedulerStats` and `IterationStats`, each or None, of a step."""
        if scheduler is not None:
            self._num_waiting = scheduler.num_waiting_reqs + scheduler.num_skipped_waiting_reqs
            self._kv_usage = scheduler.kv_cache_usage
        if iteration is not None:
            self._num_sampled += iteration.num_generation_tokens
            self._num_preemptions += iteration.num_preempted_reqs
            self._num_computed += iteration.prompt_token_stats.computed
            self._num_cached += iteration.prompt_token_stats.cached_tokens

    def stats(self, num_unfinished: int) -> EngineStats:
        """A snapshot.

        Args:
            num_unfinished: completions asked for and not delivered. The engine reports after its
                steps alone, so the queue that it last reported may be more than there still is.
        """
        waiting = min(self._num_waiting, num_unfinished)
        return EngineStats(
            num_live=num_unfinished - waiting,
            max_live=self._max_live,
            num_waiting=waiting,
            num_sampled_tokens=self._num_sampled,
            num_prefill_tokens=self._num_computed,
            num_cached_tokens=self._num_cached,
            kv_usage=self._kv_usage,
            num_preemptions=self._num_preemptions,
        )
