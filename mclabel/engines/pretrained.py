"""Loads models, tokenizers and configurations from folders that may come from anybody.

Their Python code, and attention kernels that they name on the hub, run only where the user has set
`trust_remote_code` for this model. transformers asks at a terminal where the argument is left out,
so it is always given. Weights are read from safetensors alone, since a pickle is a program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mclabel.core.errors import EngineError, UntrustedCodeError
from mclabel.core.plain_files import check_plain
from mclabel.engines.hub import POLICY, fetch_model, named

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel
    from transformers import PreTrainedTokenizerBase as Tokenizer

CONFIG = "config.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
SPARE = 1 << 26
"""Parameters that a model may have beyond those in its files: a fresh head, tied weights."""
_BUILT_IN_ATTENTION = frozenset(
    ("eager", "sdpa", "flex_attention", *(f"flash_attention_{version}" for version in (2, 3, 4)))
)
"""Names of attention that transformers brings; it loads any other from the hub, compiled."""
_MAX_REASON = 400


def load_model_config(
    model: str, *, trust_remote_code: bool, revision: str | None = None, key: str = POLICY
) -> PreTrainedConfig:
    """Load a model's configuration.

    Args:
        model: folder or Hugging Face name.
        trust_remote_code: run Python code that comes with it.
        revision: commit or tag of a Hugging Face model.
        key: key of the setting that names the model, for messages.

    Raises:
        EngineError: it cannot be had, or read, or needs code that is not to be run.
    """
    from transformers import AutoConfig

    folder = fetch_model(model, revision=revision, weights=False, code=trust_remote_code, key=key)
    with _clear_faults(folder, named(model, key), key, trusted=trust_remote_code):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        )
    kernel = None if trust_remote_code else next(_hub_kernels(config), None)
    if kernel is not None:
        raise UntrustedCodeError(
            f"{named(model, key)}: {CONFIG} names {str(kernel)[:_MAX_REASON]!r} as its attention, "
            "which is no built-in one but compiled code of the hub, and is not loaded",
            _permitting_option(key),
        )
    return config


def load_tokenizer(
    model: str, *, trust_remote_code: bool, revision: str | None = None, key: str = POLICY
) -> Tokenizer:
    """Load a model's tokenizer; for arguments and errors see `load_model_config`."""
    from transformers import AutoTokenizer

    folder = fetch_model(model, revision=revision, weights=False, code=trust_remote_code, key=key)
    with _clear_faults(
        folder, named(model, key), key, part="its tokenizer ", trusted=trust_remote_code
    ):
        tokenizer: Tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        )
    return tokenizer


def load_generation_config(folder: str) -> GenerationConfig | None:
    """Load a model's sampling defaults; None if its folder holds no such file."""
    from transformers import GenerationConfig

    if not (Path(folder) / "generation_config.json").is_file():
        return None
    with _clear_faults(folder, named(folder, POLICY), POLICY, part="its generation_config.json "):
        return GenerationConfig.from_pretrained(folder, local_files_only=True)


def load_model(
    kind: Any,
    model: str,
    *,
    trust_remote_code: bool,
    revision: str | None = None,
    key: str = POLICY,
    fresh: tuple[str, ...] = (),
    **arguments: Any,
) -> PreTrainedModel:
    """Load a model with its weights.

    Args:
        kind: a class of transformers with `from_pretrained`.
        model: folder or Hugging Face name.
        trust_remote_code: run Python code that comes with it.
        revision: commit or tag of a Hugging Face model.
        key: key of the setting that names the model, for messages.
        fresh: names, or beginnings of names, of weights that need not be in its files.
        arguments: further ones of `from_pretrained`.

    Raises:
        EngineError: it cannot be had, or read, or needs code that is not to be run; its weights are
            damaged, are not those that its configuration asks for, or not in safetensors.
    """
    name = named(model, key)
    folder = fetch_model(model, revision=revision, code=trust_remote_code, key=key)
    config = load_model_config(folder, trust_remote_code=trust_remote_code, key=key)
    sizes = check_weights(folder, key=key)
    with _clear_faults(folder, name, key, trusted=trust_remote_code):
        if not trust_remote_code:  # whose code runs could take all memory anyway
            _check_size(kind, config, sizes, name)
        loaded, about = kind.from_pretrained(
            folder,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            allow_all_kernels=trust_remote_code,
            **arguments,
        )
    if missing := sorted(
        weight for weight in about["missing_keys"] if not weight.startswith(fresh)
    ):
        raise EngineError(
            f"{name}: its files lack {len(missing)} weights that its configuration asks for, "
            f"{missing[0]} first. Download or save the whole model again"
        )
    return loaded  # type: ignore[no-any-return]


def check_finite(model: PreTrainedModel, name: str) -> None:
    """Refuse a language model that computes no numbers, for its weights hold NaN or infinities.

    Rows of an input embedding may: of a token that the model never saw they are never read.

    Args:
        model: loaded, where it is to run.
        name: for the message.

    Raises:
        EngineError: names the first such weight.
    """
    inputs = model.get_input_embeddings().weight
    outputs = getattr(model.get_output_embeddings(), "weight", None)
    for key, weight in model.named_parameters():
        if weight is inputs and weight is not outputs:
            continue
        if not weight.isfinite().all():
            raise EngineError(
                f"{name}: its weight {key} holds NaN or infinities, so it cannot give token "
                "probabilities. Its weights are damaged. Train or download it again"
            )


def check_weights(folder: str | Path, *, key: str = POLICY) -> list[int]:
    """See that a folder holds weights that can be read, without reading them.

    Returns:
        The number of elements of every tensor.

    Raises:
        EngineError: there are none in safetensors, or a file is damaged or not whole.
    """
    folder = Path(folder)
    name = named(str(folder), key)
    if (folder / "adapter_config.json").is_file():
        raise EngineError(
            f"{name}: holds an adapter (adapter_config.json), which would change the model "
            "without notice. Merge it into its base (PEFT's merge_and_unload) and save the result"
        )
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
        raise EngineError(
            f"{name}: its weights are pickles ({pickled[0]}), which can run code, so only "
            "safetensors are read. If you trust them, convert them: load the model with "
            "transformers and save it with save_pretrained, or use "
            "https://huggingface.co/spaces/safetensors/convert"
            if pickled
            else f"{name}: holds no weights (*.safetensors). Download or save the whole model again"
        )
    return [size for path in files for size in _opened(path)]


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Load the tensors of a safetensors file.

    Raises:
        EngineError: there is no such file, or it is damaged.
    """
    from safetensors.torch import load_file

    _opened(path)
    return load_file(path)


def save_weights(weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write tensors as a model's safetensors file; tied tensors are written once.

    Args:
        weights: by name.
        folder: path of an existing folder.
    """
    from safetensors.torch import save_file

    kept, seen = {}, set()
    for name, tensor in weights.items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            kept[name] = tensor.detach().contiguous().cpu()
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def load_state(path: Path) -> Any:
    """Load a run's own `torch.save` file: tensors, numbers, lists and dicts, never code.

    Raises:
        EngineError: there is no such file, or it is damaged.
    """
    import torch

    check_plain(path, EngineError)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged archive fails in every way that unpickling can
        # PyTorch's own text would advise to let the file run code.
        raise EngineError(
            f"{path}: is damaged, or holds more than tensors, numbers, lists and mappings "
            f"({type(error).__name__})"
        ) from error


def _opened(path: Path) -> list[int]:
    """Return the numbers of elements of a file's tensors."""
    from math import prod

    from safetensors import SafetensorError, safe_open

    check_plain(path, EngineError)
    try:
        with safe_open(path, framework="pt") as file:
            return [prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise EngineError(
            f"{path}: is not a complete safetensors file: {reason(error)}. Download or save it "
            "again"
        ) from error


def configured_parameters(model: str, *, revision: str | None) -> int:
    """Count a causal language model's parameters by its configuration.

    Raises:
        EngineError: see `load_model_config`.
    """
    from transformers import AutoModelForCausalLM

    config = load_model_config(model, trust_remote_code=False, revision=revision)
    return _num_parameters(AutoModelForCausalLM, config)


def _num_parameters(kind: Any, config: PreTrainedConfig) -> int:
    import torch

    with torch.device("meta"):
        is_auto = hasattr(kind, "from_config")
        empty = kind.from_config(config, trust_remote_code=False) if is_auto else kind(config)
    return sum(parameter.numel() for parameter in empty.parameters())


def _check_size(kind: Any, config: PreTrainedConfig, sizes: list[int], name: str) -> None:
    """Refuse a configuration that asks for a far larger model than the files hold.

    transformers makes room for all that it asks for before it sees that the weights do not fit.
    """
    layers = getattr(config.get_text_config(), "num_hidden_layers", None)
    remedy = "Its config.json belongs to another model: download or save the whole model again"
    if isinstance(layers, int) and layers > len(sizes):
        raise EngineError(
            f"{name}: asks for {layers:,} layers, its files hold {len(sizes):,} tensors. {remedy}"
        )
    if getattr(config, "quantization_config", None) is not None:
        return  # packed: the files' numbers are not those of the model
    wanted = _num_parameters(kind, config)
    if wanted > sum(sizes) + SPARE:
        raise EngineError(
            f"{name}: asks for {wanted:,} parameters, its files hold {sum(sizes):,}. {remedy}"
        )


@contextmanager
def _clear_faults(
    folder: str, name: str, key: str, *, part: str = "", trusted: bool = False
) -> Iterator[None]:
    """Turn the libraries' exceptions about a folder's files into one message."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:  # transformers and tokenizers raise all kinds, and bare ones
        if not trusted and (code := _own_code(Path(folder))):
            raise UntrustedCodeError(
                f"{name}: comes with Python code of its own ({code}), which is not run",
                _permitting_option(key),
            ) from error
        raise EngineError(
            f"{name}: {part}cannot be loaded: {reason(error)}. Its files are damaged, or the "
            "installed transformers does not support this kind of model. Download or save the "
            "whole model again"
        ) from error


def _own_code(folder: Path) -> str | None:
    """Return the code that a folder's files name to be run; None if there is none."""
    for name in (CONFIG, "tokenizer_config.json"):
        try:
            content = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(content, dict) and content.get("auto_map"):
            return f"auto_map in {name}"
    return None


def _hub_kernels(config: PreTrainedConfig) -> Iterator[Any]:
    """Attention that a configuration or its parts name and that is no built-in one."""
    name = config._attn_implementation
    if name is not None and str(name).removeprefix("paged|") not in _BUILT_IN_ATTENTION:
        yield name
    for key in config.sub_configs:
        if (part := getattr(config, key, None)) is not None:
            yield from _hub_kernels(part)


def _permitting_option(key: str) -> str:
    section, _, name = key.rpartition(".")
    if section in ("scorers", "likelihood"):
        return f"trust_remote_code=[{name}]"
    if key:
        return f"{section}.trust_remote_code=true".lstrip(".")
    return "--trust-remote-code (in Python trust_remote_code=True)"


@contextmanager
def code_allowed_by(option: str) -> Iterator[None]:
    """Name the option that lets a model's code run in the error that refuses it.

    Args:
        option: the option on the command line; empty where the verb has none.
    """
    try:
        yield
    except UntrustedCodeError as error:
        error.args = (error.args[0], option)
        raise


def reason(error: Exception) -> str:
    """Return a library's error in one short line: its type and its text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_MAX_REASON]}" if text else type(error).__name__
