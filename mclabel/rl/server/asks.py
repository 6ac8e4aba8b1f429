"""What a request asks for: completions to reward, in our form or in OpenRLHF's."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NoReturn, TypeVar

from pydantic import Field, ValidationError

from mclabel.rl.client import RewardItem
from mclabel.rl.settings import RewardSettings
from mclabel.serving.bodies import parsed
from mclabel.serving.refused import Refused
from mclabel.settings import MAX_SEED, Settings, joined_faults

MAX_BODY = 32 * 2**20
"""Bytes of a request."""
MAX_ITEMS = 1_024
"""Completions of a request."""
MAX_PROBLEM = 65_536
"""Characters of a problem, of an answer or of a group's name."""
MAX_MESSAGE = 2_000
"""Characters of a message."""

_Text = Annotated[str, Field(max_length=MAX_PROBLEM)]
_Whole = Annotated[int, Field(ge=-MAX_SEED, le=MAX_SEED)]
_Number = Annotated[float, Field(ge=-1e300, le=1e300)]
S = TypeVar("S", bound=Settings)


class _Item(Settings):
    problem: _Text
    completion: str
    answer: _Text | None = None
    group: _Text | None = None
    truncated: bool | None = None


class _Score(Settings):
    items: list[_Item]


class _GetReward(Settings):
    """What OpenRLHF sends: prompts with their completions, the prompts alone, and gold answers."""

    query: list[str]
    prompts: list[_Text]
    labels: list[_Text | _Whole | _Number | None] | None = None


def read_score(body: bytes, settings: RewardSettings) -> list[RewardItem]:
    """The completions of a request POST /score.

    Raises:
        Refused: it is no such request, holds too much, or lacks an answer; names what is wrong.
    """
    content = parsed(body)
    _check_length("items", content.get("items"))
    request = _validated(_Score, content)
    given = [dict(one) | {"truncated": bool(one.truncated)} for one in request.items]
    return _with_answers([RewardItem(**one) for one in given], "items", settings)


def read_get_reward(body: bytes, settings: RewardSettings) -> list[RewardItem | None]:
    """The completions of a request POST /get_reward of OpenRLHF (0.11).

    Returns:
        None for a query that does not begin with its prompt, or a prompt without the texts that
        stand around its problem.

    Raises:
        Refused: as of `read_score`.
    """
    content = parsed(body)
    for name in ("query", "prompts", "labels"):
        _check_length(name, content.get(name))
    request = _validated(_GetReward, content)
    labels = request.labels or [None] * len(request.query)
    lengths = {"query": len(request.query), "prompts": len(request.prompts), "labels": len(labels)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{number} {name}" for name, number in lengths.items())
        _refuse(f"{shown}: must be as many of each")
    found: list[RewardItem | None] = []
    for query, prompt, label in zip(request.query, request.prompts, labels, strict=True):
        item = _item(query, prompt, settings)
        answer = None if label is None else str(label)
        found.append(None if item is None else replace(item, answer=answer))
    _with_answers([one for one in found if one is not None], "labels", settings)
    return found


def _item(query: str, prompt: str, settings: RewardSettings) -> RewardItem | None:
    before, after = settings.around
    start = prompt.find(before)
    end = prompt.rfind(after)
    if not query.startswith(prompt) or start < 0 or end < start + len(before):
        return None
    completion = query[len(prompt) :]
    while ending := next((one for one in settings.end_texts if completion.endswith(one)), ""):
        completion = completion.removesuffix(ending)
    return RewardItem(
        problem=prompt[start + len(before) : end], completion=completion, group=prompt
    )


def _with_answers(items: list[RewardItem], name: str, settings: RewardSettings) -> list[RewardItem]:
    """The items, which must have gold answers where the server checks them."""
    if settings.check:
        for number, one in enumerate(items):
            if one.answer is None or not one.answer.strip():
                _refuse(
                    f"{name}[{number}]: has no gold answer, and this server checks answers. Send "
                    "one with every completion, or start the server with check=false"
                )
    return items


def _check_length(name: str, given: object) -> None:
    """Refuse a list that is too long before its elements are looked at."""
    if isinstance(given, list) and len(given) > MAX_ITEMS:
        message = f"{name}: {len(given):,} are more than the {MAX_ITEMS:,} that a request may have"
        raise Refused(413, message, param=name)


def _validated(kind: type[S], content: object) -> S:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        _refuse(joined_faults(kind, error, "request")[:MAX_MESSAGE])


def _refuse(message: str) -> NoReturn:
    raise Refused(400, message)
