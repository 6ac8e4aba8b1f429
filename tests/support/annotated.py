"""Events of people, for tests of annotations."""

from __future__ import annotations

from typing import Any

from mclabel.annotate.events import Event, parse_event


def event(number: int = 0, **changes: Any) -> Event:
    """A valid event; `number` makes it another one."""
    content: dict[str, Any] = {
        "id": f"event-{number:04d}",
        "person": "ana",
        "solution": "solution-1",
        "digest": "d" * 16,
        "ratings": ["good", "bad", None],
        "finish": "found_error",
        "note": "",
        "ms": 1500,
        "at": 1_700_000_000_000 + number,
        "revision": number + 1,
    }
    return parse_event({**content, **changes})
