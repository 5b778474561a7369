"""What this machine has of what agentloop can use, the one thing to do where a part is missing, and what to clean."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentloop.snapshot import COPY

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = {"namespaces": "local", "reduced": "local-reduced"}


@dataclass(frozen=True)
class Check:
    """One part. `todo` is what mends it, '' where it is there."""

    kind: str
    name: str
    ok: bool
    text: str
    todo: str = ""


def checks() -> Iterator[Check]:
    """Every sandbox backend, compiler, model and data set, one after the other. Never raises, uses no key."""
    yield from _sandboxes()
    yield from _compilers()
    yield from _local_models()
    keys = sorted(name for name in os.environ if name.endswith("_API_KEY"))
    todo = "set the key of your provider (OPENAI_API_KEY, ...), or give --api-base URL of a server"
    yield Check("model", "providers", bool(keys), f"keys set: {', '.join(keys)}" if keys else "no key is set", todo)
    yield _humaneval()


def _sandboxes() -> Iterator[Check]:
    from agentloop.catalog import root
    from agentloop.sandbox import e2b_service, local
    from agentloop.sandbox.engine import available

    docker = available(root() / "sandboxes" / "docker")
    if docker.engine is None:
        yield Check("sandbox", "docker", False, docker.why, "start the engine (on Debian: apt install docker.io)")
    else:
        image = "image built" if docker.built else "its image is built at the first run (a few minutes)"
        yield Check("sandbox", "docker", True, f"engine {docker.engine}, {image}")
    for level, why in local.available().items():
        yield Check("sandbox", LEVELS[level], not why, why or "works here", local.mend())
    why = e2b_service.why_not() or e2b_service.unreachable()
    todo = "only for virtual machines of E2B, which cost money: pip install 'agentloop-lab[e2b]', set E2B_API_KEY"
    yield Check("sandbox", "e2b", not why, why or "a key is set, the service answers", todo)


def _compilers() -> Iterator[Check]:
    """Those that programs find in the local sandbox; the image of docker brings its own."""
    from agentloop.errors import AgentloopError
    from agentloop.preflight import toolchains
    from agentloop.sandbox import local, open_sandbox
    from agentloop.sandbox.compiled import COMPILED

    level = next((LEVELS[level] for level, why in local.available().items() if not why), None)
    if level is None:
        return

    async def look() -> dict[str, tuple[bool, str]]:
        sandbox = open_sandbox(level, lanes=1)
        try:
            await sandbox.start()
            return await toolchains(sandbox, COMPILED)
        finally:
            await sandbox.close()

    try:
        found = asyncio.run(look())
    except AgentloopError as error:
        found = dict.fromkeys(COMPILED, (False, str(error)))
    for language, (works, text) in found.items():
        todo = f"for programs in {language}: --sandbox docker, or on Debian apt install {COMPILED[language].package}"
        yield Check("compiler", f"{language} in {level}", works, text, todo)


def _local_models() -> Iterator[Check]:
    from agentloop.models.weights import INSTALL, available

    for name, text in local_models().items():
        why = available(name.removeprefix("local/"))
        todo = INSTALL if INSTALL in why else f"agentloop fetch {name}"
        yield Check("model", name, not why, why.partition(":")[0] if why else text, todo)


def _humaneval() -> Check:
    from agentloop.fetch import cache_dir

    path = cache_dir() / "HumanEval.jsonl.gz"
    text = f"in {path}" if path.is_file() else "not fetched yet (the first run fetches it)"
    return Check("data", "humaneval", path.is_file(), text, "agentloop fetch humaneval")


def local_models() -> dict[str, str]:
    """The models that run on this machine, each with what it is."""
    from agentloop.models.weights import WEIGHTS

    return {
        f"local/{name}": f"{one.repository}, {one.size / 2**20:,.0f} MiB, on this CPU" for name, one in WEIGHTS.items()
    }


def clean() -> Iterator[str]:
    """Remove what dead processes left; a line for each thing removed, and for what could not be looked at."""
    from agentloop.errors import AgentloopError
    from agentloop.sandbox import e2b_service, engine, landlock

    try:
        client = engine.connect()
    except AgentloopError as error:
        yield f"docker was not looked at: {error}"
    else:
        try:
            for name in engine.reap(client):
                yield f"removed container {name}"
        except AgentloopError as error:
            yield f"docker: {error}"
        finally:
            client.close()
    if not e2b_service.why_not():
        try:
            for name in asyncio.run(e2b_service.reap()):
                yield f"removed e2b machine {name}"
        except AgentloopError as error:
            yield f"e2b was not looked at: {error}"
    for path in landlock.sweep():
        yield f"removed {path}"
    yield from _copies()


def _copies() -> Iterator[str]:
    """Copies of stores that a killed reader left in the temporary directory."""
    for copy in Path(tempfile.gettempdir()).glob(f"{COPY}*"):
        owner = copy.name.removeprefix(COPY).partition("-")[0]
        if copy.is_symlink() or not owner.isdigit() or Path(f"/proc/{owner}").exists():
            continue
        shutil.rmtree(copy, ignore_errors=True)
        if not copy.exists():
            yield f"removed {copy}"
