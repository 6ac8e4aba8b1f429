"""A labelling job in a thread, whose solutions are read as they are committed."""

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

from mclabel.core.notebook import table_html
from mclabel.core.records import LabeledSolution
from mclabel.data.loading import load_labels
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import label
from mclabel.run.shards.labels import committed_blocks, read_labels
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState

if TYPE_CHECKING:
    import datasets

LOOK_S = 0.5
"""Seconds between two looks at what was committed."""


_MAX_REMOVALS = 40
"""Attempts to remove a run's folder, 0.05 s apart."""


class LabelRun:
    """A labelling job under way, or ended: iterate over it, wait for it, or stop it.

    Iterating gives every labelled solution once, block by block as they are committed, and ends
    with the job. It may be done again, also afterwards, and then begins anew. An error of the job
    is raised where the run is read or waited for. When the process ends the job is stopped in
    order.
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
        """Begin the job.

        Args:
            config: configuration of the job.
            folder: folder of its inputs, and of its output where no place was given; removed
                with this object, when the process ends, or where the job fails before it begins.
            accept_changes: continue although problems changed, as in `labeling.job`.
            on_state: called often with the state of the job, in its thread.
            progress: show a progress bar on standard error, if that is a terminal or a notebook.
        """
        self.config = config
        self._folder = folder
        self._accept_changes, self._on_state = accept_changes, on_state
        self._progress = progress and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        self._state: JobState | None = None
        self._report: JobReport | None = None
        self._error: BaseException | None = None
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mclabel", daemon=True)
        self._thread.start()
        leave = partial(_leave, self._asked, self._thread, folder)
        atexit.register(leave)
        weakref.finalize(self, _leave_once, leave).atexit = False

    @property
    def out(self) -> str:
        """Folder or URL of the run, for `mclabel view` and others."""
        return self.config.out

    @property
    def state(self) -> JobState | None:
        """The latest state (problems, tokens, engines, ...); None before the engine is loaded."""
        return self._state

    @property
    def is_done(self) -> bool:
        """Return whether the job has ended, successfully or not."""
        return not self._thread.is_alive()

    def __iter__(self) -> Iterator[LabeledSolution]:
        given, num_committed, ended = set[str](), -1, False
        while not ended:
            ended = self._ended_within(LOOK_S)
            state = self._state
            if state is None and (not ended or self._error is not None):
                continue  # nothing was begun
            if ended or (state is not None and state.num_blocks_done > num_committed):
                num_committed = 0 if state is None else state.num_blocks_done
                store = Store(self.out)
                if new := committed_blocks(store, must_be_whole=False) - given:
                    given |= new
                    yield from read_labels(store, new)
        if self._error is not None:
            raise self._error

    def wait(self) -> JobReport:
        """Wait for the end of the job.

        Raises:
            MclabelError: the job could not go on.
        """
        while not self._ended_within(LOOK_S):
            pass  # so that an interrupt arrives between two looks; the job goes on
        if self._error is not None:
            raise self._error
        assert self._report is not None
        return self._report

    def stop(self) -> None:
        """Stop the job. Finished blocks stay committed, and unfinished ones are kept in the
        journals.
        """
        _end(self._asked, self._thread)

    def dataset(self) -> datasets.Dataset:
        """Wait for the end, and return the labels as a `datasets.Dataset` with one row per
        solution.
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
        return f"LabelRun({self.out!r}, {self._status}{part})"

    def _repr_html_(self) -> str:
        state = self._state
        return table_html(
            {
                "run": self.out,
                "state": self._status,
                "problems": f"{state.num_items_done} of {state.num_items}" if state else "",
                "sampled tokens": state.num_tokens if state else "",
            }
        )

    @property
    def _status(self) -> str:
        return "failed" if self._error else "done" if self.is_done else "running"

    def _ended_within(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return self.is_done

    def _work(self) -> None:
        bar = tqdm(desc="label", unit="problem", disable=not self._progress)

        def show(state: JobState) -> None:
            self._state = state
            bar.total, bar.n = state.num_items, state.num_items_done
            bar.set_postfix(tokens=state.num_tokens)
            self._on_state(state)

        try:
            self._report = label(
                self.config,
                show,
                accept_changes=self._accept_changes,
                should_stop=self._asked.is_set,
            )
        except BaseException as error:  # raised again where the run is read
            self._error = error
            if self._state is None:  # nothing was begun that could be read
                self._folder.cleanup()
        finally:
            bar.close()


def _end(asked: threading.Event, thread: threading.Thread) -> None:
    asked.set()
    if thread is not threading.current_thread():  # where it ends as the last that knows the run
        thread.join()


def _leave(
    asked: threading.Event, thread: threading.Thread, folder: tempfile.TemporaryDirectory[str]
) -> None:
    _end(asked, thread)
    # At the end of the interpreter a thread of the engine may still be writing a file.
    for _ in range(_MAX_REMOVALS):
        folder.cleanup()
        if not os.path.exists(folder.name):
            return
        time.sleep(0.05)


def _leave_once(leave: Callable[[], None]) -> None:
    # The job's thread may run this as the process ends, which would then kill it before the folder
    # is removed. So the exit handler goes last: until then the process waits for this thread.
    leave()
    atexit.unregister(leave)
