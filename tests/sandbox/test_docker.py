"""The docker sandbox on a real engine: what is its own. What all backends share is in the conformance suite."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentloop.errors import SandboxError, UserError
from agentloop.sandbox import engine, open_sandbox
from agentloop.sandbox.docker import Demultiplexer, DockerSandbox
from agentloop.testing import sandbox_cases, wrong
from agentloop.types import Execution, Job, Limits, Test

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from docker import DockerClient

RECIPE = Path(__file__).parents[2] / "sandboxes" / "docker"
SLOW = "def f(x):\n    while True: pass\n"
DOUBLE = "def f(x):\n    return 2 * x\n"
OWNER = """
import asyncio, os, sys
from pathlib import Path
from agentloop.sandbox.docker import DockerSandbox
from agentloop.sandbox.engine import owner_labels

async def main():
    sandbox = DockerSandbox(Path(sys.argv[1]), lanes=2)
    await sandbox.start()
    print(sandbox.session, flush=True)
    sys.stdin.read()

print(owner_labels(), flush=True)
if len(sys.argv) > 1:
    asyncio.run(main())
"""


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


def job(program: str, *, limits: Limits | None = None) -> Job:
    call = Test("t", "call", {"function": "f", "args": [21], "kwargs": {}}, None, "equal", "")
    return Job("python", program, (call,), limits or Limits(cpu=1.0, wall=60.0))


def value(execution: Execution) -> object:
    """What the program sent: a JSON line of the result channel."""
    return execution.tests[0]["channel"].strip()


def lanes(client: DockerClient, session: str) -> list[str]:
    filters = {"label": f"{engine.SESSION}={session}"}
    return [str(lane.id) for lane in client.containers.list(all=True, filters=filters, sparse=True)]


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


async def test_no_engine_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    sandbox = DockerSandbox(RECIPE, lanes=1)
    with pytest.raises(UserError, match="no Docker engine answers"):
        await sandbox.start()
    await sandbox.close()
    assert engine.available(RECIPE).engine is None


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # the SDK's, of a connection that was refused
async def test_an_engine_lost_in_the_middle_is_a_fault(
    client: DockerClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    relay = Relay(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"))
    await relay.open(tmp_path / "relay.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/relay.sock")
    monkeypatch.setattr("agentloop.sandbox.docker.RESTART", 1)
    sandbox = DockerSandbox(RECIPE, lanes=1)
    try:
        await sandbox.start()
        running = asyncio.ensure_future(sandbox.execute(job(SLOW)))
        await asyncio.sleep(0)
        relay.cut()
        with pytest.raises(SandboxError):
            await running
    finally:
        await sandbox.close()
    await gone(client, sandbox.session)
    del running, sandbox
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # the SDK's, of a connection that was refused
async def test_an_engine_that_comes_back_is_waited_for(
    client: DockerClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    relay = Relay(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"))
    await relay.open(tmp_path / "relay.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/relay.sock")
    told: list[str] = []
    reopened: list[asyncio.Task[None]] = []

    def progress(line: str) -> None:
        told.append(line)
        reopened.append(asyncio.ensure_future(relay.open(tmp_path / "relay.sock")))

    sandbox = DockerSandbox(RECIPE, lanes=1, progress=progress)
    try:
        await sandbox.start()
        running = asyncio.ensure_future(sandbox.execute(job(DOUBLE)))
        await asyncio.sleep(0)
        relay.cut()
        assert value(await running) == '{"value":42}'
        assert told == ["docker: the engine does not answer; waiting for it up to 60 seconds"]
        await asyncio.gather(*reopened)
    finally:
        await sandbox.close()
        relay.cut()
    await gone(client, sandbox.session)
    del running, sandbox
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_an_engine_that_takes_questions_and_says_nothing_is_not_waited_for_longer(
    client: DockerClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    relay = Relay(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"))
    await relay.open(tmp_path / "relay.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/relay.sock")
    monkeypatch.setattr("agentloop.sandbox.docker.RESTART", 2)
    sandbox = DockerSandbox(RECIPE, lanes=1)
    try:
        await sandbox.start()
        assert sandbox._client is not None
        sandbox._client.api.timeout = 2  # each of its questions takes as long as there is in all
        relay.cut()
        relay.silent = True
        await relay.open(tmp_path / "relay.sock")
        with pytest.raises(SandboxError, match="cannot start a lane"):
            await sandbox.execute(job(DOUBLE))
        assert sum(b"/_ping" in question for question in relay.questions) == 1
    finally:
        await sandbox.close()
        relay.cut()
    await gone(client, sandbox.session)
    del sandbox
    gc.collect()


class Relay:
    """A way to the engine that can be cut: a client sees then what an engine that goes down shows it."""

    def __init__(self, target: str) -> None:
        self.target, self.ends = target, list[asyncio.StreamWriter]()
        self.silent, self.questions = False, list[bytes]()

    async def open(self, path: Path) -> None:
        self.server = await asyncio.start_unix_server(self.join, path)

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.silent:
            self.ends.append(writer)
            self.questions.append(await reader.readline())
            return
        far_reader, far_writer = await asyncio.open_unix_connection(self.target)
        self.ends += [writer, far_writer]
        await asyncio.gather(self.copy(reader, far_writer), self.copy(far_reader, writer), return_exceptions=True)

    async def copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    def cut(self) -> None:
        self.server.close()
        for end in self.ends:
            end.close()


async def gone(client: DockerClient, session: str) -> None:
    """Wait until no lane of a session is left, which the engine sees to by itself."""
    async with asyncio.timeout(20):
        while lanes(client, session):
            await asyncio.sleep(0.05)


async def test_a_killed_owner_leaves_no_lane(client: DockerClient) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(RECIPE), stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=RECIPE.parents[1]
    )
    assert owner.stdout is not None
    await owner.stdout.readline()
    session = (await owner.stdout.readline()).decode().strip()
    assert len(lanes(client, session)) == 1
    owner.send_signal(signal.SIGKILL)
    await owner.wait()
    await gone(client, session)


def test_the_reaper_removes_what_dead_owners_left_and_nothing_else(client: DockerClient) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", OWNER], capture_output=True, text=True, check=True, cwd=RECIPE.parents[1]
    )
    labels = {
        "dead": eval(dead.stdout, {"__builtins__": {}}),
        "mine": engine.owner_labels(),
        "elsewhere": {**engine.owner_labels(), engine.HOST: "another machine", engine.OWNER: "1:another boot"},
    }
    image = engine.image_name(RECIPE)
    made = {who: client.containers.create(image, ["true"], labels=marks) for who, marks in labels.items()}
    try:
        engine.reap(client)
        left = {str(container.id) for container in client.containers.list(all=True, sparse=True)}
        assert {who for who, container in made.items() if str(container.id) in left} == {"mine", "elsewhere"}
    finally:
        for container in made.values():
            engine.remove(client, str(container.id))


def test_another_recipe_is_another_image(tmp_path: Path) -> None:
    shutil.copytree(RECIPE, tmp_path / "same")
    assert engine.image_name(tmp_path / "same") == engine.image_name(RECIPE)
    with (tmp_path / "same" / "Dockerfile").open("a") as file:
        file.write("# more\n")
    assert engine.image_name(tmp_path / "same") != engine.image_name(RECIPE)


def test_an_image_is_built_where_it_is_missing(client: DockerClient, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {engine.image_name(RECIPE)}\nLABEL made=for-a-test\n")
    name, lines = engine.image_name(tmp_path), list[str]()
    assert not engine.available(tmp_path).built
    try:
        image = engine.ensure_image(client, tmp_path, lines.append)
        assert engine.available(tmp_path).built
        assert lines[0].startswith(f"building {name}")
        seen = len(lines)
        assert engine.ensure_image(client, tmp_path, lines.append) == image
        assert len(lines) == seen
    finally:
        client.images.remove(name)


def test_a_build_that_fails_gives_the_command_to_look_closer(client: DockerClient, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {engine.image_name(RECIPE)}\nRUN exit 7\n")
    with pytest.raises(UserError, match=r"non-zero code: 7.*docker build -t agentloop-sandbox:\w+ "):
        engine.ensure_image(client, tmp_path, lambda line: None)


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
