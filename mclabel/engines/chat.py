"""Renders chats by the template that comes with a model, in a process that can be killed.

Control tokens in a problem's text stay text: one that holds `<|im_end|>` would otherwise end its
own message. They are fenced before rendering and tokenised as text; a prompt without fences is
tokenised in one piece, as transformers does it.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from mclabel.core.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


RENDER_S = 5.0
"""CPU seconds that the rendering of one chat may take; a usual chat takes a tenth of a millisecond.
"""
WAIT_S = 120.0
"""Wall-clock seconds after which a rendering is given up, however little CPU time it received. The
start of the process counts."""
MEMORY = 1 << 30
"""Bytes."""
_PIECE = 1 << 16
Variable = bool | int | float | str
"""A value that a chat template reads by name."""
TEMPLATE_DATE = "2025-01-01"
"""Date that a chat template prints. It is fixed, so that a resumed run has the same prompts."""
TAKEN_NAMES = frozenset(
    {
        *("messages", "conversations", "chat_template", "add_generation_prompt", "tokenize"),
        *("continue_final_message", "return_assistant_tokens_mask", "tools", "documents"),
        *("strftime_now", "raise_exception", "return_dict", "return_tensors"),
    }
)
"""Names that a template may read in addition to the configuration's variables."""


class ChatTemplateError(EngineError):
    """A chat template that cannot render a chat, or not within its limits."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(
            f"{model}: its chat template cannot render a chat: {reason}. Take the template that "
            "came with the model, or one that you have read"
        )
        self.reason = reason


def chat_messages(
    problem: str, *, system: str | None, turns: Sequence[tuple[str, str]]
) -> list[dict[str, str]]:
    """Return a chat up to the message that the policy is to write.

    Args:
        problem: the question to ask now.
        system: message that comes first, if any.
        turns: earlier questions and answers, in order.
    """
    texts = [*(text for turn in turns for text in turn), problem]
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *messages] if system else messages


def render_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, str]],
    *,
    ask: bool,
    variables: Mapping[str, Variable] = MappingProxyType({}),
) -> str:
    """Render a chat as its model reads it.

    Args:
        tokenizer: with a chat template.
        messages: with `role` and `content`.
        ask: end with what begins the model's next message.
        variables: variables that the template may read, such as `enable_thinking`.

    Raises:
        ChatTemplateError: the template fails, or takes more time or memory than it may.
    """
    from transformers import PreTrainedTokenizerBase

    if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        # Code of its class writes the chats, which is either the library's or trusted.
        own: dict[str, Any] = {**variables, "tokenize": False, "add_generation_prompt": ask}
        rendered = tokenizer.apply_chat_template([dict(message) for message in messages], **own)
        return cast(str, rendered)
    answer = _HOST.render(
        template=tokenizer.get_chat_template(),
        messages=[dict(message) for message in messages],
        ask=ask,
        date=TEMPLATE_DATE,
        variables={
            **{name: _plain(token) for name, token in tokenizer.special_tokens_map.items()},
            **variables,
        },
    )
    if "text" not in answer:
        raise ChatTemplateError(str(tokenizer.name_or_path), str(answer["fault"]))
    return str(answer["text"])


def _plain(token: object) -> Any:
    return [str(text) for text in token] if isinstance(token, list | tuple) else str(token)


class _Host:
    """One process of `template_host`, started at the first chat and after each that it died of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def render(self, **question: Any) -> dict[str, Any]:
        """Return the rendered `text`, or the `fault`."""
        asked = json.dumps({**question, "seconds": RENDER_S}).encode() + b"\n"
        with self._lock:
            is_old = self._process is not None
            answer = self._answer(asked)
            if answer is None and is_old:  # it may have ended before it was asked
                answer = self._answer(asked)
        if answer is None:
            return {"fault": f"it takes more than {RENDER_S:g} s, or more memory than it may"}
        return answer

    def _answer(self, question: bytes) -> dict[str, Any] | None:
        """Return the process's answer; None if it died of the question, or gives none."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(question)
            process.stdin.flush()
            line = _read_line(process.stdout.fileno(), time.monotonic() + WAIT_S)
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            self._end()
            return None
        return cast(dict[str, Any], json.loads(line))

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid():
            if self._process.poll() is None:
                return self._process
            self._end()
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mclabel.engines.template_host", str(MEMORY)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()


def _read_line(descriptor: int, deadline: float) -> bytes:
    """Up to the end of a line, of the input, or of the time."""
    pieces = []
    while True:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0 or not select.select([descriptor], [], [], remaining_s)[0]:
            break
        piece = os.read(descriptor, _PIECE)
        pieces.append(piece)
        if not piece or piece.endswith(b"\n"):
            break
    return b"".join(pieces)


_HOST = _Host()


_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
"""Noncharacters of Unicode, which are no text. Those of a text itself are left as they are."""


class ControlTokens:
    """Special tokens of one tokenizer, in texts and among ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Read which tokens of the vocabulary are special."""
        self._tokenizer = tokenizer

    def fence(self, text: str) -> str:
        """Mark a text so that `encode` keeps its control tokens as text in every context."""
        # `re` keeps compiled patterns.
        return re.sub(self._special, rf"{_OPEN}\g<0>{_CLOSE}", text) if self._special else text

    def encode(self, rendered: str) -> list[int]:
        """Tokenise a rendered prompt: control tokens are tokens unless they are fenced.

        Nothing is added to it. A tokenizer that puts a space before every text puts one at each
        end of a fenced token, too.
        """
        fenced = f"{_OPEN}({self._special}){_CLOSE}"
        pieces = re.split(fenced, rendered) if self._special else [rendered]
        return [
            token_id
            for number, piece in enumerate(pieces)
            if piece
            for token_id in self._ids(piece, as_text=number % 2 == 1)
        ]

    def encode_plain(self, text: str) -> list[int]:
        """Tokenise a text without reading control tokens."""
        return self._ids(text, as_text=True)

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encode a prompt with the tokenizer's prefix of any text, such as `<s>`.

        The prefix is left out if the prompt begins with it.
        """
        ids, before = self.encode(prompt), self._before
        return ids if ids[: len(before)] == before else before + ids

    def is_special(self, token: int) -> bool:
        """Return whether an id is that of a control token."""
        return token in self._special_ids

    def marked(self, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> str:
        """Yield parts of the text of ids for a reader: ⟦…⟧ around each control token."""

        def pieces() -> Iterator[str]:
            for is_control, run in groupby(ids, self.is_special):
                if is_control:
                    yield from (f"⟦{decode([token_id])}⟧" for token_id in run)
                else:
                    yield decode(list(run))

        return "".join(pieces())

    def _ids(self, text: str, *, as_text: bool) -> list[int]:
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=as_text)
        return cast(list[int], encoded["input_ids"])

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self._tokenizer.added_tokens_decoder
        return frozenset(number for number, token in added.items() if token.special)

    @cached_property
    def _special(self) -> str:
        """Return a pattern of the special tokens, the longest first."""
        added = self._tokenizer.added_tokens_decoder
        texts = sorted(
            (added[number].content for number in self._special_ids), key=len, reverse=True
        )
        return "|".join(re.escape(text) for text in texts if text)

    @cached_property
    def _before(self) -> list[int]:
        """Return the token ids that the tokenizer puts before every text."""
        whole = cast(list[int], self._tokenizer("a")["input_ids"])
        bare = self._ids("a", as_text=False)
        starts = range(len(whole) - len(bare) + 1)
        start = next((i for i in starts if whole[i : i + len(bare)] == bare), 0)
        return whole[:start]
