"""Loading a model says nothing by itself: what a job has to say, it says."""

from __future__ import annotations


def quiet_transformers() -> None:
    """Turn off loading bars, and reports of what is meant to be so, such as a fresh head."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
