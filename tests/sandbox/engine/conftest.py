"""What tests of the docker sandbox share: an engine, a sandbox on it, small jobs, its lanes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentloop.sandbox import engine
from agentloop.sandbox.docker import DockerSandbox
from agentloop.types import Execution, Job, Limits, Test

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from docker import DockerClient


RECIPE = Path(__file__).parents[3] / "sandboxes" / "docker"
SLOW = "def f(x):\n    while True: pass\n"
DOUBLE = "def f(x):\n    return 2 * x\n"


@pytest.fixture
def client(need: Callable[[str], None]) -> Iterator[DockerClient]:
    need("docker")
    client = engine.connect()
    yield client
    client.close()


@pytest.fixture
async def sandbox(client: DockerClient) -> AsyncIterator[DockerSandbox]:
    sandbox = DockerSandbox(RECIPE, lanes=2)
    await sandbox.start()
    yield sandbox
    await sandbox.close()


def job(program: str, *, limits: Limits | None = None) -> Job:
    call = Test("t", "call", {"function": "f", "args": [21], "kwargs": {}}, None, "equal", "")
    return Job("python", program, (call,), limits or Limits(cpu=1.0, wall=60.0))


def value(execution: Execution) -> object:
    """What the program sent: a JSON line of the result channel."""
    return execution.tests[0]["channel"].strip()


def lanes(client: DockerClient, session: str) -> list[str]:
    filters = {"label": f"{engine.SESSION}={session}"}
    return [str(lane.id) for lane in client.containers.list(all=True, filters=filters, sparse=True)]


async def gone(client: DockerClient, session: str) -> None:
    """Wait until no lane of a session is left, which the engine sees to by itself."""
    async with asyncio.timeout(20):
        while lanes(client, session):
            await asyncio.sleep(0.05)
