"""The docker sandbox and its engine: one that goes, comes back or says nothing, owners that die, images."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentloop.errors import SandboxError, UserError
from agentloop.sandbox import engine
from agentloop.sandbox.docker import DockerSandbox
from tests.sandbox.engine.conftest import DOUBLE, RECIPE, SLOW, gone, job, lanes, value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from docker import DockerClient


# The SDK leaves the socket of a connection that was refused.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What a test leaves is gone before another one hears of it."""
    yield
    gc.collect()


class Relay:
    """A way to the engine that can be cut: a client sees then what an engine that goes down shows it."""

    def __init__(self, target: str, path: Path) -> None:
        self.target, self.path, self.ends = target, path, list[asyncio.StreamWriter]()
        self.silent, self.questions = False, list[bytes]()

    async def open(self) -> None:
        self.server = await asyncio.start_unix_server(self.join, self.path)

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


@pytest.fixture
async def relay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Relay]:
    """The way by which the engine is reached in a test."""
    relay = Relay(
        os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://"), tmp_path / "way"
    )
    await relay.open()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/way")
    yield relay
    relay.cut()


@pytest.fixture
async def relayed(client: DockerClient, relay: Relay) -> AsyncIterator[DockerSandbox]:
    """A started sandbox with one lane, which goes that way."""
    sandbox = DockerSandbox(RECIPE, lanes=1)
    await sandbox.start()
    yield sandbox
    await sandbox.close()
    await gone(client, sandbox.session)


async def test_no_engine_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    sandbox = DockerSandbox(RECIPE, lanes=1)
    with pytest.raises(UserError, match="no Docker engine answers"):
        await sandbox.start()
    await sandbox.close()
    assert engine.available(RECIPE).engine is None


async def test_an_engine_lost_in_the_middle_is_a_fault(
    relayed: DockerSandbox, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentloop.sandbox.docker.RESTART", 1)
    running = asyncio.ensure_future(relayed.execute(job(SLOW)))
    await asyncio.sleep(0)
    relay.cut()
    with pytest.raises(SandboxError):
        await running


async def test_an_engine_that_comes_back_is_waited_for(relayed: DockerSandbox, relay: Relay) -> None:
    told: list[str] = []
    reopened: list[asyncio.Task[None]] = []

    def progress(line: str) -> None:
        told.append(line)
        reopened.append(asyncio.ensure_future(relay.open()))

    relayed.progress = progress
    running = asyncio.ensure_future(relayed.execute(job(DOUBLE)))
    await asyncio.sleep(0)
    relay.cut()
    assert value(await running) == '{"value":42}'
    assert told == ["docker: the engine does not answer; waiting for it up to 60 seconds"]
    await asyncio.gather(*reopened)


async def test_an_engine_that_takes_questions_and_says_nothing_is_not_waited_for_longer(
    relayed: DockerSandbox, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentloop.sandbox.docker.RESTART", 2)
    assert relayed._client is not None
    relayed._client.api.timeout = 2  # each of its questions takes as long as there is in all
    relay.cut()
    relay.silent = True
    await relay.open()
    with pytest.raises(SandboxError, match="cannot start a lane"):
        await relayed.execute(job(DOUBLE))
    assert sum(b"/_ping" in question for question in relay.questions) == 1


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
