"""The one rule for running a suite: a timeout is run again alone before it is believed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentloop.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentloop.types import Execution, Job, Suite, SuiteVerdict


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
