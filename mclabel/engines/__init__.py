"""Engines behind one protocol: they continue token ids under fixed sampling parameters."""

from mclabel.engines.base import EngineStats, Policy, SamplingParams

__all__ = ["EngineStats", "Policy", "SamplingParams"]
