"""The embedded engine receives prefixes of sampled solutions as the ids that it sampled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mclabel.engines import PolicySettings
from mclabel.engines.cascade import LiveRollout
from mclabel.engines.decoder import SharedPrefixDecoder
from mclabel.engines.hf import HfEngine
from tests.support.continuation import (
    NUM_SOLUTIONS,
    TEMPERATURE,
    Calls,
    chat_model,
    count_exact,
    label_all,
    num_other_tokens,
)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Record the contexts and the sampled ids of the decoder."""
    recorded, step = Calls(), SharedPrefixDecoder.step

    def recording(decoder: SharedPrefixDecoder) -> list[LiveRollout]:
        ended = step(decoder)
        recorded.made += [(tuple(row.context), tuple(row.sampled)) for row in ended]
        return ended

    monkeypatch.setattr(SharedPrefixDecoder, "step", recording)
    return recorded


@pytest.mark.slow
def test_prefixes_are_continued_by_the_ids_that_were_sampled(calls: Calls, tmp_path: Path) -> None:
    policy = HfEngine(
        PolicySettings(
            model=chat_model(tmp_path), temperature=TEMPERATURE, max_tokens=96, engine="hf"
        )
    )
    results = asyncio.run(label_all(policy))
    assert count_exact(results, calls) > 2 * NUM_SOLUTIONS
    # so that tokenizing the text again would be noticed
    assert num_other_tokens(policy, results) > 1
