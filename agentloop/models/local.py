"""`local/NAME`: a pinned code model on this machine's CPU, through llama.cpp in a child process on loopback.

A child gives its memory back, its crash is not ours, and to stop it is a kill. It is asked over plain HTTP, since
importing LiteLLM takes longer than an answer. The text repeats: same request, same text, whatever was asked before.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentloop.errors import Cancelled, ModelError, UserError
from agentloop.fetch import silent
from agentloop.models.openmp import library_path
from agentloop.models.weights import INSTALL, ensure_weights, weights_of
from agentloop.types import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from agentloop.fetch import Progress
    from agentloop.types import Json

Got = TypeVar("Got")
LOAD_SECONDS = 300.0
TIMEOUT = 600.0
"""Seconds for one answer: a busy machine can fall to a few tokens a second."""
CONTEXT = 8192
"""Tokens of prompt and reply together; 100 MB of memory for the 0.5B model, 230 MB for the 1.5B."""


class LocalModel:
    """One model in one child process, shared by all who ask in this process; one answer at a time."""

    concurrency = 1
    prices = (0.0, 0.0)
    """US dollars for a token of the prompt and of the completion."""

    def __init__(
        self, name: str, *, timeout: float | None = None, threads: int | None = None, progress: Progress | None = None
    ) -> None:
        self.name = name
        self._alias = name.removeprefix("local/")
        self._weights = weights_of(self._alias)
        self._timeout = timeout or TIMEOUT
        self._threads = threads or default_threads()
        self._progress = progress or silent
        self._turn = asyncio.Lock()
        self._server: _Server | None = None
        self._closed = False

    async def start(self) -> dict[str, Json]:
        """Fetch the weights if they are absent, load them, check that the model answers, and return the identity."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise UserError(f"{self.name} needs the package xllamacpp: {INSTALL}")
        self._closed = False
        check = Request(({"role": "user", "content": "Say: ready"},), {"temperature": 0.0, "max_tokens": 8}, seed=1)
        if not (await self.generate(check)).text.strip():
            raise UserError(f"{self.name} answered the check with nothing")
        return {
            "provider": "local",
            "name": self._alias,
            "weights": self._weights.sha256,
            "runtime": f"xllamacpp {importlib.metadata.version('xllamacpp')}",
            "template": "gguf",  # the chat template inside the weights file
            "context": CONTEXT,
        }

    async def generate(self, request: Request) -> Reply:
        """One reply. A crash of the child restarts it once and asks again; then, and for a refusal, `ModelError`."""
        async with self._turn:
            for _ in range(2):
                if self._server is None or self._server.ended:
                    await self._stop()
                    self._server = await self._launch()
                if self._closed:
                    break
                try:
                    return await self._ask(self._server, request)
                except ConnectionError:
                    if self._closed:
                        break
                    epitaph = await self._server.epitaph()
            if self._closed:  # by another task, while this one waited
                await self._stop()
                raise ModelError(f"{self.name} is closed", retryable=False)
            raise ModelError(f"{self.name}: the model's process ended again after a restart: {epitaph}")

    async def close(self) -> None:
        """End the child process. Asks that are open end with `ModelError`."""
        self._closed = True
        await self._stop()

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def _launch(self) -> _Server:
        path = await self._in_thread(lambda progress: ensure_weights(self._alias, progress))
        config = {"path": str(path), "alias": self._alias, "context": CONTEXT, "threads": self._threads}
        return await _Server.launch(self.name, config, await self._in_thread(library_path))

    async def _in_thread(self, get: Callable[[Progress], Got]) -> Got:
        """What `get` fetches, in a thread; progress comes back to this loop, and a cancellation stops the download."""
        loop, cancelled = asyncio.get_running_loop(), threading.Event()

        def progress(what: str, done: int, total: int | None) -> None:
            if cancelled.is_set():
                raise Cancelled("download stopped")
            loop.call_soon_threadsafe(self._progress, what, done, total)

        try:
            return await asyncio.to_thread(get, progress)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def _ask(self, server: _Server, request: Request) -> Reply:
        """One HTTP call. Raises `ConnectionError` where the child is gone, `ModelError` for all else."""
        import httpx

        # llama.cpp takes 32 bits and reads the highest value as "draw one".
        body = request.params | {"messages": list(request.messages), "seed": request.seed % (2**32 - 1)}
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await server.client.post("/v1/chat/completions", json=body)
        except TimeoutError:
            # Our closed connection makes the server give up, so the next request does not wait for this one.
            raise ModelError(f"{self.name} did not answer in {self._timeout:g} s") from None
        except httpx.TransportError as error:
            raise ConnectionError(str(error)) from None
        return self._reply(answer, time.monotonic() - began)

    def _reply(self, answer: httpx.Response, seconds: float) -> Reply:
        body = answer.json()
        if answer.status_code != 200:
            error = body.get("error", {})
            words = str(error.get("message", f"status {answer.status_code}"))
            if error.get("type") == "exceed_context_size_error":
                words = f"context window exceeded: {words}"
            raise ModelError(f"{self.name}: {words}", retryable=answer.status_code >= 500)
        choice, usage = body["choices"][0], body["usage"]
        return Reply(
            text=choice["message"]["content"] or "",
            finish_reason=choice["finish_reason"],
            prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            seconds=seconds,
            cost=0.0,
            cached_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            served_model=body["model"],
        )


class _Server:
    """A running child process and the HTTP client that asks it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Any) -> None:
        self._process = process
        self._log = log
        self.client: httpx.AsyncClient

    @classmethod
    async def launch(cls, name: str, config: dict[str, Json], libraries: str) -> _Server:
        """Start the child and wait until the model `name` is loaded. Raises `UserError` or `ModelError`.

        `libraries`: a folder that the child's dynamic linker searches first, or ''.
        """
        import httpx

        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in stop()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(Path(__file__).with_name("local_server.py")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            # OpenMP threads that spin while they wait collapse beside any other work on the same cores.
            env=os.environ | {"OMP_WAIT_POLICY": "passive"} | _searching(libraries),
            start_new_session=True,  # Ctrl-C drains the run, so it must not end the model
        )
        server = cls(process, log)
        try:
            said = await server._configure({**config, "parent": os.getpid(), "key": (key := secrets.token_hex(16))})
            if "error" in said:
                raise load_error(name, said["error"])
            if "address" not in said:
                raise ModelError(f"{name}: the model's process ended while it loaded: {await server.epitaph()}")
            server.client = httpx.AsyncClient(
                base_url=said["address"],
                headers={"Authorization": f"Bearer {key}"},
                timeout=None,
                trust_env=False,  # a proxy from the environment has no business on loopback
            )
        except BaseException:
            await server.stop()
            raise
        return server

    async def _configure(self, config: dict[str, Json]) -> dict[str, str]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(config).encode() + b"\n")  # not as arguments: those are for all to see
            await stdin.drain()
            async with asyncio.timeout(LOAD_SECONDS):
                line = await stdout.readline()
        except ConnectionError:
            return {}
        except TimeoutError:
            return {"error": f"not loaded in {LOAD_SECONDS:g} s"}
        said: dict[str, str] = json.loads(line or b"{}")
        return said

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the child is gone."""
        return self._process.returncode is not None

    async def epitaph(self) -> str:
        """How the child ended, and its last words. Ends it where only its connection is gone."""
        try:
            async with asyncio.timeout(1.0):
                code = await self._process.wait()
        except TimeoutError:
            self._process.kill()
            code = await self._process.wait()
        self._log.seek(0)
        words = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return ": ".join([how, *words])

    async def stop(self) -> None:
        """Kill the child and free what belongs to it."""
        if client := getattr(self, "client", None):
            await client.aclose()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()


def _searching(libraries: str) -> dict[str, str]:
    others = os.environ.get("LD_LIBRARY_PATH", "")
    return {"LD_LIBRARY_PATH": ":".join(filter(None, (libraries, others)))} if libraries else {}


def default_threads() -> int:
    """All cores but one, at least two where there are two: with passive waiting the second never costs speed."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, max(2, cores - 1))


def load_error(name: str, words: str) -> UserError | ModelError:
    """What it means that the child could not load: `words` are its exception."""
    if "libgomp" in words:
        return UserError(f"{name} needs the system library libgomp1: apt-get install libgomp1")
    if "ImportError" in words:
        return UserError(f"{name}: xllamacpp cannot be imported: {words}")
    return ModelError(f"{name}: the model does not load: {words}", retryable=False)
