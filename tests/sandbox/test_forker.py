"""The judge's interpreter that stands ready, on a judge that the test started itself; needs root, for second uids."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentloop.sandbox import judge, local
from agentloop.sandbox.lane import LINE_LIMIT, Lane
from agentloop.sandbox.languages import execution, wire_job
from agentloop.sandbox.pool import take_uids
from agentloop.types import Execution, Job, Limits, Test

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give programs a uid of their own")
PROGRAM = """import os, sys
def f(x):
    print(x, file=sys.stderr)
    return [x, os.getuid(), sys.argv, sorted(os.environ)]
"""


@pytest.fixture
async def lane(request: pytest.FixtureRequest) -> AsyncIterator[Lane]:
    uids = take_uids()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        config = {"work": folder, "uid": uids.program, "checker_uid": uids.checker, "fork": request.param}
        python = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
        if not local.reachable(python):
            python = "/usr/bin/python3"
        argv = [python, "-I", "-S", "-B", judge.__file__, json.dumps(config)]
        process = await asyncio.create_subprocess_exec(*argv, stdin=-1, stdout=-1, limit=LINE_LIMIT)
        assert process.stdin is not None
        assert process.stdout is not None

        async def kill() -> None:
            process.kill()

        lane = Lane(process.stdout, process.stdin, kill)
        lane.hello = {"pid": process.pid, **await lane.greet()}
        yield lane
        process.stdin.close()
        assert await process.wait() == 0
        uids.release()


def job(*values: int) -> Job:
    tests = [Test(str(x), "call", {"function": "f", "args": [x], "kwargs": {}}, None, "equal", "") for x in values]
    return Job("python", PROGRAM, tuple(tests), Limits())


async def run(lane: Lane, job: Job) -> Execution:
    records, clean = await lane.run(wire_job(job))
    assert clean
    return execution(job, records, 0.0)


def forkers(lane: Lane) -> list[int]:
    """Processes of the judge that stand ready."""
    table = judge.processes(set())
    return [pid for pid, row in table.items() if row[0] == lane.hello["pid"] and b"/fork.pyc\0" in _words(pid)]


def _words(pid: int) -> bytes:
    """Its command line; one that has just ended has none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def plain(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("wall", "cpu", "memory")}


@pytest.mark.parametrize("lane", [True], indirect=True)
async def test_a_fork_runs_as_a_new_interpreter_would(lane: Lane) -> None:
    with_fork = await run(lane, job(1, 2))
    assert len(forkers(lane)) == 1
    wire = copy.deepcopy(wire_job(job(1, 2)))
    del wire["tools"]["forker"]
    for test in wire["tests"]:
        del test["forked"]
    records, _ = await lane.run(wire)
    assert [plain(record) for record in execution(job(1, 2), records, 0.0).tests] == list(map(plain, with_fork.tests))
    assert json.loads(with_fork.tests[0]["channel"])["value"][1] >= 58000


@pytest.mark.parametrize("lane", [True], indirect=True)
async def test_a_lane_is_sent_its_helpers_once(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    write = lane.writer.write
    monkeypatch.setattr(lane.writer, "write", lambda data: (sent.append(json.loads(data)), write(data)))
    files = wire_job(job(1))["tools"]["files"]
    other = wire_job(job(3)) | {"tools": {**wire_job(job(3))["tools"], "id": "other"}}
    for wire in (wire_job(job(1)), wire_job(job(2)), other, other):
        records, clean = await lane.run(wire)
        assert clean
        assert records[0]["exit"] == 0
    assert [each["tools"]["files"] for each in sent] == [files, {}, files, {}]


@pytest.mark.parametrize("lane", [True], indirect=True)
async def test_another_stack_limit_takes_another_interpreter(lane: Lane) -> None:
    await run(lane, job(1))
    first = forkers(lane)
    small = Job("python", PROGRAM, job(1).tests, Limits(memory=2**27))
    await run(lane, small)
    assert len(forkers(lane)) == 1
    assert forkers(lane) != first


@pytest.mark.parametrize("lane", [True], indirect=True)
async def test_one_that_dies_changes_no_verdict_and_the_next_job_has_another(lane: Lane) -> None:
    await run(lane, job(1))
    (pid,) = forkers(lane)
    os.kill(pid, signal.SIGKILL)
    while forkers(lane):
        await asyncio.sleep(0.001)  # until it has died
    assert json.loads((await run(lane, job(3))).tests[0]["channel"])["value"][0] == 3
    assert forkers(lane) not in ([pid], [])


SLOW = "import time\ndef f(x):\n    time.sleep(0.3)\n    return [x]\n"


@pytest.mark.parametrize("lane", [True], indirect=True)
async def test_one_that_dies_while_its_fork_runs_changes_no_verdict(lane: Lane) -> None:
    await run(lane, job(1))
    (pid,) = forkers(lane)
    running = asyncio.create_task(run(lane, Job("python", SLOW, job(4, 5).tests, Limits())))
    while not any(row[0] == pid for row in judge.processes(set()).values()):
        await asyncio.sleep(0.001)  # until the fork is there
    os.kill(pid, signal.SIGKILL)
    assert [(test["exit"], test["channel"]) for test in (await running).tests] == [
        (0, '{"value":[4]}\n'),
        (0, '{"value":[5]}\n'),
    ]


@pytest.mark.parametrize("lane", [False], indirect=True)
async def test_a_judge_may_do_without(lane: Lane) -> None:
    await run(lane, job(1))
    assert forkers(lane) == []
