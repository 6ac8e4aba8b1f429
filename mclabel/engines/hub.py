"""Sources of models: a folder, or the Hugging Face Hub, downloaded once on each node."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.plain_files import check_plain_folder
from mclabel.domains.words.smollm2 import SMOLLM2, SMOLLM2_WORDS, smollm2_folder
from mclabel.engines.loading import quiet_transformers

ENDS = 2**20  # bytes
CONFIGURATION = ("*.json", "*.model", "*.txt", "*.jinja", "*.tiktoken")
DUPLICATES = ("original/*", "consolidated*", "onnx/*")
"""Other forms of the same weights."""
POLICY = "policy.model"
"""The setting that names a policy's model, for messages."""


def named(model: str, key: str) -> str:
    """Name a model in a message by its setting, or alone where no setting names it."""
    return f"{key}={model!r}" if key else model


def resolve_model(model: str, *, key: str = POLICY) -> str:
    """Return the folder of a bundled model such as `arith:NAME`; any other model unchanged.

    Args:
        model: name of the model in the configuration.
        key: key of the setting that names it, for messages.

    Raises:
        ConfigError: no model of that name is bundled.
        EngineError: a package that carries the model is missing, or its folder cannot be made.
    """
    if model.startswith("smollm2:"):
        if model not in (SMOLLM2, SMOLLM2_WORDS):
            raise ConfigError(f"{key}={model!r}: must be {SMOLLM2} or {SMOLLM2_WORDS}")
        quiet_transformers()
        return str(smollm2_folder(model))
    if ":" not in model:  # not a bundled one: no domain is loaded for it
        return model
    from mclabel.domains.registry import bundled_model

    try:
        return str(bundled_model(model) or model)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error


def model_source(model: str, *, key: str = POLICY) -> str:
    """`model` as transformers takes it, checked where that is possible without a network.

    Args:
        model: folder or Hugging Face name.
        key: key of the setting that names it, for messages.

    Raises:
        EngineError: it names a folder that holds no model, or something else than plain files.
    """
    path = Path(model)
    if path.is_dir():
        check_plain_folder(path, EngineError, name=named(model, key))
    if path.is_dir() and not (path / "config.json").is_file():
        raise EngineError(
            f"{named(model, key)}: the folder holds no config.json. Give a folder saved by "
            "`save_pretrained`, a Hugging Face name, or `arith:policy`"
        )
    if not path.is_dir() and (path.is_absolute() or model.startswith(".") or model.count("/") > 1):
        raise EngineError(
            f"{named(model, key)}: no such folder. Give one saved by `save_pretrained`, a Hugging "
            "Face name, or `arith:policy`"
        )
    return model


def pin_model(model: str, *, revision: str | None) -> str | None:
    """Check that a model is there without loading it: fetch its configuration alone.

    Returns:
        The commit that `revision` names now; None for a folder.

    Raises:
        EngineError: there is no such folder, or the hub does not have the model, does not give
            it, or cannot be reached.
    """
    from huggingface_hub import hf_hub_download

    if Path(model_source(model)).is_dir():
        return None
    with _explained(model, revision, POLICY):
        return Path(hf_hub_download(model, "config.json", revision=revision)).parent.name


def fetch_model(
    model: str,
    *,
    revision: str | None,
    weights: bool = True,
    code: bool = False,
    key: str = POLICY,
) -> str:
    """Return the folder of a model on this node; download it if it is missing.

    However many engines of a node ask, one downloads and the others wait for it.

    Args:
        model: folder or Hugging Face name.
        revision: commit or tag.
        weights: False is enough for a tokenizer.
        code: Python code that comes with the model, too.
        key: key of the setting that names it, for messages.

    Raises:
        EngineError: see `pin_model`.
    """
    from filelock import FileLock
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE

    if Path(model_source(model, key=key)).is_dir():
        return model
    wanted = [*CONFIGURATION, *(["*.py"] if code else []), *(["*.safetensors"] if weights else [])]
    locks = Path(HF_HUB_CACHE) / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(f"{model}@{revision}".encode()).hexdigest()[:16]
    with FileLock(locks / f"mclabel-{name}.lock"), _explained(model, revision, key):
        folder = snapshot_download(
            model, revision=revision, allow_patterns=wanted, ignore_patterns=list(DUPLICATES)
        )
    if weights and not any(Path(folder).glob("*.safetensors")):
        raise EngineError(
            f"{named(model, key)}: the repository holds no weights in safetensors. Pickles (*.bin) "
            "can run code and are not read: if you trust them, convert them at "
            "https://huggingface.co/spaces/safetensors/convert, and set the revision that it makes"
        )
    return folder


@contextmanager
def _explained(model: str, revision: str | None, key: str) -> Iterator[None]:
    """Turn what the hub answers into one message with its remedy."""
    from huggingface_hub import errors

    name = named(model, key)
    try:
        yield
    except errors.GatedRepoError as error:
        raise EngineError(
            f"{name}: the model is gated. Ask for access on its page on the hub, then log in with "
            "`hf auth login` or set HF_TOKEN, on every node that runs an engine"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise EngineError(
            f"{'policy.' if key == POLICY else ''}revision={revision!r}: {model} has no such "
            "commit, branch or tag"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise EngineError(
            f"{name}: not in this machine's cache, and the Hugging Face hub cannot be reached "
            "(or HF_HUB_OFFLINE is set). Give a folder, download it where there is a network "
            f"(`hf download {model}`), or check the name and the network"
        ) from error
    except errors.EntryNotFoundError as error:
        raise EngineError(
            f"{name}: the repository has no config.json, so it is not a transformers model"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise EngineError(
            f"{name}: the Hugging Face Hub has no such model, or it is private. Check the name; "
            "for a private one log in with `hf auth login` or set HF_TOKEN"
        ) from error
    except errors.HFValidationError as error:
        raise EngineError(
            f"{name}: neither a folder nor a Hugging Face name like Qwen/Qwen2.5-Math-7B-Instruct"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = (
            "refuses the token: set another HF_TOKEN, or unset it"
            if status == 401
            else (f"answers {status}: try again later" if status else f"cannot be reached: {error}")
        )
        raise EngineError(f"{name}: the Hugging Face hub {why}") from error


def weights_fingerprint(folder: Path) -> str:
    """Return a hash that changes with a model's weights, its configuration or its tokenizer.

    Files up to 16 MiB are hashed whole; of larger ones the size and the first and last MiB, so
    a change confined to the middle of a large file goes unseen. Training changes every tensor.
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
