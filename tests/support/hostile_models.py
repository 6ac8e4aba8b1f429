"""Malicious model folders; each would create a marker file if its code ran."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

BOMBS = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "text": "{{ 'a' * 10**10 }}",
    "doubling": "{% set ns = namespace(s='aaaa') %}{% for i in range(99) %}"
    "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "format": "{{ '%999999999d' % 1 }}",
    "recursion": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "escape": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "syntax": "{% if %}",
}


class _Opens:
    """An object that creates the marker file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self._marker), "w")


def hostile_models(sound: Path, folder: Path, marker: Path) -> dict[str, Path]:
    """Make copies of a sound model, each damaged or malicious in one way.

    Args:
        sound: folder of a model whose architecture transformers supports.
        folder: folder for the copies.
        marker: file that the copies' code would create.
    """
    code = f"open({str(marker)!r}, 'w').close()\n"
    models: dict[str, Path] = {}

    def copy(name: str) -> Path:
        models[name] = folder / name
        shutil.copytree(sound, models[name])
        return models[name]

    model = copy("auto-map-of-an-unknown-model")
    (model / "evil.py").write_text(code)
    change(
        model / "config.json",
        model_type="evil",
        architectures=["Evil"],
        auto_map={
            "AutoConfig": "evil.Config",
            "AutoModelForCausalLM": "evil.Model",
            "AutoModelForTokenClassification": "evil.Model",
        },
    )
    model = copy("auto-map-of-a-tokenizer")
    (model / "evil.py").write_text(code)
    change(
        model / "tokenizer_config.json",
        tokenizer_class="EvilTokenizer",
        auto_map={"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]},
    )
    model = copy("auto-map-to-elsewhere")
    change(model / "config.json", model_type="evil", auto_map={"AutoConfig": "evil/repo--evil.C"})

    for name, changes in {
        "kernel": {"attn_implementation": "evil/repo"},
        "kernel-of-a-revision": {"_attn_implementation": "paged|evil/repo@v1:forward"},
        "kernel-of-a-mapping": {"attn_implementation": {"": "kernels-community/a"}},
        "config-of-a-giant": {"intermediate_size": 10**8},
        "config-of-many-layers": {"num_hidden_layers": 10**9},
        "config-of-other-types": {"hidden_size": "x", "vocab_size": [1]},
    }.items():
        change(copy(name) / "config.json", **changes)

    model = copy("pickle")
    for path in model.glob("*.safetensors"):
        path.unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(_Opens(marker)))

    weights = sorted(sound.glob("*.safetensors"))[0].name
    whole = (sound / weights).read_bytes()
    contents: dict[str, tuple[str, bytes]] = {
        "weights-empty": (weights, b""),
        "weights-cut": (weights, whole[: len(whole) // 2]),
        "weights-rubbish": (weights, b"\xff" * 4096),
        "weights-long-header": (weights, (2**62).to_bytes(8, "little") + whole[8:]),
        "weights-deep-header": (weights, (10**5).to_bytes(8, "little") + b"[" * 10**5),
        "config-deep": ("config.json", b"[" * 100_000),
        "config-rubbish": ("config.json", b"\xff\xfe{"),
        "config-list": ("config.json", b"[1]"),
        "tokenizer-rubbish": ("tokenizer.json", b'{"version": "1.0", "model": 3}'),
        "tokenizer-deep": ("tokenizer.json", b"[" * 100_000),
        "tokenizer-config-rubbish": ("tokenizer_config.json", b"["),
        "adapter": ("adapter_config.json", b'{"base_model_name_or_path": "evil/repo"}'),
        # The other templates are covered by the test of rendering.
        **{
            f"template-{name}": ("chat_template.jinja", BOMBS[name].encode())
            for name in ("loops", "escape")
        },
    }
    if (sound / "prm.json").is_file():
        contents |= {
            "manifest-rubbish": ("prm.json", b"\xff{"),
            "manifest-list": ("prm.json", b"[1]"),
            "manifest-number": ("prm.json", b"7"),
            "manifest-deep": ("prm.json", b"[" * 100_000),
        }
        change(copy("manifest-of-other-types") / "prm.json", max_tokens=[1], step_token=3)
        change(copy("manifest-of-another-head") / "prm.json", head="likelihood")
        change(copy("manifest-with-more") / "prm.json", trust_remote_code=True)
    for name, (file, content) in contents.items():
        (copy(name) / file).write_bytes(content)
    tensors = load_file(sound / weights)
    last = sorted(tensors)[-1]
    save_file({k: v for k, v in tensors.items() if k != last}, copy("weights-lack-one") / weights,
              metadata={"format": "pt"})  # fmt: skip
    return models


def change(path: Path, **changes: object) -> None:
    """Set keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
