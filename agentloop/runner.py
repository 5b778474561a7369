"""The runner: a plan's attempts through the journal, graded, into the store. Run and resume are the same thing.

Order: check everything, start sandbox and models, freeze the manifest, then drive. A fault ends an attempt's try, never
the run (unless faults come in a row: then the infrastructure is down, and the run ends with one clear line).
"""

from __future__ import annotations

import asyncio
import os
import traceback
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from agentloop.attempt import Means
from agentloop.budget import Ceilings
from agentloop.context import Speaker
from agentloop.errors import IN_A_ROW, AgentloopError, Cancelled, Divergence, Fault, UserError, innermost
from agentloop.hashing import digest
from agentloop.journal import Journal
from agentloop.manifest import copy_files, live_manifest, merge, model_params, plan_manifest
from agentloop.planning import model_name
from agentloop.progress import Quiet
from agentloop.runlog import logging_to
from agentloop.store import FILE, Store, runs_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agentloop.attempt import Drive
    from agentloop.planning import Cell, Plan, PlannedStrategy
    from agentloop.progress import Observer
    from agentloop.protocols import Model, Sandbox
    from agentloop.types import Problem, Reply

ROOM = 32 * 2**20
"""Free bytes that a run directory must have at the start."""


@dataclass
class Control:
    """How a run is stopped from outside."""

    draining: bool = False
    reason: str = ""
    _task: asyncio.Task[Any] | None = None

    def drain(self, reason: str = "interrupted") -> None:
        """Finish the attempts that run, start no other."""
        self.draining, self.reason = True, self.reason or reason

    def cancel(self) -> None:
        """Stop at once; what ran is recorded as cancelled and goes on at the next run."""
        self.drain()
        if self._task is not None:
            self._task.cancel()


@dataclass
class Summary:
    """What a run did. `stopped` says why it ended early ('' if it ran to its end)."""

    attempts: int = 0
    done: int = 0
    reused: int = 0
    """Attempts that were finished before this run began."""
    faults: int = 0
    stopped: str = ""
    tokens: float = 0
    cost: float = 0
    """Paid by this run's live calls."""


@dataclass
class Session:
    """A run at work: attempts are driven into its store."""

    store: Store
    means: Means
    observer: Observer
    control: Control
    summary: Summary = field(default_factory=Summary)
    in_a_row: int = 0

    async def work(self, cells: Iterator[Cell], rows: Mapping[tuple[str, str], int]) -> None:
        """Take attempts until there are none or the run is drained."""
        for problem, model, sample, strategy in cells:
            if self.control.draining:
                return
            row = rows[problem.workload, problem.id]
            attempt, status, _ = self.store.attempt(row, model, strategy.label, sample)
            if status == "done":
                self.summary.reused += 1
                continue
            who = {
                "attempt": attempt,
                "problem": problem.id,
                "strategy": strategy.label,
                "model": model,
                "sample": sample,
            }
            self.observer.event("started", **who)
            self.store.set_status(attempt, "running", new_try=True)
            try:
                result = await self._attempt(attempt, problem, model, sample, strategy)
            except Fault as fault:
                self._fault(attempt, fault, who)
            except asyncio.CancelledError:
                self._fault(attempt, Cancelled("stopped by the user"), who)
                raise
            else:
                self.in_a_row = 0
                self.summary.done += 1
                self.observer.event("done", **who, **result)

    async def _attempt(
        self, attempt: int, problem: Problem, model: str, sample: int, strategy: PlannedStrategy
    ) -> dict[str, Any]:
        stored, write = self.store.transitions(attempt), partial(self.store.add_transition, attempt)
        try:
            driven = await self.means.drive(problem, model, sample, strategy, stored, write)
        except Divergence as error:
            if self.means.sandbox is None:  # the journal is driven into a new directory
                raise AgentloopError(f"attempt {attempt} ({problem.id}, {strategy.label}): {error}") from error
            raise AgentloopError(
                f"attempt {attempt} ({problem.id}, {strategy.label}) was begun by another version of the code: "
                f"{error}; use a new --out"
            ) from error
        except AgentloopError:
            raise
        except Exception as error:
            raise _strategys_own(strategy, error) from error
        self.store.set_status(attempt, "ended")
        hidden = {}
        for candidate, verdict, key in await self.means.grade(problem, driven):
            self.store.add_grade(attempt, candidate["path"], candidate["index"], verdict, key)
            hidden[candidate["path"], candidate["index"]] = verdict.outcome
        self.store.set_status(attempt, "done")
        return _outcomes(driven, hidden)

    def _fault(self, attempt: int, fault: Fault, who: Mapping[str, Any]) -> None:
        self.store.add_fault(attempt, fault.kind, str(fault))
        self.summary.faults += 1
        self.observer.event("fault", **who, kind=fault.kind, text=str(fault))
        if isinstance(fault, Cancelled):
            self.control.drain(str(fault))
            return
        self.in_a_row += 1
        if self.in_a_row >= IN_A_ROW:
            self.control.drain(f"{self.in_a_row} faults in a row, the last: {fault}")


def _outcomes(driven: Drive, hidden: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    chosen = driven.submitted
    key = (chosen["path"], chosen["index"]) if chosen else None
    submitted = driven.candidates[key] if key else None
    visible = "" if submitted and submitted["total"] == 0 else submitted["outcome"] if submitted else "no_code"
    return {
        "visible": visible,
        "hidden": hidden.get(key, "") if key else "",
        "iterations": len(driven.candidates),
        "stop": driven.stop_reason,
    }


def _strategys_own(strategy: PlannedStrategy, error: Exception) -> Exception:
    """The error of a strategy's own file or graph, as one line; any other error as it is."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(strategy.strategy.path)
    ]
    if not frames and type(error).__module__ == "langgraph.errors":  # an endless graph, an update that is none
        return UserError(
            f"strategy {strategy.label!r}: its graph failed: {str(error).partition('For troubleshooting')[0]}"
        )
    if not frames and isinstance(error, TypeError) and "JSON serializable" in str(error):
        return UserError(f"strategy {strategy.label!r}: a node's update is not plain data: {error}")
    if not frames:
        return error
    where = f"{frames[-1].filename}, line {frames[-1].lineno}"
    return UserError(f"strategy {strategy.label!r} failed in {where}: {type(error).__name__}: {error}")


async def run(plan: Plan, directory: Path, observer: Observer | None = None, control: Control | None = None) -> Summary:
    """Run or resume a plan in a run directory; it costs only what is not there yet.

    Raises `UserError` before anything is spent; `ModelError` or `SandboxError` if one cannot be started;
    `AgentloopError` when the disk is full. Faults of attempts are in the summary.
    """
    observer, control = observer or Quiet(), control or Control()
    control._task = asyncio.current_task()
    async with AsyncExitStack() as stack:
        fresh = not (directory / FILE).exists()
        store = None if fresh else _opened(stack, directory)
        static = plan_manifest(plan)
        if store is None:
            _check_room(directory)
        else:
            merge(directory, store.manifest(), static)
        # A provider tells at once that the key is missing; a sandbox may have an image to build, a local model its
        # weights to fetch.
        near = {name for name, config in plan.models.items() if config.name.startswith("local/")}
        far = await _start_models(stack, plan, observer, [name for name in plan.models if name not in near])
        sandbox, environment = await _start_sandbox(stack, plan, observer)
        started = far | await _start_models(stack, plan, observer, [name for name in plan.models if name in near])
        models = {name: started[name][0] for name in plan.models}
        identities = {name: started[name][1] for name in plan.models}
        if store is None:
            store = _opened(stack, directory)
        observer = stack.enter_context(logging_to(directory, observer))
        manifest = merge(directory, store.manifest(), live_manifest(static, environment, identities))
        store.set_meta("manifest", manifest)
        store.set_meta("experiment", plan.experiment.model_dump(mode="json"))
        copy_files(directory, plan.strategies)
        speakers = {
            name: Speaker(name, digest(identities[name]), model_params(plan.models[name]), model)
            for name, model in models.items()
        }
        ceilings = Ceilings(plan.experiment.max_tokens, plan.experiment.max_cost)
        if ceilings.max_tokens is not None or ceilings.max_cost is not None:
            ceilings.tokens, ceilings.cost = store.paid()
        journal = Journal(sink=store, ceilings=ceilings)
        means = Means(journal, speakers, sandbox, manifest["environment_id"], plan.experiment.seed)
        session = Session(store, means, observer, control)

        def spent(reply: Reply) -> None:
            session.summary.tokens += reply.prompt_tokens + reply.completion_tokens
            session.summary.cost += reply.cost or 0.0
            observer.event("spent", tokens=session.summary.tokens, cost=session.summary.cost)

        journal.on_reply = spent
        return await drive_all(session, plan.problems, list(plan.cells()), plan.experiment.attempts)
    raise AssertionError  # unreachable: nothing in the stack swallows exceptions


async def drive_all(session: Session, problems: list[Problem], cells: list[Cell], parallel: int) -> Summary:
    """Every attempt of `cells` through a session, `parallel` at a time."""
    from agentloop.workloads import problem_digest

    rows = session.store.add_problems(problems, [problem_digest(problem) for problem in problems])
    done = session.store.done()
    reused = sum((rows[one.workload, one.id], model, by.label, sample) in done for one, model, sample, by in cells)
    session.summary.attempts = len(cells)
    session.observer.event("plan", total=len(cells), reused=reused)
    waiting = iter(cells)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(parallel, len(cells))):
                group.create_task(session.work(waiting, rows))
    except* AgentloopError as errors:
        raise innermost(errors) from errors
    session.summary.stopped = session.control.reason
    if session.summary.stopped:
        session.observer.event("stopped", text=session.summary.stopped)
    return session.summary


def _opened(stack: AsyncExitStack, directory: Path) -> Store:
    store = Store.open(directory)
    stack.callback(store.close)
    return store


def _check_room(directory: Path) -> None:
    parent = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"cannot write run directory {directory}: {parent} is not a directory that may be written")
    if not (directory / FILE).exists() and (inside := runs_in(directory)):
        raise UserError(
            f"{directory} has runs in it ({', '.join(path.name for path in inside[:8])}): "
            f"give a directory of its own, such as {directory / 'NAME'}"
        )
    status = os.statvfs(parent)
    if status.f_flag & os.ST_RDONLY:
        raise UserError(f"cannot write run directory {directory}: its file system is read-only")
    if status.f_bavail * status.f_frsize < ROOM:
        raise UserError(f"the disk of {directory} is full: {status.f_bavail * status.f_frsize // 2**20} MiB free")


async def _start_sandbox(stack: AsyncExitStack, plan: Plan, observer: Observer) -> tuple[Sandbox, dict[str, Any]]:
    from agentloop.preflight import opened, start

    experiment, within = plan.experiment, plan.validated_in
    sandbox = opened(experiment.sandbox, plan.base, experiment.jobs, observer, validated_in=within)
    stack.push_async_callback(sandbox.close)
    return sandbox, await start(sandbox, {problem.language for problem in plan.problems}, observer)


async def _start_models(
    stack: AsyncExitStack, plan: Plan, observer: Observer, names: list[str]
) -> dict[str, tuple[Model, dict[str, Any]]]:
    """The models of some labels, each with its identity."""
    from agentloop.models import open_model

    models: dict[str, tuple[Model, dict[str, Any]]] = {}
    for name in names:
        config = plan.models[name]
        observer.event("phase", text=f"starting model {name}")
        model = open_model(
            model_name(config, plan.base),
            api_base=config.api_base,
            api_key_env=config.api_key_env,
            timeout=config.timeout,
            concurrency=config.concurrency,
            requests_per_minute=config.requests_per_minute,
            tokens_per_minute=config.tokens_per_minute,
            params=model_params(config),
            progress=lambda what, done, total: observer.event("download", what=what, done=done, total=total),
        )
        stack.push_async_callback(model.close)
        models[name] = model, await model.start()
        if plan.experiment.max_cost is not None and getattr(model, "prices", None) is None:
            observer.event("notice", text=f"no price is known for {name}: --max-cost does not count it")
    return models
