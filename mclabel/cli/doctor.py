"""The verb `doctor`, which reports on the machine, the installed packages and missing extras."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from mclabel.cli.output import add_json_option, record_json_result
from mclabel.core.cores import count_cores
from mclabel.core.errors import CheckerError
from mclabel.core.extras import EXTRAS, is_installed

_PACKAGES = (
    *("torch", "transformers", "ray", "vllm", "trl", "peft", "datasets", "pyarrow", "duckdb"),
    *("numpy", "sympy", "latex2sympy2_extended", "antlr4-python3-runtime", "math-verify"),
)
_GIB = 2**30


@click.command()
@add_json_option
def doctor() -> None:
    """Show versions, devices, disks and extras that are not installed."""
    facts = collect_installation_facts()
    if not record_json_result(facts):
        click.echo("\n".join(_format_facts(facts)))


def collect_installation_facts() -> dict[str, Any]:
    """Return facts about the machine and the environment, as JSON values.

    `sandbox` and `checker` hold the reason why the sandbox for programs, or sympy's checker
    process, fails; None if it works.
    """
    from mclabel.core.config.load import find_bundled_folder

    return {
        "versions": {
            "mclabel": _find_package_version("mclabel"),
            "python": platform.python_version(),
        },
        "place": str(Path(__file__).parents[1]),
        "pages": str(find_bundled_folder("docs")),
        "system": platform.platform(terse=True),
        "packages": {
            package: version
            for package in _PACKAGES
            if (version := _find_package_version(package)) is not None
        },
        "devices": _collect_device_facts(),
        "ray": _collect_ray_facts(),
        "disks": {
            str(folder): _measure_disk_space(folder) for folder in (Path.cwd(), Path("/dev/shm"))
        },
        "sandbox": _find_sandbox_fault(),
        "checker": _find_checker_fault(),
        "missing": {
            name: missing
            for name, extra in EXTRAS.items()
            if (missing := _list_missing_modules(extra.modules))
        },
    }


def _find_package_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _list_missing_modules(modules: Iterable[str]) -> list[str]:
    return [name for name in modules if not is_installed(name)]


def _collect_device_facts() -> dict[str, Any]:
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    facts: dict[str, Any] = {"cores": count_cores(), "memory_gib": round(memory_bytes / _GIB, 1)}
    facts |= {"cuda": None, "gpus": [], "error": None}
    if _list_missing_modules(["torch"]):
        return facts | {"error": "torch is not installed"}
    try:
        import torch

        facts["cuda"] = torch.version.cuda
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            facts["gpus"].append({"name": gpu.name, "memory_gib": round(gpu.total_memory / _GIB)})
    except (ImportError, OSError, RuntimeError) as error:  # a broken build or driver raises these
        facts["error"] = " ".join(f"torch fails: {error}".split())
    return facts


def _collect_ray_facts() -> dict[str, Any]:
    address_file = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    address = os.environ.get("RAY_ADDRESS") or (
        address_file.read_text().strip() if address_file.exists() else None
    )
    return {"address": address, "answers": address is not None and _accepts_connections(address)}


def _accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except (OSError, ValueError):
        return False
    return True


def _measure_disk_space(folder: Path) -> dict[str, float] | None:
    if not folder.is_dir():
        return None
    total, _, free = (round(size / _GIB, 1) for size in shutil.disk_usage(folder))
    return {"free_gib": free, "all_gib": total}


def _find_sandbox_fault() -> str | None:
    from mclabel.checkers.code.sandboxes import check_sandbox_starts

    try:
        check_sandbox_starts(is_sandboxed=True)
    except CheckerError as error:
        return str(error)
    return None


def _find_checker_fault() -> str | None:
    command = [sys.executable, "-m", "mclabel.answers.workers.host"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired as error:
        return str(error)
    return (process.stderr.strip().splitlines() or ["?"])[-1] if process.returncode else None


def _format_facts(facts: dict[str, Any]) -> list[str]:
    devices, ray = facts["devices"], facts["ray"]
    gpus = [f"{entry['name']} ({entry['memory_gib']} GiB)" for entry in devices["gpus"]]
    gpu_summary = f"{', '.join(gpus)}, CUDA {devices['cuda']}" if gpus else "no GPU that torch sees"
    disks = [
        f"{folder}: {entry['free_gib']} of {entry['all_gib']} GiB free"
        if entry
        else f"{folder}: none"
        for folder, entry in facts["disks"].items()
    ]
    missing = [f"{name} ({EXTRAS[name].purpose})" for name in facts["missing"]]
    remedy = f"in a clone of mclabel, such as: pip install '.[{next(iter(facts['missing']), '')}]'"
    rows = {
        "mclabel": f"{facts['versions']['mclabel'] or 'not installed'}, in {facts['place']}",
        "pages": f"{facts['pages']}, which messages call docs",
        "python": f"{facts['versions']['python']}, {facts['system']}",
        "packages": ", ".join(f"{name} {version}" for name, version in facts["packages"].items()),
        "devices": f"{devices['error'] or gpu_summary}; {devices['cores']} cores, "
        f"{devices['memory_gib']} GiB of memory",
        "ray": f"{ray['address']}: answers: {ray['answers']}"
        if ray["address"]
        else "no cluster known here",
        "disks": "; ".join(disks),
        "sandbox": facts["sandbox"] or "works",
        "checker": facts["checker"] or "its workers start",
        "missing": f"{', '.join(missing)}, which you install {remedy}" if missing else "no extra",
    }
    return [f"{name:9} {text}" for name, text in rows.items()]
