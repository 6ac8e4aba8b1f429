"""Configuration of reinforcement learning."""

from __future__ import annotations

from mclabel.rl.settings import RewardSettings


class ServeRewardsConfig(RewardSettings):
    """A server of rewards and step credits for trainers."""
