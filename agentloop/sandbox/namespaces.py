"""A lane in namespaces of its own: makes them, builds a minimal root in memory, and becomes the judge inside.

Started as `python namespaces.py CONFIG`. As root the judge stays root in there and programs get a uid of their own. As
an ordinary user there is only one uid, so every program gets further namespaces below the judge's, under a small init,
where nothing of the judge is to be seen. Stdlib only. Nothing is ever mounted or written outside of the lane.
"""

# pathlib costs start-up time in every lane, and knows no dir_fd.
# ruff: noqa: PTH100, PTH101, PTH102, PTH103, PTH112, PTH114, PTH115, PTH120, PTH123, PTH211
from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any

NS = {"mnt": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
_NEW = NS["mnt"] | NS["uts"] | NS["ipc"] | NS["pid"] | NS["net"]
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, MOVE, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 8192, 16384, 1 << 18
_DETACH, _DUMPABLE = 2, 4
_PIVOT_ROOT = {"x86_64": 155}.get(os.uname().machine, 41)
_MOUNT_SETATTR, _AT_RECURSIVE = 442, 0x8000
_KEPT = {1024: 1024, 2048: 2048, 4096: 1 << 21, 2: NOSUID, 4: NODEV, 8: NOEXEC}
"""statvfs flags -> mount flags that a remount must keep."""
WORK = "/box"
INPUTS = f"{WORK}/inputs"
"""Where a judge under the filter makes what programs read."""
SIZE = "size=64m,nr_inodes=20000"
"""Of each place that programs may write: work directory, /tmp, /dev/shm."""
USER = 58000
"""The uid that an ordinary user's program sees itself as."""
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind)]
    _check(_libc.mount(*texts, ctypes.c_ulong(flags), data.encode() or None), f"mount {kind or source} on {target}")


def bind(source: str, target: str, *, writable: bool = False) -> None:
    """Show a file or directory (with what is mounted below it) at another place, read-only unless told otherwise."""
    mount(source, target, None, BIND | REC)
    if writable:
        return
    attributes = struct.pack("QQQQ", RDONLY | NOSUID, 0, 0, 0)
    if _libc.syscall(_MOUNT_SETATTR, -100, target.encode(), _AT_RECURSIVE, attributes, ctypes.c_size_t(32)) == 0:
        return
    flags = os.statvfs(target).f_flag  # a kernel before 5.12: the top only, with all that is locked
    kept = sum(mount_flag for flag, mount_flag in _KEPT.items() if flags & flag)
    mount("", target, None, REMOUNT | BIND | RDONLY | NOSUID | kept)


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), "new namespaces")


def map_ids(inside: int, uid: int, gid: int) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {uid} 1"), ("gid_map", f"{inside} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def loopback() -> None:
    """Switch on the network namespace's own loopback, the only network; a port is free once its program has ended."""
    with contextlib.suppress(OSError), open("/proc/sys/net/ipv4/tcp_max_tw_buckets", "w") as file:
        file.write("0")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))


def bound_segments() -> bool:
    """No more System V shared memory in this IPC namespace than a writable place holds; whether that can be had."""
    try:
        with open("/proc/sys/kernel/shmall", "w") as file:
            file.write(str(64 * 2**20 // os.sysconf("SC_PAGE_SIZE")))
    except OSError:
        return False
    return True


def build_root(shown: list[str], users: str, proc: str) -> None:
    """A new root in memory with the `shown` paths in it, read-only, and nothing else of the machine."""
    origin = os.open("/", os.O_PATH | os.O_DIRECTORY)
    # Inside a plain chroot "/" is no mount point and nothing could be kept from spreading to the host: joining the own
    # mount namespace anew leads to its root. Sources are then found from where "/" was.
    me = os.pidfd_open(os.getpid())
    _check(_libc.setns(me, NS["mnt"]), "join the own mount namespace")
    os.close(me)
    mount("none", "/", None, REC | PRIVATE)
    os.fchdir(origin)
    stage = next(
        path
        for path in ("mnt", "media", "srv", "opt", "tmp", "home")
        if os.path.isdir(path) and not any(f"{item}/".startswith(f"/{path}/") for item in shown)
    )
    mount("tmpfs", stage, "tmpfs", NOSUID, "size=1m,mode=755")
    for path in (
        ".",
        "./proc",
        "./dev",
        "./dev/shm",
        "./dev/mqueue",
        "./tmp",
        "./var",
        "./var/tmp",
        "./etc",
        "." + WORK,
    ):
        os.makedirs(f"{stage}/{path}", exist_ok=True)
    for path in shown:
        show(path, stage)
    for name, minor in (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
        target = f"{stage}/dev/{name}"
        try:
            os.mknod(target, 0o20666, os.makedev(1, minor))
            os.chmod(target, 0o666)
        except PermissionError:
            with open(target, "w"):
                bind(f"dev/{name}", target, writable=True)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{stage}/dev/{name}")
    for name, text in (("passwd", users), ("hosts", "127.0.0.1 localhost\n::1 localhost\n")):
        with open(f"{stage}/etc/{name}", "w") as file:
            file.write(text)
    # While the old one is in sight: without that an ordinary user gets none.
    mount("proc", f"{stage}/proc", "proc", NOSUID | NODEV | NOEXEC, proc)
    enter_root(stage)
    os.close(origin)


def show(path: str, stage: str) -> None:
    """Bind one path of the machine at the same path in the new root; a link is copied, what is missing is left out."""
    source, target = path.lstrip("/"), f"{stage}{path}"
    if os.path.lexists(target) or not os.path.lexists(source):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    elif os.path.isdir(source):
        os.mkdir(target)
        bind(source, target)
    else:
        with open(target, "w"):
            bind(source, target)


def enter_root(stage: str) -> None:
    os.chdir(stage)
    try:
        _check(_libc.syscall(_PIVOT_ROOT, b".", b"."), "pivot_root")
        _check(_libc.umount2(b".", _DETACH), "leave the old root")
    except OSError as error:
        if error.errno != errno.EINVAL:  # the first root of the machine cannot be exchanged: move over it
            raise
        mount(".", "/", None, MOVE)
        os.chroot(".")
    os.chdir("/")


def furnish() -> None:
    """The places that may be written; the root itself may not."""
    for path, mode in ((WORK, "755"), ("/tmp", "1777"), ("/var/tmp", "1777"), ("/dev/shm", "1777")):
        mount("tmpfs", path, "tmpfs", NOSUID | NODEV, f"{SIZE},mode={mode}")
    os.mkdir(INPUTS)
    mount("tmpfs", INPUTS, "tmpfs", NOSUID | NODEV, "mode=700")
    with contextlib.suppress(OSError):
        mount("mqueue", "/dev/mqueue", "mqueue", NOSUID | NODEV | NOEXEC)
    mount("", "/", None, REMOUNT | BIND | RDONLY | NOSUID)


class Nested:
    """An ordinary user's programs: each in namespaces below the judge's, as the same uid but out of its sight."""

    own_root = True

    def __init__(self, filter_: bytes, seccomp: Any, judge: Any, shared: Any) -> None:
        self.filter, self.seccomp, self.judge, self.shared = filter_, seccomp, judge, shared

    @staticmethod
    def blank() -> int:
        return os.memfd_create("stdin")

    @staticmethod
    def disk_full(cwd: str) -> bool:
        return False  # the file systems in memory have a size

    def enter(self, judge: Any, role: str, limits: dict[str, Any], report: int | None) -> None:
        _libc.prctl(_DUMPABLE, 1, 0, 0, 0)  # else the files of /proc/self are not its own; no program sees it yet
        with open("/proc/self/oom_score_adj", "w") as file:  # first in line when memory runs out
            file.write("1000")
        # With the two that stand between the judge and the program.
        resource.setrlimit(*self.judge.process_limit(limits["processes"] + 2))
        unshare(NS["user"] | _NEW)
        map_ids(USER, 0, 0)
        readable, writable = judge.places(role)
        shown = {path: os.open(path, os.O_PATH) for path in {*readable, writable} if os.path.isdir(path)}
        mount("tmpfs", WORK, "tmpfs", NOSUID | NODEV, f"{SIZE},mode=755")
        for path, fd in shown.items():
            os.mkdir(path)
            bind(f"/proc/self/fd/{fd}", path, writable=path == writable)
            os.close(fd)
        if role == "program":
            os.mkdir(judge.cwd)
        for path in ("/tmp", "/var/tmp", "/dev/shm"):
            mount("tmpfs", path, "tmpfs", NOSUID | NODEV, f"{SIZE},mode=1777")
        loopback()
        first = os.fork()
        if first:
            os.closerange(0, 4096)
            os.waitpid(first, 0)
            os._exit(0)
        mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)
        _libc.prctl(_DUMPABLE, 0, 0, 0, 0)
        for number in range(1, signal.SIGRTMIN):  # those that it has no handler for reach no init
            with contextlib.suppress(OSError):
                signal.signal(number, signal.SIG_DFL)
        program = os.fork()
        if program:
            init(program, report)
        os.setsid()
        self.seccomp.apply(self.filter)


def blank() -> int:
    """An empty file without a name, of which a program may open its /dev/stdin."""
    return os.open(INPUTS, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644)


def init(program: int, report: int | None) -> None:
    """Process 1 of a program's namespace: reap, tell the judge how the program ended, end all the others with it."""
    assert report is not None
    os.closerange(0, report)
    os.closerange(report + 1, 4096)
    while True:
        pid, status = os.wait()
        if pid == program:
            os.write(report, str(status).encode())
            os._exit(0)


def main(config: dict[str, Any]) -> None:
    """Make the namespaces and become the judge; a machine that does not allow it is told in place of a hello."""
    judge, seccomp, shared = (importlib.import_module(name) for name in ("judge", "seccomp", "shared"))
    root, uid, gid = config["uid"] is not None, os.getuid(), os.getgid()
    try:
        unshare(_NEW if root else NS["user"] | _NEW)
        if not root:
            map_ids(0, uid, gid)
        child = os.fork()
        if child:
            os.closerange(0, 2)
            os.waitpid(child, 0)
            os._exit(0)
        judge.prctl(judge.PR_SET_PDEATHSIG, 9)
        # An ordinary user's programs have other namespaces, for System V shared memory too.
        filter_ = seccomp.program(segments=root and bound_segments(), below_init=not root)
        seen = config["uid"] if root else USER
        users = f"root:x:0:0:root:/:/bin/false\nprogram:x:{seen}:{seen}:program:{WORK}/run:/bin/false\n"
        build_root(config["readable"], users, "hidepid=2" if root else "")
        furnish()
    except OSError as error:
        print(json.dumps({"fault": error.strerror or str(error)}), flush=True)
        return
    if root:
        loopback()
        seccomp.apply(filter_)  # on the judge too, and all that it starts
        confinement = judge.OwnUid(blank=blank, shared=shared.Shared())
    else:
        confinement = Nested(filter_, seccomp, judge, shared.Shared())
    judge.main({**config, "work": WORK}, confinement)


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    main(json.loads(sys.argv[1]))
