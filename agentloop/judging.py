"""Judging stored programs without a model: JSON lines in, the same lines with their verdicts out (see `stored`).

In the order of the input, or as they end; read, judged and written as a stream, so memory does not grow with the file.
A file of verdicts that is there is checked against the programs and goes on. A fault is a line without a verdict, and
is judged again by the next run.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agentloop.confirm import confirmed, to_first_failure
from agentloop.errors import IN_A_ROW, AgentloopError, SandboxError, UserError, innermost, unknown_name
from agentloop.hashing import digest
from agentloop.preflight import check_jobs, start
from agentloop.progress import Quiet
from agentloop.stored import Entry, Output, Printed, check_output, check_programs, read_entries
from agentloop.types import LANGUAGES, Job, Suite
from agentloop.verdict_line import program_of, verdict_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence

    from agentloop.progress import Observer
    from agentloop.protocols import Sandbox
    from agentloop.types import Json, Problem

T = TypeVar("T")
SuiteName = Literal["visible", "hidden", "all"]
SUITES: tuple[SuiteName, ...] = ("visible", "hidden", "all")
WINDOW = 8
"""So many programs for each lane may be judged, or wait to be written, at a time: a slow one seldom holds up a lane."""
ROOM = 16 * 2**20
"""Bytes of input lines that may be open at a time (one line may be longer)."""


@dataclass
class Judged:
    """What came of it. `stopped` says why it ended early ('' if it ran to its end)."""

    suite: SuiteName
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of all lines in the file that have a verdict."""
    kept: int = 0
    """Lines that an earlier run had written."""
    faults: int = 0
    left_out: int = 0
    stopped: str = ""
    in_process: int = 0
    """Verdicts on tests that shared the program's process."""

    def count(self, line: Mapping[str, Any]) -> None:
        """Count a line of the file."""
        if line.get("fault"):
            self.faults += 1
        elif line.get("left_out"):
            self.left_out += 1
        else:
            self.outcomes[line["outcome"]] += 1
            self.in_process += line["trust"] == "in_process"


async def judge_programs(
    problems: Sequence[Problem],
    programs: str | Path,
    out: str | Path,
    *,
    suite: SuiteName = "hidden",
    sandbox: Sandbox,
    jobs: int = 2,
    first_failure: bool = False,
    unordered: bool = False,
    left_out: Mapping[str, str] | None = None,
    observer: Observer | None = None,
) -> Judged:
    """Judge every program of a file, or go on with it. `sandbox` is not started yet; it is closed at the end.

    `-` as `programs` is standard input, as `out` standard output. `first_failure`: run no test of a program after the
    first that it does not pass. `unordered`: write each verdict as soon as it is there. `left_out`: problems whose
    programs get no verdict, and why. Raises `UserError` for bad input, before anything runs where `programs` is a file
    and no pipe; `SandboxError` if the sandbox cannot be started. Cancelling it leaves a file that the next run goes on
    with.
    """
    observer = observer or Quiet()
    suite = suite_name(suite)
    check_jobs(jobs)
    printed, out, programs = str(out) == "-", Path(out), Path("/dev/stdin" if str(programs) == "-" else programs)
    check_programs(programs)
    if not printed:
        check_output(out)
    if out.exists() and programs.exists() and out.samefile(programs):
        raise UserError(f"{out} holds the programs: verdicts go to another file")
    tasks = {problem.id: _task(problem, suite, (left_out or {}).get(problem.id)) for problem in problems}
    settings = {"suite": suite, "first_failure": first_failure}

    def entries() -> Generator[Entry, None, None]:
        for entry in read_entries(programs, tasks):
            task = tasks[entry.record["problem_id"]]
            if not task.suite.tests and task.left_out is None:
                none = f"problem {task.problem.id!r} has no {suite} suite: leave it out, or judge by another --suite"
                raise UserError(f"{programs} line {entry.number}: {none}")
            yield entry

    used = Counter(entry.record["problem_id"] for entry in entries()) if programs.is_file() else None
    if used == Counter():
        raise UserError(f"{programs} holds no program")
    total = used.total() if used else None  # of a pipe nobody knows what will come
    languages = {tasks[id].problem.language for id in used or tasks}
    advance = _here if used else _aside  # a pipe may let us wait while programs run
    summary = Judged(suite)
    async with AsyncExitStack() as stack:
        output = stack.enter_context(closing(Printed() if printed else Output(out)))
        stack.callback(_close, reading := entries())
        again: dict[int, Entry] = {}
        missing: list[Entry] = []
        before: set[tuple[str, str]] = set()
        names: set[str] = set()
        find = output.kept_anywhere if unordered else output.kept
        kept = find(reading, {id: task.digest for id, task in tasks.items()}, settings)
        while found := await advance(kept):
            entry, index, line = found
            if line is None:
                missing.append(entry)
                continue
            before.add((tasks[entry.record["problem_id"]].problem.language, line["judged"]["environment"]))
            names.add(str(line["judged"].get("sandbox", sandbox.name)))
            if line.get("fault"):
                again[index] = entry
            else:
                summary.count(line)
            summary.kept += 1
        observer.event("plan", total=total or 0, reused=summary.kept - len(again), unit="programs")
        if names - {sandbox.name}:
            raise UserError(f"{out}: its verdicts come from another sandbox ({', '.join(sorted(names))}, now "
                            f"{sandbox.name}): use the same one, or name another file with -o")  # fmt: skip
        if summary.kept == total and not again:
            text = f"every program has its verdict already: the sandbox {sandbox.name} is not started"
            observer.event("notice", text=text)
            return summary
        stack.push_async_callback(sandbox.close)
        environment = await start(sandbox, languages, observer)
        environment_ids = {language: _environment_id(environment, language) for language in languages}
        if before - set(environment_ids.items()):
            raise UserError(f"{out}: its verdicts come from another sandbox or another version of it: "
                            "use the same one, or name another file with -o")  # fmt: skip
        worker = _Worker(tasks, settings, sandbox, environment, environment_ids, jobs, observer, summary, advance)
        mended: dict[int, Mapping[str, Any]] = {}
        places = iter(list(again))
        try:
            await worker.all(iter(again.values()), lambda line: mended.update({next(places): line}))
        finally:
            output.replace(mended)
        if not summary.stopped:
            await worker.all(chain(missing, reading), output.write, unordered)
        if not (summary.outcomes or summary.faults or summary.left_out):
            raise UserError(f"{programs} holds no program")
    return summary


def suite_name(name: str) -> SuiteName:
    """The suite of a name. Raises `UserError` for one that is none, with the nearest."""
    for known in SUITES:
        if known == name:
            return known
    raise unknown_name("suite", name, SUITES)


def _environment_id(environment: Mapping[str, Json], language: str) -> str:
    """Short digest of what programs in a language run in, without compilers of other languages: they may join later."""
    tools = environment["toolchain"].items()
    own = {name: value for name, value in tools if name in ("python", language) or name not in LANGUAGES}
    return digest({**environment, "toolchain": own})[:16]


async def _here(items: Iterator[T]) -> T | None:
    return next(items, None)


async def _aside(items: Iterator[T]) -> T | None:
    """The next item, waited for in a thread that nobody waits for: Ctrl-C must not hang until a pipe has more."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T | None] = loop.create_future()

    def settle(item: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(item)
        else:
            future.set_exception(error)

    def work() -> None:
        item, failed = None, None
        try:
            item = next(items, None)
        except Exception as error:
            failed = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, item, failed)

    threading.Thread(target=work, name="programs", daemon=True).start()
    return await future


def _close(entries: Generator[Entry, None, None]) -> None:
    with suppress(ValueError):  # it still waits for a pipe, and ends with the process
        entries.close()


@dataclass(frozen=True)
class _Task:
    """A problem as its programs are judged."""

    problem: Problem
    suite: Suite
    left_out: str | None
    """Why its programs get no verdict."""
    digest: str
    """Of all that a verdict on its programs follows from, or that there is none."""


def _task(problem: Problem, suite: SuiteName, left_out: str | None) -> _Task:
    visible, hidden = problem.visible, problem.hidden
    suites = {"visible": visible, "hidden": hidden, "all": Suite("hidden", visible.tests + hidden.tests)}
    meaning = asdict(problem) if left_out is None else [asdict(problem), left_out]
    return _Task(problem, suites[suite], left_out, digest(meaning)[:16])


@dataclass
class _Worker:
    tasks: Mapping[str, _Task]
    settings: Mapping[str, Any]
    sandbox: Sandbox
    environment: Mapping[str, Json]
    environment_ids: Mapping[str, str]
    """By language."""
    jobs: int
    observer: Observer
    summary: Judged
    advance: Callable[[Iterator[Entry]], Awaitable[Entry | None]]
    in_a_row: int = 0
    open: int = 0
    """Bytes of the input lines that are judged now or wait to be written."""

    def __post_init__(self) -> None:
        self.free = asyncio.Semaphore(self.jobs)

    async def all(
        self, entries: Iterator[Entry], write: Callable[[dict[str, Any]], None], unordered: bool = False
    ) -> None:
        """Judge them side by side, and write each in its turn, or once it is there. A bad line ends it, once those
        before it are written."""
        ready: asyncio.Queue[tuple[Entry, asyncio.Task[dict[str, Any]]] | None] = asyncio.Queue()
        room = asyncio.Semaphore(WINDOW * self.jobs)
        written = asyncio.Event()
        bad: list[UserError] = []

        running: set[asyncio.Task[dict[str, Any]]] = set()

        def ended(entry: Entry, task: asyncio.Task[dict[str, Any]]) -> None:
            running.remove(task)
            ready.put_nowait((entry, task))

        async def read(group: asyncio.TaskGroup) -> None:
            try:
                while not self.summary.stopped and (entry := await self.advance(entries)):
                    while self.open and self.open + entry.size > ROOM:
                        written.clear()
                        await written.wait()
                    self.open += entry.size
                    await room.acquire()
                    task = group.create_task(self.line(entry))
                    if unordered:
                        running.add(task)
                        task.add_done_callback(partial(ended, entry))
                    else:
                        ready.put_nowait((entry, task))
            except UserError as error:
                bad.append(error)
            if running:
                await asyncio.wait(running)
            ready.put_nowait(None)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(read(group))
                while (item := await ready.get()) is not None:
                    entry, task = item
                    line = await task
                    write(line)
                    room.release()
                    self.summary.count(line)
                    told = line["outcome"] or ("fault" if "fault" in line else "left out")
                    self.observer.event("judged", outcome=told, suite=self.summary.suite)
                    self.open -= entry.size
                    written.set()
        except BaseExceptionGroup as group:
            error = innermost(group)
            if isinstance(error, AgentloopError):
                raise error from group
            raise
        if bad:
            raise bad[0]

    async def line(self, entry: Entry) -> dict[str, Any]:
        """The line out for a line in. Never raises for what a program or a sandbox does; `UserError` for a checker."""
        task = self.tasks[entry.record["problem_id"]]
        problem, suite = task.problem, task.suite
        judged = {"line": entry.number, "input": entry.digest, "problem": task.digest,
                  "environment": self.environment_ids[problem.language], "sandbox": self.sandbox.name}  # fmt: skip
        head = {**entry.record, **self.settings, "outcome": None}
        if task.left_out is not None:
            return {**head, "left_out": task.left_out, "judged": judged}
        found = program_of(entry.record, problem)
        result = None
        async with self.free:
            began = time.monotonic()
            if found.code is not None:
                job = Job(problem.language, found.code, suite.tests, problem.limits)
                try:
                    if self.summary.stopped:
                        raise SandboxError(self.summary.stopped)
                    run = to_first_failure if self.settings["first_failure"] else confirmed
                    result = await run(suite, job, lambda job, _: self.sandbox.execute(job))
                except SandboxError as error:
                    return {**head, "fault": self._fault(entry, error), "judged": judged}
                except UserError as error:  # a checker of the user's
                    raise UserError(f"line {entry.number} of the programs (problem {problem.id!r}): {error}") from error
                self.in_a_row = 0
        code = {"code": found.code} if entry.record.get("code") is None else {}
        return {**head, **code, **verdict_keys(problem, len(suite.tests), found, result, self.environment),
                "seconds": round(time.monotonic() - began, 4), "judged": judged}  # fmt: skip

    def _fault(self, entry: Entry, error: SandboxError) -> str:
        if not self.summary.stopped:
            where = f"line {entry.number} ({entry.record['problem_id']})"
            self.observer.event("fault", where=where, kind=error.kind, text=str(error))
            self.in_a_row += 1
            if self.in_a_row >= IN_A_ROW:
                self.summary.stopped = f"{self.in_a_row} faults in a row, the last: {error}"
        return f"{error.kind}: {error}"
