"""What tests run in another process: importable there, as test modules are not."""

from __future__ import annotations

import os

from mclabel.answers import grade


def grade_in_child(pair: tuple[str, str]) -> tuple[str, int]:
    """The verdict on a pair, and the process that gave it."""
    return grade(*pair).verdict.value, os.getpid()


def run_command(arguments: list[str], output: str, **variables: str) -> None:
    """Run a command of mclabel as the program does, in a process that has imported it before.

    Args:
        arguments: of the command.
        output: file for what it prints.
        variables: of the environment, which the process has from before the test.
    """
    os.environ.update(variables)
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    from mclabel.cli import main

    main(arguments)
