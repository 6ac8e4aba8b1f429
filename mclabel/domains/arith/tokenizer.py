"""The tokenizer of the bundled models: domain words, single digits, and bytes for other text.

It is a byte-level BPE with an empty merge list and `ignore_merges`. A piece of text that is in the
vocabulary becomes one token. Any other piece is split into bytes, so every string round-trips. A
word of the domain and its leading space are one token, and each digit of a number is one token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EOS, PAD, STEP = "<|end|>", "<|pad|>", "<|step|>"
"""Special tokens: end of a solution, padding, and the token at which a PRM scores a step."""

_PIECES = r"\\boxed\{| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\s"
_CODE_PIECES = r" {4}|" + _PIECES
"""Pattern of the pieces of text with code. Unlike in `_PIECES`, four spaces in a row are one
piece."""
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{{ '\\n' if message['role'] == 'user' else eos_token }}{% endfor %}"
)


def build_tokenizer(
    texts: Iterable[str], *, base_vocabulary: Sequence[str] | None = None
) -> PreTrainedTokenizerFast:
    """Return a tokenizer for a domain.

    Texts are cut into pieces, such as words and single digits. The vocabulary holds every piece of
    `texts`, all bytes and the special tokens.

    Args:
        texts: sample texts of the domain. The same set of pieces gives the same token ids.
        base_vocabulary: vocabulary of an earlier tokenizer from this function, in the order of the
            ids. These tokens keep their ids, and new pieces get the ids after them. Four spaces in
            a row, as in indented code, are then one piece. None starts a new vocabulary, in which
            every space is a piece of its own.
    """
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(_PIECES if base_vocabulary is None else _CODE_PIECES), behavior="isolated"
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pieces = {piece for text in texts for piece, _ in split.pre_tokenize_str(text)}
    pieces |= {f"{space}{digit}" for digit in range(10) for space in ("", "Ġ")}
    base_tokens = base_vocabulary or [PAD, EOS, STEP, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = [*base_tokens, *sorted(pieces - set(base_tokens))]
    backend = Tokenizer(
        models.BPE(
            vocab={name: index for index, name in enumerate(vocabulary)},
            merges=[],
            ignore_merges=True,
        )
    )
    backend.pre_tokenizer = split
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=EOS,
        pad_token=PAD,
        extra_special_tokens={"step_token": STEP},
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        padding_side="right",
        model_max_length=1024,
    )
