"""Validating a workload: its references decide which tests and limits are sound, before any model's program is judged.

Each reference runs over both suites of its problem. A problem whose reference fails a hidden test is quarantined: left
out, and listed with the test. A visible example that a reference fails is dropped, and the problem stays. CPU time is
calibrated to three times the slowest reference, never below the problem's own limit, which is the floor.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from agentloop.confirm import confirmed
from agentloop.errors import AgentloopError, SandboxError, UserError, innermost, unreadable
from agentloop.hashing import digest
from agentloop.preflight import check_jobs, start
from agentloop.progress import Quiet
from agentloop.types import Job, Json, Suite
from agentloop.workloads import load, problem_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agentloop.progress import Observer
    from agentloop.protocols import Sandbox
    from agentloop.types import Problem, TestVerdict

TIMES = 3.0
"""A limit is so many times the slowest reference (the rule of PROBE)."""
ROOM = 4.0
"""While references run, limits are so many times the usual ones: a slow reference is to be measured, not stopped."""


@dataclass
class Validated:
    """What the references showed. All keys are problem ids, for those that it says something about."""

    workload: str
    """Digest of all problems as they were loaded."""
    problems: int = 0
    references: int = 0
    environment: dict[str, Json] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    """Why: the hidden test that a reference fails, and how."""
    dropped: dict[str, list[str]] = field(default_factory=dict)
    """Ids of visible examples that a reference fails."""
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    """CPU and wall seconds where they are above the problem's own."""
    unproven: list[str] = field(default_factory=list)
    """Problems without a reference."""
    faults: dict[str, str] = field(default_factory=dict)
    """Problems about which nothing is known: the sandbox failed."""

    def digest(self) -> str:
        """Identity of the validation."""
        return digest(asdict(self))

    @property
    def sound(self) -> int:
        """How many problems have a reference that passes all hidden tests."""
        return self.problems - len({*self.quarantined, *self.unproven, *self.faults})


def workload_digest(problems: Sequence[Problem]) -> str:
    """Identity of a workload: everything in its problems."""
    return digest([problem_digest(problem) for problem in problems])


async def validate(
    problems: Sequence[Problem], *, sandbox: Sandbox, jobs: int = 2, observer: Observer | None = None
) -> Validated:
    """Run every reference over every suite. `sandbox` is not started yet; it is closed at the end.

    Raises `UserError` when no problem has a reference or a checker of the user's fails, `SandboxError` if the sandbox
    cannot be started.
    """
    observer = observer or Quiet()
    check_jobs(jobs)
    pairs = [(problem, number) for problem in problems for number in range(len(problem.references))]
    if not pairs:
        raise UserError("no problem of this workload has a reference: there is nothing to validate it by")
    found = Validated(workload_digest(problems), len(problems), len(pairs))
    found.unproven = [problem.id for problem in problems if not problem.references]
    bad: dict[str, dict[int, TestVerdict]] = {}
    """By problem and reference. Which one ends first is chance, and which one is told must not be."""
    free, slowest = asyncio.Semaphore(jobs), dict.fromkeys((problem.id for problem in problems), 0.0)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(sandbox.close)
        found.environment = await start(sandbox, {problem.language for problem, _ in pairs}, observer)
        observer.event("plan", total=len(pairs), reused=0, unit="references")

        async def one(problem: Problem, number: int) -> None:
            tests = problem.visible.tests + problem.hidden.tests
            wide = replace(problem.limits, cpu=problem.limits.cpu * ROOM, wall=problem.limits.wall * ROOM)
            job = Job(problem.language, problem.references[number], tests, wide)
            async with free:
                try:
                    verdict, execution = await confirmed(
                        Suite("hidden", tests), job, lambda job, _: sandbox.execute(job)
                    )
                except SandboxError as error:
                    found.faults[problem.id] = str(error)
                    observer.event("fault", where=problem.id, kind=error.kind, text=str(error))
                    return
                except UserError as error:  # a checker of the user's
                    raise UserError(f"reference {number + 1} of problem {problem.id!r}: {error}") from error
            observer.event("judged", outcome=verdict.outcome, suite="every")
            shown = len(problem.visible.tests)
            if fails := {test.test for test in verdict.tests[:shown] if test.outcome != "passed"}:
                fails.update(found.dropped.get(problem.id, []))
                found.dropped[problem.id] = [test.id for test in problem.visible.tests if test.id in fails]
            for test in [test for test in verdict.tests[shown:] if test.outcome != "passed"][:1]:
                bad.setdefault(problem.id, {})[number] = test
            used = max((record.get("cpu") or 0.0 for record in execution.tests), default=0.0)
            slowest[problem.id] = max(slowest[problem.id], used)

        try:
            async with asyncio.TaskGroup() as group:
                for problem, number in pairs:
                    group.create_task(one(problem, number))
        except BaseExceptionGroup as errors:
            if isinstance(error := innermost(errors), AgentloopError):
                raise error from errors
            raise
    order = {problem.id: place for place, problem in enumerate(problems)}
    found.quarantined = {
        problem.id: _why(bad[problem.id], len(problem.references)) for problem in problems if problem.id in bad
    }
    for kind in (found.dropped, found.faults):
        items: list[Any] = sorted(kind.items(), key=lambda item: order[item[0]])
        kind.clear()
        kind.update(items)
    for problem in problems:
        cpu = round(TIMES * slowest[problem.id], 2)
        if cpu > problem.limits.cpu and problem.id not in found.quarantined:
            wall = round(problem.limits.wall * cpu / problem.limits.cpu, 2)
            found.limits[problem.id] = {"cpu": cpu, "wall": wall}
    return found


class Sound(NamedTuple):
    """A workload's problems as a validation leaves them; without one they are as they come, and the rest is empty."""

    problems: list[Problem]
    quarantined: Mapping[str, str]
    """Those that get no verdict, and why; they are among the problems."""
    emptied: Mapping[str, str] = MappingProxyType({})
    """Those that have lost all their visible examples, likewise: none of them has a verdict on the visible suite."""
    digest: str = ""
    """Of the validation."""
    backend: str = ""
    """Of the sandbox that the references ran in."""

    def left_out(self, suite: str) -> dict[str, str]:
        """Which problems get no verdict on a suite, and why."""
        return {**(self.emptied if suite == "visible" else {}), **self.quarantined}


def load_sound(workload: str, data: Path | None, validated: Path | None) -> Sound:
    """A workload's problems, validated by what the file `validated` says. Raises `UserError`."""
    problems = load(workload, data)
    if validated is None:
        return Sound(problems, {})
    found = read(validated)
    backend = str(found.environment.get("backend", ""))
    sound = apply(found, problems, validated)
    why = "no visible example is left: its reference does not pass them"
    emptied = {problem.id: why for problem in sound if problem.id in found.dropped and not problem.visible.tests}
    return Sound(sound, found.quarantined, emptied, found.digest(), backend)


def _why(bad: Mapping[int, TestVerdict], references: int) -> str:
    first = min(bad)
    test = bad[first]
    which = f"reference {first + 1} of {references}" if references > 1 else "reference"
    detail = f" ({test.detail})" if test.detail else ""
    return f"its {which} does not pass hidden test {test.test}: {test.outcome}{detail}"


def check_target(path: Path) -> None:
    """Raises `UserError` where `write` could not write, or would replace another file, before hours of work."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"cannot write {path}: it is no regular file")
    if path.is_file() and path.stat().st_size:
        try:
            read(path)
        except UserError as error:
            raise UserError(f"{path} is there and no file of `agentloop validate`: name another one with -o") from error
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if path.is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        what = "it is a directory" if path.is_dir() else f"{parent} is not a directory that may be written"
        raise UserError(f"cannot write {path}: {what}")


def write(found: Validated, path: Path) -> None:
    """Write it as JSON; what was there is there until all of it is written. Raises `UserError`."""
    beside = path.with_name(f".agentloop-{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
        beside.replace(path.resolve())
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def read(path: Path) -> Validated:
    """What `write` wrote. Raises `UserError` for a file that is none of these."""
    from pydantic import TypeAdapter

    try:
        text = path.read_text(encoding="utf-8")
        Validated(**json.loads(text))  # no other keys, which pydantic would pass over
        return TypeAdapter(Validated).validate_json(text, strict=True)
    except OSError as error:
        raise unreadable("the validation", path, error) from error
    except (ValueError, TypeError, RecursionError) as error:  # pydantic's own is a ValueError
        raise UserError(f"cannot use the validation {path}: it is no file of `agentloop validate`") from error


def apply(found: Validated, problems: Sequence[Problem], path: Path) -> list[Problem]:
    """The problems with sound examples and limits; quarantined ones are still among them.

    Raises `UserError` when the validation is about another workload or another version of it, or says what none says.
    """
    if found.workload != workload_digest(problems):
        raise UserError(f"{path} validates another workload or another version of it: run agentloop validate again")
    if wrong := _wrong(found, problems):
        raise UserError(f"cannot use the validation {path}: {wrong}; run agentloop validate again")
    sound = []
    for problem in problems:
        dropped = found.dropped.get(problem.id, [])
        visible = tuple(test for test in problem.visible.tests if test.id not in dropped)
        limits = replace(problem.limits, **found.limits.get(problem.id, {}))  # type: ignore[arg-type]
        notes = tuple(f"example dropped: {id}: the reference does not pass it" for id in dropped)
        sound.append(
            replace(problem, visible=Suite("visible", visible), limits=limits, notes=problem.notes + notes)
            if dropped or problem.id in found.limits
            else problem
        )
    return sound


def _wrong(found: Validated, problems: Sequence[Problem]) -> str:
    """What no validation of these problems says: somebody wrote into the file. '' if there is nothing of the kind."""
    examples = {problem.id: {test.id for test in problem.visible.tests} for problem in problems}
    for id in (*found.quarantined, *found.dropped, *found.limits):
        if id not in examples:
            return f"it tells of a problem {id!r} that is not there"
    for id, tests in found.dropped.items():
        if extra := set(tests) - examples[id]:
            return f"{id} has no visible example {min(extra)!r}"
    for id, limits in found.limits.items():
        if set(limits) != {"cpu", "wall"} or not all(0 < value < math.inf for value in limits.values()):
            return f"the limits of {id} are none: {limits}"
    return ""
