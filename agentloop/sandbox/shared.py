"""Memory of several processes in a lane without a cgroup. Stdlib only, used inside the lane.

Two things mislead whoever adds up what processes have. Pages that they share after a fork are counted for each of them.
And shared memory without a file stays after a process has taken its hands off it, as long as anything of it is mapped
somewhere: a program could fill the machine with it and look small. What has a descriptor (memfd_create) the filter
refuses, and System V objects that nobody has attached are bounded by their namespace or refused too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

_MAPPED = re.compile(rb"^(\w+)-(\w+) ...s \w+ \S+ (\d+) +/(?:dev/zero|SYSV\w+) \(deleted\)$", re.MULTILINE)
"""A line of a process's map: start, end, number of the object."""
_GET_PDEATHSIG, _SET_PDEATHSIG = 2, 1
_libc = ctypes.CDLL(None, use_errno=True)


class Shared:
    """What the processes of a program have together. Rows are those of the judge's `processes`, by pid.

    `may_hide`: whether a program can keep the judge from reading its map; none in a user namespace below the judge's.
    """

    def __init__(self, *, may_hide: bool = True) -> None:
        self._before, self._may_hide = 0, may_hide
        self._seen: dict[bytes, int] = {}
        """The most that was ever mapped of each object at a time: a part keeps all of it."""
        self._hidden: set[int] = set()
        """Whose maps nobody could read when they were last looked at."""

    def begin(self) -> None:
        """A job begins: no process of its program is there yet."""
        self._before, self._seen, self._hidden = _kilobytes("/proc/meminfo", b"Shmem:"), {}, set()

    def shares(self, rows: dict[int, Any]) -> int:
        """Bytes of memory, each page counted once; all that is resident where the kernel does not tell us.

        The less of two looks: a process that ends between them leaves its share to the others.
        """
        return min(sum(map(_share, rows)) for _ in range(2))

    def unseen(self, rows: dict[int, Any], limit: int) -> int:
        """The memory of these processes, private and shared, in their hands or not; 0 if there is little shared."""
        # All of the machine's: a reason to look, and the most it can be.
        grown = _kilobytes("/proc/meminfo", b"Shmem:") - self._before
        if grown < limit // 4:
            return 0
        return sum(_kilobytes(f"/proc/{pid}/smaps_rollup", b"Pss_Anon:", pid) for pid in rows) + min(
            grown, self._of(rows)
        )

    def _of(self, rows: dict[int, Any]) -> int:
        there: set[bytes] = set()
        hidden: set[int] = set()
        for pid in rows:
            sizes: dict[bytes, int] = {}
            try:
                with as_owner(pid), open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123
                    lines = _MAPPED.findall(file.read())
            except OSError:
                if _resident(pid):
                    hidden.add(pid)
                continue
            for start, end, number in lines:
                sizes[number] = sizes.get(number, 0) + int(end, 16) - int(start, 16)
            self._seen.update({number: max(size, self._seen.get(number, 0)) for number, size in sizes.items()})
            there |= sizes.keys()
        # A program may hide what it has (PR_SET_DUMPABLE): then all that the machine has more may be its. At one look
        # alone it may be a process that is just starting.
        hides, self._hidden = hidden & self._hidden, hidden
        return sys.maxsize if hides and self._may_hide else sum(self._seen[number] for number in there)


@contextlib.contextmanager
def as_owner(pid: int) -> Iterator[None]:
    """Read files of a process as its owner may. Without CAP_SYS_PTRACE, as in containers, root may not.

    Raises `OSError` if it has ended.
    """
    owner, death_signal = os.stat(f"/proc/{pid}"), ctypes.c_int()  # noqa: PTH116
    _libc.prctl(_GET_PDEATHSIG, ctypes.byref(death_signal), 0, 0, 0)
    _libc.setfsgid(owner.st_gid)
    _libc.setfsuid(owner.st_uid)
    try:
        yield
    finally:
        _libc.setfsuid(os.geteuid())
        _libc.setfsgid(os.getegid())
        _libc.prctl(_SET_PDEATHSIG, death_signal.value, 0, 0, 0)  # other ids undo it


def _share(pid: int) -> int:
    """A process's proportional share of memory, 0 if it has ended; all that is resident if that cannot be read."""
    try:
        with as_owner(pid), open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
            return _figure(file.read(), b"Pss:")
    except (OSError, IndexError):
        return _resident(pid)


def _resident(pid: int) -> int:
    """Bytes that a process has resident now, 0 if it has ended. Nobody can hide these."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _kilobytes(path: str, key: bytes, pid: int = 0) -> int:
    """A figure of a file of the kernel's (of this process), in bytes; 0 where it is not told."""
    whose = as_owner(pid) if pid else contextlib.nullcontext()
    with contextlib.suppress(OSError, IndexError), whose, open(path, "rb") as file:  # noqa: PTH123
        return _figure(file.read(), key)
    return 0


def _figure(text: bytes, key: bytes) -> int:
    return int((b"\n" + text).partition(b"\n" + key)[2].split(None, 1)[0]) * 1024
