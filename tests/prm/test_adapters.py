"""Public PRMs: the decoded input of their networks, and the logits that become scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
)

from mclabel.core.errors import ConfigError, DataError, EngineError
from mclabel.judge.opinions import OpinionRun, read_judged_solutions
from mclabel.prm import load_prm
from mclabel.prm.scoring import FORMATS, GENERATIVE, OWN_FORMAT, adapters
from mclabel.prm.scoring.adapters import AdaptedPRM, Qwen2ForProcessRewardModel
from mclabel.prm.scoring.layout import OUR_SPLIT, LayoutSettings, split_into_steps
from tests.support.commands import run_verb

OTHERS = [form for form in FORMATS if form not in (OWN_FORMAT, GENERATIVE)]

PROBLEM, STEPS = "q1 q2", ["a b", "c", "a c"]
CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WORDS = [
    "<unk>", "<s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<extra_0>", "q1", "q2",
    "a", "b", "c", "+", "-", "ки", "Step", "1", "2", "3", ":", "\n",
]  # fmt: skip
SPECIAL = WORDS[:7]


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words, with line breaks as separate words."""
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Split(":", "isolated"),
            pre_tokenizers.Split(" ", "removed"),
        ]
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        bos_token="<s>",
        additional_special_tokens=SPECIAL[2:],
    )
    made.chat_template = CHAT
    return made


def network(form: str) -> PreTrainedModel:
    """Return a random network of the class that the format needs."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": len(WORDS),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 256,
        "initializer_range": 0.5,
    }
    if form == "qwen":
        return Qwen2ForProcessRewardModel(Qwen2Config(**sizes))
    if form == "trl":
        return LlamaForTokenClassification(LlamaConfig(**sizes, num_labels=2))
    return LlamaForCausalLM(LlamaConfig(**sizes))


@pytest.fixture(params=OTHERS)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Yield the format and the folder of a checkpoint, for each format."""
    network(request.param).save_pretrained(tmp_path / "prm")
    tokenizer().save_pretrained(tmp_path / "prm")
    return request.param, str(tmp_path / "prm")


@pytest.fixture(params=OTHERS)
def prm(request: pytest.FixtureRequest) -> tuple[str, AdaptedPRM]:
    """Yield the format and a PRM, for each format."""
    return request.param, getattr(adapters, FORMATS[request.param].partition(":")[2])(
        network(request.param), tokenizer()
    )


def test_texts_that_hold_the_marks_are_refused(prm: tuple[str, AdaptedPRM]) -> None:
    form, adapted = prm
    with pytest.raises(DataError, match="without steps"):
        adapted.score(["q1"], [[]])
    mark = {"math-shepherd": "ки", "qwen": "<extra_0>"}.get(form)
    if mark is not None:
        with pytest.raises(DataError, match="contains the mark"):
            adapted.score(["q1"], [["a", f"b {mark} c"]])


def test_the_command_leaves_out_what_the_network_cannot_read(
    saved: tuple[str, str], tmp_path: Path
) -> None:
    form, path = saved
    rows = [{"problem": PROBLEM, "steps": steps} for steps in (STEPS, ["a " * 9000], ["a"] * 9000)]
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    done = run_verb(["score", path, str(file), "--format", form])
    assert len(done.stdout.splitlines()) == 1
    assert [line[:18] for line in done.stderr.splitlines()] == [
        "row 2 (too_long): ",
        "row 3 (too_long): ",
    ]


def test_opinions_are_on_the_steps_that_the_format_reads(
    saved: tuple[str, str], tmp_path: Path
) -> None:
    form, path = saved
    text = "a b\n\nc\na c"
    file, out = tmp_path / "in.jsonl", tmp_path / "run"
    file.write_text(json.dumps({"problem": PROBLEM, "solution": text}) + "\n")
    run_verb(["score", path, str(file), "--format", form, "-o", str(out)])
    (judged,) = read_judged_solutions(str(out))
    assert judged.steps == (
        ("a b\n\n", "c\na c") if (form in ("rlhflow", "qwen")) else ("a b\n\n", "c\n", "a c")
    )
    scores = load_prm(path, format=form).score([PROBLEM], [text])[0]
    assert judged.opinion.scores == pytest.approx(scores, abs=1e-5)
    assert list(OpinionRun.read(str(out)).num_steps.values()) == [len(scores)]


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ({"format": "qwen"}, EngineError, r"format=qwen: .*holds no config\.json"),
        (
            {"format": "trl", "url": "http://localhost:1"},
            ConfigError,
            r"serves PRMs of format=mclabel, not trl",
        ),
        ({"format": "bogus"}, ConfigError, r"load_prm: format: .*bogus"),
        ({"shape": "trl"}, ConfigError, "load_prm: shape: "),
    ],
)
def test_a_folder_without_a_model_is_refused(
    tmp_path: Path, keys: dict[str, str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        load_prm(tmp_path, **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("split", "steps"),
    [
        ("line", ["Step 1:\n", "3 + 4 = 7\n\n", "\\[\n", "x = 7\n", "\\]"]),
        ("paragraph", ["Step 1:\n3 + 4 = 7\n\n", "\\[\nx = 7\n\\]"]),
        (OUR_SPLIT, ["Step 1:\n3 + 4 = 7\n\n", "\\[\nx = 7\n\\]"]),
        ("line", []),
    ],
)
def test_a_text_is_split_as_the_authors_of_a_format_do_and_not_by_the_rules_for_labels(
    split: str, steps: list[str]
) -> None:
    assert split_into_steps("".join(steps), split) == steps


@pytest.mark.parametrize(
    ("names", "good", "warns"),
    [
        (("LABEL_0", "LABEL_1"), 1, False),
        (("good", "bad"), 0, False),
        (("bad", "good"), 1, False),
        (("+", "-"), 0, False),
        (("Correct", "Incorrect"), 0, False),
        (("incorrect", "correct"), 1, False),
        (("LABEL_1", "LABEL_0"), 0, False),
        (("A", "B"), 1, True),
        (("good", "right"), 1, True),
    ],
)
def test_the_names_of_the_classes_say_which_is_good(
    names: tuple[str, str], good: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    head = network("trl")
    head.config.id2label = dict(enumerate(names))
    scores = adapters.TrlPRM(head, tokenizer()).score([PROBLEM], [STEPS])[0]
    assert (
        scores
        == adapters.TrlPRM(
            head, tokenizer(), LayoutSettings(classes=(str(good), str(1 - good)))
        ).score([PROBLEM], [STEPS])[0]
    )
    assert ("id2label names the classes" in caplog.text) is warns
