"""The judge's wire protocol, spoken raw to a judge in namespaces of its own; and the lane's view of a broken stream."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import SandboxError
from agentloop.sandbox import local
from agentloop.sandbox.lane import LINE_LIMIT, Lane
from agentloop.sandbox.pool import take_uids, uids_in_turn

MISSING = local.available()["namespaces"]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"namespaces: {MISSING}")
LIMITS = {
    "cpu": 2, "wall": 10, "memory": 2**28, "output": 10_000, "processes": 20, "file_size": 2**20, "open_files": 64,
}  # fmt: skip


@pytest.fixture
async def process() -> AsyncIterator[asyncio.subprocess.Process]:
    uids = take_uids() if local.owns_uids() else None
    argv = local.command("namespaces", (uids.program, uids.checker) if uids else (None, None))
    process = await asyncio.create_subprocess_exec(*argv, stdin=-1, stdout=-1, limit=LINE_LIMIT)
    yield process
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() == 0
    if uids:
        uids.release()


async def ask(process: asyncio.subprocess.Process, *lines: str) -> list[dict[str, Any]]:
    """Send these lines and read until each has its end or its fault."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("".join(line + "\n" for line in lines).encode())
    records, ends = [], 0
    while ends < len(lines):
        records.append(json.loads(await process.stdout.readline()))
        ends += "end" in records[-1] or "fault" in records[-1]
    return records


def wire(name: str = "j", **more: Any) -> str:
    files = {"run.sh": 'read line\necho "$line" out\necho err >&2\necho result >&$AGENTLOOP_CHANNEL\nexit 3\n'}
    test = {"id": "t", "argv": ["/bin/sh", "{src}/run.sh"], "stdin": "in\n", "channel": True, "checker": None}
    return json.dumps({"id": name, "files": files, "build": None, "tests": [test], "limits": LIMITS, **more})


async def test_any_language(process: asyncio.subprocess.Process) -> None:
    hello, record, end = await ask(process, wire())
    assert hello["hello"]["protocol"] == 1
    assert record.pop("wall") > 0
    assert record.pop("cpu") >= 0
    assert record.pop("memory") > 100_000
    assert record == {
        "job": "j", "test": "t", "exit": 3, "signal": None, "limit": None, "stdout": "in out\n", "stderr": "err\n",
        "channel": "result\n", "truncated": [], "bytes": {"stdout": 7, "stderr": 4}, "encoding": "utf-8",
        "mechanism": {"memory": "sampled"},
    }  # fmt: skip
    assert end == {"job": "j", "end": {"clean": True, "why": ""}}


async def test_jobs_sent_together_are_answered_in_order(process: asyncio.subprocess.Process) -> None:
    records = await ask(process, wire("a"), wire("b"), wire("c"))
    assert [record["job"] for record in records[1:]] == ["a", "a", "b", "b", "c", "c"]


async def test_build_makes_what_tests_run(process: asyncio.subprocess.Process) -> None:
    files = {"build.sh": "echo 'echo built; touch more || exit 4' > program; chmod +x program", "deep/data": "x"}
    test = {"id": "t", "argv": ["/bin/sh", "-c", "cd {src}; . ./program"], "stdin": "", "channel": False}
    build = {"argv": ["/bin/sh", "build.sh"], "limits": LIMITS}
    _, built, tested, _ = await ask(process, wire(files=files, build=build, tests=[test]))
    assert built["build"]["exit"] == 0
    assert (tested["stdout"], tested["exit"]) == ("built\n", 4)  # what the build made is there, and read-only


async def test_failed_build_runs_no_test(process: asyncio.subprocess.Process) -> None:
    build = {"argv": ["/bin/sh", "-c", "echo wrong >&2; exit 2"], "limits": {**LIMITS, "cpu": 1}}
    _, built, end = await ask(process, wire(build=build))
    assert (built["build"]["exit"], built["build"]["stderr"]) == (2, "wrong\n")
    assert end["end"]["clean"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "JSONDecodeError"),
        ("{}", "KeyError"),
        (wire(files={"../x": ""}), "bad file name"),
        (wire(files={"/etc/x": ""}), "bad file name"),
        (wire(tests=[{"id": "t", "argv": ["no-such-program"], "stdin": ""}]), "cannot start no-such-program"),
    ],
)
async def test_what_it_cannot_do_is_a_fault(process: asyncio.subprocess.Process, line: str, words: str) -> None:
    _, fault, *rest = await ask(process, line, wire("good"))
    assert words in fault["fault"]
    assert rest[-1] == {"job": "good", "end": {"clean": True, "why": ""}}


async def test_tools_that_cannot_be_built_leave_none_that_stood_there(process: asyncio.subprocess.Process) -> None:
    def with_tools(name: str, build: str) -> str:
        files = {"build.sh": build, "word": name}
        tools = {"id": name, "files": files, "argv": ["/bin/sh", "{tools}/build.sh"], "limits": LIMITS}
        test = {"id": "t", "argv": ["/bin/cat", "{tools}/word"], "stdin": "", "channel": False}
        return wire(tools=tools, tests=[test])

    good, bad = with_tools("good", "exit 0"), with_tools("bad", "echo broken >&2; exit 1")
    _, first, _, fault, again, _ = await ask(process, good, bad, good)
    assert fault["fault"] == "Unable: tools: broken\n"
    assert (first["stdout"], again["stdout"]) == ("good", "good")


@pytest.mark.parametrize("gated", [True, False])
async def test_memory_that_the_judge_takes_for_a_big_job_is_no_programs(
    process: asyncio.subprocess.Process, gated: bool
) -> None:
    limits = {**LIMITS, "memory": 2**26}
    test = {"id": "t", "argv": ["/bin/sh", "-c", "exit 0"], "stdin": "", "channel": False, "gated": gated}
    big = wire("big", limits=limits, tests=[{**test, "stdin": "x" * 10_000_000} for _ in range(8)])
    _, *records = await ask(process, big, wire("small", limits=limits, tests=[test]))
    tested = [record for record in records if "test" in record]
    assert [(record["exit"], record["limit"]) for record in tested] == [(0, None)] * 9
    assert tested[-1]["memory"] < 2**25  # the judge has given back what the big one took


@pytest.mark.skipif(not local.owns_uids(), reason="of an ordinary user's processes all others count")
@pytest.mark.parametrize("gated", [True, False])
async def test_programs_get_no_more_processes_than_the_judge_may_have(
    process: asyncio.subprocess.Process, gated: bool
) -> None:
    await ask(process, wire())
    (judge,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    resource.prlimit(int(judge), resource.RLIMIT_NPROC, (18, 18))  # of 20 that the job asks for
    test = {"id": "t", "argv": ["/bin/grep", "processes", "/proc/self/limits"], "stdin": "", "gated": gated}
    record, _ = await ask(process, wire(tests=[test]))
    assert record["stdout"].split() == ["Max", "processes", "18", "18", "processes"]


async def test_stdin_may_close_in_the_middle_of_a_job(process: asyncio.subprocess.Process) -> None:
    test = {"id": "t", "argv": ["/bin/sh", "-c", "sleep 50 & sleep 50"], "stdin": "", "channel": False}
    assert process.stdin is not None
    process.stdin.write((wire(tests=[test]) + "\n").encode())
    await process.stdin.drain()
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def gone() -> None:
    return None


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"", "the lane was lost"),
        (b"no json\n", "stream broke"),
        (b"[1]\n", "is no record"),
        (b'{"job": "other", "end": {"clean": true}}\n', "another job"),
        (b'{"job": "job1", "fault": "no memory"}\n', "the judge: no memory"),
        (b'{"job": "job1"}', "the lane was lost"),
    ],
)
async def test_a_broken_stream_is_a_sandbox_error(sent: bytes, words: str) -> None:
    reader = asyncio.StreamReader(limit=1000)
    reader.feed_data(sent)
    reader.feed_eof()
    end, sink = os.pipe()
    transport, protocol = await asyncio.get_running_loop().connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(sink, "wb")
    )
    lane = Lane(reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop()), gone)
    with pytest.raises(SandboxError, match=words):
        await lane.run({"limits": {"wall": 1}})
    await lane.close()
    os.close(end)


async def test_uids_are_locked() -> None:
    first, second = take_uids(), take_uids()
    assert len({first.program, first.checker, second.program, second.checker}) == 4
    first.release()
    third = take_uids()
    turn = uids_in_turn(Path("/proc/self/ns/net").stat().st_ino)
    assert turn.index(third.program) <= turn.index(first.program)
    second.release()
    third.release()


def test_uids_of_two_network_namespaces_rarely_meet() -> None:
    turns = [uids_in_turn(4026531840 + number) for number in range(20)]
    assert {tuple(sorted(turn)) for turn in turns} == {tuple(range(58000, 58999, 2))}
    firsts = [uid for turn in turns for uid in turn[:4]]
    assert len(set(firsts)) > 60  # of 80 lanes, four in each
