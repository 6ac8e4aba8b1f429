"""A program's changes to its sandbox reach no other program, in whatever order they run."""

from __future__ import annotations

import os
import random

import pytest

from mclabel.core.records import Verdict
from tests.support.code_checks import code_checker, grades

GOLD = "assert f() == 'as new'"
_HEAD = "import ctypes, fcntl, os, resource, sys, time\nlibc = ctypes.CDLL(None)\n"
SPOILERS = {
    "memory of the first": "resource.prlimit(1, resource.RLIMIT_AS, (1 << 26, 1 << 26))",
    "files of the first": "resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))",
    "processes of the first": "resource.prlimit(1, resource.RLIMIT_NPROC, (0, 0))",
    "files of the first two": "for p in (2, 3): resource.prlimit(p, resource.RLIMIT_FSIZE, (0, 0))",
    "own memory": "resource.setrlimit(resource.RLIMIT_AS, (1 << 26, 1 << 26))",
    "nice": "os.setpriority(os.PRIO_PROCESS, 1, 19)",
    "nice of the group": "os.setpriority(os.PRIO_PGRP, 0, 19)",
    "nice of the user": "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
    "affinity": "for p in (0, 1): os.sched_setaffinity(p, {min(os.sched_getaffinity(0))})",
    "class": "for p in (0, 1): os.sched_setscheduler(p, os.SCHED_IDLE, os.sched_param(0))",
    "io class": "for who in (1, 2, 3): libc.syscall(251, who, 0, 3 << 13)",
    "attribute": "os.setxattr('/tmp', 'user.x', b'1')",
    "times": "os.utime('/tmp', (1, 1))",
    "mode": "os.chmod('/tmp', 0)",
    "files": "[open(f'/tmp/{n}', 'w').write('x') for n in range(99)]",
    "full": "open('/tmp/full', 'wb').write(bytes(15 << 20))",
    "name": "os.mkdir('/tmp/json.py'); os.symlink('/tmp', '/tmp/re.py')",
    "badness": "open('/proc/1/oom_score_adj', 'w').write('1000')",
    "own badness": "open('/proc/self/oom_score_adj', 'w').write('1000')",
    "slack": "open('/proc/1/timerslack_ns', 'w').write('1000000000')",
    "lock": "fcntl.flock(os.open('/usr/bin', os.O_RDONLY), fcntl.LOCK_EX)",
    "daemon": "os.fork() or (os.setsid(), time.sleep(99))",
    "many": "[os.fork() or time.sleep(99) for _ in range(20)]",
    "mount": "libc.mount(b'none', b'/tmp', b'tmpfs', 0, b'size=4k')",
    "namespace": "libc.unshare(0x10000000)",
    "umask": "os.umask(0o777)",
    "queue": "libc.mq_open(b'/q', 0o102, 0o777, None)",
    "memory shared": "libc.shmget(7, 4096, 0o1777)",
    "keys": "libc.syscall(248, b'user', b'k', b'v', 1, -3)",
    "host": "libc.sethostname(b'spoiled', 7)",
    "hang": "while True: pass",
    "killed": "os.kill(0, 9)",
    "crash": "ctypes.string_at(0)",
}
"""Statements that try to leave a change behind, by name."""
_STATE = """
def f():
    own = bytearray(200 << 20)
    files = [open('/dev/null') for _ in range(40)]
    state = (
        os.getpriority(os.PRIO_PROCESS, 0), len(os.sched_getaffinity(0)), os.sched_getscheduler(0),
        os.listxattr('/tmp'), os.stat('/tmp').st_mode, os.listdir('/tmp'), os.uname().nodename,
        [one for one in os.listdir('/proc') if one.isdigit()], os.umask(0o22),
        time.time() - os.stat('/tmp').st_mtime < 60, libc.syscall(252, 1, 0) >> 13,
        resource.getrlimit(resource.RLIMIT_FSIZE), resource.getrlimit(resource.RLIMIT_NPROC),
    )
    with open('/tmp/large', 'wb') as file:
        file.write(bytes(12 << 20))
    if (child := os.fork()) == 0:
        os._exit(7)
    assert os.waitpid(child, 0)[1] >> 8 == 7
    new = (NICE, NUM, 0, [], 0o40700, [], 'box', ['1'], 0o22, True, 0, (16 << 20,) * 2, (32, 32))
    return 'as new' if state == new else state
"""


def _write_programs() -> list[str]:
    """Return spoilers that then answer right or wrong, and programs that inspect their sandbox."""
    state = _STATE.replace("NUM", str(len(os.sched_getaffinity(0))))
    state = _HEAD + state.replace("NICE", str(os.getpriority(os.PRIO_PROCESS, 0)))
    programs = [state] * 30
    for number, spoiler in enumerate(SPOILERS.values()):
        tried = f"def f():\n    try:\n        {spoiler}\n    except Exception: pass\n"
        programs.append(f"{_HEAD}{tried}    return {'as new' if number % 2 else 'spoiled'!r}\n")
        programs.append(state + f"\ntry:\n    {spoiler}\nexcept Exception: pass\n")
    return programs


@pytest.mark.slow
def test_every_program_has_the_verdict_that_it_has_alone() -> None:
    programs = _write_programs()
    limits = {"time_s": 1.5}
    alone = {
        program: (grade.verdict, grade.reason)
        for program in dict.fromkeys(programs)
        for grade in grades(code_checker(processes=1, **limits), GOLD, [program])
    }
    assert alone[programs[0]] == (Verdict.RIGHT, "passed")
    checker, chance = code_checker(processes=2, **limits), random.Random(0)
    order = [chance.choice(programs) for _ in range(100)]
    graded = grades(checker, GOLD, order)
    pairs = zip(order, [(grade.verdict, grade.reason) for grade in graded], strict=True)
    assert [(program, outcome) for program, outcome in pairs if outcome != alone[program]] == []


def test_what_a_program_does_to_the_first_process_is_its_own() -> None:
    """A spoiler that limits the sandbox's first process must not change the next verdict."""
    code = [_HEAD + f"{SPOILERS[name]}\ndef f(): return 1" for name in list(SPOILERS)[:3]]
    honest = "x = bytearray(200 << 20)\ndef f(): return 'as new'"
    graded = grades(
        code_checker(processes=1), GOLD, [code[0], honest, code[1], honest, code[2], honest]
    )
    assert [grade.verdict.value for grade in graded] == ["wrong", "right"] * 3
