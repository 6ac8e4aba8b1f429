"""The start of an engine, also of one from another package: stages, weights, threads, and the
output of a failing child.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.records import LabeledSolution
from mclabel.domains.arith import bundled_model
from mclabel.engines import Engine, EngineStats, PolicySettings, make_engine
from mclabel.engines.base import CheckedEngine
from mclabel.engines.cascade import LiveRollout
from mclabel.engines.decoder import draw_tokens
from mclabel.engines.loading import (
    get_current_stage,
    mark_engine_start,
    record_stage,
)
from mclabel.engines.pretrained import check_finite
from mclabel.engines.scripted import ScriptedEngine
from mclabel.engines.vllm_start import OutputTail, StartLog
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobState
from tests.support.commands import run_verb
from tests.support.own_engine import ConstantEngine
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems

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
    with log.raise_log_level():
        assert os.environ["VLLM_LOGGING_LEVEL"] == config.logging_config.log_level == "INFO"
    assert os.environ["VLLM_LOGGING_LEVEL"] == config.logging_config.log_level == "WARNING"
    with mark_engine_start():
        for line in LOG.splitlines():
            shown.append(log.is_shown(line))
            stages.append(str(get_current_stage()).partition(" (")[0])
    assert stages == [
        *["loading"] * 3,
        *["loading weights"] * 2,
        "compiling",
        "preparing the KV cache",
        "capturing CUDA graphs",
    ]
    assert shown == [False, True, True, False, True, False, False, True]
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")  # the user's own log level is respected
    assert all(StartLog(None, on_ray=False).is_shown(line) for line in LOG.splitlines())


class SlowEngine(ScriptedEngine):
    """A scripted engine that takes a second to start."""

    async def start(self) -> None:
        """Wait instead of loading weights."""
        record_stage("loading weights")
        await asyncio.sleep(1.0)


@pytest.mark.parametrize("address", ["none", pytest.param("local", marks=pytest.mark.ray)])
def test_a_job_shows_what_its_engines_do_while_they_start(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages also appear while another thread imports Ray, as vLLM does."""
    if address == "none":
        monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    source = write_problems(tmp_path, 2)
    more = [f"ray.address={address}", "ray.max_engines=1"]
    more += [f"policy.engine={__name__}:SlowEngine"]
    config = load_config(LabelConfig, None, scripted_overrides(source, tmp_path / "out", *more))
    states: list[JobState] = []
    jobs.label(config, states.append)
    stages = {state.stage for state in states if not state.num_workers}
    assert any(str(stage).startswith("loading weights (") for stage in stages)
    assert all(state.num_starting == 1 for state in states if state.stage is not None)
    assert states[-1].stage is None and states[-1].num_workers == 1
    record_stage("sampling")
    assert get_current_stage() is None  # the start has ended


def damaged_policy(folder: Path, damage: float) -> Path:
    """Copy the bundled policy with one changed number in one of its weights."""
    shutil.copytree(bundled_model("policy"), folder)
    (path,) = folder.glob("*.safetensors")
    weights = load_file(path)
    weights[next(key for key in sorted(weights) if "mlp" in key)][0, 0] = damage
    save_file(weights, path, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
def test_a_policy_whose_weights_are_no_numbers_is_refused(tmp_path: Path, damage: float) -> None:
    model = damaged_policy(tmp_path / "model", damage)
    job = [f"policy.model={model}", "policy.engine=hf", "problems.source=arith", "ray.address=none"]
    job += ["problems.limit=1", f"out={tmp_path / 'out'}"]
    message = " ".join(run_verb(["label", "/dev/null", *job], code=2).output.split())
    assert f"policy.model='{model}': its weight" in message
    assert "holds NaN or infinities" in message and "Train or download it again" in message
    assert not list((tmp_path / "out" / "labels").glob("*"))


@pytest.mark.parametrize("tied", [False, True])
def test_rows_of_tokens_that_no_text_has_may_be_anything(tied: bool) -> None:
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.get_input_embeddings().weight[96] = float("nan")
    refused = pytest.raises(EngineError, match=r"m: its weight model.embed_tokens.weight holds NaN")
    with refused if tied else nullcontext():
        check_finite(model, "m")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_draw_nothing(temperature: float) -> None:
    logits = torch.zeros(2, 5)
    lanes = [
        [LiveRollout(context=(1,), max_tokens=4, seed=seed, caller_data=seed)] for seed in range(2)
    ]
    assert [
        len(row) for row in draw_tokens(logits, lanes, temperature=temperature, top_p=1.0, top_k=0)
    ] == [1, 1]
    logits[1, 3] = float("nan")
    with pytest.raises(EngineError, match="logits are NaN"):
        draw_tokens(logits, lanes, temperature=temperature, top_p=1.0, top_k=0)


def test_an_engine_keeps_its_number_of_threads_beside_others() -> None:
    engine = make_engine(
        PolicySettings.model_validate({"model": "arith:policy", "max_tokens": 8}), seed=0
    )
    seen: list[int] = []

    async def run() -> None:
        await engine.start()
        decoder = engine._decoder
        step = decoder.step

        def watch_step() -> object:
            seen.append(torch.get_num_threads())
            return step()

        decoder.step = watch_step  # type: ignore[method-assign, assignment]
        torch.set_num_threads(3)  # as a trainer does before the engine's first step
        await engine.sample(engine.prompt_ids("1 + 1 = ?"), (), seed=0)
        await engine.close()

    before = torch.get_num_threads()
    try:
        asyncio.run(run())
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


PROGRAM = """
import sys
print("(EngineCore pid=1) INFO loading", flush=True)
print("(Worker pid=2) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to", file=sys.stderr)
print("RuntimeError: Engine core initialization failed", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def test_the_first_error_of_a_child_is_its_reason(capfd: pytest.CaptureFixture[str]) -> None:
    output = OutputTail()
    with pytest.raises(subprocess.CalledProcessError), output:
        subprocess.run([sys.executable, "-c", PROGRAM, "3"], check=True)
    assert output.reason == "torch.OutOfMemoryError: CUDA out of memory. Tried to"
    assert "INFO loading" in capfd.readouterr().err
    print("afterwards", flush=True)
    assert capfd.readouterr().out == "afterwards\n"


def test_children_that_live_on_are_copied_and_need_no_reader(
    capfd: pytest.CaptureFixture[str],
) -> None:
    output = OutputTail()
    with output:
        child = subprocess.Popen(
            [sys.executable, "-c", "input(); print('x' * 300_000); print('ValueError: late')"],
            stdin=subprocess.PIPE,
        )
    child.communicate(b"\n", timeout=60)
    assert child.returncode == 0
    output._copying.join(60)
    assert output.reason == "ValueError: late"
    assert len(capfd.readouterr().err) > 300_000


def test_lines_may_be_kept_from_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines are filtered one by one. The error's reason is also found in hidden lines."""
    lines = ["INFO a\r\n", "b\r", "INFO KeyError: c\n", "\n", "d"]
    program = "import sys, time\nfor x in " + repr("".join(lines)) + ":\n"
    # in pieces of one character
    program += "    sys.stdout.write(x); sys.stdout.flush(); time.sleep(0.01)"
    output = OutputTail(lambda line: not line.startswith("INFO"))
    with output:
        subprocess.run([sys.executable, "-c", program], check=True)
    output._copying.join(60)
    shown = capfd.readouterr()
    assert shown.out + shown.err == "b\r\nd" and output.reason == "KeyError: c"


def test_a_terminal_stays_one_for_this_process() -> None:
    """A progress bar, which only moves on a terminal, continues while an engine starts."""
    program = "import os, sys\nfrom mclabel.engines.vllm_start import OutputTail\n"
    program += "with OutputTail():\n"
    program += "    print('shown', sys.stdout.isatty(), sys.stderr.isatty(), os.isatty(1))\n"
    program += "print('after', sys.stdout is sys.__stdout__)"
    master, terminal = os.openpty()
    subprocess.run([sys.executable, "-c", program], stdout=terminal, stderr=terminal, check=True)
    os.close(terminal)
    assert os.read(master, 1000).split() == b"shown True True False after True".split()
    os.close(master)


OWN = "tests.support.own_engine:ConstantEngine"


def list_overrides(folder: Path, engine: str, *more: str) -> list[str]:
    job = scripted_overrides(write_problems(folder, 5), folder / "out", "estimator.kind=fixed")
    return [*job, f"policy.engine={engine}", "solutions.per_problem=2", *more]


def label_rows(folder: Path, *more: str, engine: str = OWN) -> list[LabeledSolution]:
    run_label_job(list_overrides(folder, engine, "ray.address=none", *more))
    return list(read_labels(Store(str(folder / "out"))))


class UncountedEngine(ConstantEngine):
    """An engine without its own statistics."""

    stats = Engine.stats


def test_what_an_engine_without_statistics_samples_is_counted() -> None:
    async def sample_stats() -> list[EngineStats]:
        engine = CheckedEngine(UncountedEngine, PolicySettings(engine=ConstantEngine.Settings()))
        await engine.start()
        task = asyncio.create_task(engine.sample(engine.prompt_ids("1+1"), (), seed=0))
        await asyncio.sleep(0)
        before = engine.stats()
        await task
        return [before, engine.stats()]

    live, ended = asyncio.run(sample_stats())
    assert (live.num_live, ended.num_live) == (1, 0)
    assert live.num_sampled_tokens == 0 and ended.num_sampled_tokens > 0
    assert not ended.counts_as_sampled


def test_its_settings_and_its_answers_are_used(tmp_path: Path) -> None:
    more = ["policy.engine.num_cpus=3", "ray.address=none"]
    planned = jobs.plan_labelling(
        load_config(LabelConfig, None, list_overrides(tmp_path, OWN, *more))
    )
    assert planned.resources.num_cpus == 3
    assert ("engine", f"{OWN}, here") in planned.lines()
    with pytest.raises(
        ConfigError, match=r"policy\.engine\.needs=luck: this machine does not have it"
    ):
        label_rows(tmp_path, "policy.engine.needs=luck")


def test_the_engine_of_the_documentation_runs_as_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending-engine.md").read_text(encoding="utf-8")
    module = re.search(r"```python\n# my_engines.py\n(.*?)```", page, re.DOTALL)
    command = re.search(r"^PYTHONPATH=\. mclabel (.*?)\n```", page, re.DOTALL | re.MULTILINE)
    problem = re.search(r"^echo '(.*)' > problems\.jsonl$", page, re.MULTILINE)
    assert module is not None and command is not None and problem is not None
    (tmp_path / "my_engines.py").write_text(module[1], encoding="utf-8")
    (tmp_path / "problems.jsonl").write_text(problem[1] + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mclabel", *shlex.split(command[1].replace("\\\n", " "))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(read_labels(Store(str(tmp_path / "runs" / "coin"))))
    assert {row.solution.text[:21] for row in rows} == {"One and one make two."}
    assert json.loads((tmp_path / "runs/coin/run.json").read_text())["config"]["policy"][
        "engine"
    ] == {"error_rate": 0.25}
