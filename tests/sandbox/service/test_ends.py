"""The E2B sandbox when it ends: by a cancel, by a close too early, by the death of its owner."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from agentloop.doctor import clean
from agentloop.errors import SandboxError
from agentloop.sandbox import e2b, engine
from agentloop.sandbox.e2b import E2BSandbox
from tests.sandbox.e2b_server import Answer, Server
from tests.sandbox.service.conftest import SLOW, says_one, sent, until


async def test_what_could_not_be_ended_is_ended_at_the_close(server: Server) -> None:
    sandbox = E2BSandbox(lanes=1)
    await sandbox.start()
    server.trouble["kill"].append(Answer(500, {"code": 500, "message": "later"}))
    await sandbox.close()
    assert server.machines == {}
    assert server.count("kill") == 2


async def test_a_cancelled_start_leaves_no_machine(server: Server) -> None:
    sandbox = E2BSandbox(lanes=1)
    server.go.clear()
    starting = asyncio.ensure_future(sandbox.start())
    await until(lambda: server.machines)
    starting.cancel()
    server.go.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert server.machines == {}
    await sandbox.close()


async def test_a_close_before_a_machine_is_there_leaves_none(server: Server) -> None:
    sandbox = E2BSandbox(lanes=1)
    server.go.clear()
    starting = asyncio.ensure_future(sandbox.start())
    await until(lambda: server.machines)
    await sandbox.close()
    server.go.set()
    with pytest.raises(SandboxError, match="closed"):
        await starting
    assert server.machines == {}


async def test_a_cancelled_start_waits_for_no_service_that_hangs(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(e2b, "PATIENCE", 0.1)
    sandbox = E2BSandbox(lanes=1)
    server.go.clear()
    starting = asyncio.ensure_future(sandbox.start())
    await until(lambda: server.machines)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await sandbox.close()
    assert server.machines == {}


async def test_a_cancelled_job_takes_its_machine_along(server: Server, sandbox: E2BSandbox) -> None:
    (first,) = server.machines
    running = asyncio.ensure_future(sandbox.execute(SLOW))
    await sent(server)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert server.ended == [first]
    assert await says_one(sandbox)


OWNER = """
import asyncio, sys
from agentloop.sandbox.e2b import E2BSandbox

async def main():
    sandbox = E2BSandbox(lanes=1)
    await sandbox.start()
    print("started", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


async def test_machines_of_a_killed_owner_are_removed_and_no_others(server: Server, sandbox: E2BSandbox) -> None:
    (mine,) = server.machines
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"started\n"
    (left,) = server.machines.keys() - {mine}
    owner.kill()
    await owner.wait()
    dead = server.machines[left].asked["metadata"]
    pid, _, started = dead[engine.OWNER].split(":")
    for labels in ({engine.HOST: "another"}, {engine.OWNER: f"{pid}:anotherboot:{started}"}, {engine.LANE: "no"}):
        others = E2BSandbox(lanes=1)
        await others._create("loop")
        server.machines[f"machine{server.count('create')}"].asked["metadata"] = {**dead, **labels}
        await others.close()
    cleaned = await asyncio.to_thread(lambda: [line for line in clean() if "e2b" in line])
    assert cleaned == [f"removed e2b machine {left}"]
    assert len(server.machines) == 4
    for machine in [one for name, one in server.machines.items() if name != mine]:
        server.end(machine)
