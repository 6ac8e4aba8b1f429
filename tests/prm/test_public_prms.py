"""Random-weight replicas of public PRMs, compared with the scoring on their authors' pages.

The tokenizers are of the same kinds as the originals: byte-level BPE for Llama 3 and Qwen 2, and
BPE with a mark for spaces for Mistral.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from mclabel.core.errors import ConfigError, EngineError
from mclabel.prm import Scorer, load_prm
from mclabel.prm.scoring.adapters import QWEN_SYSTEM, Qwen2ForProcessRewardModel

PROBLEM = "Tom has 3 apples. He buys 4 more. How many has he?"
STEPS = ["He has 3 apples.\nThat is $3$.", "3 + 4 = 7", "So he has 7."]
NUMBERED = [f"Step {number}: {step}" for number, step in enumerate(STEPS, 1)]
LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = [PROBLEM, *STEPS, *NUMBERED, QWEN_SYSTEM, "user assistant system", "+ -"] * 9


def byte_level(
    special: Sequence[str], template: str | None
) -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer as in Llama 3 and Qwen 2; the first special token begins texts."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=special[0], additional_special_tokens=list(special[1:])
    )
    made.chat_template = template
    return made


def make_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer that puts a space before every text and marks spaces."""
    core = Tokenizer(models.BPE(unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.Split("\n", "isolated")]
    )
    core.decoder = decoders.Metaspace()
    core.train_from_iterator(
        [*TEXTS, *["ки ки"] * 9],
        trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False),
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")


def save_checkpoint(
    folder: Path, tokenizer: transformers.PreTrainedTokenizerFast, kind: str, labels: int = 2
) -> str:
    """Save a checkpoint with random weights and return its path."""
    torch.manual_seed(0)
    sizes = {
        **{"vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64},
        **{"max_position_embeddings": 1024, "initializer_range": 0.5},
    }
    networks: dict[str, Callable[[], transformers.PreTrainedModel]] = {
        "lm": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)),
        "head": lambda: transformers.LlamaForTokenClassification(
            transformers.LlamaConfig(**sizes, num_labels=labels)
        ),
        "qwen": lambda: Qwen2ForProcessRewardModel(transformers.Qwen2Config(**sizes)),
    }
    networks[kind]().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def compute_logits(prm: Scorer, ids: Sequence[int]) -> torch.Tensor:
    """Return the logits of every position."""
    with torch.no_grad():
        token_logits: torch.Tensor = prm.network(input_ids=torch.tensor([list(ids)])).logits[0]  # type: ignore[attr-defined]
    return token_logits


def shepherd_by_its_card(
    prm: Scorer, tokenizer: transformers.PreTrainedTokenizerFast
) -> list[float]:
    """Score as the model card does: softmax over two tokens at each " ки" after a step."""
    ids = tokenizer.encode(" ".join([PROBLEM, "\n".join(f"{step} ки" for step in NUMBERED)]))
    scores = compute_logits(prm, ids)[:, tokenizer.encode("+ -")].softmax(-1)[:, 0]
    tag = tokenizer.encode("ки")[-1]
    return [float(score) for score, token in zip(scores, ids, strict=True) if token == tag]


def test_math_shepherd(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    prm = load_prm(save_checkpoint(tmp_path, tokenizer, "lm"), format="math-shepherd")
    expected = pytest.approx(shepherd_by_its_card(prm, tokenizer), abs=1e-5)
    assert len(shepherd_by_its_card(prm, tokenizer)) == 3
    assert prm.score([PROBLEM] * 2, [STEPS, NUMBERED]) == [expected] * 2
    bare = load_prm(str(tmp_path), format="math-shepherd", layout={"numbering": False})
    assert bare.score([PROBLEM] * 2, [NUMBERED, STEPS])[0] == expected
    assert bare.score([PROBLEM], [STEPS])[0] != expected


@pytest.mark.parametrize("steps", [STEPS, NUMBERED])
def test_rlhflow(tmp_path: Path, steps: list[str]) -> None:
    tokenizer = byte_level(
        ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], LLAMA
    )
    prm = load_prm(save_checkpoint(tmp_path, tokenizer, "lm"), format="rlhflow")
    plus_minus = [tokenizer.encode(sign)[-1] for sign in "+-"]
    turns: list[dict[str, str]] = []
    by_hand = []
    for step in steps:
        turns.append({"role": "user", "content": step if turns else f"{PROBLEM} {step}"})
        turns.append({"role": "assistant", "content": "+"})
        by_hand.append(
            float(
                compute_logits(prm, tokenizer.apply_chat_template(turns, return_dict=False))[
                    -3, plus_minus
                ].softmax(-1)[0]
            )
        )
    assert (
        prm.score([PROBLEM] * 2, [steps, "  \n\n".join(steps)])
        == [pytest.approx(by_hand, abs=1e-5)] * 2
    )


def test_qwen(tmp_path: Path) -> None:
    prm = load_prm(
        save_checkpoint(
            tmp_path,
            byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra_0>"], CHATML),
            "qwen",
        ),
        format="qwen",
    )
    # AutoTokenizer returns Qwen's own class
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    turns = [
        {"role": "system", "content": QWEN_SYSTEM},
        {"role": "user", "content": PROBLEM},
        {"role": "assistant", "content": "<extra_0>".join(STEPS) + "<extra_0>"},
    ]
    ids = tokenizer.encode(tokenizer.apply_chat_template(turns, tokenize=False))
    mark = tokenizer.encode("<extra_0>")[0]
    assert (
        prm.score([PROBLEM] * 2, [STEPS, "\n\n".join(STEPS)])
        == [
            pytest.approx(
                [
                    float(score)
                    for score, token in zip(
                        compute_logits(prm, ids).softmax(-1)[:, 1], ids, strict=True
                    )
                    if token == mark
                ],
                abs=1e-5,
            )
        ]
        * 2
    )
    assert (
        len(
            load_prm(str(tmp_path), format="qwen", layout={"split": "line"}).score(
                [PROBLEM], ["\n\n".join(STEPS)]
            )[0]
        )
        == 4
    )
    assert (
        len(prm.score([PROBLEM], [["It is <extra_0>.", "7<|im_end|>"]])[0]) == 2
    )  # marks inside a step's text are text


@pytest.mark.parametrize("separator", [None, "\n\n"])
def test_trl(tmp_path: Path, separator: str | None) -> None:
    tokenizer = byte_level(["<|begin_of_text|>"], None)
    folder = save_checkpoint(tmp_path, tokenizer, "head")
    prm = load_prm(folder, format="trl", layout={"separator": separator})
    ids = [tokenizer.bos_token_id, *tokenizer.encode(PROBLEM)]
    by_hand = []
    for step in STEPS:
        ids += tokenizer.encode(step) + tokenizer.encode(separator or "\n")
        by_hand.append(float(compute_logits(prm, ids)[-1].softmax(-1)[1]))
    assert prm.score([PROBLEM], [STEPS])[0] == pytest.approx(by_hand, abs=1e-5)
    if separator is not None:
        assert prm.score([PROBLEM], ["\n\n".join(STEPS)])[0] == pytest.approx(by_hand, abs=1e-5)
    turned = load_prm(folder, format="trl", layout={"separator": separator, "classes": ["0", "1"]})
    assert turned.score([PROBLEM], [STEPS])[0] == pytest.approx([1 - x for x in by_hand], abs=1e-5)


def test_what_cannot_be_read_so_is_refused(tmp_path: Path) -> None:
    plain = byte_level(["<|endoftext|>"], CHATML)
    lm = save_checkpoint(tmp_path / "lm", plain, "lm")
    for form, token in (("math-shepherd", r"' ки'"), ("qwen", "'<extra_0>'")):
        folder = lm if form != "qwen" else save_checkpoint(tmp_path / "qwen", plain, "qwen")
        with pytest.raises(EngineError, match=rf"format={form}: .*no single token for {token}"):
            load_prm(folder, format=form)
    for labels, why in ((1, "its head has one class"), (3, r"has the classes 0 \(LABEL_0\), 1")):
        folder = save_checkpoint(tmp_path / str(labels), plain, "head", labels)
        with pytest.raises(EngineError, match=why):
            load_prm(folder, format="trl")
    assert (
        len(
            load_prm(folder, format="trl", layout={"classes": ["LABEL_2", "LABEL_0"]}).score(
                [PROBLEM], [STEPS]
            )[0]
        )
        == 3
    )
    with pytest.raises(ConfigError, match="layout: is for PRMs of other formats"):
        load_prm(lm, layout={"numbering": True})
