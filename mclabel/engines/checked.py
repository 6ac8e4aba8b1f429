"""Where the answers of somebody's own engine come in.

What the protocol does not allow ends in a `ComponentError` that names the engine, the method and
what it gave (`mclabel.boundary`). An `EngineError` that the engine raises is left as it is: it has
a message, and an engine that died is loaded again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from mclabel.boundary import Boundary, shown
from mclabel.engines.base import Engine, EngineStats, PolicyPreview, limited
from mclabel.engines.resources import EngineResources
from mclabel.engines.settings import PolicySettings
from mclabel.errors import ComponentError
from mclabel.records import Completion, FinishReason

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

MAX_ID = 2**31 - 1
"""Largest token id that shards hold."""
MAY_TAKE_LONG = ("model_identity", "model_commit", "check_model", "preview")
"""Plain methods that may load or fetch a model."""
_REASONS = get_args(FinishReason)


class CheckedEngine(Engine):
    """An engine whose answers are checked; its methods are those of `Engine`."""

    def __init__(self, target: type[Engine], policy: PolicySettings, *, seed: int = 0) -> None:
        """Make an engine.

        Args:
            target: its class.
            policy: with its settings.
            seed: of the run.

        Raises:
            ComponentError: it cannot be made.
        """
        super().__init__(policy, seed=seed)
        self._boundary = Boundary.around("engines", target)
        with self._boundary.calling("__init__", may_take_long=True):
            self._engine = target(policy, seed=seed)
        self._num_live = self._num_tokens = 0

    # What is known before the start

    @property
    def place(self) -> str:
        return self._given("place", str, lambda: self._engine.place)

    def resources(self) -> EngineResources:
        return self._given("resources", EngineResources, self._engine.resources)

    def model_identity(self) -> str:
        return self._given("model_identity", str, self._engine.model_identity)

    def check_environment(self) -> None:
        self._given("check_environment", type(None), self._engine.check_environment)

    def model_commit(self) -> str | None:
        return self._given("model_commit", str | None, self._engine.model_commit)

    def check_model(self) -> None:
        self._given("check_model", type(None), self._engine.check_model)

    def preview(self) -> PolicyPreview | None:
        return self._given("preview", PolicyPreview | None, self._engine.preview)

    # The policy

    async def start(self) -> None:
        await self._boundary.awaited(self._engine, "start", may_take_long=True)

    @property
    def max_context(self) -> float:
        return self._given("max_context", int | float, lambda: self._engine.max_context)

    def room(self, num_prompt: int, num_prefix: int) -> int:
        room = self._given("room", int | float, lambda: self._engine.room(num_prompt, num_prefix))
        return int(room)

    @property
    def max_token_chars(self) -> int:
        return self._given("max_token_chars", int, lambda: self._engine.max_token_chars)

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        return self._ids("prompt_ids", self._called("prompt_ids", problem))

    def encode(self, text: str) -> tuple[int, ...]:
        return self._ids("encode", self._called("encode", text))

    def decode(self, ids: Sequence[int]) -> str:
        return self._given("decode", str, lambda: self._engine.decode(ids))

    async def sample(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        priority: int = 0,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        more = {"seed": seed, "priority": priority, **limited(max_tokens, stop)}
        self._num_live += 1
        try:
            found = await self._boundary.awaited(self._engine, "sample", prompt, prefix, **more)
        finally:
            self._num_live -= 1
        if not isinstance(found, Completion):
            raise self._broken("sample", f"gave {shown(found)}, must give Completion")
        ids = self._ids("sample", found.ids)
        if found.finish_reason not in _REASONS:
            raise self._broken(
                "sample",
                f"gave finish_reason={shown(found.finish_reason)}, must give "
                f"{' or '.join(_REASONS)}",
            )
        if found.at_stop not in (bool(stop), False):
            raise self._broken("sample", "gave at_stop=True, but was not asked to stop at a text")
        if not isinstance(found.text, str):
            raise self._broken("sample", f"gave text={shown(found.text)}, must give a text")
        room = self.room(len(prompt), len(prefix))
        if max_tokens is not None:
            room = self._engine.policy.room(len(prompt), len(prefix), self.max_context, max_tokens)
        if len(ids) > room:
            raise self._broken(
                "sample",
                f"gave {len(ids):,} ids after a prefix of {len(prefix):,}, must give {room:,} at "
                "most (policy.max_tokens, and what the model takes)",
            )
        if (text := self.decode(ids)) != found.text:
            raise self._broken(
                "sample",
                f"gave text={shown(found.text)}, but its decode of the ids gives {shown(text)}: a "
                "prefix is continued by its ids, so both must be the same",
            )
        self._num_tokens += len(ids)
        return found

    def stats(self) -> EngineStats:
        """Statistics of the engine, or what is counted here if it has none of its own."""
        found = self._given("stats", EngineStats, self._engine.stats)
        if type(self._engine).stats is not Engine.stats:
            return found
        return replace(
            found,
            num_live=self._num_live,
            num_sampled_tokens=self._num_tokens,
            counts_as_sampled=False,
        )

    async def update_weights(self, weights: Mapping[str, Tensor]) -> None:
        await self._boundary.awaited(self._engine, "update_weights", weights, may_take_long=True)

    async def close(self) -> None:
        await self._boundary.awaited(self._engine, "close", may_take_long=True)

    def _called(self, method: str, *arguments: Any) -> Any:
        with self._boundary.calling(method):
            return getattr(self._engine, method)(*arguments)

    def _given(self, method: str, kind: Any, call: Callable[[], T]) -> T:
        """What a call gives, if it is of a kind."""
        with self._boundary.calling(method, may_take_long=method in MAY_TAKE_LONG):
            found = call()
        if not isinstance(found, kind) or isinstance(found, bool):
            name = getattr(kind, "__name__", str(kind)).replace("NoneType", "None")
            raise self._broken(method, f"gave {shown(found)}, must give {name}")
        return found

    def _ids(self, method: str, found: Any) -> tuple[int, ...]:
        if not isinstance(found, tuple):
            raise self._broken(method, f"gave ids={shown(found)}, must give a tuple of token ids")
        for one in found:
            if type(one) is not int or not 0 <= one <= MAX_ID:
                raise self._broken(
                    method,
                    f"gave {shown(one)} among its ids, must give whole numbers from 0 to "
                    f"{MAX_ID:,}",
                )
        return found

    def _broken(self, method: str, fault: str) -> ComponentError:
        return self._boundary.broken(method, fault)
