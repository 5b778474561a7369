"""The rules for running a suite: a timeout is run again alone before it is believed; all tests, or up to a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentloop.types import Execution
from agentloop.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentloop.types import Job, Json, Suite, SuiteVerdict, TestVerdict


async def confirmed(
    suite: Suite, job: Job, execute: Callable[[Job, int], Awaitable[Execution]]
) -> tuple[SuiteVerdict, Execution]:
    """The verdict on a job and the evidence that it follows from. A busy machine makes no timeout.

    `execute` gets the job and the ordinal of the run: 0, then 1 for the run alone. Raises what it raises.
    """
    execution = await execute(job, 0)
    verdict = judge(suite, execution)
    if any(test.outcome == "timeout" for test in verdict.tests):
        execution = await execute(replace(job, alone=True), 1)
        verdict = judge(suite, execution)
    return verdict, execution


async def to_first_failure(
    suite: Suite, job: Job, execute: Callable[[Job, int], Awaitable[Execution]]
) -> tuple[SuiteVerdict, Execution]:
    """The same, but with no test after the first that did not pass; outcome and detail are those of the whole suite.

    Tests run in parts of 1, 2, 4, ...; those of a compiled program in one, so that it is built once.
    """
    tests: list[TestVerdict] = []
    records: list[dict[str, Json]] = []
    seconds = 0.0
    while True:
        size = len(tests) + 1 if job.language == "python" else len(suite.tests)
        part = suite.tests[len(tests) : len(tests) + size]
        verdict, execution = await confirmed(replace(suite, tests=part), replace(job, tests=part), execute)
        tests += verdict.tests
        records += execution.tests
        seconds += execution.seconds
        if verdict.outcome != "passed" or len(tests) == len(suite.tests):
            break
    passed = next((index for index, test in enumerate(tests) if test.outcome != "passed"), len(tests))
    cut = slice(passed + 1)
    whole = replace(verdict, passed=passed, total=len(suite.tests), tests=tuple(tests[cut]))
    return whole, Execution(execution.build, tuple(records[cut]), seconds)
