"""The local sandbox: lanes on this machine, isolated by the kernel's own means, without an engine.

Namespaces: own mount, process, network, IPC and host-name namespaces and a minimal root in memory; as root with a uid
of its own for each lane, as an ordinary user with further namespaces for each program. Below that, only when asked for
by name, `reduced`: Landlock and a system call filter.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agentloop.errors import SandboxError, UserError
from agentloop.sandbox import landlock, seccomp
from agentloop.sandbox.lane import LINE_LIMIT, PROTOCOL
from agentloop.sandbox.pool import FIRST_UID, LAST_UID, Pool, take_uids

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentloop.sandbox.lane import Writer
    from agentloop.types import Execution, Job, Json

HERE = Path(__file__).parent
SWITCHES = {
    "kernel/unprivileged_userns_clone": ("0", "sysctl kernel.unprivileged_userns_clone=1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    "user/max_user_namespaces": ("0", "sysctl user.max_user_namespaces=15000"),
}
"""Settings of the kernel that forbid an ordinary user's namespaces, and what allows them."""
WORDS = {
    ("namespaces", True): "local: namespaces, private root, no network, a uid for each lane, seccomp filter",
    ("namespaces", False): "local: user namespaces for each program, private root, no network, seccomp filter",
    ("reduced", True): "local-reduced: Landlock, seccomp filter and a uid for each lane, no namespaces",
    ("reduced", False): "local-reduced: Landlock and seccomp filter, no namespaces, no uid of its own",
}
SCRATCH = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"]
"""What a lane in namespaces empties after every test."""
PREFLIGHT = """
import os, socket
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
wrong = []
if os.geteuid() == 0 or int(status["CapEff"], 16):
    wrong.append("the program has powers of root")
if status["NoNewPrivs"] != "1" or status["Seccomp"] != "2":
    wrong.append("the system call filter is not in force")
try:
    socket.create_connection(("192.0.2.1", 9), timeout=0.2)
    wrong.append("a network is there")
except TimeoutError:
    wrong.append("a network is there")
except OSError:
    pass
for path in ("/agentloop-write", "/usr/agentloop-write", "/etc/agentloop-write"):
    try:
        open(path, "w")
        wrong.append(path + " can be written")
    except OSError:
        pass
print("; ".join(wrong) or "isolated")
"""


class LocalSandbox:
    """Runs jobs in lanes on this machine. `reduced` asks for the level below namespaces."""

    def __init__(self, *, lanes: int, reduced: bool = False) -> None:
        self.name = "local-reduced" if reduced else "local"
        self.lanes = lanes
        self.level = "reduced" if reduced else "namespaces"
        self._pool = Pool(self._start_lane, lanes)

    async def start(self) -> dict[str, Json]:
        """See `Sandbox.start`. Raises `UserError` where this machine cannot isolate at this level."""
        if missing := why_not(self.level):
            raise UserError(f"the sandbox {self.name} does not work here: {missing}; {mend()}")
        hello = await self._pool.hello()
        if leak := await not_isolated(self._pool):
            raise UserError(f"the sandbox {self.name}: {leak}; {mend()}")
        return {
            "backend": self.name,
            "isolation": WORDS[self.level, owns_uids()],
            "toolchain": {"python": hello["python"]},
            "host": f"{platform.system().lower()}/{platform.machine()}",
            "recipe": "the machine's own interpreter, standard library only",
            "protocol": PROTOCOL,
        }

    async def execute(self, job: Job) -> Execution:
        """See `Sandbox.execute`."""
        return await self._pool.run(job)

    async def close(self) -> None:
        """See `Sandbox.close`."""
        await self._pool.close()

    async def _start_lane(self, pool: str) -> tuple[asyncio.StreamReader, Writer, Callable[[], Awaitable[None]]]:
        uids = take_uids() if owns_uids() else None
        try:
            process = await asyncio.create_subprocess_exec(
                *command(self.level, (uids.program, uids.checker) if uids else (None, None)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={},
                cwd="/",
                limit=LINE_LIMIT,
                start_new_session=True,
            )
        except BaseException as error:
            if uids:
                uids.release()
            if isinstance(error, OSError):
                raise SandboxError(f"cannot start a lane: {error}") from error
            raise
        assert process.stdin is not None
        assert process.stdout is not None

        async def kill() -> None:
            try:
                async with asyncio.timeout(5):  # its stdin is closed: the judge ends by itself, and cleans up
                    await process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                with contextlib.suppress(TimeoutError):  # it waits for the pipe's end too, which nobody may read to
                    async with asyncio.timeout(5):
                        await process.wait()
            finally:
                if uids:
                    uids.release()

        return process.stdout, process.stdin, kill


async def not_isolated(pool: Pool) -> str:
    """What a program in a lane can do and should not, or ''."""
    record = await pool.look(PREFLIGHT)
    said = str(record["stdout"]).strip()
    return "" if said == "isolated" else said or str(record["stderr"])[-300:] or "a program in it says nothing"


def owns_uids() -> bool:
    """Whether this process is a root that may use the lanes' uids (root of a narrow user namespace may not)."""
    if os.geteuid() != 0:
        return False
    if not Path("/proc/self").exists():  # a bare chroot
        return True
    maps = (map(int, line.split()) for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(first <= FIRST_UID <= LAST_UID < first + count for first, _, count in maps)


def command(level: str, uids: tuple[int | None, int | None]) -> list[str]:
    """The argv of a lane: its launcher, run by this Python itself (not a virtual environment's link to it)."""
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    own = [os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix), python]
    if level == "reduced" and uids[0] is not None and not reachable(python):
        # Another uid cannot come to this interpreter (one in root's home, say), and no namespace can show it to it.
        python, own = "/usr/bin/python3", []
    config = {
        "uid": uids[0],
        "checker_uid": uids[1],
        "python": python,
        "readable": list(dict.fromkeys([*landlock.READABLE, *sorted(map(str, Path("/etc").glob("java*"))), *own])),
        "scratch": [] if level == "reduced" else SCRATCH,
        "isolation": {"level": level, "own_uid": uids[0] is not None},
    }
    script = HERE / ("landlock.py" if level == "reduced" else "namespaces.py")
    return [python, "-I", "-S", "-B", str(script), json.dumps(config)]


def reachable(path: str) -> bool:
    """Whether every user may go to this file and read it."""
    folders = list(Path(path).parents)
    return all(folder.stat().st_mode & 0o001 for folder in folders) and bool(Path(path).stat().st_mode & 0o004)


def mend() -> str:
    """The one command that makes a sandbox work here."""
    for name, (bad, command) in SWITCHES.items():
        with contextlib.suppress(OSError):
            if Path("/proc/sys", name).read_text().strip() == bad:
                return f"as root: {command}"
    return "install Docker (on Debian and Ubuntu: apt install docker.io)"


def available() -> dict[str, str]:
    """Each level ("namespaces", "reduced") and why it does not work on this machine, '' where it does."""
    return {level: why_not(level) for level in ("namespaces", "reduced")}


def why_not(level: str) -> str:
    """Why a level does not work on this machine, '' where it does: a lane of it is started."""
    if sys.platform != "linux":
        return "it needs Linux"
    if reason := seccomp.why_not():
        return reason
    if level == "reduced" and not landlock.abi():
        return "the kernel has no Landlock (it came with 5.13)"
    if level == "reduced" and not Path("/proc/self").exists():
        return "/proc is not mounted"
    uids = (FIRST_UID, FIRST_UID + 1) if owns_uids() else (None, None)
    argv = command(level, uids)
    try:
        done = subprocess.run(argv, input="", capture_output=True, text=True, check=False, env={}, timeout=30)
        return str(json.loads(done.stdout.splitlines()[0]).get("fault", ""))
    except (ValueError, IndexError):
        return f"the lane did not start: {done.stderr.strip()[-300:]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the lane did not start: {error}"
