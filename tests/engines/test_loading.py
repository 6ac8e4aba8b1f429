"""What an engine does while it starts, as it is shown."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from threading import Event
from types import ModuleType, SimpleNamespace

import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.engines.loading import current_stage, load_beside, note_stage, starting
from mclabel.engines.scripted import ScriptedEngine
from mclabel.engines.vllm_start import StartLog
from mclabel.labeling.config import LabelConfig
from mclabel.run.tally import JobState
from tests.support.scripted_jobs import scripted_overrides, write_problems

LOG = """\
(EngineCore pid=7) INFO 11-27 06:39:03 [multiproc_executor.py:153] DP group leader: node_rank=0
W1127 06:39:11.715000 3022 torch/_library/triton.py:53] Triton not available
(Worker pid=8) WARNING 11-27 06:39:12 [cpu_worker.py:114] libtcmalloc is not found in LD_PRELOAD
(Worker pid=8) INFO 11-27 06:39:12 [cpu_model_runner.py:68] Starting to load model /models/policy...
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:09<00:09, 9.30s/it]
(Worker pid=8) INFO 11-27 06:39:13 [cpu_model_runner.py:87] Warming up model for the compilation...
(EngineCore pid=7) INFO 11-27 06:39:36 [kv_cache_utils.py:2327] CPU KV cache size: 43,680 tokens
Capturing CUDA graphs (decode, FULL):  11%|#         | 4/35 [00:01<00:08,  3.7it/s]
"""


def test_the_log_of_vllm_gives_the_stages_and_its_detail_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "WARNING")
    config = SimpleNamespace(logging_config=SimpleNamespace(log_level="WARNING"))
    log, stages, shown = StartLog(config, on_ray=False), [], []
    with log.detailed():
        assert os.environ["VLLM_LOGGING_LEVEL"] == config.logging_config.log_level == "INFO"
    assert os.environ["VLLM_LOGGING_LEVEL"] == config.logging_config.log_level == "WARNING"
    with starting():
        for line in LOG.splitlines():
            shown.append(log.is_shown(line))
            stages.append(str(current_stage()).partition(" (")[0])
    assert stages == [
        *["loading"] * 3,
        *["loading weights"] * 2,
        "compiling",
        "preparing the KV cache",
        "capturing CUDA graphs",
    ]
    assert shown == [False, True, True, False, True, False, False, True]
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")  # what a user asks for is shown
    assert all(StartLog(None, on_ray=False).is_shown(line) for line in LOG.splitlines())


def test_a_start_has_stages_in_whatever_thread_it_loads() -> None:
    goes_on = Event()

    def load() -> int:
        note_stage("loading weights")
        goes_on.wait(60)
        return 3

    async def start() -> None:
        with starting():
            assert re.fullmatch(r"loading \(\d+ s\)", str(current_stage()))
            loaded = asyncio.create_task(load_beside(load))
            while str(current_stage()).startswith("loading ("):
                await asyncio.sleep(0.001)
            assert re.fullmatch(r"loading weights \(\d+ s\)", str(current_stage()))
            goes_on.set()
            assert await loaded == 3
        assert current_stage() is None
        note_stage("sampling")  # nothing is started
        assert current_stage() is None

    asyncio.run(start())


class SlowEngine(ScriptedEngine):
    """Takes a while to start."""

    async def start(self) -> None:
        """Load nothing, slowly."""
        note_stage("loading weights")
        await asyncio.sleep(1.0)


@pytest.mark.parametrize("address", ["none", pytest.param("local", marks=pytest.mark.ray)])
def test_a_job_shows_what_its_engines_do_while_they_start(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while another thread imports Ray, as vLLM does."""
    if address == "none":
        monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    source = write_problems(tmp_path, 2)
    more = [f"ray.address={address}", "ray.max_engines=1"]
    more += [f"policy.engine={__name__}:SlowEngine"]
    config = load_config(LabelConfig, None, scripted_overrides(source, tmp_path / "out", *more))
    states: list[JobState] = []
    jobs.label(config, states.append)
    stages = {state.stage for state in states if not state.num_workers}
    assert stages & {"loading weights (0 s)", "loading weights (1 s)"}
    assert all(state.num_starting == 1 for state in states if state.stage is not None)
    assert states[-1].stage is None and states[-1].num_workers == 1
