"""Runs a labelling job in a background thread. Labelled solutions can be read while it runs."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Self

from tqdm import tqdm

from mclabel.core.notebook import render_table_html
from mclabel.core.records import LabeledSolution
from mclabel.data.loading import load_labels
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import label
from mclabel.run.shards.labels import read_committed_block_ids, read_labels
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState

if TYPE_CHECKING:
    import datasets

CHECK_INTERVAL_S = 0.5
"""Seconds between two checks for newly committed blocks."""


_MAX_REMOVALS = 40
"""Maximum number of attempts to remove the temporary folder of a run, 0.05 s apart."""


class LabelRun:
    """A running or finished labelling job: iterate over it, wait for it, or stop it.

    Iteration yields every labelled solution once, block by block as blocks are committed, and ends
    when the job ends. Every new iteration starts again from the first block, even if the job has
    ended. An error of the job is raised by the iteration and by `wait`. The job is stopped cleanly
    when the process exits.
    """

    def __init__(
        self,
        config: LabelConfig,
        folder: tempfile.TemporaryDirectory[str],
        *,
        accept_changes: bool = False,
        on_state: Callable[[JobState], None] = lambda state: None,
        progress: bool = False,
    ) -> None:
        """Start the job in a background thread.

        Args:
            config: configuration of the job.
            folder: temporary folder of the job's inputs, and of its output if the caller gave no
                output folder. The folder is removed with this object, when the process exits, or
                if the job fails before it starts.
            accept_changes: True continues a run whose problems changed since it started (see
                `mclabel.labeling.job.label`); False makes such changes an error.
            on_state: callback that receives the job's state every few seconds or more often, in
                the job's thread.
            progress: True shows a progress bar on standard error, if standard error is a terminal
                or the process is a notebook.
        """
        self.config = config
        self._folder = folder
        self._accept_changes, self._on_state = accept_changes, on_state
        self._progress = progress and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        self._state: JobState | None = None
        self._report: JobReport | None = None
        self._error: BaseException | None = None
        self._stop_asked = threading.Event()
        self._thread = threading.Thread(target=self._run_job, name="mclabel", daemon=True)
        self._thread.start()
        clean_up = partial(_stop_and_remove_folder, self._stop_asked, self._thread, folder)
        atexit.register(clean_up)
        weakref.finalize(self, _clean_up_then_unregister, clean_up).atexit = False

    @property
    def out(self) -> str:
        """Folder or URL of the run, which `mclabel view` and other commands accept."""
        return self.config.out

    @property
    def state(self) -> JobState | None:
        """Latest state of the job (problems, tokens, engines); None before the engine is loaded."""
        return self._state

    @property
    def is_done(self) -> bool:
        """Return whether the job has ended, successfully or not."""
        return not self._thread.is_alive()

    def __iter__(self) -> Iterator[LabeledSolution]:
        given, num_committed, ended = set[str](), -1, False
        while not ended:
            ended = self._wait_for_end(CHECK_INTERVAL_S)
            state = self._state
            if state is None and (not ended or self._error is not None):
                continue  # the job has not started, or failed before it started
            if ended or (state is not None and state.num_blocks_done > num_committed):
                num_committed = 0 if state is None else state.num_blocks_done
                store = Store(self.out)
                if new := read_committed_block_ids(store, require_complete=False) - given:
                    given |= new
                    yield from read_labels(store, new)
        if self._error is not None:
            raise self._error

    def wait(self) -> JobReport:
        """Wait until the job ends, and return its report.

        Raises:
            MclabelError: the job failed.
        """
        while not self._wait_for_end(CHECK_INTERVAL_S):
            pass  # the timeout lets KeyboardInterrupt through; the job continues in its thread
        if self._error is not None:
            raise self._error
        assert self._report is not None
        return self._report

    def stop(self) -> None:
        """Stop the job. Finished blocks stay committed, and the completions of unfinished blocks
        stay in their journals.
        """
        _stop_and_join(self._stop_asked, self._thread)

    def dataset(self) -> datasets.Dataset:
        """Wait until the job ends, and return the labels as a `datasets.Dataset` with one row
        per solution.
        """
        self.wait()
        return load_labels(self.out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __fspath__(self) -> str:
        return self.out

    def __repr__(self) -> str:
        state = self._state
        part = f", {state.num_items_done} of {state.num_items} problems" if state else ""
        return f"LabelRun({self.out!r}, {self._state_name}{part})"

    def _repr_html_(self) -> str:
        state = self._state
        return render_table_html(
            {
                "run": self.out,
                "state": self._state_name,
                "problems": f"{state.num_items_done} of {state.num_items}" if state else "",
                "sampled tokens": state.num_tokens if state else "",
            }
        )

    @property
    def _state_name(self) -> str:
        return "failed" if self._error else "done" if self.is_done else "running"

    def _wait_for_end(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return self.is_done

    def _run_job(self) -> None:
        bar = tqdm(desc="label", unit="problem", disable=not self._progress)

        def record_state(state: JobState) -> None:
            self._state = state
            bar.total, bar.n = state.num_items, state.num_items_done
            bar.set_postfix(tokens=state.num_tokens)
            self._on_state(state)

        try:
            self._report = label(
                self.config,
                record_state,
                accept_changes=self._accept_changes,
                should_stop=self._stop_asked.is_set,
            )
        except BaseException as error:  # `wait` and the iteration raise the error again
            self._error = error
            if self._state is None:  # the job failed before it started, so there is no output
                self._folder.cleanup()
        finally:
            bar.close()


def _stop_and_join(stop_asked: threading.Event, thread: threading.Thread) -> None:
    stop_asked.set()
    # The finalizer runs in the job's own thread if that thread holds the last reference to the run.
    if thread is not threading.current_thread():
        thread.join()


def _stop_and_remove_folder(
    stop_asked: threading.Event, thread: threading.Thread, folder: tempfile.TemporaryDirectory[str]
) -> None:
    _stop_and_join(stop_asked, thread)
    # While the interpreter exits, a thread of the engine may still be writing a file.
    for _ in range(_MAX_REMOVALS):
        folder.cleanup()
        if not os.path.exists(folder.name):
            return
        time.sleep(0.05)


def _clean_up_then_unregister(clean_up: Callable[[], None]) -> None:
    # The job's thread may run this function while the process exits. The exit would kill the
    # thread before the folder is removed. So the exit handler is unregistered last: as long as the
    # handler is registered, the process waits for this thread.
    clean_up()
    atexit.unregister(clean_up)
