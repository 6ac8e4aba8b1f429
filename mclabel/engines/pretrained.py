"""Loads models, tokenizers and configurations from folders that may be hostile.

A model may come with Python code, or name attention kernels on the hub. Both run only if the user
has set `trust_remote_code` for this model. The value is always passed to transformers, which would
otherwise ask the user at the terminal. Weights are read only from safetensors files, because a
pickle can run code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mclabel.core.errors import EngineError, UntrustedCodeError
from mclabel.core.plain_files import check_plain
from mclabel.engines.hub import POLICY, fetch_model, format_model_with_key

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel
    from transformers import PreTrainedTokenizerBase as Tokenizer

CONFIG = "config.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Suffixes of weight files that are pickles."""
SPARE = 1 << 26
"""Maximum number of parameters that a model may have in addition to those in its files, such as a
new head or tied weights."""
_BUILT_IN_ATTENTION = frozenset(
    ("eager", "sdpa", "flex_attention", *(f"flash_attention_{version}" for version in (2, 3, 4)))
)
"""Names of the attention implementations in transformers. For any other name, transformers loads
compiled code from the hub."""
_MAX_REASON = 400
"""Maximum number of characters of a library's error in a message."""


def load_model_config(
    model: str, *, trust_remote_code: bool, revision: str | None = None, setting_key: str = POLICY
) -> PreTrainedConfig:
    """Load a model's configuration.

    Args:
        model: folder or Hugging Face name.
        trust_remote_code: True to run Python code that comes with the model.
        revision: commit or tag of a Hugging Face model.
        setting_key: key of the setting that names the model, for messages.

    Raises:
        EngineError: the configuration cannot be downloaded or read, or needs untrusted code.
    """
    from transformers import AutoConfig

    folder = fetch_model(
        model, revision=revision, weights=False, code=trust_remote_code, setting_key=setting_key
    )
    with _explain_load_errors(
        folder, format_model_with_key(model, setting_key), setting_key, trusted=trust_remote_code
    ):
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        )
    kernel = None if trust_remote_code else next(_iter_hub_attention_names(config), None)
    if kernel is not None:
        raise UntrustedCodeError(
            f"{format_model_with_key(model, setting_key)}: {CONFIG} names "
            f"{str(kernel)[:_MAX_REASON]!r} as its "
            "attention. This is not a built-in attention but compiled code on the hub, which is "
            "not loaded",
            _format_trust_option(setting_key),
        )
    return config


def load_tokenizer(
    model: str, *, trust_remote_code: bool, revision: str | None = None, setting_key: str = POLICY
) -> Tokenizer:
    """Load a model's tokenizer. Arguments and errors are as for `load_model_config`."""
    from transformers import AutoTokenizer

    folder = fetch_model(
        model, revision=revision, weights=False, code=trust_remote_code, setting_key=setting_key
    )
    with _explain_load_errors(
        folder,
        format_model_with_key(model, setting_key),
        setting_key,
        part="its tokenizer ",
        trusted=trust_remote_code,
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
    with _explain_load_errors(
        folder, format_model_with_key(folder, POLICY), POLICY, part="its generation_config.json "
    ):
        return GenerationConfig.from_pretrained(folder, local_files_only=True)


def load_model(
    model_class: Any,
    model: str,
    *,
    trust_remote_code: bool,
    revision: str | None = None,
    setting_key: str = POLICY,
    optional_weight_prefixes: tuple[str, ...] = (),
    **arguments: Any,
) -> PreTrainedModel:
    """Load a model with its weights.

    Args:
        model_class: class of transformers with `from_pretrained`, such as `AutoModelForCausalLM`.
        model: folder or Hugging Face name.
        trust_remote_code: True to run Python code that comes with the model.
        revision: commit or tag of a Hugging Face model.
        setting_key: key of the setting that names the model, for messages.
        optional_weight_prefixes: names, or beginnings of names, of weights that may be missing in
            the files.
        arguments: further arguments of `from_pretrained`.

    Raises:
        EngineError: the model cannot be downloaded or read, or needs untrusted code. The same error
            is raised if its weights are damaged, do not match its configuration, or are not in
            safetensors format.
    """
    name = format_model_with_key(model, setting_key)
    folder = fetch_model(model, revision=revision, code=trust_remote_code, setting_key=setting_key)
    config = load_model_config(folder, trust_remote_code=trust_remote_code, setting_key=setting_key)
    sizes = check_weights(folder, setting_key=setting_key)
    with _explain_load_errors(folder, name, setting_key, trusted=trust_remote_code):
        if not trust_remote_code:  # trusted code could use all memory anyway
            _refuse_oversized_config(model_class, config, sizes, name)
        loaded, about = model_class.from_pretrained(
            folder,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            allow_all_kernels=trust_remote_code,
            **arguments,
        )
    if missing := sorted(
        weight
        for weight in about["missing_keys"]
        if not weight.startswith(optional_weight_prefixes)
    ):
        raise EngineError(
            f"{name}: its files lack {len(missing)} weights that its configuration requires, such "
            f"as {missing[0]}. Download or save the whole model again"
        )
    return loaded  # type: ignore[no-any-return]


def check_finite(model: PreTrainedModel, name: str) -> None:
    """Check that the weights of a language model contain neither NaN nor infinities.

    Only an input embedding that is not tied to the output may contain them, since its rows for
    tokens that never occur in texts are not read.

    Args:
        model: the model, loaded on its device.
        name: name of the model, for the message.

    Raises:
        EngineError: a weight contains NaN or infinities; the message names the first such weight.
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


def check_weights(folder: str | Path, *, setting_key: str = POLICY) -> list[int]:
    """Check that a folder has readable weight files, without reading the weights.

    Args:
        folder: folder of the model.
        setting_key: key of the setting that names the model, for messages.

    Returns:
        The number of elements of every tensor.

    Raises:
        EngineError: the folder has no safetensors files, or a file is damaged or incomplete.
    """
    folder = Path(folder)
    name = format_model_with_key(str(folder), setting_key)
    if (folder / "adapter_config.json").is_file():
        raise EngineError(
            f"{name}: the folder holds an adapter (adapter_config.json), which would change the "
            "model without notice. Merge the adapter into its base model (PEFT's "
            "merge_and_unload) and save the result"
        )
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
        raise EngineError(
            f"{name}: its weights are pickles ({pickled[0]}), which can run code, so only "
            "safetensors are read. If you trust these files, convert them: load the model with "
            "transformers and save it with save_pretrained, or use "
            "https://huggingface.co/spaces/safetensors/convert"
            if pickled
            else f"{name}: the folder holds no weights (*.safetensors). Download or save the whole "
            "model again"
        )
    return [size for path in files for size in _read_tensor_sizes(path)]


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Load the tensors of a safetensors file.

    Raises:
        EngineError: there is no such file, or it is damaged.
    """
    from safetensors.torch import load_file

    _read_tensor_sizes(path)
    return load_file(path)


def load_torch_state(path: Path) -> Any:
    """Load a `torch.save` file that holds only tensors, numbers, lists and dicts.

    Raises:
        EngineError: there is no such file, or it is damaged.
    """
    import torch

    check_plain(path, EngineError)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # unpickling a damaged archive can raise any exception
        # PyTorch's own message is left out, because it advises to let the file run code.
        raise EngineError(
            f"{path}: the file is damaged, or holds more than tensors, numbers, lists and mappings "
            f"({type(error).__name__})"
        ) from error


def _read_tensor_sizes(path: Path) -> list[int]:
    """Return the number of elements of each tensor in a safetensors file."""
    from math import prod

    from safetensors import SafetensorError, safe_open

    check_plain(path, EngineError)
    try:
        with safe_open(path, framework="pt") as file:
            return [prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise EngineError(
            f"{path}: this is not a complete safetensors file: "
            f"{format_error_reason(error)}. Download or "
            "save it again"
        ) from error


def count_configured_parameters(model: str, *, revision: str | None) -> int:
    """Return the number of a causal language model's parameters, from its configuration alone.

    Raises:
        EngineError: the configuration cannot be downloaded or read, or needs untrusted code.
    """
    from transformers import AutoModelForCausalLM

    config = load_model_config(model, trust_remote_code=False, revision=revision)
    return _count_parameters(AutoModelForCausalLM, config)


def _count_parameters(model_class: Any, config: PreTrainedConfig) -> int:
    import torch

    with torch.device("meta"):
        is_auto = hasattr(model_class, "from_config")
        empty = (
            model_class.from_config(config, trust_remote_code=False)
            if is_auto
            else model_class(config)
        )
    return sum(parameter.numel() for parameter in empty.parameters())


def _refuse_oversized_config(
    model_class: Any, config: PreTrainedConfig, tensor_sizes: list[int], name: str
) -> None:
    """Refuse a configuration that describes a far larger model than the files hold.

    transformers would allocate memory for the described model before it finds the mismatch.

    Args:
        model_class: class of the model.
        config: the model's configuration.
        tensor_sizes: number of elements of each tensor in the files.
        name: name of the model, for messages.
    """
    layers = getattr(config.get_text_config(), "num_hidden_layers", None)
    remedy = "Its config.json belongs to another model. Download or save the whole model again"
    if isinstance(layers, int) and layers > len(tensor_sizes):
        raise EngineError(
            f"{name}: its config.json describes {layers:,} layers, but its files hold "
            f"{len(tensor_sizes):,} tensors. {remedy}"
        )
    if getattr(config, "quantization_config", None) is not None:
        return  # quantized weights are packed, so the number of elements differs
    wanted = _count_parameters(model_class, config)
    if wanted > sum(tensor_sizes) + SPARE:
        raise EngineError(
            f"{name}: its config.json describes {wanted:,} parameters, but its files hold "
            f"{sum(tensor_sizes):,}. {remedy}"
        )


@contextmanager
def _explain_load_errors(
    folder: str, name: str, setting_key: str, *, part: str = "", trusted: bool = False
) -> Iterator[None]:
    """Turn the exceptions of libraries about a folder's files into an `EngineError`.

    Args:
        folder: folder of the model.
        name: name of the model, for messages.
        setting_key: key of the setting that names the model.
        part: subject of the message "cannot be loaded", followed by a space; empty for the model.
        trusted: True if the model may run its own code.
    """
    try:
        yield
    except EngineError:
        raise
    except Exception as error:  # transformers and tokenizers raise all kinds of exceptions
        if not trusted and (code := _find_model_code(Path(folder))):
            raise UntrustedCodeError(
                f"{name}: the model comes with its own Python code ({code}), which is not run",
                _format_trust_option(setting_key),
            ) from error
        raise EngineError(
            f"{name}: {part}cannot be loaded: "
            f"{format_error_reason(error)}. Its files are damaged, or the "
            "installed transformers does not support this kind of model. Download or save the "
            "whole model again"
        ) from error


def _find_model_code(folder: Path) -> str | None:
    """Return where a folder's files name code of the model, such as "auto_map in config.json".

    Return None if they name no code.
    """
    for name in (CONFIG, "tokenizer_config.json"):
        try:
            content = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(content, dict) and content.get("auto_map"):
            return f"auto_map in {name}"
    return None


def _iter_hub_attention_names(config: PreTrainedConfig) -> Iterator[Any]:
    """Yield the names of attention that a configuration or its parts load from the hub."""
    name = config._attn_implementation
    if name is not None and str(name).removeprefix("paged|") not in _BUILT_IN_ATTENTION:
        yield name
    for key in config.sub_configs:
        if (part := getattr(config, key, None)) is not None:
            yield from _iter_hub_attention_names(part)


def _format_trust_option(setting_key: str) -> str:
    """Return the setting or command-line option that permits a model's own code.

    Args:
        setting_key: key of the setting that names the model; empty if a verb's argument names it.
    """
    section, _, name = setting_key.rpartition(".")
    if section in ("scorers", "likelihood"):
        return f"trust_remote_code=[{name}]"
    if setting_key:
        return f"{section}.trust_remote_code=true".lstrip(".")
    return "--trust-remote-code (in Python trust_remote_code=True)"


@contextmanager
def name_option_in_code_errors(option: str) -> Iterator[None]:
    """Add the name of an option to errors that refuse to run a model's own code.

    Args:
        option: command-line option that permits the code; empty if the verb has no such option.
    """
    try:
        yield
    except UntrustedCodeError as error:
        error.args = (error.args[0], option)
        raise


def format_error_reason(error: Exception) -> str:
    """Return a library's error as one short line: the type and the text of the exception."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_MAX_REASON]}" if text else type(error).__name__
