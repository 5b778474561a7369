"""The level below namespaces (`local-reduced`): Landlock and a system call filter around each program, and its lane.

Started as `python landlock.py CONFIG` it makes a lane's directory, locks it, and becomes the judge. Stdlib only.
What this level does not hide: the process table, load and other facts of the machine, and the host's own files under
/usr. What it refuses: files elsewhere, sockets, signals and tracing beyond the program, new namespaces.
"""

# pathlib costs start-up time in every lane, and knows no dir_fd.
# ruff: noqa: PTH100, PTH101, PTH112, PTH116, PTH120, PTH208
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PREFIX = "agentloop-lane-"
"""Lane directories in the temporary directory; each holds a lock while its lane lives."""
DISK = 64 * 2**20
"""Bytes that a program's directory may hold: no file system of its own bounds it here."""
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read files, read directories
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # the rights that a file can have
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""ABI version -> all rights over files that it knows."""
_NO_DEVICE = ~(1 << 6 | 1 << 11)
_TRUNCATE_ABI, _SIGNAL_ABI = 3, 6
READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_FACTS = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo")


def _call(number: int, *args: Any) -> int:
    result = int(_libc.syscall(number, *args))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def abi() -> int:
    """Landlock's version here; 0 where there is none."""
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def restrict(readable: list[str], writable: list[str]) -> None:
    """Leave this process only these paths: what is under the first to read and execute, under the second everything.

    From ABI 4 on TCP, and from 6 on signals and abstract sockets beyond this process and its children are refused too.
    """
    version = abi()
    handled = _HANDLED[max(key for key in _HANDLED if key <= version)]
    network = 3 if version >= 4 else 0
    scoped = 3 if version >= _SIGNAL_ABI else 0
    attributes = struct.pack("QQQ", handled, network, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    for paths, rights in ((readable, _READ), (writable, handled & _NO_DEVICE)):
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            allowed = rights if os.path.isdir(path) else rights & _FILE
            rule = struct.pack("=Qi", allowed & handled, fd)
            _call(_ADD_RULE, ruleset, 1, rule, ctypes.c_uint32(0))
            os.close(fd)
    _call(_RESTRICT, ruleset, ctypes.c_uint32(0))
    os.close(ruleset)


def harden(config: dict[str, Any]) -> Callable[[Any, str, dict[str, Any]], None]:
    """What the judge calls in each child just before exec."""
    seccomp = importlib.import_module("seccomp")
    others = sum(1 for _ in _threads_of(os.getuid()))

    def enter(judge: Any, role: str, limits: dict[str, Any]) -> None:
        same_user = judge.uids["program"] is None
        if same_user:  # the kernel counts all of the user's threads; room for what else the user may start meanwhile
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            count = others + limits["processes"] + 50
            count = count if hard == resource.RLIM_INFINITY else min(count, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (count, count))
        readable, writable = judge.places(role)
        restrict([*config["readable"], *_FACTS, *readable], [*_DEVICES, *filter(None, [writable])])
        _libc.prctl(_PDEATHSIG, 9, 0, 0, 0)  # no process namespace ends with the judge
        me = os.getpid() if same_user else None
        filter_ = seccomp.program(
            reduced=True,
            same_user=me if role != "build" else None,  # a linker sets modes
            may_truncate=abi() >= _TRUNCATE_ABI,
            only_signal=me if abi() < _SIGNAL_ABI else None,
        )
        seccomp.apply(filter_)

    return enter


def _threads_of(uid: int) -> Iterator[str]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == uid:
                yield from os.listdir(f"/proc/{name}/task")


def size_of(path: str) -> int:
    """Bytes of the files in a directory and the one below; more than 1,000 entries count as too many."""
    total, folders, count = 0, [path], 0
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                if count > 1000:
                    return 1 << 62
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if folder is path and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return total


def lane_directory() -> str:
    """A new directory for a lane, locked while this process lives."""
    path = tempfile.mkdtemp(prefix=PREFIX)
    os.chmod(path, 0o711)
    fcntl.flock(os.open(path, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX)
    return path


def sweep() -> list[str]:
    """Remove the directories of lanes that were killed before they could; their paths."""
    removed = []
    for entry in os.scandir(tempfile.gettempdir()):
        if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):
            fd = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path)
                removed.append(entry.path)
            finally:
                os.close(fd)
    return removed


def main(config: dict[str, Any]) -> None:
    judge = importlib.import_module("judge")
    work = lane_directory()
    try:
        shared = importlib.import_module("shared").Shared()
        confinement = judge.OwnUid(harden(config), lambda cwd: size_of(cwd) > DISK, shared=shared)
        judge.main({**config, "work": work}, confinement)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    main(json.loads(sys.argv[1]))
