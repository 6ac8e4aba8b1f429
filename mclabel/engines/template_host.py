"""The process that renders chat templates: programs that come with a model, and may be hostile.

`chat` runs it as `python -m mclabel.engines.template_host MEMORY`; it answers each JSON line with
one. transformers' sandbox hides Python's objects; this process adds limits on CPU time and memory,
against endless loops and huge strings, and refuses files, processes and the network.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Sequence
from datetime import date
from typing import Any

from jinja2.exceptions import TemplateError

MAX_CHARACTERS = 1 << 24
"""Maximum characters of a rendered chat."""


def main(argv: Sequence[str]) -> None:
    """Render until the input closes.

    Args:
        argv: limit on memory in bytes, beside what the imports take.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _warm_up(render_jinja_template)
    _confine(int(argv[0]))
    for line in sys.stdin.buffer:
        question = json.loads(line)
        # The signal's default action ends the process, whatever a filter in C is busy with.
        signal.setitimer(signal.ITIMER_PROF, question.pop("seconds"))
        answer = _rendered(render_jinja_template, question)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _rendered(render: Any, question: dict[str, Any]) -> dict[str, str]:
    try:
        (text,), _ = render(
            conversations=[question["messages"]],
            chat_template=question["template"],
            add_generation_prompt=question["ask"],
            strftime_now=date.fromisoformat(question["date"]).strftime,
            **question["variables"],
        )
    except MemoryError:
        return {"fault": "it takes more memory than it may"}
    except TemplateError as error:  # its own words, as where it takes no system message
        return {"fault": (error.message or type(error).__name__)[:500]}
    except Exception as error:  # the template is a program: it can raise whatever there is
        return {"fault": f"{type(error).__name__}: {error}"[:500]}
    if len(text) > MAX_CHARACTERS:
        return {"fault": f"it renders {len(text):,} characters, more than {MAX_CHARACTERS:,}"}
    return {"text": text}


def _warm_up(render: Any) -> None:
    """Import what the first rendering imports, before files are out of reach."""
    messages = [[{"role": "user", "content": "x"}]]
    render(conversations=messages, chat_template="{{ messages[0]['content'] | tojson }}")


def _confine(memory: int) -> None:
    with open("/proc/self/statm") if sys.platform == "linux" else open(os.devnull) as file:
        pages = int((file.read() or "0").split()[0])
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.addaudithook(_refuse)


_REFUSED = (
    "os.", "subprocess.", "socket.", "shutil.", "pty.", "ctypes.", "tempfile.", "urllib.",
)  # fmt: skip


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse as an audit hook: a template that has left its sandbox still finds no way out."""
    if event.startswith(_REFUSED) or (event == "open" and _is_for_writing(*arguments[1:3])):
        raise PermissionError(f"a chat template does no {event}")


def _is_for_writing(mode: object, flags: object) -> bool:
    if isinstance(mode, str) and set(mode) & set("wax+"):
        return True
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


if __name__ == "__main__":
    main(sys.argv[1:])
