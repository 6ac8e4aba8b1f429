"""Finds models in local folders or on the Hugging Face Hub; each node downloads a model once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.plain_files import check_plain_folder
from mclabel.domains.words.smollm2 import SMOLLM2, SMOLLM2_WORDS, prepare_smollm2_folder
from mclabel.engines.loading import silence_transformers

ENDS = 2**20
"""Number of bytes that are hashed at the beginning and at the end of a large file."""
CONFIGURATION = ("*.json", "*.model", "*.txt", "*.jinja", "*.tiktoken")
"""Patterns of the files that hold a model's configuration and tokenizer."""
DUPLICATES = ("original/*", "consolidated*", "onnx/*")
"""Patterns of files that hold the same weights in other formats, which are not downloaded."""
POLICY = "policy.model"
"""Key of the setting that names a policy's model, for messages."""


def format_model_with_key(model: str, setting_key: str) -> str:
    """Return a model's name for a message: `KEY='MODEL'`, or `MODEL` if `setting_key` is empty."""
    return f"{setting_key}={model!r}" if setting_key else model


def resolve_model(model: str, *, setting_key: str = POLICY) -> str:
    """Return the folder of a bundled model such as `arith:policy`; return other names unchanged.

    Args:
        model: name of the model in the configuration.
        setting_key: key of the setting that names the model, for messages.

    Raises:
        ConfigError: no model of that name is bundled.
        EngineError: a package that contains the model is missing, or its folder cannot be made.
    """
    if model.startswith("smollm2:"):
        if model not in (SMOLLM2, SMOLLM2_WORDS):
            raise ConfigError(f"{setting_key}={model!r}: must be {SMOLLM2} or {SMOLLM2_WORDS}")
        silence_transformers()
        return str(prepare_smollm2_folder(model))
    if ":" not in model:  # not a bundled model, so no domain needs to be imported
        return model
    from mclabel.domains.registry import bundled_model

    try:
        return str(bundled_model(model) or model)
    except ValueError as error:
        raise ConfigError(f"{setting_key}: {error}") from error


def check_model_source(model: str, *, setting_key: str = POLICY) -> str:
    """Return the name of a model unchanged, after the checks that need no network.

    Args:
        model: folder or Hugging Face name.
        setting_key: key of the setting that names the model, for messages.

    Raises:
        EngineError: the folder does not exist, holds no model, or holds something else than plain
            files.
    """
    path = Path(model)
    if path.is_dir():
        check_plain_folder(path, EngineError, name=format_model_with_key(model, setting_key))
    if path.is_dir() and not (path / "config.json").is_file():
        raise EngineError(
            f"{format_model_with_key(model, setting_key)}: the folder holds no config.json. "
            "Use a folder saved by `save_pretrained`, a Hugging Face name, or `arith:policy`"
        )
    if not path.is_dir() and (path.is_absolute() or model.startswith(".") or model.count("/") > 1):
        raise EngineError(
            f"{format_model_with_key(model, setting_key)}: no such folder. Use a folder saved by "
            "`save_pretrained`, a Hugging Face name, or `arith:policy`"
        )
    return model


def resolve_model_commit(model: str, *, revision: str | None) -> str | None:
    """Check that a model exists by fetching only its configuration.

    Returns:
        The commit that `revision` names now; None for a folder.

    Raises:
        EngineError: there is no such folder, or the hub does not have the model, refuses access
            to it, or cannot be reached.
    """
    from huggingface_hub import hf_hub_download

    if Path(check_model_source(model)).is_dir():
        return None
    with _explain_hub_errors(model, revision, POLICY):
        return Path(hf_hub_download(model, "config.json", revision=revision)).parent.name


def fetch_model(
    model: str,
    *,
    revision: str | None,
    weights: bool = True,
    code: bool = False,
    setting_key: str = POLICY,
) -> str:
    """Return the folder of a model on this node; download it if it is missing.

    If several engines of a node need the model, one downloads it and the others wait.

    Args:
        model: folder or Hugging Face name.
        revision: commit or tag; None uses the latest commit.
        weights: True to download the weights; a tokenizer does not need them.
        code: True to also download Python code that comes with the model.
        setting_key: key of the setting that names the model, for messages.

    Raises:
        EngineError: there is no such folder, or the hub does not have the model, refuses access to
            it, or cannot be reached.
    """
    from filelock import FileLock
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE

    if Path(check_model_source(model, setting_key=setting_key)).is_dir():
        return model
    wanted = [*CONFIGURATION, *(["*.py"] if code else []), *(["*.safetensors"] if weights else [])]
    locks = Path(HF_HUB_CACHE) / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(f"{model}@{revision}".encode()).hexdigest()[:16]
    with (
        FileLock(locks / f"mclabel-{name}.lock"),
        _explain_hub_errors(model, revision, setting_key),
    ):
        folder = snapshot_download(
            model, revision=revision, allow_patterns=wanted, ignore_patterns=list(DUPLICATES)
        )
    if weights and not any(Path(folder).glob("*.safetensors")):
        raise EngineError(
            f"{format_model_with_key(model, setting_key)}: the repository holds no weights in "
            "safetensors format. Pickles (*.bin) can run code and are not read. If you trust these "
            "files, convert them at https://huggingface.co/spaces/safetensors/convert, and set the "
            "revision that the conversion creates"
        )
    return folder


@contextmanager
def _explain_hub_errors(model: str, revision: str | None, setting_key: str) -> Iterator[None]:
    """Turn the errors of the hub's client into an `EngineError` with a remedy."""
    from huggingface_hub import errors

    name = format_model_with_key(model, setting_key)
    try:
        yield
    except errors.GatedRepoError as error:
        raise EngineError(
            f"{name}: the model is gated. Ask for access on its page on the hub, then log in with "
            "`hf auth login` or set HF_TOKEN, on every node that runs an engine"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise EngineError(
            f"{'policy.' if setting_key == POLICY else ''}revision={revision!r}: {model} has no "
            "such commit, branch or tag"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise EngineError(
            f"{name}: not in this machine's cache, and the Hugging Face hub cannot be reached "
            "(or HF_HUB_OFFLINE is set). Use a local folder, download the model on a machine with "
            f"a network (`hf download {model}`), or check the name and the network"
        ) from error
    except errors.EntryNotFoundError as error:
        raise EngineError(
            f"{name}: the repository has no config.json, so it is not a transformers model"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise EngineError(
            f"{name}: the Hugging Face Hub has no such model, or the model is private. Check the "
            "name. For a private model, log in with `hf auth login` or set HF_TOKEN"
        ) from error
    except errors.HFValidationError as error:
        raise EngineError(
            f"{name}: neither a folder nor a Hugging Face name like Qwen/Qwen2.5-Math-7B-Instruct"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = (
            "rejects the token. Set another HF_TOKEN, or unset it"
            if status == 401
            else (
                f"responds with status {status}. Try again later"
                if status
                else f"cannot be reached: {error}"
            )
        )
        raise EngineError(f"{name}: the Hugging Face hub {why}") from error


def compute_weights_fingerprint(folder: Path) -> str:
    """Return a hash that changes with a model's weights, its configuration or its tokenizer.

    Files of up to 16 MiB are hashed completely. For larger files only the size and the first and
    the last MiB are hashed. A change only in the middle of a large file is therefore missed, but
    training changes every tensor.
    """
    digest = hashlib.sha256()
    check_plain_folder(folder, EngineError, depth=0)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".safetensors", ".bin", ".json", ".model", ".jinja"):
            size = path.stat().st_size
            digest.update(f"{path.name}:{size}:".encode())
            with path.open("rb") as file:
                if size <= 16 * ENDS:
                    digest.update(file.read())
                else:
                    digest.update(file.read(ENDS))
                    file.seek(-ENDS, 2)
                    digest.update(file.read(ENDS))
    return digest.hexdigest()[:16]
