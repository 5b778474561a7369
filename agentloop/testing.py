"""For those who extend agentloop: what their parts must satisfy, as data for any test runner."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING

from agentloop.errors import AgentloopError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentloop.protocols import Sandbox
    from agentloop.sandbox.conformance import Case, Check
    from agentloop.types import Execution, Job

__all__ = ["language_cases", "sandbox_cases", "why_not", "wrong"]


def sandbox_cases(*, reduced: bool = False) -> list[Case]:
    """The conformance cases of a sandbox backend, as (name, job, check).

    The check gets the `Execution` of the job, and raises `AssertionError`; `wrong` does that for all. `reduced` leaves
    out the one case that needs a /dev/shm of the program's own.
    """
    from agentloop.sandbox.cheats import cheats
    from agentloop.sandbox.conformance import SHARED_MEMORY, preflight, traps
    from agentloop.sandbox.hostile import hostile

    cases = (*preflight(), *traps(), *hostile(), *cheats())
    return [case for case in cases if not (reduced and case[0] == SHARED_MEMORY)]


def language_cases(language: str) -> list[Case]:
    """The conformance cases of programs in one language, as (name, job, check), as above.

    They compare verdicts, which must be the same on every backend. Where `why_not` has something to say, skip them.
    Raises `UserError` for a language that agentloop does not know.
    """
    from agentloop.preflight import broken, mismatch, probe
    from agentloop.sandbox.compiled import COMPILED
    from agentloop.sandbox.compiled_cases import compiled

    def checking(job: Job, wanted: list[str]) -> Check:
        def check(execution: Execution) -> None:
            wrong = mismatch(job, wanted, execution)
            assert not wrong, wrong

        return check

    cases = [(f"the probe in {language}", *probe(language)), (f"a broken program in {language}", *broken(language))]
    cases += compiled(language) if language in COMPILED else []
    return [(name, job, checking(job, wanted)) for name, job, wanted in cases]


async def wrong(sandbox: Sandbox, cases: Sequence[Case]) -> dict[str, str]:
    """By name what was wrong in each case, '' for nothing. All run side by side on a sandbox that is started."""

    async def one(case: Case) -> str:
        _, job, check = case
        try:
            check(await sandbox.execute(job))
        except (AssertionError, AgentloopError) as error:
            return f"{type(error).__name__}: {error}" if str(error) else traceback.format_exc()
        return ""

    results = await asyncio.gather(*map(one, cases))
    return {case[0]: result for case, result in zip(cases, results, strict=True)}


async def why_not(sandbox: Sandbox, language: str) -> str:
    """Why programs in a language do not run in a started sandbox (it has no compiler), or ''."""
    from agentloop.preflight import missing, toolchains

    works, text = (await toolchains(sandbox, [language])).get(language, (True, ""))
    return "" if works else missing(sandbox.name, language, text)
