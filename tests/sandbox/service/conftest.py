"""A service on loopback, and a sandbox that is its customer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agentloop.errors import AgentloopError
from agentloop.sandbox import e2b
from agentloop.sandbox.conformance import call, job, stdio
from agentloop.sandbox.e2b import E2BSandbox
from agentloop.types import Job, Limits
from tests.sandbox.e2b_server import KEY, Server, serving
from tests.sandbox.procs import below

HELLO = job("print(1)", stdio())
SLOW = Job("python", "import time\ndef f(): time.sleep(2); return 5", (call("f"),), Limits(wall=60.0))


@pytest.fixture
async def server(need: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    need("e2b-machines")
    monkeypatch.setattr(e2b, "FIRST_WAIT", 0.01)
    async with serving(tmp_path, monkeypatch) as server:
        yield server
    assert not [line for line in below(os.getpid()).values() if "e2b_machine" in line]


@pytest.fixture
async def sandbox(server: Server) -> AsyncIterator[E2BSandbox]:
    sandbox = E2BSandbox(lanes=1)
    await sandbox.start()
    yield sandbox
    await sandbox.close()
    assert server.machines == {}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


async def says_one(sandbox: E2BSandbox) -> bool:
    return (await sandbox.execute(HELLO)).tests[0]["stdout"] == "1\n"


async def sent(server: Server) -> None:
    """Wait until a job is on its way to a machine."""
    before = server.count("SendInput")
    await until(lambda: server.count("SendInput") > before)


async def refused(error: type[AgentloopError], match: str, template: str = "base") -> None:
    sandbox = E2BSandbox(lanes=1, template=template)
    try:
        with pytest.raises(error, match=match) as caught:
            await sandbox.start()
        assert "\n" not in str(caught.value)
        assert KEY not in str(caught.value)
    finally:
        await sandbox.close()
