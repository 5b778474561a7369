"""What is special to a language: the argv and driver files of a job. The judge knows none of it.

`wire_job` turns a `Job` into the judge's wire form, `execution` turns the judge's records into an `Execution`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agentloop.errors import SandboxError, unknown_name
from agentloop.hashing import text_digest
from agentloop.types import Execution, Limits

if TYPE_CHECKING:
    from agentloop.types import Job, Json, Test

MAX_TIMEOUTS = 2
"""After so many timed-out tests of one program the others are skipped: they would only cost time."""
PYTHON = ("{python}", "-S", "-s", "-P", "-B")
"""Only the standard library (-S: start-up in 20 ms and the same modules on every backend), no directory of the user."""
LANGUAGES = ("python",)
_NOT_COMPILED = '{"compile":'
"""So a driver's line begins when the program does not compile; the judge then runs no further test."""


@cache
def driver(name: str) -> str:
    """The source of a driver: a program that runs inside the sandbox and calls the program under test."""
    return (Path(__file__).parent / "drivers" / f"{name}.py").read_text(encoding="utf-8")


def wire_job(job: Job) -> dict[str, Json]:
    """The judge's form of a job (see `judge.py`), without its id. Raises `UserError` for an unknown language."""
    if job.language not in LANGUAGES:
        raise unknown_name("language", job.language, LANGUAGES)
    return {
        "tools": _python_tools(),
        "files": {"main.py": job.program},
        "build": None,
        "tests": [_python_test(test) for test in job.tests],
        "limits": asdict(job.limits),
        "max_timeouts": MAX_TIMEOUTS,
        "stop": _NOT_COMPILED,
    }


@cache
def _python_tools() -> dict[str, Json]:
    """The drivers, which compile themselves when a lane first sees them."""
    files = {f"source/{name}.py": driver(f"{name}_driver") for name in ("python", "check")}
    argv = [*PYTHON, "{tools}/source/python.py", "build", "{tools}"]
    return {"id": text_digest(json.dumps(files)), "files": files, "argv": argv, "limits": asdict(Limits())}


def _python_test(test: Test) -> dict[str, Json]:
    head = {"id": test.id, "channel": True, "checker": None}
    run = [*PYTHON, "{tools}/python.pyc"]
    if test.kind == "stdio":
        return {**head, "argv": [*run, "stdio", "{src}"], "stdin": test.input["stdin"]}
    if test.kind in ("call", "calls"):
        return {**head, "argv": [*run, "call", "{src}"], "stdin": json.dumps(test.input)}
    if test.checker == "in_process":
        return {**head, "argv": [*run, "script", "{src}"], "stdin": json.dumps(test.input)}
    checker = {"argv": [*PYTHON, "{tools}/check.pyc"], "files": {}, "stdin": json.dumps(test.input)}
    return {**head, "argv": [*run, "serve", "{src}", test.input["function"]], "stdin": "", "checker": checker}


def execution(job: Job, records: list[dict[str, Json]], seconds: float) -> Execution:
    """The judge's records as evidence, one a test and in order. Raises `SandboxError` if some are missing.

    A program that a driver could not compile is a build that failed: its record, and no record of a test.
    """
    build = next((record["build"] for record in records if "build" in record), None)
    tests = [record for record in records if "test" in record]
    for test in tests:
        if ((test.get("checker") or test).get("channel") or "").startswith(_NOT_COMPILED):
            kept = {key: value for key, value in test.items() if key not in ("job", "test", "checker")}
            return Execution(build={**kept, "exit": 1, "signal": None, "limit": None}, tests=(), seconds=seconds)
    if (build is None or build["exit"] == 0) and [t["test"] for t in tests] != [test.id for test in job.tests]:
        raise SandboxError("the judge's records are not those of the job")
    evidence = tuple({key: value for key, value in t.items() if key not in ("job", "test")} for t in tests)
    return Execution(build=build, tests=evidence, seconds=seconds)
