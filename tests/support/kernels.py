"""Environments that select older kernels of numpy and its BLAS on this CPU.

A kernel with newer instructions than the CPU's would crash.

    python -m tests.support.kernels COMMAND ...

runs a command under each kernel but the newest, and stops at the first failure.
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
"""Kernels of OpenBLAS, each with the CPU flags of Linux that it needs."""


def kernels() -> dict[str, dict[str, str]]:
    """Return environments by kernel name, from the oldest instructions to the newest.

    numpy is restricted to about the same instructions. The result is empty on CPUs other than x86,
    and where the system does not list the CPU's flags.
    """
    cpu_info = Path("/proc/cpuinfo")
    if platform.machine().lower() not in ("x86_64", "amd64") or not cpu_info.exists():
        return {}
    lines = cpu_info.read_text().splitlines()
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
    """Run the command under each kernel but the newest, which a plain run uses."""
    environments = kernels()
    if not environments:
        print(f"LEFT OUT: no kernels are known for {platform.machine()}")
    for chosen in list(environments.values())[:-1]:
        print("--", *(f"{key}={value}" for key, value in chosen.items()), flush=True)
        ended = subprocess.run(command, env={**os.environ, **chosen}, check=False).returncode
        if ended:
            return ended
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
