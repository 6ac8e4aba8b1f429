"""The tokenizer of the bundled models: words of the domain, single digits, bytes for the rest.

A byte-level BPE with an empty merge list and `ignore_merges`: a piece of text that is in the
vocabulary is one token, any other piece falls apart into bytes. So every string round-trips,
words of the domain and their leading space are one token, and a number is one token a digit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EOS, PAD, STEP = "<|end|>", "<|pad|>", "<|step|>"
"""End of a solution; padding; the reserved token at which a PRM scores a step."""

_PIECES = r"\\boxed\{| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\s"
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{{ '\\n' if message['role'] == 'user' else eos_token }}{% endfor %}"
)


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer whose vocabulary holds every piece of `texts`, all bytes and the specials.

    Args:
        texts: sample of the domain. The same set of pieces gives the same ids.
    """
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pieces = {piece for text in texts for piece, _ in split.pre_tokenize_str(text)}
    pieces |= {f"{space}{digit}" for digit in range(10) for space in ("", "Ġ")}
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [PAD, EOS, STEP, *alphabet, *sorted(pieces - set(alphabet))]
    vocabulary = {name: i for i, name in enumerate(names)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
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
