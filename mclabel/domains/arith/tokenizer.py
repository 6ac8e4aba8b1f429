"""The tokenizer of the bundled models: words of the domain, single digits, bytes for the rest.

A byte-level BPE with an empty merge list and `ignore_merges`: a piece of text that is in the
vocabulary is one token, any other piece falls apart into bytes. So every string round-trips,
words of the domain and their leading space are one token, and a number is one token a digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EOS, PAD, STEP = "<|end|>", "<|pad|>", "<|step|>"
"""End of a solution; padding; the reserved token at which a PRM scores a step."""

_PIECES = r"\\boxed\{| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\s"
_CODE_PIECES = r" {4}|" + _PIECES
"""Pattern of the pieces of code, in which four spaces of indentation are one piece. It splits a
text without four spaces in a row like `_PIECES`."""
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{{ '\\n' if message['role'] == 'user' else eos_token }}{% endfor %}"
)


def build_tokenizer(
    texts: Iterable[str], *, after: Sequence[str] | None = None
) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose vocabulary holds every piece of `texts`, all bytes and the specials.

    Args:
        texts: sample of the domain. The same set of pieces gives the same ids.
        after: tokens by id of a tokenizer that this function built. They keep their ids, and new
            pieces, those of code among them, come after.
    """
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(_PIECES if after is None else _CODE_PIECES), behavior="isolated"
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pieces = {piece for text in texts for piece, _ in split.pre_tokenize_str(text)}
    pieces |= {f"{space}{digit}" for digit in range(10) for space in ("", "Ġ")}
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    first = after or [PAD, EOS, STEP, *alphabet]
    names = [*first, *sorted(pieces - set(first))]
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
