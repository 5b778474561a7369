"""Replay: every attempt's graph driven again from the journal, without model and sandbox, transition for transition.

Three ways, kept apart: `replay` re-drives and compares (same replies, same evidence); with `execute` the programs run
again and verdicts that flip are named (same replies, new evidence); with `out` the journal is driven through a new run
directory. By default today's strategy and template files are used, so that a changed one is found and named;
`frozen` uses the copies that the run kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentloop.attempt import Means, Row
from agentloop.config import StrategyConfig
from agentloop.context import Speaker
from agentloop.errors import AgentloopError, Divergence, JournalMiss, UserError
from agentloop.hashing import digest
from agentloop.journal import Journal
from agentloop.manifest import copies, copy_files
from agentloop.planning import PlannedStrategy, plan_strategy
from agentloop.progress import Quiet
from agentloop.runner import Control, Session, Summary, drive_all
from agentloop.store import Store
from agentloop.types import problem_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableSequence

    from agentloop.catalog import Style
    from agentloop.progress import Observer, Shown
    from agentloop.protocols import Sandbox
    from agentloop.reader import Attempt, Reading
    from agentloop.types import Json


@dataclass(frozen=True)
class Difference:
    """The first transition (or verdict) of an attempt that is not what is stored."""

    attempt: int
    problem: str
    strategy: str
    where: str
    turn: int | None
    """Candidates that its branch had before: from the turn after them on the attempt is another one."""
    why: str
    """The changed file that it comes from, as far as that is known."""


@dataclass
class Replayed:
    """What a replay found."""

    attempts: int = 0
    transitions: int = 0
    verdicts: int = 0
    """Hidden verdicts compared."""
    unfinished: int = 0
    """Attempts that the run itself did not finish: not replayed."""
    differences: list[Difference] = field(default_factory=list)
    flips: list[Difference] = field(default_factory=list)
    """With `execute`: verdicts that new evidence changed."""
    changed: list[str] = field(default_factory=list)
    """Files (and settings) that are not what the run used, e.g. "template:default/failed (strategy feedback_loop)"."""
    seconds: float = 0.0
    """Of driving and comparing, once the graphs were built."""

    def add(self, other: Replayed) -> None:
        """Join what another process found at the same time."""
        self.attempts += other.attempts
        self.transitions += other.transitions
        self.verdicts += other.verdicts
        self.unfinished += other.unfinished
        self.differences += other.differences
        self.seconds = max(self.seconds, other.seconds)

    @property
    def equal(self) -> bool:
        """Whether every transition and verdict was equal."""
        return not self.differences and not self.flips


def strategies_of(reading: Reading, *, frozen: bool) -> tuple[dict[str, PlannedStrategy], list[str]]:
    """The run's strategies, built from today's files or from its own copies, and what changed since.

    A strategy whose own file is gone is taken from the run's copy, which is said in the list. Raises `UserError`.
    """
    planned: dict[str, PlannedStrategy] = {}
    changed = []
    styles: dict[str | None, dict[str, Style]] = {}
    for label, entry in reading.manifest["strategies"].items():
        spec = reading.manifest.get("specs", {}).get(label, entry["name"])
        config = StrategyConfig(name=spec, label=label, settings=entry["settings"], roles=entry["roles"])
        kept = copies(reading.directory, label)
        try:
            told = reading.manifest.get("bases", {}).get(label)  # runs of an older version do not tell
            base = Path(told) if told else None
            loaded = {} if frozen else styles.setdefault(told, {})  # a path means another style from another base
            planned[label] = plan_strategy(config, None, base, kept if frozen else None, loaded)
        except UserError as error:
            if frozen:
                raise
            planned[label] = plan_strategy(config, None, None, kept)
            changed.append(f"strategy {label}: today's files cannot be used ({error}); the run's own copies are")
        now = planned[label].manifest()
        for name, stored in entry["files"].items():
            if now["files"].get(name) != stored:
                changed.append(f"{name} (strategy {label})")
    return planned, changed


WORTH_A_PROCESS = 20
"""Attempts that take about as long as a process more."""
LOOK = 0.25
"""Seconds between two looks at how far the processes are."""


def replay_all(directory: Path, *, frozen: bool = False, shown: Callable[[], Shown] = Quiet) -> Replayed:
    """What `replay` gives without a sandbox, by as many processes as there are cores. Raises as it does.

    `shown` is called, and entered, once these are started: a display may have threads, which a fork must not meet.
    """
    from agentloop.reader import open_run

    with open_run(directory) as reading:
        strategies_of(reading, frozen=frozen)  # loads what every process needs, and raises what it raises
        attempts = _finished(reading)
    count = max(1, min(len(os.sched_getaffinity(0)), attempts // WORTH_A_PROCESS))
    if count == 1:
        with shown() as observer:
            found = [asyncio.run(replay(directory, frozen=frozen, observer=observer))]
    else:
        # Forked: what they need is loaded, and nothing is open.
        fork = multiprocessing.get_context("fork")
        done = fork.Array("q", count, lock=False)  # one that is killed would take a lock along
        try:
            with ProcessPoolExecutor(count, fork, _begin, (done,)) as pool:
                with _uninterrupted():
                    shares = [pool.submit(_share, directory, frozen, (number, count)) for number in range(count)]
                with shown() as observer:
                    observer.event("plan", total=attempts, reused=0)
                    while wait(shares, timeout=LOOK).not_done:
                        observer.event("replayed", attempts=sum(done))
                    observer.event("replayed", attempts=sum(done))
                found = [share.result() for share in shares]
        except BrokenProcessPool as error:
            raise AgentloopError("a process of the replay was killed (by lack of memory?): replay again") from error
    whole = found[0]
    for part in found[1:]:
        whole.add(part)
    whole.differences.sort(key=lambda one: one.attempt)
    return whole


_done: MutableSequence[int]
"""In a process of `replay_all`: attempts that each of them has replayed."""


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off: where a process is forked Python loses it, and a fork that is new tells of it at length."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(done: MutableSequence[int]) -> None:
    global _done
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it in silence
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_follow, daemon=True).start()
    _done = done


def _follow() -> None:
    """End this process with the one that forked it, which may be killed: it would wait for its next task for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Counting(Quiet):
    def __init__(self, number: int) -> None:
        self._number = number

    def event(self, kind: str, /, **data: Any) -> None:
        if kind == "replayed":
            _done[self._number] = data["attempts"]


def _share(directory: Path, frozen: bool, share: tuple[int, int]) -> Replayed:
    return asyncio.run(replay(directory, frozen=frozen, observer=_Counting(share[0]), share=share))


async def replay(
    directory: Path,
    *,
    frozen: bool = False,
    sandbox: Sandbox | None = None,
    observer: Observer | None = None,
    share: tuple[int, int] = (0, 1),
) -> Replayed:
    """Re-drive and compare every finished attempt. With `sandbox` (started), programs run again and flips are reported.

    `share` (k, n): the k-th of n parts of the attempts, from 0. Raises `UserError` for a directory that is no run, and
    for a run without a finished attempt. Differences are in the result, not raised.
    """
    from agentloop.reader import open_run

    observer = observer or Quiet()
    result = Replayed()
    with open_run(directory) as reading:
        planned, result.changed = strategies_of(reading, frozen=frozen)
        observer.event("plan", total=_finished(reading), reused=0)
        began = time.monotonic()
        means = _means(reading, Journal(old=_Records(reading, executions=sandbox is None)), sandbox)
        for attempt in islice(reading.attempts(), share[0], None, share[1]):
            if attempt.status != "done":
                result.unfinished += 1
                continue
            result.attempts += 1
            stored = {(row["path"], row["step"]): row for row in reading.transitions(attempt.id)}
            try:
                await _replay_one(reading, attempt, planned[attempt.strategy], means, stored, result)
            except (Divergence, JournalMiss) as error:
                turn = _turn(error, stored)
                why = _why(error, stored, planned[attempt.strategy], reading.manifest)
                found = Difference(attempt.id, attempt.problem, attempt.strategy, str(error), turn, why)
                (result.flips if sandbox else result.differences).append(found)
            observer.event("replayed", attempt=attempt.id, attempts=result.attempts)
    result.seconds = time.monotonic() - began
    return result


def _finished(reading: Reading) -> int:
    """How many attempts there are to replay. Raises `UserError` for none: nothing is equal to nothing."""
    states = [attempt.status for attempt in reading.attempts()]
    if "done" not in states:
        raise UserError(f"{reading.directory}: nothing to replay: none of its {len(states)} attempts is finished")
    return states.count("done")


async def _replay_one(
    reading: Reading,
    attempt: Attempt,
    strategy: PlannedStrategy,
    means: Means,
    stored: dict[tuple[str, int], Row],
    result: Replayed,
) -> None:
    problem = problem_from(reading.problem(attempt.row))
    driven = await means.drive(problem, attempt.model, attempt.sample, strategy, stored, None)
    result.transitions += driven.compared
    graded = reading.grades(attempt.id)
    for candidate, verdict, _ in await means.grade(problem, driven):
        result.verdicts += 1
        grade_ = graded.get((candidate["path"], candidate["index"]))
        old = (grade_.outcome, grade_.detail, grade_.passed, grade_.total) if grade_ else None
        new = (verdict.outcome, verdict.detail, verdict.passed, verdict.total)
        if means.sandbox and old and old[0] == new[0] == "timeout":  # run again: which limit is a matter of the load
            old, new = (old[0], "", *old[2:]), (new[0], "", *new[2:])
        if old != new:
            raise Divergence(f"hidden verdict of candidate {candidate['index']}: was {old}, is {new}")


def _turn(error: Exception, stored: dict[tuple[str, int], Row]) -> int | None:
    if not isinstance(error, Divergence) or error.step is None:
        return None
    before = {
        (candidate["path"], candidate["index"])
        for (path, step), row in stored.items()
        if path == error.path and step < error.step
        for candidate in row["data"]["update"].get("candidates", [])
    }
    return len(before)


def _why(
    error: Exception, stored: dict[tuple[str, int], Row], strategy: PlannedStrategy, manifest: dict[str, Any]
) -> str:
    """What changed that can explain a difference: the template of this very transition first, then any changed file."""
    old, new = manifest["strategies"][strategy.label]["files"], strategy.manifest()["files"]
    changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if isinstance(error, Divergence) and error.step is not None:
        row = stored.get((error.path, error.step))
        told = row["data"]["update"].get("feedback") if row else None
        if told and f"template:{told['template']}" in changed:
            return f"template:{told['template']}"
    if changed:
        return ", ".join(changed)
    return f"no file of the strategy changed: the data or agentloop itself did (the run is of {manifest['agentloop']})"


@dataclass
class _Records:
    """A run's journal as the source of replies and, unless programs are to run again, of executions."""

    reading: Reading
    executions: bool = True

    def recorded(self, key: str) -> Json | None:
        """The record of a key, or None."""
        record = self.reading.record(key)
        return record if record is not None and (self.executions or "reply" in record) else None


def _means(reading: Reading, journal: Journal, sandbox: Sandbox | None = None) -> Means:
    manifest = reading.manifest
    speakers = {
        name: Speaker(name, digest(entry["identity"]), entry["params"], None)
        for name, entry in manifest["models"].items()
    }
    return Means(journal, speakers, sandbox, manifest["environment_id"], manifest["seed"])


async def replay_into(directory: Path, out: Path, observer: Observer | None = None) -> Summary:
    """Drive a finished run's journal through a new run directory; its report is the same. Raises `UserError`.

    Returns the new run's summary.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not an empty directory: give a new directory to drive the journal into")
    try:
        return await _drive_into(directory, out, observer)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)  # all of it is ours
        raise


async def _drive_into(directory: Path, out: Path, observer: Observer | None) -> Summary:
    from agentloop.reader import open_run

    with open_run(directory) as reading:
        _finished(reading)
        planned, _ = strategies_of(reading, frozen=True)
        finished = sorted((one for one in reading.attempts() if one.status == "done"), key=lambda one: one.id)
        problems = {one.row: problem_from(reading.problem(one.row)) for one in finished}
        store = Store.open(out)
        try:
            store.set_meta("manifest", reading.manifest)
            copy_files(out, planned)
            means = _means(reading, Journal(sink=store, old=_Records(reading)))
            session = Session(store, means, observer or Quiet(), Control())
            cells = [(problems[one.row], one.model, one.sample, planned[one.strategy]) for one in finished]
            return await drive_all(session, list(problems.values()), cells, parallel=1)
        finally:
            store.close()
