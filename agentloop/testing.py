"""For those who extend agentloop: what their parts must satisfy, as data for any test runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentloop.sandbox.conformance import Case

__all__ = ["sandbox_cases"]


def sandbox_cases(*, reduced: bool = False) -> list[Case]:
    """The conformance cases of a sandbox backend, as (name, job, check).

    Run each job with `Sandbox.execute` on one sandbox, in order, and give its `Execution` to the check, which raises
    `AssertionError`. `reduced` leaves out the one case that needs a /dev/shm of the program's own.
    """
    from agentloop.sandbox.cheats import cheats
    from agentloop.sandbox.conformance import SHARED_MEMORY, preflight, traps
    from agentloop.sandbox.hostile import hostile

    cases = (*preflight(), *traps(), *hostile(), *cheats())
    return [case for case in cases if not (reduced and case[0] == SHARED_MEMORY)]
