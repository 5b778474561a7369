"""What is special to a language: the argv and driver files of a job. The judge knows none of it.

`wire_job` turns a `Job` into the judge's wire form, `execution` turns the judge's records into an `Execution`. Python
is here, with its drivers; the compiled languages are a table in `agentloop.sandbox.compiled`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agentloop.errors import SandboxError, UserError, unknown_name
from agentloop.hashing import text_digest
from agentloop.sandbox.compiled import BUILD, COMPILED
from agentloop.types import LANGUAGES, Execution, Limits

if TYPE_CHECKING:
    from agentloop.types import Job, Json, Test

MAX_TIMEOUTS = 2
"""After so many timed-out tests of one program the others are skipped: they would only cost time."""
PYTHON = ("{python}", "-S", "-s", "-P", "-B")
"""Only the standard library (-S: start-up in 20 ms and the same modules on every backend), no directory of the user."""
_NOT_FOUND = 127
_NOT_COMPILED = '{"compile":'
"""So a driver's line begins when the program does not compile; the judge then runs no further test."""


@cache
def driver(name: str) -> str:
    """The source of a driver: a program that runs inside the sandbox and calls the program under test."""
    return (Path(__file__).parent / "drivers" / f"{name}.py").read_text(encoding="utf-8")


def wire_job(job: Job) -> dict[str, Json]:
    """The judge's form of a job (see `judge.py`), without its id.

    Raises `UserError` for an unknown language, and for tests of a kind that the language does not have.
    """
    if job.language not in LANGUAGES:
        raise unknown_name("language", job.language, LANGUAGES)
    if job.language in COMPILED:
        return _compiled_job(job)
    return {
        "tools": _python_tools(),
        "files": {"main.py": job.program},
        "build": None,
        "tests": [_python_test(test) for test in job.tests],
        "limits": asdict(job.limits),
        "max_timeouts": MAX_TIMEOUTS,
        "stop": _NOT_COMPILED,
    }


def _compiled_job(job: Job) -> dict[str, Json]:
    language = COMPILED[job.language]
    source = language.source(job.program)
    run = language.run(job.program, job.limits)
    return {
        "files": {source: job.program},
        "build": {"argv": [word.replace("{source}", source) for word in language.build], "limits": asdict(BUILD)},
        "tests": [_compiled_test(test, job.language, run) for test in job.tests],
        "limits": asdict(language.limits(job.limits)),
        "max_timeouts": MAX_TIMEOUTS,
    }


def _compiled_test(test: Test, language: str, run: tuple[str, ...]) -> dict[str, Json]:
    if test.kind != "stdio":
        raise UserError(f"test {test.id!r} is a {test.kind} test: a program in {language} has stdio tests only")
    return {"id": test.id, "argv": list(run), "stdin": test.input["stdin"], "channel": False, "checker": None}


def needs(job: Job) -> tuple[int, int]:
    """The most memory (bytes) and processes that any step of a job may use: what a lane must be able to give."""
    language = COMPILED.get(job.language)
    steps = (language.limits(job.limits), BUILD) if language else (job.limits,)
    return max(step.memory for step in steps), max(step.processes for step in steps)


@cache
def _python_tools() -> dict[str, Json]:
    """The drivers, which compile themselves when a lane first sees them."""
    files = {f"source/{name}.py": driver(f"{name}_driver") for name in ("python", "check", "fork")}
    argv = [*PYTHON, "{tools}/source/python.py", "build", "{tools}"]
    forker = [*PYTHON, "{tools}/fork.pyc"]
    tools_id = text_digest(json.dumps(files))
    return {"id": tools_id, "files": files, "argv": argv, "limits": asdict(Limits()), "forker": forker}


def _python_test(test: Test) -> dict[str, Json]:
    if test.kind == "stdio":
        mode, stdin = ["stdio", "{src}"], test.input["stdin"]
    elif test.kind in ("call", "calls"):
        mode, stdin = ["call", "{src}"], json.dumps(test.input)
    elif test.checker == "in_process":
        mode, stdin = ["script", "{src}"], json.dumps(test.input)
    else:
        mode, stdin = ["serve", "{src}", test.input["function"]], ""
    check = {"argv": [*PYTHON, "{tools}/check.pyc"], "files": {}, "stdin": json.dumps(test.input)}
    return {
        "id": test.id,
        "channel": True,
        "checker": check if mode[0] == "serve" else None,
        "argv": [*PYTHON, "{tools}/python.pyc", *mode],
        "forked": mode,
        "gated": True,
        "stdin": stdin,
    }


def execution(job: Job, records: list[dict[str, Json]], seconds: float) -> Execution:
    """The judge's records as evidence, one a test and in order.

    Raises `SandboxError` if some are missing, or if the compiler is: no compiler ends with the status of a shell that
    found none. A program that a driver could not compile is a build that failed: its record, and no record of a test.
    """
    build = next((record["build"] for record in records if "build" in record), None)
    if build and build["exit"] == _NOT_FOUND:
        raise SandboxError(f"the compiler does not start: {build['stderr'].strip()[:300]}", retryable=False)
    tests = [record for record in records if "test" in record]
    for test in tests:
        if ((test.get("checker") or test).get("channel") or "").startswith(_NOT_COMPILED):
            kept = {key: value for key, value in test.items() if key not in ("job", "test", "checker")}
            return Execution(build={**kept, "exit": 1, "signal": None, "limit": None}, tests=(), seconds=seconds)
    if (build is None or build["exit"] == 0) and [t["test"] for t in tests] != [test.id for test in job.tests]:
        raise SandboxError("the judge's records are not those of the job")
    evidence = tuple({key: value for key, value in t.items() if key not in ("job", "test")} for t in tests)
    return Execution(build=build, tests=evidence, seconds=seconds)
