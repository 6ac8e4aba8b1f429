"""CLI verbs that run in the process of the test."""

from __future__ import annotations

from collections.abc import Sequence

from click.testing import CliRunner, Result

from mclabel.cli import main


def run_verb(arguments: Sequence[str], *, code: int = 0) -> Result:
    """Run a verb and check its exit code.

    Args:
        arguments: words after `mclabel`.
        code: expected exit code.
    """
    result = CliRunner(env={"COLUMNS": "400"}).invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result
