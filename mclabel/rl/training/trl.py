"""Import TRL's trainer without vLLM, because mclabel's own engines sample.

TRL imports vLLM if it is installed, and the import fails for unsupported versions of vLLM. TRL does
not need vLLM here, so its check for vLLM returns False during the import.
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
