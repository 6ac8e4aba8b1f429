"""Isolation of each program inside a sandbox: namespaces, capabilities and system calls.

The sandbox already hides the files, network and processes of the machine. Each program in the
sandbox gets its own process and mount namespaces, an empty folder and no capabilities. A seccomp
filter then refuses system calls that honest programs never use. The module uses only the standard
library.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
from collections.abc import Iterable, Mapping

_EPERM, _ENOSYS = 1, 38
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NAMESPACES = 0x7E020000
"""Flags of `clone` that create a namespace."""

_NUMBERS: Mapping[str, Mapping[str, int]] = {
    name: {"x86_64": int(x86), "aarch64": int(arm)}
    for name, x86, arm in (
        line.split() for line in """
        acct 163 89
        add_key 248 217
        adjtimex 159 171
        bpf 321 280
        chroot 161 51
        clock_adjtime 305 266
        clock_settime 227 112
        clone 56 220
        clone3 435 435
        delete_module 176 106
        execveat 322 281
        fanotify_init 300 262
        fcntl 72 25
        finit_module 313 273
        flock 73 32
        fsconfig 431 431
        fsmount 432 432
        fsopen 430 430
        fspick 433 433
        init_module 175 105
        io_uring_enter 426 426
        io_uring_register 427 427
        io_uring_setup 425 425
        ioctl 16 29
        kcmp 312 272
        kexec_file_load 320 294
        kexec_load 246 104
        keyctl 250 219
        kill 62 129
        lookup_dcookie 212 18
        mbind 237 235
        memfd_create 319 279
        memfd_secret 447 447
        migrate_pages 256 238
        mount 165 40
        mount_setattr 442 442
        move_mount 429 429
        move_pages 279 239
        mq_getsetattr 245 185
        mq_notify 244 184
        mq_open 240 180
        mq_timedreceive 243 183
        mq_timedsend 242 182
        mq_unlink 241 181
        msgctl 71 187
        msgget 68 186
        msgrcv 70 188
        msgsnd 69 189
        name_to_handle_at 303 264
        open_by_handle_at 304 265
        open_tree 428 428
        open_tree_attr 467 467
        perf_event_open 298 241
        personality 135 92
        pidfd_getfd 438 438
        pidfd_open 434 434
        pidfd_send_signal 424 424
        pivot_root 155 41
        prctl 157 167
        prlimit64 302 261
        process_madvise 440 440
        process_mrelease 448 448
        process_vm_readv 310 270
        process_vm_writev 311 271
        ptrace 101 117
        quotactl 179 60
        quotactl_fd 443 443
        reboot 169 142
        request_key 249 218
        rt_sigqueueinfo 129 138
        rt_tgsigqueueinfo 297 240
        seccomp 317 277
        semctl 66 191
        semget 64 190
        semop 65 193
        semtimedop 220 192
        set_mempolicy 238 237
        setdomainname 171 162
        sethostname 170 161
        setns 308 268
        setrlimit 160 164
        settimeofday 164 170
        shmat 30 196
        shmctl 31 195
        shmdt 67 197
        shmget 29 194
        socket 41 198
        swapoff 168 225
        swapon 167 224
        syslog 103 116
        tgkill 234 131
        timer_create 222 107
        tkill 200 130
        umount2 166 39
        unshare 272 97
        userfaultfd 323 282
        vhangup 153 58
        """.splitlines() if line.strip()
    )
}  # fmt: skip
"""Number of each system call by name and architecture."""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X86_ONLY = (134, 136, 139, 154, 156, 172, 173, 180)
"""Numbers of refused calls that only x86-64 has: uselib, ustat, sysfs, modify_ldt, _sysctl, iopl,
ioperm, nfsservctl."""
_WATCHED = {"clone", "fcntl", "ioctl", "prctl", "prlimit64", "setrlimit"}
"""Calls that are refused only with certain arguments."""
_BY_ARGUMENT = (
    ("fcntl", 1, 10),  # F_SETSIG: SIGKILL on input
    ("ioctl", 1, 0x5412),  # TIOCSTI
    ("ioctl", 1, 0x541C),  # TIOCLINUX
    ("prctl", 0, 1),  # PR_SET_PDEATHSIG
    ("prctl", 0, 22),  # PR_SET_SECCOMP: the strict mode kills
    ("prlimit64", 1, resource.RLIMIT_CPU),
    ("setrlimit", 0, resource.RLIMIT_CPU),
)


class UnknownMachine(Exception):
    """There is no filter for the processor architecture."""


def build_seccomp_filter(machine: str | None = None) -> bytes:
    """Return the seccomp filter for processes that run an untrusted program, as BPF instructions.

    Args:
        machine: architecture as `platform.machine` names it; None for this machine.

    Raises:
        UnknownMachine: the numbers of system calls are not known for the architecture.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        supported = " and ".join(_ARCHITECTURES)
        raise UnknownMachine(f"the filter of system calls supports {supported}, not {machine}")
    refused = [numbers[machine] for name, numbers in _NUMBERS.items() if name not in _WATCHED]
    if machine == "x86_64":
        refused += _X86_ONLY
    clone3 = _NUMBERS["clone3"][machine]
    code = [
        _encode_bpf_load(4),
        _encode_bpf_jump_if_equal(_ARCHITECTURES[machine], 1, 0),
        _encode_bpf_return(_KILL),
        _encode_bpf_load(0),
    ]
    if machine == "x86_64":
        code += [struct.pack("HBBI", 0x35, 0, 1, 0x40000000), _encode_bpf_return(_KILL)]  # x32
    for number in sorted(refused):
        # ENOSYS makes the C library fall back from clone3 to clone, whose flags can be filtered
        error = _ENOSYS if number == clone3 else _EPERM
        code += [_encode_bpf_jump_if_equal(number, 0, 1), _encode_bpf_return(_ERRNO | error)]
    for name, argument, value in _BY_ARGUMENT:
        code += _restrict_to_system_call(
            _NUMBERS[name][machine],
            [
                _encode_bpf_load(16 + 8 * argument),
                _encode_bpf_jump_if_equal(value, 0, 1),
                _encode_bpf_return(_ERRNO | _EPERM),
            ],
        )
    code += _restrict_to_system_call(_NUMBERS["clone"][machine], [
        _encode_bpf_load(16), struct.pack("HBBI", 0x45, 0, 1, _NAMESPACES),
        _encode_bpf_return(_ERRNO | _EPERM),
        struct.pack("HBBI", 0x54, 0, 0, 0xFF),  # signal that the child's end sends to its parent
        _encode_bpf_jump_if_equal(9, 0, 1), _encode_bpf_return(_ERRNO | _EPERM),
    ])  # fmt: skip
    return b"".join([*code, _encode_bpf_return(_ALLOW)])


def _encode_bpf_load(offset: int) -> bytes:
    return struct.pack("HBBI", 0x20, 0, 0, offset)


def _encode_bpf_jump_if_equal(value: int, then: int, otherwise: int) -> bytes:
    return struct.pack("HBBI", 0x15, then, otherwise, value)


def _encode_bpf_return(action: int) -> bytes:
    return struct.pack("HBBI", 0x06, 0, 0, action)


def _restrict_to_system_call(number: int, code: list[bytes]) -> list[bytes]:
    """Return filter instructions that run `code` only for one system call.

    After `code`, they load the number of the call again, which `code` may have replaced.

    Args:
        number: number of the system call.
        code: instructions for this call.
    """
    return [_encode_bpf_jump_if_equal(number, 0, len(code) + 1), *code, _encode_bpf_load(0)]


class ProgramIsolation:
    """Isolates each program from the others and from the sandbox's first process."""

    def __init__(self) -> None:
        """Protect this process from other processes, and test that it can isolate a child.

        Raises:
            OSError: the system refuses the namespaces.
            UnknownMachine: there is no filter for this processor.
        """
        self._filter = build_seccomp_filter()
        self._libc = ctypes.CDLL(None, use_errno=True)
        _call_prctl(self._libc, 38, 1)  # PR_SET_NO_NEW_PRIVS
        _call_prctl(self._libc, 4, 0)  # PR_SET_DUMPABLE
        if (pid := os.fork()) == 0:
            try:
                self.unshare_namespaces()
                if (inner := os.fork()) == 0:
                    self.mount_private_folders(1 << 20)
                    self.drop_privileges()
                    os._exit(0)
                os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
            except OSError as error:
                os.write(2, f"{error}\n".encode())
            finally:
                os._exit(1)
        if os.waitpid(pid, 0)[1] != 0:
            raise OSError("the namespaces that isolate programs cannot be created")

    def unshare_namespaces(self) -> None:
        """Make the next child of this process the first process of new namespaces.

        Raises:
            OSError: the system refuses new namespaces.
        """
        if self._libc.unshare(0x20000000 | 0x08000000) != 0:  # CLONE_NEWPID, CLONE_NEWIPC
            raise OSError(ctypes.get_errno(), "unshare")

    def mount_private_folders(self, num_bytes: int) -> None:
        """Give this process its own mounts: an empty /tmp, and a /proc of its own namespace.

        Args:
            num_bytes: maximum size of /tmp in bytes.

        Raises:
            OSError: the system refuses a mount.
        """
        if self._libc.unshare(0x00020000) != 0:  # CLONE_NEWNS
            raise OSError(ctypes.get_errno(), "unshare")
        self._call_mount(b"tmpfs", b"/tmp", 0x6, f"size={num_bytes},mode=700".encode())
        self._call_mount(b"proc", b"/proc", 0xE, None)  # nosuid, nodev, noexec
        with open("/proc/sys/user/max_user_namespaces", "w") as file:
            file.write("0")
        self._call_mount(None, b"/proc", 0x102F, None)  # remounted read-only

    def _call_mount(
        self, filesystem_type: bytes | None, target: bytes, flags: int, data: bytes | None
    ) -> None:
        if self._libc.mount(filesystem_type, target, filesystem_type, flags, data) != 0:
            raise OSError(ctypes.get_errno(), "mount", target.decode())

    def drop_privileges(self) -> None:
        """Drop all capabilities permanently, and install the seccomp filter.

        Raises:
            OSError: the system refuses one of these calls.
        """
        for capability in range(64):
            if self._libc.prctl(24, capability, 0, 0, 0) != 0:  # PR_CAPBSET_DROP
                break  # no further capability exists
        _call_prctl(self._libc, 47, 4)  # PR_CAP_AMBIENT, all
        header = struct.pack("Ii", 0x20080522, 0)
        if self._libc.capset(header, bytes(24)) != 0:
            raise OSError(ctypes.get_errno(), "capset")
        buffer = ctypes.create_string_buffer(self._filter, len(self._filter))
        program = struct.pack("HxxxxxxQ", len(self._filter) // 8, ctypes.addressof(buffer))
        _call_prctl(
            self._libc, 22, 2, ctypes.create_string_buffer(program, len(program))
        )  # seccomp


def _call_prctl(libc: ctypes.CDLL, *arguments: object) -> None:
    c_arguments = [
        ctypes.c_ulong(argument) if isinstance(argument, int) else argument
        for argument in arguments
    ]
    c_arguments += [ctypes.c_ulong(0)] * (5 - len(c_arguments))
    if libc.prctl(*c_arguments) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {arguments[0]}")


def set_resource_limits(limits: Mapping[str, int], names: Iterable[str]) -> None:
    """Set resource limits, never above the current hard limits.

    Args:
        limits: limit by name without the prefix `RLIMIT_`.
        names: names of the limits to set. Limits that the system does not have are skipped.
    """
    for name in names:
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is None:
            continue
        hard = resource.getrlimit(kind)[1]
        value = limits[name] if hard == resource.RLIM_INFINITY else min(limits[name], hard)
        resource.setrlimit(kind, (value, value))
