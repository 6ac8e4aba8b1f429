"""Programs that try to pass tests without computing the required result."""

from __future__ import annotations

GOLD = {
    "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n"
    "    assert candidate(1, 1) == 2\n",
    "entry_point": "add",
    "prompt": "def add(a, b):\n    '''The sum.'''\n",
}
FORGED = "__import__('struct').pack('>cI', {kind!r}, {size}) + {content!r}"


def _forge_frames(kind: bytes, content: bytes = b"") -> str:
    """Return a program that writes a frame to every descriptor, bare and wrapped, and exits."""
    frame = FORGED.format(kind=kind, size=len(content), content=content)
    return (
        "import os, struct\n"
        f"frame = {frame}\n"
        "whole = struct.pack('>cI', b'D', len(frame)) + frame\n"
        "for fd in range(64):\n"
        "    for data in (frame, whole, frame * 9):\n"
        "        try: os.write(fd, data)\n"
        "        except OSError: pass\n"
        "def add(a, b): os._exit(0)\n"
    )


CHEATS = {
    "equal to all": "class E(int):\n    def __eq__(s, o): return True\ndef add(a, b): return E()\n",
    "opaque": "class E:\n    def __eq__(s, o): return True\ndef add(a, b): return E()\n",
    "equal list": "class E(list):\n    def __eq__(s, o): return True\ndef add(a, b): return E()\n",
    "exit 0": "import sys\ndef add(a, b): sys.exit(0)\n",
    "exit at import": "raise SystemExit(0)\n",
    "os._exit": "import os\ndef add(a, b): os._exit(0)\n",
    "os._exit at import": "import os; os._exit(0)\n",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): raise SystemExit\n",
    "frames": (
        "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n"
        "        for v in list(f.f_locals.values()):\n"
        "            if isinstance(v, list): v.append('passed')\n"
        "            if isinstance(v, dict): v['passed'] = v['ok'] = True\n"
        "        f = f.f_back\n"
    ),
    "builtins": (
        "import builtins\nbuiltins.AssertionError = type('A', (BaseException,), {})\n"
        "builtins.compile = lambda *a, **k: 'pass'\nbuiltins.exec = lambda *a: None\n"
        "def add(a, b): return None\n"
    ),
    "modules": (
        "import sys\nfor name in list(sys.modules):\n    m = sys.modules[name]\n"
        "    for n in ('encode', 'decode', 'dumps', 'loads', '_write'):\n"
        "        if hasattr(m, n): setattr(m, n, lambda *a, **k: b'\"passed\"')\n"
        "def add(a, b): return 0\n"
    ),
    "prints": "print('P'); print('passed'); print({'passed': True})\ndef add(a, b): print('P')\n",
    "forged P": _forge_frames(b"P"),
    "forged E": _forge_frames(b"E", b'{"why": null, "status": 0, "clean": true}'),
    "forged V": _forge_frames(b"V", b"[true]"),
    "forged R": _forge_frames(b"R"),
    "huge frame": "import os\nos.write(4, b'V' + b'\\xff' * 4 + b'x' * 1000)\ndef add(a, b): ...\n",
    "nested frame": (
        "import os, struct\ndef add(a, b):\n    t = b'[' * 100000\n"
        "    os.write(4, struct.pack('>cI', b'V', len(t)) + t); os._exit(0)\n"
    ),
    "hostile exception": (
        "class AssertionError(Exception):\n    def __str__(s): raise SystemExit\n"
        "def add(a, b): raise AssertionError\n"
    ),
    "source of tests": (
        "import gc, inspect, re\ndef add(a, b):\n    for o in gc.get_objects():\n"
        "        if isinstance(o, dict):\n            for v in list(o.values()):\n"
        "                if isinstance(v, str) and 'candidate(2, 3)' in v:\n"
        "                    return int(re.search('== (.)', v)[1])\n"
        "    return inspect.stack()[-1].function\n"
    ),
    "proc": (
        "import os\ndef add(a, b):\n    for p in os.listdir('/proc'):\n        try:\n"
        "            if b'candidate(2' in open(f'/proc/{p}/mem', 'rb', 0).read(1): return 5\n"
        "        except OSError: pass\n"
    ),
    "threads": (
        "import threading, os, struct, time\ndef flood():\n    while True:\n"
        "        try: os.write(4, struct.pack('>cI', b'P', 0))\n"
        "        except OSError: time.sleep(1)\n"
        "threading.Thread(target=flood, daemon=True).start()\ndef add(a, b): return None\n"
    ),
    "daemon": (
        "import os, time\ndef add(a, b):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0:\n            time.sleep(100)\n    os._exit(0)\n"
    ),
    "memory": "def add(a, b): return bytearray(1 << 40)\n",
    "memory in small": "x = []\ndef add(a, b):\n    while True: x.append(bytearray(1 << 20))\n",
    "output": "def add(a, b): return 'x' * (1 << 26)\n",
    "endless": "def add(a, b):\n    while True: yield a\n",
    "prints without end": "def add(a, b):\n    while True: print('x' * 1000)\n",
    "sleep": "import time\ndef add(a, b): time.sleep(100)\n",
    "loop": "def add(a, b):\n    while True: pass\n",
    "loop at import": "while True: pass\n",
    "loop after a frame": (
        "import os, struct\nos.write(4, struct.pack('>cI', b'R', 0))\nwhile True: pass\n"
    ),
    "half a frame": "import os, time\ndef add(a, b):\n    os.write(4, b'V'); time.sleep(100)\n",
    "fork bomb": (
        "import os\ndef add(a, b):\n    while True:\n"
        "        try: os.fork()\n        except OSError: pass\n"
    ),
    "stack": (
        "import sys\nsys.setrecursionlimit(10**9)\n"
        "def add(a, b): return eval('(' * 9 + 'add(a, b)' + ')' * 9)\n"
    ),
    "recursion": "def add(a, b): return add(a, b)\n",
    "deep": "def add(a, b):\n    x = []\n    for _ in range(10**5): x = [x]\n    return x\n",
    "itself": "def add(a, b):\n    x = []\n    x.append(x)\n    return x\n",
    "segfault": "import ctypes\ndef add(a, b): ctypes.string_at(0)\n",
    "no function": "def sub(a, b): return 5\n",
    "syntax": "```python\ndef add(a, b) return\n```",
    "nothing": "   ",
    "constant": "def add(a, b): return 5\n",
    "float that is none": "def add(a, b): return float('nan')\n",
    "poisoned files": (
        "import os\nfor n in ('json.py', 'random.py', 'sitecustomize.py'):\n"
        "    open('/tmp/' + n, 'w').write('import os; os._exit(0)')\ndef add(a, b): ...\n"
    ),
}
KILLS_ITSELF = {
    "kill": "import os\ndef add(a, b): os.kill(os.getpid(), 9)\n",
    "raise_signal": "import signal\ndef add(a, b): signal.raise_signal(9)\n",
    "cpu limit": (
        "import resource\ndef add(a, b):\n    resource.setrlimit(resource.RLIMIT_CPU, (0, 0))\n"
        "    while True: pass\n"
    ),
    "strict seccomp": (
        "import ctypes\ndef add(a, b): ctypes.CDLL(None).prctl(22, 1, 0, 0, 0); open('/')\n"
    ),
    "signal of a child's end": (
        "import ctypes, time\ndef add(a, b):\n    l = ctypes.CDLL(None)\n"
        "    if l.syscall(56, 9, 0, 0, 0, 0) == 0: l._exit(0)\n    time.sleep(.2)\n"
    ),
    "signal of input": (
        "import fcntl, os, time\ndef add(a, b):\n    r, w = os.pipe()\n"
        "    fcntl.fcntl(r, 10, 9); fcntl.fcntl(r, fcntl.F_SETOWN, os.getpid())\n"
        "    fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK); os.write(w, b'x')\n"
        "    time.sleep(.2)\n"
    ),
    "timer": (
        "import ctypes, struct, time\ndef add(a, b):\n    l = ctypes.CDLL(None)\n"
        "    l.syscall(222, 0, struct.pack('QII48x', 0, 9, 0), ctypes.byref(ctypes.c_int()))\n"
        "    time.sleep(.1)\n"
    ),
    "death of a parent": (
        "import ctypes, os, time\ndef add(a, b):\n    if os.fork():\n        os._exit(0)\n"
        "    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); time.sleep(9)\n"
    ),
}
AT_ONCE = (
    *("equal to all", "opaque", "equal list", "exit 0", "os._exit", "atexit", "frames"),
    *("builtins", "modules", "prints", "forged P", "forged E", "forged V", "forged R"),
    *("huge frame", "nested frame", "hostile exception", "source of tests", "constant"),
)
"""Names of cheats that end by themselves within milliseconds."""


def cheat_for(name: str, function: str) -> str:
    """Return a cheat as a solution of another problem.

    Args:
        name: name of the cheat, from `AT_ONCE`.
        function: name of the function that the problem requires.
    """
    return CHEATS[name].replace("def add(a, b)", f"def {function}(*a, **k)")
