"""Verbs that take a model, given hostile models, with "y" as the answer to every question."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM

import mclabel as package
from mclabel.cli import main
from mclabel.core.errors import EngineError
from mclabel.engines import chat
from mclabel.engines.pretrained import load_model, load_model_config, load_tokenizer
from tests.support.broken_inputs import World
from tests.support.hostile_models import BOMBS, hostile_models

Command = Callable[[World, str, str], list[str]]
PRM_VERBS: dict[str, Command] = {
    "score": lambda w, m, out: ["score", m, w["solutions.jsonl"]],
    "score --url": lambda w, m, out: [
        *("score", m, w["solutions.jsonl"], "--url", "http://127.0.0.1:9")
    ],
    "serve": lambda w, m, out: ["serve", m],
    "eval best-of-n scorers": lambda w, m, out: [
        *("eval", "best-of-n", w["best.yaml"], f"out={out}", f"scorers={{x: {m}}}")
    ],
    "eval processbench": lambda w, m, out: [
        *("eval", "processbench", w["processbench_gsm8k.jsonl"], "--model", m, "--threshold", "0.5")
    ],
}
"""Verbs that take a model trained by `mclabel train`."""
MODEL_VERBS: dict[str, Command] = {
    "score --format trl": lambda w, m, out: [
        *("score", m, w["solutions.jsonl"], "--format", "trl")
    ],
    "score --format qwen": lambda w, m, out: [
        *("score", m, w["solutions.jsonl"], "--format", "qwen")
    ],
    "score --format rlhflow": lambda w, m, out: [
        *("score", m, w["solutions.jsonl"], "--format", "rlhflow")
    ],
    "train base": lambda w, m, out: [
        *("train", w["train.yaml"], f"labels=[{w['arith']}]", f"base={m}", f"out={out}")
    ],
    "label": lambda w, m, out: [
        *("label", w["label.yaml"], "policy.engine=hf", f"policy.model={m}", f"out={out}"),
        "policy.max_tokens=4",
    ],
    "eval best-of-n likelihood": lambda w, m, out: [
        *("eval", "best-of-n", w["best.yaml"], f"out={out}", f"likelihood={{x: {m}}}")
    ],
    "eval best-of-n policy": lambda w, m, out: [
        *("eval", "best-of-n", w["best.yaml"], f"out={out}", f"policy.model={m}"),
    ],
}
"""Verbs that take any model."""
UNUSED = {
    **{f"template-{name}": ("score --format trl",) for name in ("loops", "escape")},
    **{
        name: ("score --url",)
        for name in (
            *("pickle", "adapter", "weights-empty", "weights-cut", "weights-rubbish"),
            *("weights-long-header", "weights-deep-header", "weights-lack-one"),
            *("config-of-a-giant", "config-of-many-layers", "auto-map-of-an-unknown-model"),
            *("auto-map-to-elsewhere", "kernel", "kernel-of-a-revision", "kernel-of-a-mapping"),
        )
    },
    **{
        name: ("score --url", "serve")
        for name in ("weights-lack-one", "config-of-a-giant", "config-of-many-layers")
    },
}
"""Parts of a model that a verb ignores, so that it may succeed or find another fault."""


class Hostile:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "world").mkdir()
        self.world = World(folder / "world")
        self.marker = folder / "marker"
        base, prm = Path(self.world["model"]), Path(self.world["prm"])
        (folder / "models").mkdir()
        (folder / "prms").mkdir()
        self.models = hostile_models(base, folder / "models", self.marker)
        self.prms = hostile_models(prm, folder / "prms", self.marker)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    return Hostile(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(autouse=True)
def short_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "RENDER_S", 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [*PRM_VERBS, *MODEL_VERBS])
def test_hostile_models_are_refused_in_one_message(
    verb: str, hostile: Hostile, tmp_path: Path
) -> None:
    command = {**PRM_VERBS, **MODEL_VERBS}[verb]
    faults = {}
    for name, folder in (hostile.prms if verb in PRM_VERBS else hostile.models).items():
        result = CliRunner().invoke(
            main, command(hostile.world, str(folder), str(tmp_path / name)), input="y\n" * 20
        )
        if hostile.marker.exists():
            faults[name] = "its code has run"
            hostile.marker.unlink()
        elif not isinstance(result.exception, SystemExit | None):
            faults[name] = repr(result.exception)[:200]
        elif verb in UNUSED.get(name, ()):
            continue
        elif result.exit_code != 2 or result.output.count("mclabel: ") != 1:
            faults[name] = f"exit code {result.exit_code}: {result.output[-200:]}"
        elif folder.name not in result.output:
            faults[name] = f"not named: {result.output[-200:]}"
        elif "[y/N]" in result.output or "Traceback" in result.output:
            faults[name] = result.output[-200:]
    assert not faults


def test_code_that_is_not_needed_does_not_run(hostile: Hostile, tmp_path: Path) -> None:
    """The library's own code loads a known architecture, not the code in the model's folder."""
    folder = tmp_path / "model"
    shutil.copytree(hostile.world["model"], folder)
    (folder / "evil.py").write_text(f"open({str(hostile.marker)!r}, 'w').close()\n")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.C", "AutoModelForTokenClassification": "evil.M"}
    (folder / "config.json").write_text(json.dumps(config))
    result = CliRunner().invoke(
        main, MODEL_VERBS["score --format trl"](hostile.world, str(folder), ""), input="y\n"
    )
    assert not hostile.marker.exists()
    assert result.exit_code in (0, 2)


@pytest.mark.parametrize(
    ("verb", "permission", "message"),
    [
        ("label", "policy.trust_remote_code=true", "policy.trust_remote_code=true"),
        ("train base", "trust_remote_code=true", "trust_remote_code=true"),
        ("eval best-of-n likelihood", "trust_remote_code=[x]", "trust_remote_code=[x]"),
        ("score --format trl", "--trust-remote-code", "--trust-remote-code"),
    ],
)
def test_code_runs_where_the_user_says_so_for_this_model(
    verb: str, permission: str, message: str, hostile: Hostile, tmp_path: Path
) -> None:
    folder = tmp_path / f"model-of-{len(verb)}"  # Python does not import the same module twice
    shutil.copytree(hostile.models["auto-map-of-an-unknown-model"], folder)
    with (folder / "evil.py").open("a") as file:
        file.write(f"verb = {verb!r}\n")
    command = MODEL_VERBS[verb](hostile.world, str(folder), str(tmp_path / "out"))
    assert (
        message in CliRunner().invoke(main, command, input="y\n").output
        and not hostile.marker.exists()
    )
    allowed = CliRunner().invoke(main, [*command, permission])
    assert hostile.marker.exists(), allowed.output
    hostile.marker.unlink()


def test_messages_name_the_setting_and_the_remedy(hostile: Hostile) -> None:
    for name, message in {
        "pickle": "its weights are pickles (pytorch_model.bin), which can run code",
        "weights-cut": "not a complete safetensors file",
        "weights-lack-one": "its files lack 1 weights that its configuration requires",
        "config-of-a-giant": "parameters, but its files hold",
        "config-of-many-layers": "describes 1,000,000,000 layers",
        "adapter": "holds an adapter (adapter_config.json)",
        "kernel": "config.json names 'evil/repo' as its attention",
        "kernel-of-a-revision": "names 'paged|evil/repo@v1:forward' as its attention",
        "kernel-of-a-mapping": "names 'kernels-community/a' as its attention",
    }.items():
        with pytest.raises(EngineError, match=re.escape(message)):
            load_model(
                AutoModelForCausalLM,
                str(hostile.models[name]),
                trust_remote_code=False,
                setting_key="base",
                dtype=torch.float32,
            )


def test_chats_are_rendered_as_transformers_renders_them(hostile: Hostile) -> None:
    tokenizer = load_tokenizer(hostile.world["model"], trust_remote_code=False)
    messages = [
        {"role": "system", "content": "Be brief \u2028 \ud800 {{ x }}"},
        {"role": "user", "content": " 1 < 2 & 'a' \n"},
        {"role": "assistant", "content": "e\u0301"},
    ]
    for template in (
        tokenizer.chat_template,
        "{{ bos_token }}{{ eos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}"
        "{% if loop.last %}{% break %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}\n  {% if true %}\n x{% endif %}",
    ):
        tokenizer.chat_template = template
        for ask in (True, False):
            expected = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=ask
            )
            assert chat.render_chat(tokenizer, messages, add_generation_prompt=ask) == expected


@pytest.mark.slow
def test_no_template_takes_long_or_costs_a_later_one(hostile: Hostile) -> None:
    tokenizer = load_tokenizer(hostile.world["model"], trust_remote_code=False)
    sound = tokenizer.chat_template
    messages = [{"role": "user", "content": "x"}]
    for template in BOMBS.values():
        tokenizer.chat_template = template
        with pytest.raises(chat.ChatTemplateError):
            chat.render_chat(tokenizer, messages, add_generation_prompt=True)
        tokenizer.chat_template = sound
        assert "x" in chat.render_chat(tokenizer, messages, add_generation_prompt=True)


def test_a_configuration_is_read_without_its_weights(hostile: Hostile) -> None:
    assert (
        load_model_config(str(hostile.models["pickle"]), trust_remote_code=False).model_type
        == "llama"
    )


LOADERS = {"from_pretrained", "torch.load", "pickle.load", "pickle.loads", "safe_open"}
LOADING = "engines/pretrained.py"
OF_A_KNOWN_FILE = "domains/words/smollm2.py"
"""A module that loads a single file, after comparing its SHA-256."""


def test_no_other_module_loads_a_model() -> None:
    """Loaders in other modules could leave `trust_remote_code` to a prompt."""
    root = Path(package.__file__).parent
    loading_modules = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in LOADERS or name.rpartition(".")[2] in ("from_pretrained", "load_file"):
                loading_modules.add(path.relative_to(root).as_posix())
    assert loading_modules == {LOADING, OF_A_KNOWN_FILE}


def test_trust_is_given_to_every_loader_that_knows_it() -> None:
    for node in ast.walk(
        ast.parse((Path(package.__file__).parent / LOADING).read_text(encoding="utf-8"))
    ):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("from_pretrained"):
            # GenerationConfig only holds numbers, and it runs no foreign code.
            assert "trust_remote_code" in {
                keyword.arg for keyword in node.keywords
            } or "GenerationConfig" in ast.unparse(node.func)
