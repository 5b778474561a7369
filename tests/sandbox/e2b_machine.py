"""A machine of the E2B test server: runs one command as root of namespaces of its own, with nothing of the host's.

python e2b_machine.py BASE FOLDER COMMAND: uids 0 to 65535 in there are those from BASE on outside; the files of FOLDER
are laid into its root. Started by root. It ends when it is killed, and all in it with it.
"""

# Python of the least: it runs between two roots, and knows paths of both.
# ruff: noqa: PTH103, PTH120, PTH123
from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from agentloop.sandbox import namespaces
from agentloop.sandbox.e2b import JAVA
from agentloop.sandbox.landlock import READABLE

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PDEATHSIG = 1


def read(folder: Path) -> dict[str, str]:
    return {f"/{path.relative_to(folder)}": path.read_text() for path in folder.rglob("*") if path.is_file()}


def main(base: int, files: dict[str, str], command: str) -> None:
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        namespaces._libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        namespaces.unshare(namespaces.NS["user"] | namespaces._NEW)
        os.write(ready[1], b"1")
        os.read(go[0], 1)
        os.closerange(3, 4096)
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        inside(files, command)
    os.read(ready[0], 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{child}/{name}", "w") as file:
            file.write(f"0 {base} 65536")
    os.write(go[1], b"1")
    os.closerange(0, 3)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def inside(files: dict[str, str], command: str) -> None:
    namespaces._libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    first = os.fork()
    if first:
        os.closerange(0, 3)
        _, status = os.waitpid(first, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    namespaces._libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    namespaces.build_root([*READABLE, *JAVA], "root:x:0:0:root:/root:/bin/bash\n", "")
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
    namespaces.furnish()
    namespaces.loopback()
    with contextlib.suppress(OSError):
        os.setsid()
    os.execve("/bin/bash", ["/bin/bash", "-l", "-c", command], {"PATH": PATH, "HOME": "/root", "E2B_SANDBOX": "true"})


if __name__ == "__main__":
    main(int(sys.argv[1]), read(Path(sys.argv[2])), sys.argv[3])
