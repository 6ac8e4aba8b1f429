"""Renders chats with the template that comes with a model, in a process that can be killed.

Control tokens in a problem's text stay text. Otherwise a problem that contains `<|im_end|>` would
end its own message. Such control tokens are fenced (enclosed in marks) before rendering, and then
tokenised as text. A prompt without fences is tokenised in one piece, like in transformers.
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
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from mclabel.core.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


RENDER_S = 5.0
"""Maximum CPU seconds for rendering one chat; most chats take a tenth of a millisecond."""
WAIT_S = 120.0
"""Maximum wall-clock seconds for rendering one chat, including the start of the process. This limit
ends the wait even if the process gets too little CPU time to reach `RENDER_S`."""
MEMORY = 1 << 30
"""Maximum memory of the rendering process, in bytes, in addition to its imported modules."""
_PIECE = 1 << 16
"""Maximum number of bytes per read from the rendering process."""
Variable = bool | int | float | str
"""Type of a variable that a chat template reads by name."""
TEMPLATE_DATE = "2025-01-01"
"""Date that a chat template prints as today's. It is fixed, so a resumed run has the same prompts.
"""
RESERVED_VARIABLES = frozenset(
    {
        *("messages", "conversations", "chat_template", "add_generation_prompt", "tokenize"),
        *("continue_final_message", "return_assistant_tokens_mask", "tools", "documents"),
        *("strftime_now", "raise_exception", "return_dict", "return_tensors"),
    }
)
"""Names that mclabel or transformers passes to a template. `template_variables` must not set them.
"""


@dataclass(frozen=True, kw_only=True)
class PromptParts:
    """The parts of a prompt that surround the problem."""

    template: str | None = None
    """Prompt with `{problem}` in it, whose control tokens become special tokens; None uses the
    tokenizer's chat template."""
    system: str | None = None
    """System message of the chat; None omits it."""
    few_shot: Sequence[tuple[str, str]] = ()
    """Worked examples (problem, solution) before the problem."""
    variables: Mapping[str, Variable] = field(default_factory=dict)
    """Variables that the chat template may read."""


class ChatTemplateError(EngineError):
    """A chat template failed to render a chat, or exceeded its limits of time and memory."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(
            f"{model}: its chat template cannot render a chat: {reason}. Use the template that "
            "came with the model, or another template whose code you have read"
        )
        self.reason = reason


def build_chat_messages(
    problem: str, *, system: str | None, turns: Sequence[tuple[str, str]]
) -> list[dict[str, str]]:
    """Return the messages of a chat up to the last question, which the policy has to answer.

    Args:
        problem: the last question.
        system: text of the system message, which comes first; None omits it.
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
    add_generation_prompt: bool,
    variables: Mapping[str, Variable] = MappingProxyType({}),
) -> str:
    """Return the text of a chat in the format of the tokenizer's chat template.

    Args:
        tokenizer: tokenizer with a chat template.
        messages: messages with the keys `role` and `content`.
        add_generation_prompt: True to append the beginning of the model's next message.
        variables: further variables that the template may read, such as `enable_thinking`, by name.

    Raises:
        ChatTemplateError: the template fails, or exceeds its limits of time and memory.
    """
    from transformers import PreTrainedTokenizerBase

    if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        # The tokenizer's class renders chats by its own code, which is transformers' or trusted.
        own: dict[str, Any] = {
            **variables,
            "tokenize": False,
            "add_generation_prompt": add_generation_prompt,
        }
        rendered = tokenizer.apply_chat_template([dict(message) for message in messages], **own)
        return cast(str, rendered)
    reply = _HOST.render(
        template=tokenizer.get_chat_template(),
        messages=[dict(message) for message in messages],
        ask=add_generation_prompt,
        date=TEMPLATE_DATE,
        variables={
            **{
                name: list(map(str, token)) if isinstance(token, list | tuple) else str(token)
                for name, token in tokenizer.special_tokens_map.items()
            },
            **variables,
        },
    )
    if "text" not in reply:
        raise ChatTemplateError(str(tokenizer.name_or_path), str(reply["fault"]))
    return str(reply["text"])


class _RenderingProcess:
    """Client of the rendering process (`template_host`), which it starts and restarts on demand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def render(self, **question: Any) -> dict[str, Any]:
        """Return a dict with the rendered `text`, or with the reason of a failure as `fault`.

        Args:
            question: request to the process, whose values are sent as JSON.
        """
        asked = json.dumps({**question, "seconds": RENDER_S}).encode() + b"\n"
        with self._lock:
            is_old = self._process is not None
            reply = self._request_rendering(asked)
            if reply is None and is_old:  # the process may have exited before the question
                reply = self._request_rendering(asked)
        if reply is None:
            return {
                "fault": f"it takes more than {RENDER_S:g} s, or more than {MEMORY >> 20} MiB of "
                "memory"
            }
        return reply

    def _request_rendering(self, question: bytes) -> dict[str, Any] | None:
        """Send a request, and return the reply; None if the process died or took too long."""
        process = self._start_process()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(question)
            process.stdin.flush()
            line = _read_line(process.stdout.fileno(), time.monotonic() + WAIT_S)
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            self._kill_process()
            return None
        return cast(dict[str, Any], json.loads(line))

    def _start_process(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner == os.getpid():
            if self._process.poll() is None:
                return self._process
            self._kill_process()
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

    def _kill_process(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()


def _read_line(descriptor: int, deadline: float) -> bytes:
    """Read bytes up to the end of a line, the end of the input, or the deadline.

    Args:
        descriptor: file descriptor to read from.
        deadline: time of `time.monotonic()` at which reading stops.
    """
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


_HOST = _RenderingProcess()


_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
"""Marks before and after a fenced control token: noncharacters of Unicode, which texts do not use.
"""


class ControlTokens:
    """Finds the special tokens of one tokenizer in texts and among token ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Store the tokenizer. Its special tokens are read on first use."""
        self._tokenizer = tokenizer

    def fence_control_tokens(self, text: str) -> str:
        """Fence the control tokens in a text, so that `encode` tokenises them as plain text."""
        # `re` caches compiled patterns.
        return (
            re.sub(self._special_pattern, rf"{_OPEN}\g<0>{_CLOSE}", text)
            if self._special_pattern
            else text
        )

    def encode(self, rendered: str) -> list[int]:
        """Tokenise a rendered prompt. Control tokens become special tokens unless they are fenced.

        No special tokens are added. If the tokenizer puts a space before every text, it also puts
        a space before and after each fenced token.
        """
        fenced = f"{_OPEN}({self._special_pattern}){_CLOSE}"
        pieces = re.split(fenced, rendered) if self._special_pattern else [rendered]
        return [
            token_id
            for number, piece in enumerate(pieces)
            if piece
            for token_id in self._tokenise(piece, as_text=number % 2 == 1)
        ]

    def encode_plain(self, text: str) -> list[int]:
        """Tokenise a text whose control tokens all count as plain text."""
        return self._tokenise(text, as_text=True)

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encode a prompt, starting with the tokens that the tokenizer puts before every text.

        Such a token, as `<s>`, is not added if the prompt already begins with it.
        """
        ids, before = self.encode(prompt), self._leading_ids
        return ids if ids[: len(before)] == before else before + ids

    def is_special(self, token: int) -> bool:
        """Return whether a token id belongs to a control token."""
        return token in self._special_ids

    def mark_control_tokens(
        self, ids: Sequence[int], decode: Callable[[Sequence[int]], str]
    ) -> str:
        """Return the text of token ids for display, with ⟦…⟧ around each control token.

        Args:
            ids: token ids.
            decode: function that turns token ids into text.
        """

        def decode_pieces() -> Iterator[str]:
            for is_control, run in groupby(ids, self.is_special):
                if is_control:
                    yield from (f"⟦{decode([token_id])}⟧" for token_id in run)
                else:
                    yield decode(list(run))

        return "".join(decode_pieces())

    def _tokenise(self, text: str, *, as_text: bool) -> list[int]:
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=as_text)
        return cast(list[int], encoded["input_ids"])

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self._tokenizer.added_tokens_decoder
        return frozenset(number for number, token in added.items() if token.special)

    @cached_property
    def _special_pattern(self) -> str:
        """Regular expression that matches any special token; longer tokens are tried first."""
        added = self._tokenizer.added_tokens_decoder
        texts = sorted(
            (added[number].content for number in self._special_ids), key=len, reverse=True
        )
        return "|".join(re.escape(text) for text in texts if text)

    @cached_property
    def _leading_ids(self) -> list[int]:
        """Token ids that the tokenizer puts before every text."""
        whole = cast(list[int], self._tokenizer("a")["input_ids"])
        bare = self._tokenise("a", as_text=False)
        starts = range(len(whole) - len(bare) + 1)
        start = next((i for i in starts if whole[i : i + len(bare)] == bare), 0)
        return whole[:start]
