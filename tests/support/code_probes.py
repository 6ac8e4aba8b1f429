"""Programs that try to leave the sandbox; each reports whether it succeeded.

`python -m tests.support.code_probes` runs the probes and prints those that succeeded, as JSON.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from tests.support.code_checks import code_checker, grades

GOLD = {"tests": ["assert probe() == 'shut'"]}
_PROGRAM = """
import ctypes, os, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    found = libc.syscall(*a)
    if found < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return True
def body():
{body}
def probe():
    try:
        found = body()
    except OSError:
        return "shut"
    return "through: " + repr(found) if found else "shut"
"""
PROBES = {
    "internet": "s = socket.socket(); s.settimeout(1); s.connect(('1.1.1.1', 53)); return True",
    "udp": "return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('1.1.1.1', 53))",
    "localhost": "s = socket.socket(); s.bind(('127.0.0.1', 0)); return True",
    "ipv6": "return socket.socket(socket.AF_INET6)",
    "raw socket": "return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "netlink": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "packet socket": "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "vsock": "return socket.socket(40, socket.SOCK_STREAM)",
    "abstract socket": "return socket.socket(socket.AF_UNIX).connect('\\0/tmp/.X11-unix/X0') or 1",
    "crypto socket": "return socket.socket(38, socket.SOCK_SEQPACKET)",
    "interfaces": "return [one for one in os.listdir('/sys/class/net')]",
    "network by name": "return socket.create_connection(('pypi.org', 443), 1)",
    "home of root": "return [one for one in os.listdir('/root') if one != '.pyenv']",
    "homes": "return os.listdir('/home')",
    "passwords": "return open('/etc/passwd').read()",
    "shadow": "return open('/etc/shadow').read()",
    "etc": "return [one for one in os.listdir('/etc') if one != 'ld.so.cache']",
    "keys": "return os.listdir(os.path.expanduser('~/.ssh'))",
    "work": "return [one for one in os.listdir('/work')]",
    "var": "return os.listdir('/var')",
    "run": "return os.listdir('/run')",
    "sys": "return os.listdir('/sys')",
    "environment of pid 1": "return open('/proc/1/environ', 'rb').read()",
    "own memory by proc": "return os.open('/proc/%d/mem' % os.getppid(), os.O_RDWR)",
    "environment": (
        "return set(os.environ) - "
        "{'HOME', 'PATH', 'LANG', 'PWD', 'PYTHONHASHSEED', 'LC_CTYPE'}"
    ),
    "other processes": (
        "own = ('1', str(os.getpid()))\n"
        "return [p for p in os.listdir('/proc') if p.isdigit() and p not in own]"
    ),
    "host name": "return socket.gethostname() != 'box'",
    "set host name": "return socket.sethostname('x') or True",
    "write /usr": "return open('/usr/x', 'w')",
    "write the interpreter": "return open(os.path.join(os.path.dirname(os.__file__), 'x.py'), 'w')",
    "overwrite the interpreter": "return open(os.__file__, 'r+')",
    "write /": "return os.mkdir('/x') or True",
    "write /etc": "return open('/etc/x', 'w')",
    "write /dev": "return open('/dev/x', 'w')",
    "write /dev/shm": "return open('/dev/shm/x', 'w')",
    "write /proc/sys": "return open('/proc/sys/kernel/core_pattern', 'w')",
    "write sysrq": "return open('/proc/sysrq-trigger', 'w')",
    "raise oom": "return open('/proc/1/oom_score_adj', 'w')",
    "disk": (
        "n = 0\nwith open('/tmp/big', 'wb') as f:\n    for _ in range(64):\n"
        "        n += f.write(bytes(1 << 20)); f.flush()\nreturn n > 40 << 20"
    ),
    "disk in many": (
        "for i in range(64):\n    with open('/tmp/%d' % i, 'wb') as f: f.write(bytes(1 << 20))\n"
        "return True"
    ),
    "link out": "os.symlink('/etc/passwd', '/tmp/l'); return open('/tmp/l').read()",
    "hard link": "return os.link(os.__file__, '/tmp/h') or True",
    "device": "return os.mknod('/tmp/d', 0o600 | 0o060000, os.makedev(8, 0)) or True",
    "memory device": "return open('/dev/mem', 'rb')",
    "fuse": "return open('/dev/fuse', 'rb')",
    "kvm": "return open('/dev/kvm', 'rb')",
    "terminal": "return open('/dev/tty')",
    "new terminal": "return open('/dev/ptmx')",
    "setuid": "return os.setuid(0) or os.getuid() == 0",
    "setgroups": "return os.setgroups([0]) or True",
    "su": "return subprocess.run(['/bin/su', '-c', 'true'], stdin=-3).returncode == 0",
    "suid file": (
        "open('/tmp/s', 'w').write('x'); os.chmod('/tmp/s', 0o4755)\n"
        "return not os.statvfs('/tmp').f_flag & os.ST_NOSUID"
    ),
    "chown": "open('/tmp/c', 'w'); return os.chown('/tmp/c', 1, 1) or True",
    "capabilities": (
        "return [l for l in open('/proc/thread-self/status') if l.startswith('Cap')\n"
        "        and not l.startswith('CapBnd') and int(l.split()[1], 16)]"
    ),
    "privileges": "return libc.prctl(39, 0, 0, 0, 0) != 1",
    "filter": "return libc.prctl(21, 0, 0, 0, 0) not in (2, -1)",
    "user namespace": "return call(272, 0x10000000)",
    "mount namespace": "return call(272, 0x20000)",
    "namespace by clone": (
        "found = libc.syscall(56, 0x10000011, 0, 0, 0, 0)\nif found == 0: os._exit(0)\n"
        "return found > 0"
    ),
    "clone3": "return call(435, bytes(88), 88)",
    "enter a namespace": "return call(308, 0, 0)",
    "mount": "return call(165, b'none', b'/tmp', b'tmpfs', 0, 0)",
    "unmount": "return call(166, b'/usr', 2)",
    "open tree": "return call(428, -100, b'/', 1)",
    "fsopen": "return call(430, b'tmpfs', 0)",
    "pivot": "return call(155, b'/tmp', b'/tmp')",
    "chroot": "return os.chroot('/tmp') or True",
    "signal pid 1": "return os.kill(1, 9) or True",
    "signal all": "return os.kill(-1, 0) or True",
    "pidfd": "return os.pidfd_open(1)",
    "queue a signal": "return call(129, 1, 9, bytes(128))",
    "ptrace pid 1": "return call(101, 16, 1, 0, 0)",
    "be traced": "return call(101, 0, 0, 0, 0)",
    "read memory": "return call(310, 1, 0, 0, 0, 0, 0)",
    "compare": "return call(312, 1, 1, 0, 0, 0)",
    "io_uring": "return call(425, 1, bytes(120))",
    "keyring": "return call(250, 0, -3, 1)",
    "add a key": "return call(248, b'user', b'x', b'y', 1, -2)",
    "bpf": "return call(321, 0, bytes(64), 64)",
    "perf": "return call(298, bytes(128), 0, -1, -1, 0)",
    "userfaultfd": "return call(323, 1)",
    "shared memory": "return call(29, 0, 4096, 0o1600)",
    "semaphores": "return call(64, 0, 1, 0o1600)",
    "messages": "return call(68, 0, 0o1600)",
    "message queue": "return call(240, b'x', 0o102, 0o600, 0)",
    "memfd": "return os.memfd_create('x')",
    "personality": "return call(135, 0x40000)",
    "x32": (
        "pid = os.fork()\nif pid == 0: os._exit(libc.syscall(0x40000000 + 39) > 0)\n"
        "return os.waitpid(pid, 0)[1] == 256"
    ),
    "32 bits": "return call(134, 0)",
    "kernel module": "return call(175, 0, 0, b'')",
    "reboot": "return call(169, 0xfee1dead, 672274793, 0, 0)",
    "clock": "return time.clock_settime(0, 0) or True",
    "handles": "return call(304, -100, bytes(64), 0)",
    "kernel log": "return call(103, 3, bytes(64), 64)",
    "limits": (
        "import resource\ntry: resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n"
        "except ValueError: return False\nreturn True"
    ),
    "other descriptors": (
        "found = []\nfor fd in range(5, 1024):\n    try: os.fstat(fd); found.append(fd)\n"
        "    except OSError: pass\nreturn found"
    ),
    "socket as a pipe": (
        "import stat\nreturn any(stat.S_ISSOCK(os.fstat(n).st_mode) for n in range(5))"
    ),
    "processes": (
        "n = 0\nfor _ in range(200):\n    try: pid = os.fork()\n    except OSError: break\n"
        "    if pid == 0: time.sleep(5); os._exit(0)\n    n += 1\nreturn n > 40"
    ),
    "threads": (
        "import threading\nthreading.stack_size(1 << 15)\nn = 0\n"
        "try:\n    for _ in range(200):\n"
        "        threading.Thread(target=time.sleep, args=(2,), daemon=True).start(); n += 1\n"
        "except RuntimeError: pass\nreturn n > 40"
    ),
    "memory": "try: return len(bytearray(1 << 30))\nexcept MemoryError: return False",
    "leave a file": "os.mkdir('/tmp/dir'); open('/tmp/dir/f', 'w').write('x')",
    "find a file": "return os.listdir('/tmp')",
    "leave a shut folder": "os.mkdir('/tmp/dir'); os.mkdir('/tmp/dir/in'); os.chmod('/tmp/dir', 0)",
    "find a folder": "return os.listdir('/tmp')",
    "leave a deep folder": (
        "os.chdir('/tmp')\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\n"
    ),
    "find a deep folder": "return os.listdir('/tmp')",
    "leave a process": (
        "if os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork() == 0: time.sleep(60)\n    os._exit(0)\n"
    ),
    "find a process": (
        "own = ('1', str(os.getpid()))\n"
        "return [p for p in os.listdir('/proc') if p.isdigit() and p not in own]"
    ),
}  # fmt: skip


def program(body: str) -> str:
    return _PROGRAM.replace("{body}", textwrap.indent(body, "    "))


def results(names: Sequence[str] = tuple(PROBES)) -> dict[str, tuple[str, str]]:
    """Return the verdict and reason of each probe by name; probes run in order in two sandboxes."""
    checker = code_checker(processes=1, memory_mib=512)
    graded = grades(checker, GOLD, [program(PROBES[name]) for name in names])
    return {name: (grade.verdict, grade.reason) for name, grade in zip(names, graded, strict=True)}


if __name__ == "__main__":
    print(json.dumps({name: result for name, result in results().items() if result[0] != "right"}))
