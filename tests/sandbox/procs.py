"""Looking at processes from outside: whose children live, and waiting until they are gone."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from pathlib import Path


def table() -> dict[int, tuple[int, str]]:
    """{pid: (parent, command line)} of every process that is no zombie."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(path.name)] = (int(fields[1]), line)
    return found


def below(pid: int) -> dict[int, str]:
    """The descendants of a process and their command lines."""
    rows, found, stack = table(), {}, [pid]
    while stack:
        parent = stack.pop()
        for child, (its, line) in rows.items():
            # Python's own helper of earlier tests that used multiprocessing; it lives as long as this process.
            if its == parent and child not in found and "multiprocessing.resource_tracker" not in line:
                found[child] = line
                stack.append(child)
    return found


def lanes() -> set[int]:
    """The lanes' first processes of this process."""
    script = ("sandbox/namespaces.py", "sandbox/landlock.py")
    me = os.getpid()
    return {pid for pid, (parent, line) in table().items() if parent == me and any(s in line for s in script)}


def wait_gone(pids: list[int], seconds: float = 15) -> list[int]:
    """Wait until these processes have ended; those that have not."""
    left = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([fd], [], [], seconds)
        os.close(fd)
        if not ready:
            left.append(pid)
    return left


def wait_for(condition: Callable[[], bool], seconds: float = 15) -> bool:
    """Look again and again until it is so; False when it never was."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
