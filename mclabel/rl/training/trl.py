"""TRL's trainer without its own use of vLLM, which our engines take the place of.

TRL imports vLLM where it is installed, and fails to import with versions that it does not know. In
training here it never samples, so it is told that there is none while it is imported.
"""

from __future__ import annotations

import trl.import_utils as _known

_is_vllm_available = _known.is_vllm_available
_known.is_vllm_available = lambda min_version=None: False
try:
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from mclabel.rl.adapters.trl import StepGRPOTrainer
finally:
    _known.is_vllm_available = _is_vllm_available

__all__ = ["GRPOConfig", "GRPOTrainer", "StepGRPOTrainer"]
