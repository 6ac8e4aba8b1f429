"""TRL's trainer without its own use of vLLM, which our engines replace.

TRL imports vLLM where it is installed, and fails to import with an unknown version of it. Here TRL
never samples, so the check for vLLM returns False while TRL is imported.
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
