"""Live rollouts follow the engine's memory: the controller alone, and the gate on an engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from mclabel.core.records import Completion
from mclabel.engines import EngineStats
from mclabel.engines.gate import EngineLoad, GatedPolicy, LiveController
from mclabel.engines.scripted import ScriptedEngine
from tests.support.scripted_jobs import scripted


def load(**changes: float) -> EngineLoad:
    calm = {
        "num_live": 256,
        "num_waiting": 0,
        "kv_usage": 0.45,
        "num_preemptions": 0,
        "num_ended": 256,
    }
    return EngineLoad(**{**calm, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({}, 512),  # half of what may be used is: twice as many fit
        ({"kv_usage": 0.1}, 512),  # nine times as many, but at most twice in a turnover
        ({"kv_usage": 0.6}, 384),
        ({"kv_usage": 1.0, "num_waiting": 9}, 230),  # memory does not allow the floor
        ({"num_ended": 255}, 256),  # not turned over yet: they may still grow
        ({"kv_usage": 0.45, "num_waiting": 40}, 256),  # something else holds the engine back
        ({"num_preemptions": 3}, 204),  # at once, whatever the use
        ({"num_preemptions": 3, "num_live": 100}, 80),
        ({"num_live": 40, "kv_usage": 0.9}, 128),  # 40 fit: halved in a turnover, not more
        ({"num_live": 40, "kv_usage": 0.07}, 512),  # few live for want of work
        ({"kv_usage": 0.0}, 256),  # nothing known
        ({"num_live": 0}, 256),  # idle: the use is of its last step
    ],
)
def test_one_look(changes: dict[str, float], target: int) -> None:
    assert LiveController(ceiling=4096).update(load(**changes)) == target


def test_the_ceiling_holds_and_is_a_floor_where_it_is_low() -> None:
    assert LiveController(ceiling=300).update(load(kv_usage=0.1)) == 300
    assert LiveController(ceiling=64).target == 64
    with pytest.raises(ValueError, match="ceiling=0: must be >= 1"):
        LiveController(ceiling=0)


def test_old_preemptions_do_not_count_twice() -> None:
    controller = LiveController(ceiling=4096)
    assert controller.update(load(num_preemptions=3)) == 204
    assert controller.update(load(num_preemptions=3)) == 204


class ToyEngine:
    """Rollouts that each grow by a token a step in a cache of `capacity` tokens."""

    def __init__(self, capacity: int, mean_length: int) -> None:
        self.capacity, self.mean = capacity, mean_length
        self.rng = random.Random(0)
        self.running: list[list[int]] = []
        self.waiting = self.num_preemptions = self.num_ended = 0

    def step(self, target: int) -> None:
        self.waiting += max(0, target - len(self.running) - self.waiting)
        used = sum(age for age, _ in self.running)
        while self.waiting and used < 0.98 * self.capacity:
            self.running.append([16, 16 + int(self.rng.expovariate(1 / self.mean))])
            used, self.waiting = used + 16, self.waiting - 1
        for one in self.running:
            one[0] += 1
        ended = [one for one in self.running if one[0] > one[1]]
        self.num_ended += len(ended)
        self.running = [one for one in self.running if one[0] <= one[1]]
        while sum(age for age, _ in self.running) > self.capacity:
            self.running.pop()
            self.waiting += 1
            self.num_preemptions += 1

    def load(self) -> EngineLoad:
        return EngineLoad(
            num_live=len(self.running),
            num_waiting=self.waiting,
            kv_usage=sum(age for age, _ in self.running) / self.capacity,
            num_preemptions=self.num_preemptions,
            num_ended=self.num_ended,
        )


@pytest.mark.slow
@pytest.mark.parametrize(("capacity", "fits"), [(100_000, 450), (20_000, 92)])
def test_a_cache_is_filled_and_hardly_anything_is_thrown_out(capacity: int, fits: int) -> None:
    """Rollouts of 200 tokens: at 90% the cache holds many more than the floor, or fewer."""
    engine, controller = ToyEngine(capacity, 200), LiveController(ceiling=4096)
    usages, live = [], []
    for step in range(8000):
        engine.step(controller.target)
        if step % 5 == 0:
            controller.update(engine.load())
        if step > 4000:
            usages.append(engine.load().kv_usage)
            live.append(len(engine.running))
    assert 0.7 < sum(usages) / len(usages) < 0.97
    assert 0.7 * fits < sum(live) / len(live) < 1.2 * fits
    unbounded = ToyEngine(capacity, 200)
    for _ in range(8000):
        unbounded.step(4096)
    assert engine.num_preemptions < 0.2 * unbounded.num_preemptions


class FullPolicy(ScriptedEngine):
    """Says that its cache holds 512 at nine tenths; notes how many it was given."""

    most = 0

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        self.order.append(priority)
        self.most = max(self.most, 1 + super().stats().num_live)
        return await super().sample(prompt, prefix, seed=seed, priority=priority)

    order: list[int]

    def stats(self) -> EngineStats:
        live = super().stats().num_live
        return EngineStats(num_live=live, max_live=1024, kv_usage=0.9 * live / 512)


def test_the_gate_bounds_what_the_engine_is_given_earlier_blocks_first() -> None:
    async def run() -> None:
        policy = FullPolicy(scripted(delay_s=0.02))
        policy.order = []
        gated = GatedPolicy(policy)
        await gated.start()
        prompt = gated.prompt_ids("x")
        tasks = [
            asyncio.create_task(gated.sample(prompt, (), seed=i, priority=1000 - i))
            for i in range(1000)
        ]
        await asyncio.sleep(0)
        assert gated.stats().max_live == 256
        assert gated.stats().num_waiting == 744
        tasks[600].cancel()  # while it waits
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(one, Completion) for one in done) == 999
        assert policy.most == 256
        later = policy.order[300:]
        assert later == sorted(later)
        assert gated.stats().num_waiting == 0

    asyncio.run(run())


def test_the_gate_opens_as_the_engine_has_room() -> None:
    async def run() -> None:
        policy = FullPolicy(scripted(delay_s=0.02))
        policy.order = []
        gated = GatedPolicy(policy)
        await gated.start()
        prompt = gated.prompt_ids("x")
        due = {asyncio.create_task(gated.sample(prompt, (), seed=i)) for i in range(2000)}
        while len(due) > 1700:  # more than are live at a time have ended
            _, due = await asyncio.wait(due, return_when=asyncio.FIRST_COMPLETED)
        assert policy.most == 256
        gated.adjust()
        assert abs(gated.stats().max_live - 512) <= 1
        await asyncio.wait(due)
        assert policy.most == gated.stats().max_live

    asyncio.run(run())


def test_an_engine_that_does_not_tell_of_its_cache_gets_everything() -> None:
    async def run() -> None:
        policy = ScriptedEngine(scripted(delay_s=0.01))
        gated = GatedPolicy(policy)
        await gated.start()
        prompt = gated.prompt_ids("x")
        tasks = [asyncio.create_task(gated.sample(prompt, (), seed=i)) for i in range(700)]
        await asyncio.sleep(0)
        assert policy.stats().num_live == 700
        gated.adjust()
        await asyncio.gather(*tasks)

    asyncio.run(run())
