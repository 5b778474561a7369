"""Pools of lanes, shared by every backend: a backend only knows how to start one lane.

There are two pools, `loop` and `grade`, so that hidden tests never meet a lane that a loop uses later. Lanes start when
first needed. A job that loses its lane runs once more on a fresh lane with nothing beside it; then it is a fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentloop.errors import SandboxError
from agentloop.sandbox.lane import Lane, Writer
from agentloop.sandbox.languages import execution, wire_job
from agentloop.types import Job, Limits, Test

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agentloop.types import Execution, Json

StartLane = Callable[[str], Awaitable[tuple[asyncio.StreamReader, Writer, Callable[[], Awaitable[None]]]]]
"""A backend's one duty: given the pool's name, start a judge and return its streams and what destroys it."""


class Gate:
    """Lets many through at once, or one alone. One who waits to be alone holds back those who come later."""

    def __init__(self) -> None:
        self._inside = 0
        self._changed = asyncio.Condition()
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def enter(self, *, alone: bool) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._turn)
            async with self._changed:
                if alone:
                    await self._changed.wait_for(lambda: self._inside == 0)
                self._inside += 1
            if not alone:
                await stack.aclose()
            try:
                yield
            finally:
                async with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()


class Pool:
    """`lanes` lanes in each of the pools that is used."""

    def __init__(self, start: StartLane, lanes: int) -> None:
        self._start = start
        self._gate = Gate()
        self._slots = {name: asyncio.Semaphore(lanes) for name in ("loop", "grade")}
        self._idle: dict[str, list[Lane]] = {"loop": [], "grade": []}
        self._open: set[Lane] = set()
        self._closed = False

    async def hello(self) -> dict[str, Json]:
        """Start a first lane of the loop's pool if there is none, and return what its judge says of itself."""
        lane = await self._take("loop")
        self._idle["loop"].append(lane)
        return lane.hello

    async def look(self, program: str) -> dict[str, Json]:
        """Run a program of a backend's own, which looks at a lane from inside, and return its record."""
        test = Test("facts", "stdio", {"stdin": ""}, None, "text", "")
        found = await self.run(Job("python", program, (test,), Limits()))
        return found.build or found.tests[0]

    async def run(self, job: Job) -> Execution:
        """Run a job on a free lane. Raises `SandboxError` when it lost two lanes, the second one alone."""
        try:
            return await self._once(job, alone=job.alone, fresh=False)
        except SandboxError:
            if self._closed:
                raise
        return await self._once(job, alone=True, fresh=True)

    async def _once(self, job: Job, *, alone: bool, fresh: bool) -> Execution:
        async with self._slots[job.pool], self._gate.enter(alone=alone):
            lane = await self._take(job.pool, fresh=fresh)
            clean, started = False, time.monotonic()
            try:
                records, clean = await lane.run(wire_job(job))
                return execution(job, records, time.monotonic() - started)
            finally:
                if clean and not self._closed:
                    self._idle[job.pool].append(lane)
                else:
                    await asyncio.shield(self._destroy(lane))

    async def _take(self, pool: str, *, fresh: bool = False) -> Lane:
        if self._closed:
            raise SandboxError("the sandbox is closed", retryable=False)
        while self._idle[pool]:
            lane = self._idle[pool].pop()
            if not fresh and not lane.writer.is_closing():  # it may have been lost since its last job
                return lane
            await self._destroy(lane)
            if fresh:
                break
        lane = Lane(*await self._start(pool))
        self._open.add(lane)
        try:
            await lane.greet()
        except BaseException:
            await asyncio.shield(self._destroy(lane))
            raise
        return lane

    async def _destroy(self, lane: Lane) -> None:
        self._open.discard(lane)
        await lane.close()

    async def close(self) -> None:
        """Destroy all lanes, those in use too. Safe to call twice."""
        self._closed = True
        for idle in self._idle.values():
            idle.clear()
        await asyncio.gather(*(self._destroy(lane) for lane in list(self._open)))


@dataclass
class Uids:
    """Two uids, the program's and its checker's, that no other lane of this machine has while they are held."""

    program: int
    checker: int
    _lock: socket.socket

    def release(self) -> None:
        self._lock.close()


FIRST_UID, LAST_UID = 58000, 58999
"""A range that Debian, Fedora and systemd leave free; below 65536, so that rootless engines map it."""


def uids_in_turn(namespace: int) -> list[int]:
    """The first uid of every pair in the range, from a place on that depends on the network namespace."""
    pairs = list(range(FIRST_UID, LAST_UID, 2))
    place = random.Random(namespace).randrange(len(pairs))
    return pairs[place:] + pairs[:place]


def take_uids() -> Uids:
    """Lock two uids on this host. Process limits count per uid across containers, so lanes must not share one.

    The lock is an abstract socket's name: the kernel frees it when the process dies, and no file is left behind. Each
    network namespace has names of its own: who is in another one, as in a container, begins elsewhere in the range.
    """
    lock = socket.socket(socket.AF_UNIX)
    namespace = Path("/proc/self/ns/net")
    for uid in uids_in_turn(namespace.stat().st_ino if namespace.exists() else 0):
        with contextlib.suppress(OSError):
            lock.bind(f"\0agentloop-uid-{uid}")
            return Uids(uid, uid + 1, lock)
    lock.close()
    raise SandboxError("all uids for lanes are in use on this machine")
