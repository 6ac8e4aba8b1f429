"""Services to which a training reports its figures, as `report_to` of Hugging Face's arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from mclabel.core.errors import ConfigError
from mclabel.core.extras import is_installed
from mclabel.core.settings import OPERATIONAL

Tracker = Literal["tensorboard", "trackio", "wandb", "mlflow"]
"""Named as the package that has to be installed."""


def _listed(given: Any) -> Any:
    """One name, or `none`, as a list: Hugging Face takes them, too."""
    return ([] if given == "none" else [given]) if isinstance(given, str) else given


ReportTo = Annotated[list[Tracker], OPERATIONAL, BeforeValidator(_listed)]
"""Type of the setting."""


def check_trackers(report_to: Iterable[str]) -> None:
    """See that the packages of trackers are installed, before anything is trained.

    Raises:
        ConfigError: names those that are not.
    """
    if missing := [name for name in report_to if not is_installed(name)]:
        raise ConfigError(
            f"report_to={','.join(report_to)}: each must be an installed package, and this "
            f"environment lacks {', '.join(missing)}. Install it with pip install "
            f"{' '.join(missing)}, or leave it out: log.jsonl has all figures"
        )
