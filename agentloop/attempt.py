"""Driving one attempt: the graph's event stream becomes transition rows, compared with what is stored.

Rows are keyed by (attempt, branch path, step). The runner alone writes them. A re-drive (resume, replay) compares each
row with the stored one, keeps the first timing, and stops at the first that differs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from agentloop.context import LoopContext
from agentloop.errors import Divergence, JournalMiss, UserError
from agentloop.grader import grade
from agentloop.hashing import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from langgraph.graph.state import CompiledStateGraph

    from agentloop.context import Speaker
    from agentloop.journal import Journal
    from agentloop.planning import PlannedStrategy
    from agentloop.protocols import Sandbox
    from agentloop.state import Candidate
    from agentloop.types import Problem, SuiteVerdict

Row = dict[str, Any]
"""A transition: path, step, node, edge, reason, data {"update", "used"}, at (Unix seconds), seconds."""

COMPARED = ("node", "edge", "reason", "data")


@dataclass
class Drive:
    """What driving an attempt gave."""

    rows: int = 0
    compared: int = 0
    """Rows that were stored already and found equal."""
    candidates: dict[tuple[str, int], Candidate] = field(default_factory=dict)
    submitted: dict[str, Any] | None = None
    stop_reason: str = ""


@dataclass(frozen=True)
class Means:
    """What attempts are driven with. In a replay there are no models, and no sandbox unless programs run again."""

    journal: Journal
    speakers: Mapping[str, Speaker]
    """By label of the model."""
    sandbox: Sandbox | None
    environment: str
    """The environment id."""
    seed: int
    """The experiment's."""

    async def drive(
        self,
        problem: Problem,
        model: str,
        sample: int,
        strategy: PlannedStrategy,
        stored: Mapping[tuple[str, int], Row],
        write: Callable[[Row], None] | None,
    ) -> Drive:
        """Drive one attempt, see `drive`."""
        speakers = {role: self.speakers[name] for role, name in {"solver": model, **strategy.roles}.items()}
        context = LoopContext(problem, sample, self.seed, speakers, self.journal, self.environment, self.sandbox)
        return await drive(strategy.graph, context, stored, write, strategy.fuse)

    async def grade(self, problem: Problem, driven: Drive) -> list[tuple[Candidate, SuiteVerdict, str]]:
        """The hidden verdicts on an attempt's candidates, see `agentloop.grader.grade`."""
        return await grade(problem, driven.candidates.values(), self.journal, self.environment, self.sandbox)


@dataclass(frozen=True)
class _Started:
    """A task that runs. `inner` is the namespace of the graph in it, where its node is one."""

    name: str
    path: str
    namespace: tuple[str, ...]
    inner: tuple[str, ...]
    at: float = field(default_factory=time.time)
    clock: float = field(default_factory=time.monotonic)
    """`at` may be set back while the task runs."""


@dataclass
class _Pending:
    """A finished task whose outgoing edge is not known yet."""

    row: Row
    path: str


async def drive(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    context: LoopContext,
    stored: Mapping[tuple[str, int], Row],
    write: Callable[[Row], None] | None,
    fuse: int,
) -> Drive:
    """Drive an attempt to its end. Raises `Divergence`, and whatever its nodes raise (`Fault`, `JournalMiss`).

    `stored` holds the rows of earlier drives; `write` appends a new row (None: new rows are a divergence). `fuse` is
    LangGraph's recursion limit, derived from the budget: a fuse, never the budget itself.
    """
    result = Drive()
    steps: dict[str, int] = {}
    started: dict[str, _Started] = {}
    pending: dict[tuple[str, ...], list[_Pending]] = {}
    batch: dict[tuple[str, ...], list[tuple[str, str]]] = {}

    def settle(namespace: tuple[str, ...], nexts: list[tuple[str, str]]) -> None:
        for waiting in pending.pop(namespace, []):
            own = sorted({name for name, path in nexts if path == waiting.path})
            waiting.row["edge"] = "+".join(own or sorted({name for name, _ in nexts})) or "END"
            _keep(waiting.row, stored, write, result)

    def on_event(namespace: tuple[str, ...], event: dict[str, Any]) -> None:
        if "input" in event:
            path = event["input"].get("path", "") if isinstance(event["input"], dict) else ""
            task = _Started(event["name"], path, namespace, (*namespace, f"{event['name']}:{event['id']}"))
            _apart(task, started.values())
            started[event["id"]] = task
            batch.setdefault(namespace, []).append((event["name"], path))
            return
        if event["error"] is not None:
            return  # the exception itself follows
        # All tasks of a step start before the first of them ends, so here the edges into this step are known.
        if namespace in batch:
            settle(namespace, batch.pop(namespace))
        task = started.pop(event["id"])
        path = task.path
        settle(task.inner, [])
        update = event["result"] or {}
        step = steps[path] = steps.get(path, -1) + 1
        name = "/".join([*(part.partition(":")[0] for part in namespace), event["name"]])
        row: Row = {
            "path": path,
            "step": step,
            "node": name,
            "edge": "",
            "reason": update["decision"]["reason"] if "decision" in update else "",
            "data": {"update": update, "used": [list(use) for use in context.used.pop(event["id"], [])]},
            "at": task.at,
            "seconds": time.monotonic() - task.clock,
        }
        for candidate in update.get("candidates", []):
            result.candidates[candidate["path"], candidate["index"]] = candidate
        result.stop_reason = update.get("stop_reason", result.stop_reason)
        result.submitted = update.get("submitted", result.submitted)
        pending.setdefault(namespace, []).append(_Pending(row, path))

    # Asked for events of inner graphs, LangGraph polls for them: twice the time of a node, so only where there are any.
    inner = next(graph.get_subgraphs(), None) is not None
    stream = graph.astream(
        {"path": ""}, {"recursion_limit": fuse}, context=context, stream_mode="tasks", subgraphs=inner
    )  # fmt: skip
    try:
        async for item in stream:
            namespace, event = item if inner else ((), item)
            on_event(cast("tuple[str, ...]", namespace), cast("dict[str, Any]", event))
    except JournalMiss as miss:
        for namespace in list(batch):  # what came before may differ already: then that is the difference
            settle(namespace, batch.pop(namespace))
        last = list(started.values())[-1]
        step = steps.get(last.path, -1) + 1
        where = place({"path": last.path, "step": step, "node": last.name})
        raise Divergence(f"{where}: {miss}", last.path, step) from miss
    settle((), [])
    if context.used:  # the uses of tasks that no event told of
        raise UserError("a node runs a graph that LangGraph cannot see: name it in the node's own closure")
    if write is None and result.compared != len(stored):
        raise Divergence(f"the graph ended after {result.compared} transitions, {len(stored)} are stored")
    return result


def _apart(task: _Started, running: Iterable[_Started]) -> None:
    """Raises `UserError` where a task shares a path: which of two ends first must not number their steps."""
    for other in running:
        if other.path == task.path and task.namespace[: len(other.inner)] != other.inner:
            raise UserError(
                f"nodes {other.name!r} and {task.name!r} run side by side on the branch path {task.path!r}: send each "
                "a path of its own (compose.branches, or Send with a path in the state)"
            )


def _keep(row: Row, stored: Mapping[tuple[str, int], Row], write: Callable[[Row], None] | None, result: Drive) -> None:
    result.rows += 1
    old = stored.get((row["path"], row["step"]))
    if old is None:
        if write is None:
            raise Divergence(
                f"{place(row)}: the graph goes on where the stored attempt ended", row["path"], row["step"]
            )
        write(row)
        return
    for key in COMPARED:
        if old[key] != row[key] and canonical(old[key]) != canonical(row[key]):
            raise Divergence(f"{place(row)}: {difference(key, old[key], row[key])}", row["path"], row["step"])
    result.compared += 1


def place(row: Row) -> str:
    """Where a transition stands, for people."""
    branch = f"branch {row['path']}, " if row["path"] else ""
    return f"{branch}step {row['step']} ({row['node']})"


def difference(key: str, old: Any, new: Any) -> str:
    """The first difference of two values of a transition, as one short line."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                return difference(f"{key}.{name}", old.get(name), new.get(name))
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            if before != after:
                return difference(f"{key}[{number}]", before, after)
    return f"{key} was {_short(old)}, is {_short(new)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:90]}... ({len(text)} characters)"
