"""Engines that take turns: one is loaded at a time, and the job is the same as side by side."""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path

import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import EngineDied, EngineError
from mclabel.engines import EngineStats, PolicySettings, make_engine
from mclabel.engines.gate import GatedPolicy, Turns
from mclabel.engines.hf import HfEngine
from mclabel.engines.scripted import ScriptedEngine
from mclabel.engines.vllm import VllmEngine
from mclabel.labeling.completers import CompleterSettings
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.policy import PreparedModels, PreparedPolicy
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from tests.support.lone_engine import LOADS, LoneEngine
from tests.support.scripted_jobs import scripted, scripted_overrides, write_problems

LONE = "tests.support.lone_engine:LoneEngine"


def job(source: Path, out: Path, engine: str, *more: str) -> LabelConfig:
    """The policy and another model roll out."""
    other = f"completers=[{{model: policy, cost: 1}}, {{model: b, cost: 2, engine: {engine}}}]"
    given = [*scripted_overrides(source, out, "policy.model=a"), f"policy.engine={engine}", other]
    return load_config(LabelConfig, None, [*given, "ray.address=none", *more])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fixed", "posterior"])
def test_a_job_in_turns_is_the_job_side_by_side(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_problems(tmp_path, 12)
    if kind == "posterior":  # has a turn for every decision
        monkeypatch.setitem(Turns.__init__.__kwdefaults__, "grace_s", 0.05)
    rule = f"estimator.kind={kind}"
    found = {}
    for name, engine, turns in (("beside", "scripted", False), ("turns", LONE, True)):
        LOADS.clear()
        config = job(source, tmp_path / name, engine, rule, f"completer_turns={turns}")
        report = jobs.label(config, lambda state: None)
        assert report.num_blocks_left == 0
        store = Store(str(tmp_path / name))
        found[name] = (
            {row.solution.id: row for row in read_labels(store)},
            {(r.completer, r.prefix_id, r.index): r.text for r in read_rollouts(store)},
            report.num_tokens,
        )
    assert LOADS[:2] == ["b", "a"], "each is loaded once at the start, the policy last"
    assert len(LOADS) >= 3, "the other had a turn"
    if kind == "fixed":  # what the posterior learns depends on what ends first
        assert found["turns"] == found["beside"]
        assert len(LOADS) <= 6, f"turns were short: {LOADS}"
    assert found["turns"][0].keys() == found["beside"][0].keys()
    assert {one for one, _, _ in found["turns"][1]} == {"policy", "b"}


def test_a_turn_lasts_while_anything_is_asked() -> None:
    """Those who wait are let in when the holder has nothing to do, and not before."""

    async def run() -> list[str]:
        turns, seen = Turns(grace_s=0.01), list[str]()
        one, other = (ScriptedEngine(scripted()) for _ in range(2))
        turn = turns.of(one)
        first = GatedPolicy(one, turn=turn)
        second = GatedPolicy(other, turn=turns.of(other))
        await second.start()
        await first.start()
        is_done = asyncio.Event()

        async def held() -> None:
            async with turn:
                await is_done.wait()
            seen.append("first")

        async def asked() -> None:
            await second.sample((1,), (), seed=0)
            seen.append("second")

        tasks = [asyncio.create_task(one()) for one in (held, asked)]
        await asyncio.sleep(0.2)
        assert seen == [] and first.stats().num_waiting == second.stats().num_waiting == 0
        given_up = asyncio.create_task(second.sample((1,), (), seed=1))
        await asyncio.sleep(0)
        given_up.cancel()
        is_done.set()
        await asyncio.gather(*tasks)
        await first.sample((1,), (), seed=2)
        seen.append("first again")
        await turns.close()
        return seen

    assert asyncio.run(run()) == ["first", "second", "first again"]


def test_an_engine_that_cannot_be_loaded_for_its_turn_ends_what_waits_for_it(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        turns, full = Turns(grace_s=0), tmp_path / "full"
        settings = LoneEngine.Settings(kind=LONE, fails_if=str(full))
        one, other = (
            LoneEngine(PolicySettings(model=name, max_tokens=999, engine=settings))
            for name in ("one", "other")
        )
        second = GatedPolicy(other, turn=turns.of(other))
        first = GatedPolicy(one, turn=turns.of(one))
        await second.start()
        await first.start()
        full.touch()
        with pytest.raises(EngineDied, match="loaded for its turn: other: no memory is left"):
            await second.sample((1,), (), seed=0)
        full.unlink()
        await second.sample((1,), (), seed=0)
        await turns.close()
        await first.close()
        await second.close()
        assert LOADS[-1] == "other"

    asyncio.run(run())


def test_the_embedded_engine_goes_on_after_it_was_closed() -> None:
    """The same texts for the same seeds; its counters go on, and its limits stay known."""

    async def run() -> tuple[str, str, EngineStats, EngineStats]:
        engine = make_engine(PolicySettings(max_tokens=60))
        await engine.start()
        prompt = engine.prompt_ids("Eva has 3 pens. Eva buys 4 pens. How many pens?")
        first = await engine.sample(prompt, (), seed=3)
        assert isinstance(engine, HfEngine) and engine._decoder is not None
        memory = weakref.ref(engine._decoder)
        await engine.close()
        assert memory() is None, "the model is freed"
        between = engine.stats()
        assert (
            engine.room(len(prompt), 0) > 0 and engine.decode(engine.encode("3 pens")) == "3 pens"
        )
        with pytest.raises(EngineError, match="was closed"):
            await engine.sample(prompt, (), seed=3)
        await engine.start()
        again = await engine.sample(prompt, (), seed=3)
        await engine.close()
        return first.text, again.text, between, engine.stats()

    first, again, between, after = asyncio.run(run())
    assert first == again and between.num_live == after.num_live == 0
    assert after.num_sampled_tokens == 2 * between.num_sampled_tokens > 0
    assert after.num_prefill_tokens == 2 * between.num_prefill_tokens > 0


def prepared(settings: PolicySettings) -> PreparedPolicy:
    """Without looking for the model or a GPU."""
    return PreparedPolicy(settings=settings, engine=make_engine(settings))


def test_turns_are_taken_where_memory_does_not_hold_all() -> None:
    """By the share of a GPU that each reserves; a setting decides otherwise."""
    for share, expected in ((0.45, False), (0.5, False), (0.9, True)):
        engine = VllmEngine.Settings(kind="vllm", gpu_memory_utilization=share)
        config = LabelConfig(
            out="x",
            policy=PolicySettings(model="a", engine=engine),
            completers=[CompleterSettings(model="b", engine=engine, cost=1)],
        )
        models = PreparedModels.of(config, prepared)
        assert models.take_turns(config.completer_turns) is expected
        assert models.take_turns(not expected) is not expected
    alone = PreparedModels.of(LabelConfig(out="x", policy=PolicySettings(model="a")), prepared)
    assert not alone.take_turns(True), "there is nobody to take turns with"
    assert HfEngine(PolicySettings()).resources().gpu_memory == 0
