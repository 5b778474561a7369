"""A loopback server that speaks the protocol of the E2B SDK: control plane and the daemon of each machine.

Machines are real: their commands run in namespaces of their own (`e2b_machine.py`). Everything that was asked is kept
in `seen`; what is put into `trouble` under a request's name is answered, once each, in place of the right answer.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.parse
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.sandbox.e2b_machine import PATH

ROOT = Path(__file__).resolve().parents[2]
KEY = "e2b_0123456789abcdef0123456789abcdef01234567"
BASES = itertools.count(3_000_000, 65_536)
"""Where each machine's uids begin, outside: process limits count per uid on the whole host."""


def why_not() -> str | None:
    """Why no machine can run here, or None."""
    if os.geteuid() != 0:
        return "the machines of the test server need root"
    python = shutil.which("python3", path=PATH)
    version = [str(python), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    if python is None or subprocess.run(version, check=False).returncode != 0:
        return "no Python 3.11 or newer in the system's folders"
    probe = [sys.executable, str(ROOT / "tests/sandbox/e2b_machine.py"), str(next(BASES)), "/nothing", "exit 7"]
    done = subprocess.run(probe, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    return None if done.returncode == 7 else f"no namespaces here: {done.stderr.strip()[-200:]}"


@dataclass
class Answer:
    """In place of the right answer. `status` 0: the connection is dropped; -1: nothing comes, ever."""

    status: int
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Machine:
    """One sandbox of the service."""

    id: str
    token: str
    folder: Path
    asked: dict[str, Any]
    base: int = field(default_factory=lambda: next(BASES))
    ends: float = 0.0
    process: asyncio.subprocess.Process | None = None
    timer: asyncio.TimerHandle | None = None

    def state(self) -> dict[str, Any]:
        now = datetime.now(UTC)
        left = self.ends - asyncio.get_running_loop().time()
        return {
            "templateID": "t3mpl4te",
            "sandboxID": self.id,
            "clientID": "c",
            "startedAt": now.isoformat(),
            "endAt": (now + timedelta(seconds=left)).isoformat(),
            "cpuCount": 2,
            "memoryMB": 4096,
            "diskSizeMB": 1024,
            "state": "running",
            "envdVersion": "0.6.7",
            "metadata": self.asked["metadata"],
        }


class Server:
    """The service. `machines`: those that live; `seen`: (name, body) of every request."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, ""
        self.machines: dict[str, Machine] = {}
        self.ended: list[str] = []
        self.seen: list[tuple[str, str]] = []
        self.keys: list[tuple[str, str]] = []
        """(name, Idempotency-Key) of every request that has one."""
        self.trouble: dict[str, list[Answer]] = defaultdict(list)
        self.chunk = 65536
        """Bytes of output in one event."""
        self.go = asyncio.Event()
        """While it is clear, nobody is told that a machine was made."""
        self.go.set()
        self._names = itertools.count(1)
        self._stuck = asyncio.Event()

    def count(self, name: str) -> int:
        return sum(one == name for one, _ in self.seen)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Server]:
        app = web.Application(client_max_size=2**28)
        app.add_routes([web.route("*", "/{path:.*}", self.answer)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*runner.addresses[0])
        try:
            yield self
        finally:
            self._stuck.set()
            self.go.set()
            for machine in list(self.machines.values()):
                self.end(machine)
            await runner.cleanup()

    def end(self, machine: Machine) -> None:
        """End a machine as the service does: at once, with all that runs in it."""
        del self.machines[machine.id]
        self.ended.append(machine.id)
        if machine.timer:
            machine.timer.cancel()
        if machine.process and machine.process.returncode is None:
            machine.process.kill()

    # -- requests ------------------------------------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name, body = self.name(request), await request.read()
        self.seen.append((name, f"{request.query_string} {body.decode(errors='replace')}"))
        if "Idempotency-Key" in request.headers:
            self.keys.append((name, request.headers["Idempotency-Key"]))
        if self.trouble[name]:
            told = self.trouble[name].pop(0)
            if told.status == 0:
                assert request.transport is not None
                request.transport.abort()
            if told.status == -1:
                await self._stuck.wait()
            return web.json_response(told.body, status=told.status or 500, headers=told.headers)
        if name in ("create", "list", "info", "timeout", "kill"):
            if request.headers.get("X-API-Key") != KEY:
                return error(401, "invalid API key")
            return await getattr(self, name)(request, body)
        machine = self.machines.get(request.headers.get("E2b-Sandbox-Id", ""))
        if machine is None:
            return error(502, "The sandbox was not found")
        if request.headers.get("X-Access-Token") != machine.token:
            return error(401, "no access")
        return await getattr(self, name.lower())(request, body, machine)

    @staticmethod
    def name(request: web.Request) -> str:
        path = [part for part in request.path.split("/") if part]
        if path == ["v2", "sandboxes"]:
            return "create" if request.method == "POST" else "list"
        if path[0] == "sandboxes":
            return {"GET": "info", "DELETE": "kill", "POST": "timeout"}[request.method]
        return path[-1]  # files, health, Start, SendInput, ...

    async def create(self, request: web.Request, body: bytes) -> web.Response:
        asked = json.loads(body)
        if asked["templateID"] != "base":
            return error(404, f"template '{asked['templateID']}' not found")
        name = f"machine{next(self._names)}"
        self.machines[name] = machine = Machine(name, f"token-{name}", self.folder / name, asked)
        machine.folder.mkdir()
        self.last_until(machine, asked["timeout"])
        await self.go.wait()
        made = {"templateID": "t3mpl4te", "sandboxID": name, "clientID": "c", "envdVersion": "0.6.7"}
        return web.json_response({**made, "envdAccessToken": machine.token, "domain": None}, status=201)

    def last_until(self, machine: Machine, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if machine.timer:
            machine.timer.cancel()
        machine.ends = loop.time() + seconds
        machine.timer = loop.call_later(seconds, self.end, machine)

    async def list(self, request: web.Request, body: bytes) -> web.Response:
        wanted = urllib.parse.parse_qsl(request.query.get("metadata", ""))
        labels = {urllib.parse.unquote(key): urllib.parse.unquote(value) for key, value in wanted}
        found = [one for one in self.machines.values() if labels.items() <= one.asked["metadata"].items()]
        begin = int(request.query.get("nextToken", "0"))  # in pages of two
        headers = {"x-next-token": str(begin + 2)} if begin + 2 < len(found) else {}
        return web.json_response([one.state() for one in found[begin : begin + 2]], headers=headers)

    async def info(self, request: web.Request, body: bytes) -> web.Response:
        machine = self.machines.get(request.path.split("/")[2])
        return web.json_response(machine.state()) if machine else error(404, "not found")

    async def timeout(self, request: web.Request, body: bytes) -> web.Response:
        machine = self.machines.get(request.path.split("/")[2])
        if machine is None:
            return error(404, "not found")
        self.last_until(machine, json.loads(body)["timeout"])
        return web.Response(status=204)

    async def kill(self, request: web.Request, body: bytes) -> web.Response:
        machine = self.machines.get(request.path.split("/")[2])
        if machine is None:
            return error(404, "not found")
        self.end(machine)
        return web.Response(status=204)

    # -- the daemon of a machine ---------------------------------------------------------------------------------------

    async def health(self, request: web.Request, body: bytes, machine: Machine) -> web.Response:
        return web.Response(status=204)

    async def files(self, request: web.Request, body: bytes, machine: Machine) -> web.Response:
        path = machine.folder / request.query["path"].lstrip("/")
        boundary = request.content_type and request.headers["Content-Type"].partition("boundary=")[2].encode()
        content = body.split(b"--" + bytes(boundary))[1].partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return web.json_response([{"name": path.name, "type": "file", "path": request.query["path"]}])

    async def start(self, request: web.Request, body: bytes, machine: Machine) -> web.StreamResponse:
        """A stream of envelopes: a flag byte, a length of four bytes, JSON; flag 2 is the last."""
        asked = json.loads(body[5:])["process"]
        assert asked["cmd"] == "/bin/bash"
        assert base64.b64decode(request.headers["Authorization"].split()[1]) == b"root:"
        machine.process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "tests/sandbox/e2b_machine.py"),
            str(machine.base),
            str(machine.folder),
            asked["args"][-1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PYTHONPATH": str(ROOT)},
        )
        response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await response.prepare(request)

        async def say(event: dict[str, Any], flag: int = 0) -> None:
            data = json.dumps(event).encode()
            await response.write(bytes([flag]) + len(data).to_bytes(4, "big") + data)

        async def pump(name: str, reader: asyncio.StreamReader) -> None:
            while data := await reader.read(self.chunk):
                await say({"event": {"data": {name: base64.b64encode(data).decode()}}})

        assert process.stdout is not None
        assert process.stderr is not None
        try:
            await say({"event": {"start": {"pid": process.pid}}})
            await asyncio.gather(pump("stdout", process.stdout), pump("stderr", process.stderr))
            code = await process.wait()
            if machine.id not in self.machines and request.transport:  # it went with all that was in it
                request.transport.abort()
            await say({"event": {"end": {"exitCode": code, "exited": True, "status": f"exit status {code}"}}})
            await say({}, flag=2)
        except ConnectionError:
            pass  # nobody listens any more
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return response

    async def sendinput(self, request: web.Request, body: bytes, machine: Machine) -> web.Response:
        asked, process = json.loads(body), machine.process
        if process is None or process.pid != asked["process"]["pid"] or process.returncode is not None:
            return web.json_response({"code": "not_found", "message": "no such process"}, status=404)
        assert process.stdin is not None
        process.stdin.write(base64.b64decode(asked["input"]["stdin"]))
        await process.stdin.drain()
        return web.json_response({})

    def freeze(self, machine: Machine) -> None:
        """Stop all that runs in a machine, so that it answers nothing more."""
        assert machine.process is not None
        tree = [machine.process.pid]
        for pid in tree:
            tree += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        for pid in tree:
            os.kill(pid, signal.SIGSTOP)


def error(status: int, message: str) -> web.Response:
    return web.json_response({"code": status, "message": message}, status=status)


@asynccontextmanager
async def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """The server, and the environment that leads the SDK to it and nowhere else."""
    async with Server(folder).open() as server:
        for name in ("E2B_API_URL", "E2B_SANDBOX_URL"):
            monkeypatch.setenv(name, server.url)
        monkeypatch.setenv("E2B_API_KEY", KEY)
        monkeypatch.delenv("E2B_DEBUG", raising=False)
        yield server
