"""Bounds on what is read of others' data, whatever the format of their files."""

from __future__ import annotations

MAX_ROW = 1 << 24
"""Bytes of a row, in CSV characters: more than any model's context, and less than hurts."""
