"""Trainings side by side, each in a process of its own.

A training of a small model is fastest in one thread, and the cores are many. The processes end with
this one; trainings go on where they were when they are begun again.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait

from mclabel.core.errors import MclabelError, TrainingError
from mclabel.prm.config import TrainConfig

OnTraining = Callable[[str, int, int], None]
"""Called with the name of a training, its optimizer steps done and in all."""


def train_beside(configs: Mapping[str, TrainConfig], on_progress: OnTraining) -> None:
    """Train all of them.

    Args:
        configs: by name.
        on_progress: see `OnTraining`.

    Raises:
        MclabelError: of the first training that fails; the others are ended.
        TrainingError: a training failed in an unexpected way, or its process was ended.
    """
    context = get_context("spawn")
    names: dict[Connection, str] = {}
    processes = {}
    try:
        for name, config in configs.items():
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_train, args=(config, theirs), name=f"train {name}", daemon=True
            )
            process.start()
            processes[name] = process
            theirs.close()
            names[ours] = name
        while names:
            for ready in wait(list(names)):
                assert isinstance(ready, Connection)
                name = names[ready]
                try:
                    said = ready.recv()
                except EOFError:
                    processes[name].join()
                    raise TrainingError(_died(name, processes[name].exitcode)) from None
                if isinstance(said, MclabelError):
                    raise said
                if said is None:
                    del names[ready]
                else:
                    on_progress(name, *said)
    finally:
        for process in processes.values():
            process.terminate()
            process.join()


def _died(name: str, code: int | None) -> str:
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with {code}"
    return (
        f"training {name}: its process {how}. Free memory if it ran out (signal 9), and run the "
        "same command again: it goes on"
    )


def _train(config: TrainConfig, said: Connection) -> None:
    """Runs in the process: says how far it is, and None or an error at its end."""
    from mclabel.prm.job import train

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    try:
        train(config, lambda step, total, loss: said.send((step, total)))
        said.send(None)
    except MclabelError as error:
        said.send(error)
    except BrokenPipeError:  # the parent is gone, and nobody waits for the training
        os._exit(1)
    except Exception as error:
        traceback.print_exc()
        said.send(TrainingError(f"{config.out}: {type(error).__name__}: {error}"))
