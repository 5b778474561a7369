"""The E2B sandbox: the real SDK against a server on loopback whose machines really run what they are told."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentloop.doctor import checks, clean
from agentloop.errors import AgentloopError, SandboxError, UserError
from agentloop.sandbox import e2b, e2b_service, engine, lane, open_sandbox
from agentloop.sandbox.conformance import Case, answer, call, job, stdio
from agentloop.sandbox.e2b import E2BSandbox
from agentloop.testing import sandbox_cases
from agentloop.types import Job, Limits
from tests.sandbox.e2b_server import KEY, Answer, Server, serving
from tests.sandbox.procs import below

HELLO = job("print(1)", stdio())
SLOW = Job("python", "import time\ndef f(): time.sleep(2); return 5", (call("f"),), Limits(wall=60.0))


@pytest.fixture
async def server(
    need: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Server]:
    need("e2b-machines")
    monkeypatch.setattr(e2b, "FIRST_WAIT", 0.01)
    async with serving(tmp_path, monkeypatch) as server:
        yield server
    assert not [line for line in below(os.getpid()).values() if "e2b_machine" in line]


@pytest.fixture
async def sandbox(server: Server) -> AsyncIterator[E2BSandbox]:
    sandbox = E2BSandbox(lanes=1)
    await sandbox.start()
    yield sandbox
    await sandbox.close()
    assert server.machines == {}


async def says_one(sandbox: E2BSandbox) -> bool:
    return (await sandbox.execute(HELLO)).tests[0]["stdout"] == "1\n"


# -- the same verdicts as everywhere -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def conformance(need: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was wrong in each conformance case ('' for nothing), all run on one sandbox with two lanes."""
    need("e2b-machines")

    async def one(sandbox: E2BSandbox, case: Case) -> str:
        _, job, check = case
        try:
            check(await sandbox.execute(job))
        except (AssertionError, AgentloopError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    async def run() -> dict[str, str]:
        cases, sandbox = sandbox_cases(), E2BSandbox(lanes=2)
        with pytest.MonkeyPatch.context() as patch:
            async with serving(tmp_path_factory.mktemp("e2b"), patch) as server:
                server.chunk = 1021  # no record comes whole
                try:
                    await sandbox.start()
                    results = await asyncio.gather(*(one(sandbox, case) for case in cases))
                finally:
                    await sandbox.close()
                assert server.machines == {}
        return {case[0]: result for case, result in zip(cases, results, strict=True)}

    return asyncio.run(run())


@pytest.mark.parametrize("case", [case[0] for case in sandbox_cases()])
def test_case(case: str, conformance: dict[str, str]) -> None:
    assert conformance[case] == ""
