"""The docker sandbox: pooled lanes, each a long-lived container that runs the judge behind one attached stream.

The judge is sent when a lane starts, so that image and judge never disagree. A lane's container goes by itself when its
stream closes, so a killed owner leaves nothing; what it left between creating and starting one is reaped at next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentloop.errors import SandboxError, UserError
from agentloop.hashing import text_digest
from agentloop.sandbox import engine
from agentloop.sandbox.lane import LINE_LIMIT, PROTOCOL
from agentloop.sandbox.languages import needs
from agentloop.sandbox.pool import Pool, Uids, take_uids
from agentloop.types import Limits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from docker import DockerClient

    from agentloop.types import Execution, Job, Json

T = TypeVar("T")
MIB = 2**20
WORK, TMP, SHM = 64 * MIB, 64 * MIB, 16 * MIB
JUDGE_ROOM = 256 * MIB
"""Of a lane beyond its program: what fits in before the judge looks again; else the kernel could kill the judge."""
PIDS = 1024
"""Tasks in a lane. What a program may start is limited by its uid, well below this: the judge can always act."""
RESTART = 60
"""Seconds that an engine which does not answer has to come back: one that is restarted, or updated, does."""
CAPABILITIES = ("SETUID", "SETGID", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE")
# Reads exactly the judge's source from the stream, so that what follows on it is the judge's.
BOOT = """
import os, sys
size, source = int(sys.argv.pop()), b""
while len(source) < size:
    source += os.read(0, size - len(source)) or sys.exit(3)
exec(compile(source, "judge.py", "exec"), {"__name__": "__main__"})
"""
PREFLIGHT = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
facts = {"uid": os.getuid(), "capabilities": int(status["CapEff"], 16), "groups": os.getgroups(),
         "no_new_privileges": status["NoNewPrivs"], "seccomp": status["Seccomp"],
         "interfaces": sorted(os.listdir("/sys/class/net"))}
try:
    open("/etc/agentloop-write", "w")
except OSError:
    facts["root"] = "read-only"
print(json.dumps(facts))
"""


class DockerSandbox:
    """Runs jobs in containers. `recipe` is the folder of the image's Dockerfile, `cpus` what one lane may use."""

    name = "docker"

    def __init__(
        self,
        recipe: Path,
        *,
        lanes: int,
        cpus: float = 1.0,
        interpreter: str = "forked",
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.recipe, self.lanes, self.cpus, self.progress = recipe, lanes, cpus, progress
        self.interpreter = interpreter
        """"forked": tests of Python are forks of an interpreter that stands ready; "new": each starts its own."""
        self.image = ""
        """The image's id, once started."""
        self._judge = (Path(__file__).parent / "judge.py").read_bytes()
        self._program_memory = Limits().memory
        self._memory_lock, self._growing = threading.Lock(), asyncio.Lock()
        self.session = uuid.uuid4().hex
        """Labels this sandbox's lanes on the engine."""
        self._client: DockerClient | None = None
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="docker")
        self._pool = Pool(self._start_lane, lanes)
        self._closed, self._serial = False, itertools.count()

    async def start(self) -> dict[str, Json]:
        """See `Sandbox.start`. Builds the image where it is missing and removes what dead owners left."""
        self._client = await self._call(engine.connect)
        await self._call(engine.reap, self._client)
        self.image = await self._call(engine.ensure_image, self._client, self.recipe, self.progress)
        packages = await self._call(engine.packages, self._client, self.image)
        version = await self._call(self._client.version)
        hello = await self._pool.hello()
        await self._preflight()
        return {
            "backend": self.name,
            "isolation": (
                "docker: container without network, read-only root, own uid without capabilities, "
                "no new privileges, seccomp filter, memory limited by cgroup"
            ),
            "toolchain": {"python": hello["python"]},
            "host": f"{version['Os']}/{version['Arch']}",
            "recipe": f"{engine.image_name(self.recipe)}, packages {text_digest(packages)[:12]}",
            "interpreter": self.interpreter,
            "protocol": PROTOCOL,
            "judge": text_digest(self._judge.decode())[:12],
        }

    async def execute(self, job: Job) -> Execution:
        """See `Sandbox.execute`. Raises `UserError` for a limit that no lane can give."""
        memory, processes = needs(job)
        if 2 * processes > PIDS:
            raise UserError(f"limits.processes is {processes}; the docker sandbox gives up to {PIDS // 2}")
        if any(test.kind == "script" for test in job.tests):
            memory *= 2  # a script may have as much in its own process, and neither is to be killed for both
        async with self._growing:  # a job that needs no more waits too: its lane may still have the old limit
            if memory > self._program_memory:
                await self._call(self._grow, memory)
        return await self._pool.run(job)

    async def close(self) -> None:
        """See `Sandbox.close`."""
        if self._closed:
            return
        self._closed = True
        await self._pool.close()
        if self._client is not None:
            with contextlib.suppress(SandboxError):  # an engine that is gone took its containers with it
                await self._call(self._remove_all)
            self._client.close()
        self._threads.shutdown(wait=False)

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    # -- lanes -----------------------------------------------------------------------------------------------------

    async def _start_lane(
        self, pool: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Callable[[], Awaitable[None]]]:
        uids = take_uids()
        try:
            launch = self._launching(uids, pool)
            try:
                container, stream = await asyncio.shield(launch)
            except SandboxError:
                if not await self._back():
                    raise
                launch = self._launching(uids, pool)
                container, stream = await asyncio.shield(launch)
        except asyncio.CancelledError:  # the thread goes on: what it starts must not outlive us
            with contextlib.suppress(Exception):
                container, stream = await launch
                stream.close()
                await self._call(self._remove, container)
            uids.release()
            raise
        except BaseException:
            uids.release()
            raise

        async def kill() -> None:
            try:
                await self._call(self._remove, container)
            finally:
                uids.release()
                transport.close()

        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_LIMIT)
        transport, protocol = await loop.create_connection(lambda: Demultiplexer(reader), sock=stream)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        writer.write(self._judge)
        return reader, writer, kill

    def _launching(self, uids: Uids, pool: str) -> asyncio.Future[tuple[str, socket.socket]]:
        return asyncio.ensure_future(self._call(self._launch, uids, pool))

    async def _back(self) -> bool:
        """Whether an engine that did not answer does so again; False at once for one that answers."""
        waited = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESTART):  # one that takes the question and says nothing is not asked for longer
                while not await self._call(engine.answers, self._engine()):
                    if not waited:
                        self.progress(f"docker: the engine does not answer; waiting for it up to {RESTART} seconds")
                    waited = True
                    await asyncio.sleep(1)
                return waited
        return False

    def _launch(self, uids: Uids, pool: str) -> tuple[str, socket.socket]:
        """Create a container, attach to its streams, start it. In a thread."""
        client = self._engine()
        with engine.faults("start a lane"):
            with self._memory_lock:  # else a lane could be made with the old limit while others are given more
                container = str(client.containers.create(self.image, **self._options(uids, pool)).id)
            try:
                streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
                stream = _take_over(client.api.attach_socket(container, params=streams))
                client.api.start(container)
            except BaseException:
                engine.remove(client, container)
                raise
        return container, stream

    def _options(self, uids: Uids, pool: str) -> dict[str, Any]:
        """How a lane's container is made: as little as the judge needs, nothing for the program."""
        from docker.types import LogConfig

        config = {
            "work": "/work",
            "scratch": ["/tmp", "/dev/shm", "/dev/mqueue"],
            "uid": uids.program,
            "checker_uid": uids.checker,
            "cgroup": True,
            "fork": self.interpreter == "forked",
            "isolation": {"engine": "docker"},
        }
        memory = self._lane_memory()
        tmpfs = "nosuid,nodev,exec,nr_inodes=20000"
        return {
            "command": ["/usr/bin/python3", "-I", "-S", "-c", BOOT, json.dumps(config), str(len(self._judge))],
            # An engine that went down while it made one may keep that one's name until the session is over.
            "name": f"agentloop-{self.session[:8]}-{pool}-{uids.program}-{next(self._serial)}",
            "hostname": "sandbox",
            "labels": {**engine.owner_labels(), engine.SESSION: self.session},
            "stdin_open": True,
            "auto_remove": True,
            "network_mode": "none",
            "sysctls": {"net.ipv4.tcp_max_tw_buckets": "0"},  # a port that was closed is free for the next program
            "read_only": True,
            "tmpfs": {"/work": f"{tmpfs},size={WORK},mode=0711", "/tmp": f"{tmpfs},size={TMP},mode=1777"},
            "shm_size": SHM,
            "cap_drop": ["ALL"],
            "cap_add": list(CAPABILITIES),
            "security_opt": ["no-new-privileges"],
            "pids_limit": PIDS,
            "mem_limit": memory,
            "memswap_limit": memory,
            "nano_cpus": int(self.cpus * 1e9),
            "log_config": LogConfig(type=LogConfig.types.NONE),  # else the engine keeps all output on disk
        }

    def _engine(self) -> DockerClient:
        if self._client is None:
            raise SandboxError("the docker sandbox is not started", retryable=False)
        return self._client

    def _remove(self, container: str) -> None:
        with engine.faults("remove a lane"):
            engine.remove(self._engine(), container)

    def _own(self) -> list[str]:
        found = self._engine().containers.list(
            all=True, filters={"label": f"{engine.SESSION}={self.session}"}, sparse=True
        )
        return [str(container.id) for container in found]

    def _remove_all(self) -> None:
        with engine.faults("remove the lanes"):
            for container in self._own():
                engine.remove(self._engine(), container)

    # -- limits and preflight --------------------------------------------------------------------------------------

    def _lane_memory(self) -> int:
        return self._program_memory + WORK + TMP + SHM + JUDGE_ROOM

    def _grow(self, memory: int) -> None:
        """Let programs have more memory: in lanes to come, and in those that run."""
        import docker

        with self._memory_lock, engine.faults("give lanes more memory"):
            self._program_memory = memory
            limit = self._lane_memory()
            for container in self._own():
                with contextlib.suppress(docker.errors.NotFound):
                    self._engine().api.update_container(container, mem_limit=limit, memswap_limit=limit)

    async def _preflight(self) -> None:
        """Look from inside whether the engine did what it was asked: not every engine that speaks Docker does."""
        record = await self._pool.look(PREFLIGHT)
        try:
            facts = json.loads(record["stdout"])
        except ValueError as error:
            raise SandboxError(f"docker: the preflight program did not run: {record['stderr'][-300:]}") from error
        uid = facts.pop("uid")
        wanted = {
            "capabilities": 0,
            "groups": [],
            "no_new_privileges": "1",
            "seccomp": "2",
            "interfaces": ["lo"],
            "root": "read-only",
        }
        wrong = {key: facts.get(key) for key in wanted if facts.get(key) != wanted[key]}
        if wrong or uid == 0:
            raise UserError(f"this Docker engine does not isolate as asked: {json.dumps({'uid': uid, **wrong})}")


def _take_over(attached: Any) -> socket.socket:
    """A socket of our own for an attached stream; what the SDK made for it, which no event loop takes, is closed."""
    raw = getattr(attached, "_sock", None)
    if not isinstance(raw, socket.socket):
        raise OSError("this kind of connection to the engine carries no lanes; use a unix socket or plain TCP")
    stream = socket.socket(fileno=os.dup(raw.fileno()))
    stream.setblocking(False)
    attached.close()
    raw.close()
    return stream


class Demultiplexer(asyncio.StreamReaderProtocol):
    """Takes the engine's frames apart: stdout goes to the reader; the end of stderr becomes the reason of a loss.

    A frame is 8 bytes (stream 1 or 2, three zeros, length of 4 bytes, big end first) and its data.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._reader, self._frames, self._stderr = reader, bytearray(), b""

    def data_received(self, data: bytes) -> None:
        self._frames += data
        begin = 0
        while len(self._frames) >= begin + 8:
            end = begin + 8 + int.from_bytes(self._frames[begin + 4 : begin + 8], "big")
            if len(self._frames) < end:
                break
            payload = bytes(self._frames[begin + 8 : end])
            if self._frames[begin] == 1:
                self._reader.feed_data(payload)
            else:
                self._stderr = (self._stderr + payload)[-2000:]
            begin = end
        del self._frames[:begin]

    def eof_received(self) -> bool:
        if self._stderr:
            self._reader.set_exception(OSError(self._stderr.decode(errors="replace").strip()))
        return bool(super().eof_received())
