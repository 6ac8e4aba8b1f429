"""Word problems within the reach of a real language model of 135 million parameters.

SmolLM2-135M solves hardly any problem of four steps. A LoRA adapter, which scripts/words_adapter.py
trains on worked solutions of some templates, brings other templates within its reach.
"""

from __future__ import annotations

from pathlib import Path

ADAPTER = Path(__file__).parent / "adapter.safetensors"
"""LoRA weights in bfloat16, as peft names them."""
RANK, ALPHA = 4, 16
