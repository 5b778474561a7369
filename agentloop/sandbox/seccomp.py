"""A system call filter (seccomp, classic BPF) for the local sandbox's programs, built by hand: no library is needed.

Stdlib only, and usable without the package around it, like everything that is started inside a lane.
Numbers are the kernel's: x86-64 from `asm/unistd_64.h`, aarch64 from `asm-generic/unistd.h`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# fmt: off
_REFUSED = {  # name: (x86-64, aarch64); each ends with EPERM
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268), "userfaultfd": (323, 282),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "open_by_handle_at": (304, 265), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "syslog": (103, 116), "vhangup": (153, 58), "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18), "modify_ldt": (154, None), "iopl": (172, None), "ioperm": (173, None),
}
_ABSENT = {  # ends with ENOSYS: libraries then take the older way, which the filter can look into
    "clone3": (435, 435), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}
_SHARED = {  # refused too where the host's System V IPC, message queues and sockets are not hidden by a namespace
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "shmat": (30, 196), "shmctl": (31, 195), "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),  # each of them takes a number that can be guessed
    "bind": (49, 200), "connect": (42, 203),  # a pair of sockets may have a name, which the whole machine sees
}
_ATTRIBUTES = {  # of files, which Landlock leaves to their owner: refused where the host's owner is who the program is
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469),
    "inotify_add_watch": (254, 27), "ioprio_set": (251, 30),
}
_SAID = {  # and these said to be done: copying a file sets its mode and times, and fails if it cannot
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
}
_SCHEDULING = {  # first argument: the process that is meant
    "sched_setaffinity": (203, 122), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
}
_SIGNALS = {  # first argument: the process that gets the signal
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
_CLONE, _SOCKET, _IOCTL, _PRLIMIT = (56, 220), (41, 198), (16, 29), (302, 261)
_SOCKETPAIR, _FCNTL, _SETPRIORITY, _PIDFD_SEND_SIGNAL = (53, 199), (72, 25), (141, 140), (424, 424)
_OPEN, _OPENAT, _OPENAT2, _TRUNCATED = (2, None), (257, 56), (437, 437), (76, 45)
# fmt: on
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}"""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_LOAD, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
_DATAGRAM, _WRITING, _TRUNCATE = 2, 3, 0x200
"""A bit of the socket types that reach others than their pair; bits of flags of an open file."""
_OWNERS = (8, 15)
"""F_SETOWN, F_SETOWN_EX: who gets a file's signals, of any kind."""
_SETTINGS = (0x8901, 0x8902, 0x40086602, 0x401C5820)
"""The same by ioctl (FIOSETOWN, SIOCSPGRP), and a file's flags (FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR)."""


def machine_is_known() -> bool:
    return os.uname().machine in _MACHINES


def program(
    *,
    reduced: bool = False,
    segments: bool = True,
    below_init: bool = False,
    same_user: int | None = None,
    may_truncate: bool = False,
    only_signal: int | None = None,
) -> bytes:
    """The filter as an array of `sock_filter`.

    In a namespace of its own a program may have sockets of the families that the namespace confines; `reduced` refuses
    all sockets, and shared IPC; without `segments` System V shared memory alone is refused. `below_init`: process 1 is
    of the program's own user, and may not be given limits. `same_user` is the process of a program that runs as the
    user whose files and processes are all around; `may_truncate` where Landlock knows whose files it may empty.
    `only_signal` is the one process that signals may be sent to (its own group apart). Raises `OSError` on a machine
    whose system calls are not known here.
    """
    if not machine_is_known():
        raise OSError(errno.ENOSYS, f"no system call filter for {os.uname().machine}")
    column, architecture = _MACHINES[os.uname().machine]
    out: list[tuple[int, int, int, int]] = []

    def stop(code: int) -> tuple[int, int, int, int]:
        return (_RETURN, 0, 0, _ERRNO | code)

    def when(call: tuple[int, int | None], body: list[tuple[int, int, int, int]]) -> None:
        if call[column] is not None:
            out.extend([(_EQUAL, 0, len(body), call[column] or 0), *body])

    out += [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if column == 0:  # the x32 numbers would slip past every comparison
        out += [(_GREATER_EQUAL, 0, 1, 0x40000000), stop(errno.ENOSYS)]
    more = _SHARED.values() if reduced else () if segments else (_SHARED["shmget"],)
    of_files = [] if same_user is None else list(_ATTRIBUTES.values())
    if same_user is not None and not may_truncate:
        of_files.append(_TRUNCATED)
    for call in (*_REFUSED.values(), *more, *of_files):
        when(call, [stop(errno.EPERM)])
    for call in _ABSENT.values():
        when(call, [stop(errno.ENOSYS)])
    allow = (_RETURN, 0, 0, _ALLOW)
    when(_CLONE, [(_LOAD, 0, 0, _FIRST), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), stop(errno.EPERM), allow])
    families = [(_EQUAL, len(_FAMILIES) - n, 0, family) for n, family in enumerate(_FAMILIES)]
    limited = [(_LOAD, 0, 0, _FIRST), *families, stop(errno.EAFNOSUPPORT), allow]
    when(_SOCKET, [stop(errno.EACCES)] if reduced else limited)
    if reduced:
        when(_SOCKETPAIR, [(_LOAD, 0, 0, _SECOND), (_ANY_BIT, 0, 1, _DATAGRAM), stop(errno.EACCES), allow])

    def none_of(values: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
        """Refuse these as second argument."""
        last = len(values) - 1
        compared = [(_EQUAL, last - n, int(n == last), value) for n, value in enumerate(values)]
        return [(_LOAD, 0, 0, _SECOND), *compared, stop(errno.EPERM), allow]

    when(_IOCTL, none_of((_TIOCSTI, _TIOCLINUX, *(_SETTINGS if same_user is not None else ()))))
    if reduced:  # limits of the judge, which has the same uid
        when(_PRLIMIT, [(_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, 0), stop(errno.EPERM), allow])
    elif below_init:
        when(_PRLIMIT, [(_LOAD, 0, 0, _FIRST), (_EQUAL, 0, 1, 1), stop(errno.EPERM), allow])

    def only(pid: int) -> list[tuple[int, int, int, int]]:
        return [(_LOAD, 0, 0, _FIRST), (_EQUAL, 2, 0, pid), (_EQUAL, 1, 0, 0), stop(errno.EPERM), allow]

    if same_user is not None:
        for call in _SAID.values():
            when(call, [stop(0)])
        for call in _SCHEDULING.values():
            when(call, only(same_user))
        own_group = [(_LOAD, 0, 0, _FIRST), (_EQUAL, 0, 2, 0), (_LOAD, 0, 0, _SECOND), (_EQUAL, 1, 0, 0)]
        when(_SETPRIORITY, [*own_group, stop(errno.EPERM), allow])
        when(_FCNTL, none_of(_OWNERS))
        # What is opened for reading may be emptied too, where Landlock does not know of that yet.
        # (So may what is opened for neither: both bits of writing.)
        emptied = [(_AND, 0, 0, _TRUNCATE | _WRITING), (_EQUAL, 1, 0, _TRUNCATE)]
        emptied += [(_EQUAL, 0, 1, _TRUNCATE | _WRITING), stop(errno.EPERM), allow]
        when(_OPEN, [(_LOAD, 0, 0, _SECOND), *emptied])
        when(_OPENAT, [(_LOAD, 0, 0, _THIRD), *emptied])
        when(_OPENAT2, [stop(errno.ENOSYS)])
    if only_signal is not None:
        for call in _SIGNALS.values():
            when(call, only(only_signal))
        when(_PIDFD_SEND_SIGNAL, [stop(errno.EPERM)])  # its first argument is a descriptor, of whatever number
    out.append(allow)
    return b"".join(struct.pack("HBBI", *line) for line in out)


_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: a network namespace confines them, which is not so for AF_VSOCK."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_char_p))


def apply(filter_: bytes) -> None:
    """Put this process and all it starts under the filter, for good. Raises `OSError` where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    wrapped = _Program(len(filter_) // 8, filter_)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(wrapped), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses a seccomp filter")


def why_not() -> str:
    """Why there can be no filter here, or ''."""
    if sys.platform != "linux":
        return "no Linux"
    if not machine_is_known():
        return f"system calls of {os.uname().machine} are not known here"
    libc = ctypes.CDLL(None, use_errno=True)
    return "" if libc.prctl(21, 0, 0, 0, 0) >= 0 else "the kernel has no seccomp"
