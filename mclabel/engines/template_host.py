"""Program of a process that renders chat templates, which come with a model and may be hostile.

The module `chat` runs it as `python -m mclabel.engines.template_host MEMORY`. The process answers
each JSON line of its input with one JSON line. transformers' sandbox hides Python's objects from a
template. This process adds limits on CPU time and memory, against endless loops and huge strings.
It also refuses to write files, start processes and use the network.
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
    """Render chats until the input closes.

    Args:
        argv: one argument: maximum memory in bytes, in addition to the memory of the imports.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_render_modules(render_jinja_template)
    _restrict_process(int(argv[0]))
    for line in sys.stdin.buffer:
        question = json.loads(line)
        # The signal's default action terminates the process, even while a filter written in C runs.
        signal.setitimer(signal.ITIMER_PROF, question.pop("seconds"))
        reply = _render_request(render_jinja_template, question)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


def _render_request(render: Any, question: dict[str, Any]) -> dict[str, str]:
    try:
        (text,), _ = render(
            conversations=[question["messages"]],
            chat_template=question["template"],
            add_generation_prompt=question["ask"],
            strftime_now=date.fromisoformat(question["date"]).strftime,
            **question["variables"],
        )
    except MemoryError:
        return {"fault": "it takes more memory than is allowed"}
    except TemplateError as error:  # such as "System role not supported"
        return {"fault": (error.message or type(error).__name__)[:500]}
    except Exception as error:  # the template is a program, so it can raise any exception
        return {"fault": f"{type(error).__name__}: {error}"[:500]}
    if len(text) > MAX_CHARACTERS:
        return {"fault": f"it renders {len(text):,} characters, more than {MAX_CHARACTERS:,}"}
    return {"text": text}


def _import_render_modules(render: Any) -> None:
    """Render a small chat, so that all modules are imported before file access is restricted."""
    messages = [[{"role": "user", "content": "x"}]]
    render(conversations=messages, chat_template="{{ messages[0]['content'] | tojson }}")


def _restrict_process(memory: int) -> None:
    """Limit the memory of this process, and refuse dangerous operations from now on.

    Args:
        memory: maximum number of bytes that the process may use in addition to those in use now.
    """
    with open("/proc/self/statm") if sys.platform == "linux" else open(os.devnull) as file:
        pages = int((file.read() or "0").split()[0])
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.addaudithook(_refuse_dangerous_event)


_REFUSED = (
    "os.", "subprocess.", "socket.", "shutil.", "pty.", "ctypes.", "tempfile.", "urllib.",
)  # fmt: skip


def _refuse_dangerous_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise an error on a dangerous operation; Python calls this function as an audit hook.

    The hook also stops a template that has escaped from transformers' sandbox.
    """
    if event.startswith(_REFUSED) or (event == "open" and _is_write_access(*arguments[1:3])):
        raise PermissionError(f"a chat template must not call {event}")


def _is_write_access(mode: object, flags: object) -> bool:
    if isinstance(mode, str) and set(mode) & set("wax+"):
        return True
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


if __name__ == "__main__":
    main(sys.argv[1:])
