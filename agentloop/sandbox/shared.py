"""Shared memory that no process's figures tell, in a lane without a cgroup. Stdlib only, used inside the lane.

Shared memory without a file stays after a process has taken its hands off it, as long as anything of it is mapped
somewhere; a program could fill the machine with it and look small. What has a descriptor (memfd_create) the filter
refuses, and System V objects that nobody has attached are bounded by their namespace or refused too.
"""

from __future__ import annotations

import contextlib
import re

_MAPPED = re.compile(rb"^(\w+)-(\w+) ...s \w+ \S+ (\d+) +/(?:dev/zero|SYSV\w+) \(deleted\)$", re.MULTILINE)
"""A line of a process's map: start, end, number of the object."""


class Shared:
    """What a program has of it, called every time that the judge looks (see `Judge.unseen`)."""

    def __init__(self) -> None:
        self._before = 0
        self._seen: dict[bytes, int] = {}
        """The most that was ever mapped of each object at a time: a part keeps all of it."""

    def __call__(self, pids: dict[int, object], limit: int) -> int:
        """The memory of these processes, private and shared; 0 if there is little that is shared. Without any processes
        a job begins."""
        now = _kilobytes("/proc/meminfo", b"Shmem:")  # all of the machine's: a reason to look, and the most it can be
        if not pids:
            self._before, self._seen = now, {}
        grown = now - self._before
        if grown < limit // 4 or not pids:
            return 0
        return sum(_kilobytes(f"/proc/{pid}/smaps_rollup", b"Pss_Anon:") for pid in pids) + min(grown, self._of(pids))

    def _of(self, pids: dict[int, object]) -> int:
        there: set[bytes] = set()
        for pid in pids:
            sizes: dict[bytes, int] = {}
            with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123
                for start, end, number in _MAPPED.findall(file.read()):
                    sizes[number] = sizes.get(number, 0) + int(end, 16) - int(start, 16)
            self._seen.update({number: max(size, self._seen.get(number, 0)) for number, size in sizes.items()})
            there |= sizes.keys()
        return sum(self._seen[number] for number in there)


def _kilobytes(path: str, key: bytes) -> int:
    """A figure of a file of the kernel's, in bytes; 0 where it is not told."""
    with contextlib.suppress(OSError, IndexError), open(path, "rb") as file:  # noqa: PTH123
        return int((b"\n" + file.read()).partition(b"\n" + key)[2].split(None, 1)[0]) * 1024
    return 0
