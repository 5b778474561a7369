"""The grader: hidden suites on every candidate of an attempt that has ended, in lanes that no loop uses.

Graphs never see this: it runs after the attempt's end, so initial and final correctness, regressions and the
visible-hidden gap are all there without a leak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentloop.context import run_suite
from agentloop.types import Job, SuiteVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentloop.journal import Journal
    from agentloop.protocols import Sandbox
    from agentloop.state import Candidate
    from agentloop.types import Problem


async def grade(
    problem: Problem, candidates: Iterable[Candidate], journal: Journal, environment: str, sandbox: Sandbox | None
) -> list[tuple[Candidate, SuiteVerdict, str]]:
    """(candidate, hidden verdict, execution key) for every candidate; key '' where there was no program to run.

    The same program twice is one execution. A problem without hidden tests gives [].
    Raises `SandboxError`, `JournalMiss`.
    """
    if not problem.hidden.tests:
        return []
    grades = []
    for candidate in candidates:
        if candidate["code"] is None:
            verdict = SuiteVerdict("hidden", "no_code", candidate["detail"], 0, len(problem.hidden.tests), ())
            grades.append((candidate, verdict, ""))
            continue
        job = Job(problem.language, candidate["code"], problem.hidden.tests, problem.limits, pool="grade")
        verdict, key = await run_suite(problem.hidden, job, journal, environment, sandbox)
        grades.append((candidate, verdict, key))
    return grades
