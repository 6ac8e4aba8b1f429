"""Where the verbs print."""

from __future__ import annotations

from rich.console import Console

# Messages carry text of users and models: nothing in it is markup or an emoji code.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)
