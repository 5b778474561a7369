"""The docker sandbox on a real engine: what is its own. What all backends share is in the conformance suite."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentloop.errors import SandboxError, UserError
from agentloop.sandbox import engine, open_sandbox
from agentloop.sandbox.conformance import script
from agentloop.sandbox.docker import Demultiplexer, DockerSandbox
from agentloop.testing import sandbox_cases, wrong
from agentloop.types import Job, Limits
from tests.sandbox.engine.conftest import DOUBLE, RECIPE, SLOW, job, lanes, value

if TYPE_CHECKING:
    from collections.abc import Callable

    from docker import DockerClient


@pytest.fixture(scope="module", params=["forked", "new"])
def conformance(need: Callable[[str], None], request: pytest.FixtureRequest) -> dict[str, str]:
    """What was wrong in each conformance case ('' for nothing), all run on one sandbox with two lanes."""
    need("docker")

    async def run() -> dict[str, str]:
        sandbox = DockerSandbox(RECIPE, lanes=2, interpreter=request.param)
        try:
            await sandbox.start()
            return await wrong(sandbox, sandbox_cases())
        finally:
            await sandbox.close()

    return asyncio.run(run())


@pytest.mark.parametrize("case", [case[0] for case in sandbox_cases()])
def test_case(case: str, conformance: dict[str, str]) -> None:
    assert conformance[case] == ""


UNWAITED = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def f(x):
    while True:
        end, other = os.pipe()
        if os.fork() == 0:
            while time.process_time() < 0.3: pass
            os._exit(0)
        os.close(other)
        os.read(end, 1)
        os.close(end)
"""


async def test_children_whose_end_is_ignored_count_too(sandbox: DockerSandbox) -> None:
    record = (await sandbox.execute(job(UNWAITED))).tests[0]
    assert record["limit"] == "cpu"
    assert 1 < record["cpu"] < 5  # of 60 that the wall limit gives


async def test_a_started_sandbox_tells_its_environment_and_leaves_nothing(client: DockerClient) -> None:
    sandbox = DockerSandbox(RECIPE, lanes=2)
    try:
        environment = await sandbox.start()
        assert environment["backend"] == "docker"
        assert environment["toolchain"]["python"].startswith("3.")
        assert engine.image_name(RECIPE) in environment["recipe"]
        runs = await asyncio.gather(*(sandbox.execute(job(DOUBLE)) for _ in range(4)))
        assert [value(run) for run in runs] == ['{"value":42}'] * 4
        assert len(lanes(client, sandbox.session)) == 2
    finally:
        await sandbox.close()
    assert lanes(client, sandbox.session) == []
    await sandbox.close()


async def test_two_starts_have_one_environment(client: DockerClient) -> None:
    environments = []
    for _ in range(2):
        sandbox = DockerSandbox(RECIPE, lanes=1)
        environments.append(await sandbox.start())
        await sandbox.close()
    assert environments[0] == environments[1]


async def test_the_program_is_locked_in(sandbox: DockerSandbox) -> None:
    program = """
import os, socket
def f(x):
    refused = []
    def attempt(name, action):
        try:
            action()
        except OSError:
            refused.append(name)
    attempt("write to root", lambda: open("/usr/bin/mine", "w"))
    attempt("kill the judge", lambda: os.kill(1, 9))
    attempt("read the judge", lambda: open("/proc/1/mem", "rb"))
    attempt("become root", lambda: os.setuid(0))
    attempt("reach out", lambda: socket.create_connection(("192.0.2.1", 80), timeout=1))
    attempt("mount", lambda: os.unshare(0x20000) if hasattr(os, "unshare") else open("/dev/kmsg"))
    return refused
"""
    got = value(await sandbox.execute(job(program)))
    expected = '{"value":["write to root","kill the judge","read the judge","become root","reach out","mount"]}'
    assert str(got).replace(", ", ",") == expected


async def test_memory_is_limited_per_job_and_grows_on_demand(sandbox: DockerSandbox) -> None:
    fill = (
        "def f(x):\n    block = bytearray(600 * 2**20)\n    block[::4096] = b'x' * len(block[::4096])\n    return 1\n"
    )
    patient = Limits(cpu=20.0, wall=60.0)
    small = await sandbox.execute(job(fill, limits=patient))
    assert small.tests[0]["limit"] == "memory"
    large = await sandbox.execute(job(fill, limits=replace(patient, memory=800 * 2**20)))
    assert value(large) == '{"value":1}'
    assert 600 * 2**20 < large.tests[0]["memory"] < 800 * 2**20
    again = await sandbox.execute(job(fill, limits=patient))
    assert again.tests[0]["limit"] == "memory"


async def test_a_program_and_its_script_have_the_limit_each(sandbox: DockerSandbox) -> None:
    program = f"{DOUBLE}memory = b'x' * 470_000_000\n"
    code = "assert f(1) == 2\nmemory = b'y' * 470_000_000\nassert f(2) == 4\n"
    run = await sandbox.execute(Job("python", program, (script(code),), Limits(cpu=20.0, wall=60.0)))
    assert json.loads(run.tests[0]["checker"]["channel"]) == {"ok": True}, run.tests[0]
    assert run.tests[0]["limit"] is None


async def test_a_script_that_grows_between_two_looks_is_not_the_program(
    sandbox: DockerSandbox, client: DockerClient
) -> None:
    """The judge gets no time meanwhile, as on a busy machine."""
    program = "import time\ndef f(): time.sleep(1)\nmemory = b'x' * 120_000_000\n"
    code = "f()\nmemory = b'y' * 145_000_000\nf()\n"
    limits = Limits(cpu=20.0, wall=60.0, memory=160 * 2**20)
    running = asyncio.ensure_future(sandbox.execute(Job("python", program, (script(code),), limits)))
    judges: list[int] = []
    while not running.done():
        pids = {
            int(pid): line
            for lane in lanes(client, sandbox.session)
            for pid, line in client.api.top(lane, "-eo pid,args")["Processes"]
        }
        big = [pid for pid in pids if resident(pid) > 110_000_000]
        if len(big) == 1 and not judges:  # the program
            judges = [pid for pid, line in pids.items() if "judge" in line]
            for pid in judges:
                os.kill(pid, signal.SIGSTOP)
        if len(big) == 2:
            for pid in judges:
                os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(0)
    record = (await running).tests[0]
    assert json.loads(record["checker"]["channel"]) == {"ok": True}, record
    assert record["limit"] is None
    assert 120_000_000 < record["memory"] < 140_000_000


def resident(pid: int) -> int:
    with contextlib.suppress(OSError):  # it has ended
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


async def test_the_judge_survives_the_out_of_memory_killer(sandbox: DockerSandbox, client: DockerClient) -> None:
    before = lanes(client, sandbox.session)
    greedy = "import os\ndef f(x):\n    [os.fork() for _ in range(4)]\n    return len(bytearray(b'x') * 2**31)\n"
    run = await sandbox.execute(job(greedy, limits=Limits(cpu=20.0, wall=60.0)))
    assert run.tests[0]["limit"] == "memory"
    assert value(await sandbox.execute(job(DOUBLE))) == '{"value":42}'
    assert set(before) <= set(lanes(client, sandbox.session))


async def test_limits_of_a_profile_replace_those_of_the_problem(client: DockerClient, tmp_path: Path) -> None:
    profile = tmp_path / "quick.toml"
    profile.write_text(f'backend = "docker"\nrecipe = "{RECIPE}"\n[limits]\ncpu = 0.5\n')
    sandbox = open_sandbox(str(profile), lanes=1)
    try:
        assert (await sandbox.start())["limits"] == {"cpu": 0.5}
        run = await sandbox.execute(job(SLOW))
    finally:
        await sandbox.close()
    assert run.tests[0]["limit"] == "cpu"
    assert 0.5 < run.tests[0]["cpu"] < 1.5


async def test_more_processes_than_a_lane_can_hold_are_refused(sandbox: DockerSandbox) -> None:
    with pytest.raises(UserError, match="processes"):
        await sandbox.execute(job(DOUBLE, limits=Limits(processes=4000)))


async def test_a_lane_killed_in_the_middle_is_tried_once_more(client: DockerClient, sandbox: DockerSandbox) -> None:
    (first,) = lanes(client, sandbox.session)
    running = asyncio.ensure_future(sandbox.execute(job(SLOW)))
    await asyncio.to_thread(client.api.kill, first)
    run = await running
    assert run.tests[0]["limit"] == "cpu"
    assert first not in lanes(client, sandbox.session)


async def test_a_job_that_loses_two_lanes_is_a_fault(client: DockerClient, sandbox: DockerSandbox) -> None:
    (first,) = lanes(client, sandbox.session)
    running = asyncio.ensure_future(sandbox.execute(job(SLOW)))
    await asyncio.to_thread(client.api.kill, first)
    while not (second := [lane for lane in await running_lanes(client, sandbox.session) if lane != first]):
        assert not running.done()
    await asyncio.to_thread(client.api.kill, second[0])
    with pytest.raises(SandboxError):
        await running
    assert value(await sandbox.execute(job(DOUBLE))) == '{"value":42}'


async def running_lanes(client: DockerClient, session: str) -> list[str]:
    found = await asyncio.to_thread(
        client.containers.list, filters={"label": f"{engine.SESSION}={session}", "status": "running"}, sparse=True
    )
    return [str(container.id) for container in found]


async def test_a_cancelled_job_takes_its_lane_with_it(client: DockerClient, sandbox: DockerSandbox) -> None:
    (first,) = lanes(client, sandbox.session)
    running = asyncio.ensure_future(sandbox.execute(job(SLOW)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert first not in lanes(client, sandbox.session)
    assert value(await sandbox.execute(job(DOUBLE))) == '{"value":42}'


async def test_frames_are_taken_apart_wherever_they_are_cut() -> None:
    def frame(stream: int, data: bytes) -> bytes:
        return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data

    sent = frame(1, b"one\n") + frame(2, b"noise") + frame(1, b"") + frame(1, b"t" * 300 + b"\n")
    for size in (1, 3, 8, 9, len(sent)):
        reader = asyncio.StreamReader()
        demultiplexer = Demultiplexer(reader)
        for begin in range(0, len(sent), size):
            demultiplexer.data_received(sent[begin : begin + size])
        assert await reader.readline() == b"one\n"
        assert await reader.readline() == b"t" * 300 + b"\n"
        demultiplexer.eof_received()
        with pytest.raises(OSError, match="noise"):
            await reader.readline()
