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
import time
from collections.abc import Callable, Iterator
from typing import Any

MAPPED = re.compile(
    rb"^(\w+)-(\w+) ...s (\w+) \S+ (\d+) +(?:/(?:dev/zero|SYSV\w+) \(deleted\)|\[anon_shmem:.*\])$", re.MULTILINE
)
"""A line of a process's map: start, end, offset in the object, number of the object. A program may name one."""
MAP = 4 * 2**20
"""Bytes of a map that are read: one of very many parts, or long names, would keep the judge from all else."""
LOOKS, PAUSE = 10, 0.01
"""Further looks, and seconds before each, while a process waits for a child that has its very memory (vfork)."""
_GET_PDEATHSIG, _SET_PDEATHSIG = 2, 1
_libc = ctypes.CDLL(None, use_errno=True)


class Shared:
    """What the processes of a program have together. Rows are those of the judge's `processes`, by pid."""

    def __init__(self) -> None:
        self._before = 0
        self._seen: dict[bytes, int] = {}
        """How far each object was ever seen to reach: a part of it, wherever it is, keeps all of it."""

    def begin(self) -> None:
        """A job begins: no process of its program is there yet."""
        self._before, self._seen = _kilobytes("/proc/meminfo", b"Shmem:"), {}

    def shares(self, rows: dict[int, Any], limit: int) -> int:
        """Bytes of memory, each page counted once; all that is resident where the kernel does not tell us.

        The less of two looks: a process that ends between them leaves its share to the others.
        """

        def look() -> int:
            return min(sum(map(_share, rows)) for _ in range(2))

        return _least(look, rows, limit)

    def unseen(self, rows: dict[int, Any], limit: int) -> int:
        """The memory of these processes, private and shared, in their hands or not; 0 if there is little shared."""
        # All of the machine's: a reason to look, and the most it can be.
        grown = _kilobytes("/proc/meminfo", b"Shmem:") - self._before
        if grown < limit // 4 or not (shared := min(grown, self._of(rows, grown))):
            return 0

        def look() -> int:
            return shared + sum(_kilobytes(f"/proc/{pid}/smaps_rollup", b"Pss_Anon:", pid) for pid in rows)

        return _least(look, rows, limit)

    def _of(self, rows: dict[int, Any], grown: int) -> int:
        """Bytes of the shared memory that is mapped somewhere; all of `grown` where a process does not let us look."""
        there: set[bytes] = set()
        for pid in rows:
            try:
                with as_owner(pid), open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123
                    text = file.read(MAP)
            except OSError:
                if _resident(pid):  # PR_SET_DUMPABLE: no program hides its map by chance
                    return grown
                continue
            if len(text) == MAP:
                return grown
            for start, end, offset, number in MAPPED.findall(text):
                reach = int(offset, 16) + int(end, 16) - int(start, 16)
                self._seen[number] = max(reach, self._seen.get(number, 0))
                there.add(number)
        return sum(self._seen[number] for number in there)


def _least(look: Callable[[], int], rows: dict[int, Any], limit: int) -> int:
    """What the last look tells. While a child has its parent's very memory, that is counted twice: this soon ends."""
    found = look()
    for _ in range(LOOKS):
        if found <= limit or not any(map(_waits, rows)):
            break
        time.sleep(PAUSE)
        found = look()
    return found


def _waits(pid: int) -> bool:
    """Whether a process cannot go on, as one that waits for such a child."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()[0] == b"D"
    return False


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
