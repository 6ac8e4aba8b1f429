"""The garbage collector leaves alone what a process held before a job."""

import gc

import pytest

from mclabel.run.job import frozen_heap


def test_the_heap_is_frozen_while_it_lasts_and_free_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), frozen_heap():
        assert gc.get_freeze_count() > 1000
        _ = 1 / 0
    assert gc.get_freeze_count() == 0


def test_a_heap_that_somebody_else_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        with frozen_heap():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
