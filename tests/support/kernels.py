"""The kernels that numpy and its BLAS have for this CPU, older ones included, as environments.

A kernel of newer instructions than the CPU has would crash.
`python -m tests.support.kernels COMMAND ...`
runs a command under each but the newest, and ends with the first that fails.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

_NEEDS = {
    "Nehalem": "sse4_2",
    "Haswell": "avx2 fma",
    "SkylakeX": "avx512f avx512dq avx512bw avx512vl avx512cd",
}
"""Of OpenBLAS, and the flags of Linux that they need."""


def kernels() -> dict[str, dict[str, str]]:
    """Environments by name, from the oldest instructions to the newest.

    numpy is held to about the same instructions. Empty on CPUs that are not x86, and where the
    system does not say what the CPU has.
    """
    told = Path("/proc/cpuinfo")
    if platform.machine().lower() not in ("x86_64", "amd64") or not told.exists():
        return {}
    lines = told.read_text().splitlines()
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    config: dict[str, Any] = np.show_config(mode="dicts")
    newer = config.get("SIMD Extensions", {}).get("found", [])
    of_512 = [name for name in newer if name.startswith(("AVX512", "X86_V4"))]
    left_out = {"Nehalem": newer, "Haswell": of_512}
    return {
        name: {
            "OPENBLAS_CORETYPE": name,
            "NPY_DISABLE_CPU_FEATURES": " ".join(left_out.get(name, [])),
        }
        for name, needs in _NEEDS.items()
        if set(needs.split()) <= set(flags)
    }


def main(command: list[str]) -> int:
    """Run the command under each kernel but the newest, which a plain run has."""
    found = kernels()
    if not found:
        print(f"LEFT OUT: no kernels to choose from on {platform.machine()}")
    for chosen in list(found.values())[:-1]:
        print("--", *(f"{key}={value}" for key, value in chosen.items()), flush=True)
        ended = subprocess.run(command, env={**os.environ, **chosen}, check=False).returncode
        if ended:
            return ended
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
