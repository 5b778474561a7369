"""The E2B sandbox: pooled lanes, each a virtual machine of the E2B service with the judge in it, as root.

The judge runs in namespaces of its own there, as the local sandbox's does: from where programs are, nothing of E2B's
own daemon is to be seen or reached. A machine ends by itself soon after nobody puts its end off any more, and the
machines of a dead owner are ended at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentloop.errors import AgentloopError, SandboxError, UserError
from agentloop.hashing import text_digest
from agentloop.sandbox import engine
from agentloop.sandbox.e2b_service import connection, end, faults, listed, one_line, reap
from agentloop.sandbox.landlock import READABLE
from agentloop.sandbox.lane import LINE_LIMIT, PROTOCOL
from agentloop.sandbox.languages import needs
from agentloop.sandbox.local import SCRATCH, not_isolated
from agentloop.sandbox.pool import FIRST_UID, Pool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from e2b import AsyncSandbox, SandboxInfo

    from agentloop.types import Execution, Job, Json

TEMPLATE = "base"
"""E2B's plain template: Python and compilers, and no Jupyter server that would take a share of the memory."""
CREATE_SECONDS, CREATE_TRIES, FIRST_WAIT = 120.0, 4, 1.0
"""Starting one machine: seconds for all, waits for a rate limit included; tries; the first wait between two."""
SDK_WAITS = (429, 502, 503, 504)
"""The SDK tries these again itself, since it alone sees how long Retry-After asks to wait."""
LIFETIME, OLD = 3600.0, 2700.0
"""Seconds after which E2B ends any machine of its smallest plan; after which a lane gets no new job."""
PATIENCE = 10.0
"""Seconds that a cancelled start of a machine may still take, so that its machine can be ended."""
CHUNK = 512 * 2**10
MIB = 2**20
ROOM = 320 * MIB
"""Memory of a machine that programs cannot have: its system, the judge, four places to write of 64 MiB each."""
JAVA = tuple(f"/etc/java-{version}-openjdk" for version in (11, 17, 21, 25))
"""Where Debian keeps what a Java cannot start without; those that are not there are left out."""
FOLDER = "/opt/agentloop"
FILES = ("judge.py", "namespaces.py", "seccomp.py", "shared.py")


class E2BSandbox:
    """Runs jobs in machines of E2B. `timeout`: whole seconds that a machine outlives its owner by."""

    name = "e2b"

    def __init__(self, *, lanes: int, template: str = TEMPLATE, timeout: int = 300, domain: str | None = None) -> None:
        self.lanes, self.template, self.timeout, self.domain = lanes, template, timeout, domain
        self.session = uuid.uuid4().hex
        """Labels this sandbox's machines."""
        self._files = {name: (Path(__file__).parent / name).read_text(encoding="utf-8") for name in FILES}
        self._options: dict[str, Any] = {}
        self._info: SandboxInfo | None = None
        self._pool = Pool(self._start_lane, lanes)
        self._closed = False

    async def start(self) -> dict[str, Json]:
        """See `Sandbox.start`. Ends what dead owners left."""
        self._options = connection(self.domain)
        await reap(self.domain)
        hello = await self._pool.hello()
        if leak := await not_isolated(self._pool):
            raise UserError(f"e2b: template {self.template!r} does not isolate programs or cannot run them: {leak}")
        assert self._info is not None
        return {
            "backend": self.name,
            "isolation": (
                "e2b: a virtual machine for each lane, no internet access; in it namespaces, private root, no network, "
                "own uid, seccomp filter, memory sampled"
            ),
            "toolchain": {"python": hello["python"]},
            "host": f"e2b, {self._info.cpu_count} CPUs, {self._info.memory_mb} MiB",
            "recipe": f"template {self.template} ({self._info.template_id})",
            "protocol": PROTOCOL,
            "judge": text_digest(json.dumps(self._files))[:12],
        }

    async def execute(self, job: Job) -> Execution:
        """See `Sandbox.execute`. Raises `UserError` for a limit that no machine of this template can give."""
        memory, _ = needs(job)
        if self._info and memory + ROOM > self._info.memory_mb * MIB:
            raise UserError(
                f"a job in {job.language} may take {memory // MIB} MiB; a machine of template {self.template!r} has "
                f"{self._info.memory_mb} MiB, {ROOM // MIB} of them not for programs: use a template with more memory, "
                "or set a smaller limits.memory in a sandbox profile"
            )
        return await self._pool.run(job)

    async def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
        await self._pool.close()
        if self._options:
            with contextlib.suppress(AgentloopError):  # what cannot be ended now ends by itself, `timeout` from here
                await end(await listed(self._options, {engine.SESSION: self.session}), self._options)
            self._options = {}

    async def _start_lane(self, pool: str) -> tuple[asyncio.StreamReader, Wire, Callable[[], Awaitable[None]]]:
        launch = asyncio.ensure_future(self._launch(pool))
        try:
            wire = await asyncio.shield(launch)
        except asyncio.CancelledError:  # the request is on its way: the machine that it starts must not outlive us
            await asyncio.wait([launch], timeout=PATIENCE)
            if not launch.cancel() and not launch.exception():
                await launch.result().kill()
            raise
        return wire.reader, wire, wire.kill

    async def _launch(self, pool: str) -> Wire:
        machine = await self._create(pool)
        try:
            if self._closed:
                raise SandboxError("the sandbox is closed", retryable=False)
            async with faults("prepare a machine"):
                self._info = self._info or await machine.get_info()
                for name, text in self._files.items():
                    await machine.files.write(f"{FOLDER}/{name}", text, user="root")
            wire = Wire(machine, self.timeout)
            await wire.open()
        except BaseException:
            await asyncio.shield(end([machine], self._options))
            raise
        return wire

    async def _create(self, pool: str) -> AsyncSandbox:
        """A new machine. Raises `UserError` for a bad key or template, `SandboxError` when the tries are used up."""
        from e2b import AsyncSandbox
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, stop_before_delay
        from tenacity import wait_random_exponential as wait

        key = uuid.uuid4().hex  # a request that is sent again after a lost answer starts no second machine
        labels = {**engine.owner_labels(), engine.SESSION: self.session, "agentloop.pool": pool}
        retrying = AsyncRetrying(
            stop=stop_after_attempt(CREATE_TRIES) | stop_before_delay(CREATE_SECONDS),
            wait=wait(multiplier=FIRST_WAIT, max=20),
            retry=retry_if_exception(_again),
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                async with faults(f"start a machine of template {self.template!r}", CREATE_SECONDS, mendable=True):
                    return await AsyncSandbox.create(
                        self.template,
                        timeout=self.timeout,
                        metadata=labels,
                        allow_internet_access=False,
                        idempotency_key=key,
                        **{**self._options, "retries": 8, "request_timeout": CREATE_SECONDS},
                    )
        raise AssertionError("tenacity ends with a result or an error")


class Wire:
    """A lane's streams over the SDK: what the judge prints is fed to `reader`, what is written goes to its stdin."""

    def __init__(self, machine: AsyncSandbox, timeout: int) -> None:
        self.reader = asyncio.StreamReader(limit=LINE_LIMIT)
        self._machine, self._timeout = machine, timeout
        self._born = time.monotonic()
        self._out, self._stderr, self._ended = bytearray(), "", False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Start the judge."""
        config = {
            "uid": FIRST_UID,
            "checker_uid": FIRST_UID + 1,
            "readable": [*READABLE, *JAVA],
            "scratch": SCRATCH,
            "isolation": {"engine": "e2b", "level": "namespaces", "own_uid": True},
        }
        script = f"{FOLDER}/namespaces.py"
        async with faults("start the judge"):
            self._command = await self._machine.commands.run(
                f"exec python3 -I -S -B {script} {shlex.quote(json.dumps(config))}",
                background=True,
                user="root",
                stdin=True,
                timeout=0,
                on_stdout=lambda text: self.reader.feed_data(text.encode()),
                on_stderr=self._complain,
                retain_output=False,
            )
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._keep())]

    def write(self, data: bytes) -> None:
        self._out += data

    async def drain(self) -> None:
        """Send what was written. Raises `SandboxError` where the machine does not take it."""
        while self._out:
            async with faults("send a job"):
                await self._command.send_stdin(bytes(self._out[:CHUNK]))
            del self._out[:CHUNK]

    def close(self) -> None:
        self._ended = True

    def is_closing(self) -> bool:
        """Whether this lane takes no new job: it has ended, or E2B will end its machine before long."""
        return self._ended or time.monotonic() - self._born > OLD

    async def kill(self) -> None:
        """End the machine and let go of the stream."""
        for task in self._tasks:
            task.cancel()
        await end([self._machine], self._machine.connection_config.get_api_params())
        with contextlib.suppress(Exception):
            async with faults("leave the judge"):
                await self._command.disconnect()

    def _complain(self, text: str) -> None:
        self._stderr = (self._stderr + text)[-2000:]

    async def _watch(self) -> None:
        """Wait until the command ends, and say why."""
        try:
            await self._command.wait()
        except Exception as error:
            self._lose(one_line(error))
        else:  # with what it said: a fault, perhaps
            self._ended = True
            self.reader.feed_eof()

    def _lose(self, reason: str) -> None:
        if not self._ended:
            self._ended = True
            self.reader.set_exception(OSError(" ".join(f"{reason} {self._stderr}".split())[:500]))

    async def _keep(self) -> None:
        """Put the machine's end off again and again, as long as the lane may be in use."""
        from e2b import SandboxNotFoundException

        while time.monotonic() - self._born < LIFETIME:
            await asyncio.sleep(self._timeout / 3)
            try:
                async with faults("keep a machine"):
                    await self._machine.set_timeout(self._timeout)
            except SandboxError as error:  # there is time for two more tries
                if isinstance(error.__cause__, SandboxNotFoundException):
                    self._lose("its machine is gone")
                    return


def _again(error: BaseException) -> bool:
    return isinstance(error, SandboxError) and getattr(error.__cause__, "status_code", 0) not in SDK_WAITS
