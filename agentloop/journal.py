"""The journal: running an attempt is driving its graph through the journal.

A hit is read; a miss goes to the model or the sandbox and is in the store before the graph uses it. Crash resume, exact
replay, common random numbers and growth of a run are all this one mechanism. Two askers of one missing key wait for one
call.

Reply key: problem with its workload, model identity, parameters, messages, sample, occurrence. Execution key: program,
ordered inputs, limits, judge protocol, environment id, ordinal. Expected values are in no key: correcting one needs no
execution.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agentloop.errors import Cancelled, JournalMiss
from agentloop.hashing import digest
from agentloop.types import Execution, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentloop.budget import Ceilings
    from agentloop.protocols import Model, Sandbox
    from agentloop.types import Job, Json, Problem, Request


class Records(Protocol):
    """Where records are looked up."""

    def recorded(self, key: str) -> Json | None:
        """The record of a key, or None."""


class Sink(Records, Protocol):
    """Where new records go."""

    def begin_call(self, key: str, kind: str) -> None:
        """Note that a live call begins."""

    def record(self, key: str, kind: str, data: Json) -> None:
        """Store an answer, once."""


@dataclass(frozen=True)
class Asked:
    """Who is asked and in which draw: the part of a reply key that is not the request itself."""

    problem: str
    identity: str
    """Digest of the model's identity."""
    sample: int
    occurrence: str

    def key(self, request: Request) -> str:
        """The reply key."""
        return digest(
            [
                "reply",
                self.problem,
                self.identity,
                request.params,
                request.seed,
                list(request.messages),
                self.sample,
                self.occurrence,
            ]
        )


def execution_key(job: Job, environment: str, ordinal: int) -> str:
    """The execution key of a job: only inputs, never expected values."""
    tests = [[test.kind, test.input] for test in job.tests]
    return digest(["execution", job.language, job.program, tests, asdict(job.limits), environment, ordinal])


def problem_key(problem: Problem) -> str:
    """A problem's name in reply keys and seeds."""
    return f"{problem.workload}:{problem.id}"


@dataclass
class Journal:
    """Reads from `old` (a finished run's records) and `sink` (this run's store); a miss calls the model or sandbox."""

    sink: Sink | None = None
    old: Records | None = None
    ceilings: Ceilings | None = None
    on_reply: Callable[[Reply], None] | None = None
    """Called for each live reply (progress)."""
    _open: dict[str, asyncio.Future[Any]] = field(default_factory=dict)
    _turns: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    """By model identity: as many calls at once as the model takes."""

    async def reply(self, asked: Asked, request: Request, model: Model | None) -> tuple[str, Reply]:
        """The reply to a request and its key. Raises `ModelError`, `Cancelled` (ceiling), `JournalMiss` (replay)."""
        key = asked.key(request)
        live: list[Reply] = []

        async def call() -> Json:
            if model is None:
                raise JournalMiss("the journal holds no reply for what the graph asks here")
            # Waiting for the model's turn happens here, so that a call that is noted as begun really is.
            async with self._turns.setdefault(asked.identity, asyncio.Semaphore(model.concurrency)):
                reserved = self.ceilings.reserve(request, getattr(model, "prices", None)) if self.ceilings else None
                reply = None
                try:
                    if self.sink:
                        self.sink.begin_call(key, "reply")
                    reply = await model.generate(request)
                finally:
                    if self.ceilings and reserved:
                        self.ceilings.settle(reserved, reply)
            live.append(reply)
            origin = {"problem": asked.problem, "sample": asked.sample, "occurrence": asked.occurrence}
            sent = {"messages": list(request.messages), "params": request.params, "seed": request.seed}
            return {"request": sent | origin, "reply": asdict(reply)}

        record = await self._get(key, "reply", call)
        if live and self.on_reply:
            self.on_reply(live[0])  # once it is stored: whoever is told may fail
        return key, Reply(**record["reply"])

    async def execution(
        self, job: Job, environment: str, ordinal: int, sandbox: Sandbox | None
    ) -> tuple[str, Execution]:
        """The evidence of a job and its key. Raises `SandboxError`, `JournalMiss` (replay)."""
        key = execution_key(job, environment, ordinal)

        async def call() -> Json:
            if sandbox is None:
                raise JournalMiss("the journal holds no execution for what the graph asks here")
            if self.sink:
                self.sink.begin_call(key, "execution")
            execution = await sandbox.execute(job)
            return {"build": execution.build, "tests": list(execution.tests), "seconds": execution.seconds}

        record = await self._get(key, "execution", call)
        return key, Execution(record["build"], tuple(record["tests"]), record["seconds"])

    async def _get(self, key: str, kind: str, call: Callable[[], Awaitable[Json]]) -> Json:
        found = self.sink.recorded(key) if self.sink else None
        if found is not None:
            return found
        if key in self._open:
            # Shielded: a cancelled waiter must not cancel the call that others wait for.
            return await asyncio.shield(self._open[key])
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._open[key] = future
        try:
            record = self.old.recorded(key) if self.old else None
            if record is None:
                record = await call()
            if self.sink:
                self.sink.record(key, kind, record)
            future.set_result(record)
            return record
        except BaseException as error:
            # Waiters see a fault as their own; a cancelled caller hands them a fault too, and they may ask again.
            future.set_exception(error if isinstance(error, Exception) else _caller_cancelled(kind))
            future.exception()  # read once here: without waiters asyncio would complain that nobody looked
            raise
        finally:
            del self._open[key]


def _caller_cancelled(kind: str) -> Exception:
    return Cancelled(f"the {kind} that this attempt waited for was cancelled with the attempt that had asked for it")
