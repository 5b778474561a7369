"""The E2B sandbox when machines are lost or hang, and when the service refuses, limits, fails or never answers."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace

import pytest

from agentloop.errors import SandboxError, UserError
from agentloop.sandbox import e2b, e2b_service, lane
from agentloop.sandbox.conformance import answer
from agentloop.sandbox.e2b import E2BSandbox
from agentloop.types import Limits
from tests.sandbox.e2b_server import KEY, Answer, Server
from tests.sandbox.service.conftest import HELLO, SLOW, refused, says_one, sent


async def test_a_machine_lost_in_the_middle_is_tried_once_more(server: Server, sandbox: E2BSandbox) -> None:
    (first,) = server.machines.values()
    running = asyncio.ensure_future(sandbox.execute(SLOW))
    await sent(server)
    server.end(first)
    assert answer((await running).tests[0]) == {"value": 5}
    assert server.count("create") == 2


async def test_a_job_that_loses_two_machines_is_a_fault(server: Server, sandbox: E2BSandbox) -> None:
    running = asyncio.ensure_future(sandbox.execute(SLOW))
    for _ in range(2):
        await sent(server)
        (machine,) = server.machines.values()
        server.end(machine)
    with pytest.raises(SandboxError, match="stream broke"):
        await running
    assert await says_one(sandbox)


async def test_a_machine_that_the_service_does_not_know_any_more_is_lost(server: Server) -> None:
    sandbox = E2BSandbox(lanes=1, timeout=3)
    try:
        await sandbox.start()
        running = asyncio.ensure_future(sandbox.execute(SLOW))
        await sent(server)
        server.trouble["timeout"].append(Answer(404, {"code": 404, "message": "gone"}))
        assert answer((await running).tests[0]) == {"value": 5}
        assert server.count("create") == 2
    finally:
        await sandbox.close()


async def test_a_machine_that_hangs_is_given_up(
    server: Server, sandbox: E2BSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "GRACE", 1.0)
    (first,) = server.machines.values()
    running = asyncio.ensure_future(sandbox.execute(replace(HELLO, limits=Limits(wall=1.0, cpu=1.0))))
    server.freeze(first)
    assert (await running).tests[0]["stdout"] == "1\n"
    assert first.id in server.ended


@pytest.mark.parametrize("name", ["SendInput", "Start", "files", "info"])
async def test_trouble_of_one_machine_costs_another_try(name: str, server: Server) -> None:
    sandbox = E2BSandbox(lanes=1)
    try:
        if name == "SendInput":
            await sandbox.start()
        server.trouble[name].append(Answer(500, {"code": 500, "message": "disk broken"}))
        if name != "SendInput":
            with pytest.raises(SandboxError, match="disk broken"):
                await sandbox.start()
            assert server.machines == {}
            await sandbox.start()
        assert await says_one(sandbox)
    finally:
        await sandbox.close()


async def test_what_the_user_can_mend(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await refused(UserError, "E2B does not start a machine of template 'none': 404: template 'none' not found", "none")
    server.trouble["create"].append(Answer(400, {"code": 400, "message": f"Timeout cannot be so great, {KEY}"}))
    await refused(UserError, r"400: Timeout cannot be so great, \*\*\*")
    monkeypatch.setenv("E2B_API_KEY", "another")
    await refused(UserError, "E2B refuses the key in E2B_API_KEY: 401")
    monkeypatch.delenv("E2B_API_KEY")
    await refused(UserError, "key of an E2B account in E2B_API_KEY")
    monkeypatch.setenv("E2B_DEBUG", "true")
    monkeypatch.setenv("E2B_API_KEY", KEY)
    await refused(UserError, "E2B_DEBUG is set")
    assert server.machines == {}


async def test_no_test_can_reach_the_real_service(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.environ["E2B_API_URL"].startswith("http://127.0.0.1:")
    monkeypatch.setenv("E2B_API_KEY", KEY)
    for name in ("E2B_API_URL", "E2B_SANDBOX_URL"):
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(name)
            await refused(UserError, r"calls to the outside are off \(AGENTLOOP_NO_OUTSIDE=1\)")


async def test_a_rate_limit_is_waited_out_as_long_as_it_asks(server: Server) -> None:
    server.trouble["create"].append(Answer(429, {"code": 429, "message": "slow down"}, {"Retry-After": "1"}))
    sandbox = E2BSandbox(lanes=1)
    began = time.monotonic()
    try:
        await sandbox.start()
        assert time.monotonic() - began > 1
        assert server.count("create") == 2
        assert await says_one(sandbox)
    finally:
        await sandbox.close()


async def test_a_rate_limit_that_asks_too_long_is_told_at_once(server: Server) -> None:
    server.trouble["create"].append(Answer(429, {"code": 429, "message": "20 at once"}, {"Retry-After": "3600"}))
    await refused(SandboxError, "e2b: cannot start a machine of template 'base': 429.*20 at once")
    assert server.count("create") == 1


async def test_errors_of_the_service_are_tried_again_and_bounded(server: Server) -> None:
    broken = Answer(500, {"code": 500, "message": "broken"})
    server.trouble["create"] += [broken, Answer(0), Answer(503, {"code": 503, "message": "busy"}, {"Retry-After": "0"})]
    sandbox = E2BSandbox(lanes=1)
    try:
        await sandbox.start()
    finally:
        await sandbox.close()
    assert server.count("create") == 4
    assert len({key for name, key in server.keys if name == "create"}) == 1  # no try can start a second machine
    server.trouble["create"] += [broken] * 9
    await refused(SandboxError, "cannot start a machine of template 'base': 500: broken")
    assert server.count("create") == 4 + e2b.CREATE_TRIES


async def test_a_service_that_never_answers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e2b_service, "TIMEOUT", 0.3)
    monkeypatch.setattr(e2b, "CREATE_SECONDS", 0.3)
    server.trouble["create"] += [Answer(-1)] * 9
    await refused(SandboxError, "cannot start a machine of template 'base': no answer")
    server.trouble["list"] += [Answer(-1)] * 9
    await refused(SandboxError, "cannot list the machines: no answer")


async def test_a_service_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_KEY", KEY)
    await refused(SandboxError, "e2b: cannot list the machines: ")


async def test_a_template_that_cannot_run_the_judge(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e2b, "FILES", ("judge.py",))
    await refused(SandboxError, r"exit(ed)?.* code 2.*can't open file '/opt/agentloop/namespaces.py'")
