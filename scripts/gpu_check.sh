#!/usr/bin/env bash
# Check mclabel on a machine with one GPU, Python 3.12, torch, transformers and no network.
#
#     scripts/gpu_check.sh --prepare [NAME ...]   # with a network: download wheels to .gpu_wheels/
#     scripts/gpu_check.sh [--tiny] OUT           # on the machine with the GPU: at most 9 minutes
#
# OUT/gpu_check.json has all figures, and OUT/gpu_check.txt has the table. --tiny uses small shapes,
# and the CPU if there is no GPU. PYTHON is the interpreter (default: python3).
#
# The wheels are packages that the checks import besides torch, transformers and their requirements.
# Only packages that the machine lacks are installed. pyarrow is not downloaded by default, because
# it is five times as large as all other wheels. If the machine lacks it, use `--prepare pyarrow`.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
wheels=$root/.gpu_wheels

prepare() {
    local take=("$python" -m pip download --quiet --dest "$wheels" --only-binary=:all:
        --python-version 3.12 --implementation cp)
    local glibc
    for glibc in 28 27 24 17; do take+=(--platform "manylinux_2_${glibc}_x86_64"); done
    take+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
    rm -rf "$wheels"
    # The first packages are downloaded with their requirements, because pydantic requires one exact
    # version of its core. accelerate and peft require torch and numpy, which the machine has.
    "${take[@]}" pydantic obstore psutil pytest pytest-xdist hypothesis
    "${take[@]}" --no-deps accelerate peft "$@"
    rm -f "$wheels"/{packaging,pygments,typing_extensions}-* # transformers requires them, too
    local mib
    mib=$(du --summarize --block-size=1MiB "$wheels" | cut -f1)
    echo "$wheels: $(find "$wheels" -name '*.whl' | wc -l) wheels, $mib MiB"
    if ((mib > 64)); then
        echo "error: $mib MiB of wheels: must be at most 64 MiB. Leave out some of these packages: $*" >&2
        exit 2
    fi
}

# Print the wheels of the packages that this Python lacks.
missing() {
    "$python" - "$wheels" <<'CODE'
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

for wheel in sorted(Path(sys.argv[1]).glob("*.whl")):
    try:
        version(wheel.name.partition("-")[0])
    except PackageNotFoundError:
        print(wheel)
CODE
}

if [[ ${1:-} == --prepare ]]; then
    prepare "${@:2}"
    exit
fi
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
mapfile -t lacking < <(missing)
if ((${#lacking[@]})); then
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" \
        "${lacking[@]}"
fi
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export PYTHONPATH=$root:$site${PYTHONPATH:+:$PYTHONPATH}
"$python" -m scripts.gpu_check "$@"
