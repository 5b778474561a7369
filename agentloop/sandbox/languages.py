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
from agentloop.types import Execution

if TYPE_CHECKING:
    from agentloop.types import Job, Json, Test

MAX_TIMEOUTS = 2
"""After so many timed-out tests of one program the others are skipped: they would only cost time."""
PYTHON = ("{python}", "-S", "-s", "-P", "-B")
"""Only the standard library (-S: start-up in 20 ms and the same modules on every backend), no directory of the user."""
LANGUAGES = ("python",)


@cache
def driver(name: str) -> str:
    """The source of a driver: a program that runs inside the sandbox and calls the program under test."""
    return (Path(__file__).parent / "drivers" / f"{name}.py").read_text(encoding="utf-8")


def wire_job(job: Job) -> dict[str, Json]:
    """The judge's form of a job (see `judge.py`), without its id. Raises `UserError` for an unknown language."""
    if job.language not in LANGUAGES:
        raise unknown_name("language", job.language, LANGUAGES)
    return {
        "files": {"main.py": job.program, "driver.py": driver("python_driver")},
        "build": {"argv": [*PYTHON, "{src}/driver.py", "build"]},
        "tests": [_python_test(test) for test in job.tests],
        "limits": asdict(job.limits),
        "max_timeouts": MAX_TIMEOUTS,
    }


def _python_test(test: Test) -> dict[str, Json]:
    head = {"id": test.id, "channel": True, "checker": None}
    run = [*PYTHON, "{src}/driver.pyc"]
    if test.kind == "stdio":
        return {**head, "argv": [*run, "stdio"], "stdin": test.input["stdin"]}
    if test.kind == "call":
        return {**head, "argv": [*run, "call"], "stdin": json.dumps(test.input)}
    if test.checker == "in_process":
        return {**head, "argv": [*run, "script"], "stdin": json.dumps(test.input)}
    checker = {
        "argv": [*PYTHON, "{src}/check.py"],
        "files": {"check.py": driver("check_driver"), "driver.py": driver("python_driver")},
        "stdin": json.dumps(test.input),
    }
    return {**head, "argv": [*run, "serve", test.input["function"]], "stdin": "", "checker": checker}


def execution(job: Job, records: list[dict[str, Json]], seconds: float) -> Execution:
    """The judge's records as evidence, one a test and in order. Raises `SandboxError` if some are missing.

    After a build that failed there are no test records.
    """
    build = next((record["build"] for record in records if "build" in record), None)
    tests = [record for record in records if "test" in record]
    if build is None or (build["exit"] == 0 and [t["test"] for t in tests] != [test.id for test in job.tests]):
        raise SandboxError("the judge's records are not those of the job")
    evidence = tuple({key: value for key, value in t.items() if key not in ("job", "test")} for t in tests)
    return Execution(build=build, tests=evidence, seconds=seconds)
