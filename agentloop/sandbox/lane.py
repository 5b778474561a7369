"""One lane: a running judge behind a pair of streams, whatever backend carries them.

A lane runs one job at a time. What breaks here (a closed stream, an answer that is late or no JSON) is a
`SandboxError`: it says nothing about the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agentloop.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentloop.types import Json

LINE_LIMIT = 2**30
"""Bytes of one line from the judge: give it to `asyncio.StreamReader(limit=LINE_LIMIT)`. A byte of a program's three
streams takes up to six of them."""
GRACE = 20.0
"""Seconds beyond its limits that a test's record may take: start, killing a hostile tree, a busy machine."""
HELLO_TIMEOUT = 30.0
PROTOCOL = 1


class Writer(Protocol):
    """The part of `asyncio.StreamWriter` that a lane uses."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...
    def is_closing(self) -> bool: ...


@dataclass(eq=False)
class Lane:
    """A judge's streams; `kill` destroys the whole lane (container or namespaces) and returns when it is gone."""

    reader: asyncio.StreamReader
    writer: Writer
    kill: Callable[[], Awaitable[None]]
    hello: dict[str, Json] = field(default_factory=dict)
    _tools: str = ""
    """The id of the helpers that its judge has."""
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def greet(self) -> dict[str, Json]:
        """Wait for the judge's hello. Raises `SandboxError` if none comes or its protocol is another one."""
        line = await self._line(HELLO_TIMEOUT)
        if "fault" in line:
            raise SandboxError(f"the lane did not start: {line['fault']}")
        self.hello = line.get("hello") or {}
        if self.hello.get("protocol") != PROTOCOL:
            raise SandboxError(f"the judge speaks protocol {self.hello.get('protocol')}, not {PROTOCOL}")
        return self.hello

    async def run(self, wire: dict[str, Json]) -> tuple[list[dict[str, Json]], bool]:
        """Run one wire job; its records, and whether the lane is clean afterwards (else it must be killed).

        Raises `SandboxError` when the stream breaks, a record is late, or the judge reports a fault.
        """
        name = f"job{next(self._ids)}"
        tools = wire.get("tools")
        if tools and tools["id"] == self._tools:
            wire = {**wire, "tools": {**tools, "files": {}}}
        await self._send({**wire, "id": name})
        records: list[dict[str, Json]] = []
        parts = (wire, wire.get("build") or {})
        wall = max(part["limits"]["wall"] for part in parts if "limits" in part) + GRACE
        while True:
            record = await self._line(wall)
            if record.get("job") != name:
                raise SandboxError("the judge answered another job")
            if "fault" in record:
                raise SandboxError(f"the judge: {record['fault']}")
            if "end" in record:
                self._tools = tools["id"] if tools else self._tools
                return records, bool(record["end"]["clean"])
            records.append(record)

    async def _send(self, message: dict[str, Json]) -> None:
        try:
            self.writer.write(json.dumps(message).encode() + b"\n")
            async with asyncio.timeout(GRACE):
                await self.writer.drain()
        except (OSError, TimeoutError) as error:
            raise SandboxError(f"the lane does not take its job: {error or 'timed out'}") from error

    async def _line(self, seconds: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                line = await self.reader.readuntil(b"\n")
            record = json.loads(line)
        except asyncio.IncompleteReadError as error:
            raise SandboxError("the lane was lost") from error
        except TimeoutError as error:
            raise SandboxError(f"the judge did not answer within {seconds:.0f} s") from error
        except (OSError, ValueError, asyncio.LimitOverrunError) as error:
            raise SandboxError(f"the lane's stream broke: {error}") from error
        if not isinstance(record, dict):
            raise SandboxError("the judge's answer is no record")
        return record

    async def close(self) -> None:
        """End the lane: close its stdin, then destroy it. Never raises."""
        with contextlib.suppress(Exception):
            self.writer.close()
        with contextlib.suppress(Exception):
            await self.kill()
