"""The run context: the only way from a node to models, sandboxes, templates, randomness. It journals everything.

A node is `async def node(state, runtime)`; `runtime.context` is a `LoopContext`. Nodes take no time, randomness,
environment or file from elsewhere: that is what makes an attempt replayable.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from langgraph.runtime import get_runtime

from agentloop.confirm import confirmed
from agentloop.hashing import derive_seed, digest
from agentloop.journal import Asked, problem_key
from agentloop.types import Job, Request, Suite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentloop.feedback import Template
    from agentloop.journal import Journal
    from agentloop.protocols import Model, Sandbox
    from agentloop.state import Message
    from agentloop.types import Execution, Json, Problem, Reply, SuiteVerdict


@dataclass(frozen=True)
class Speaker:
    """A model as this run uses it: identity digest and sampling parameters are what keys are made of."""

    label: str
    identity: str
    params: Mapping[str, Json]
    model: Model | None
    """None in a replay."""


@dataclass
class LoopContext:
    """One attempt's view of the run. Strategy code never sees hidden tests: `problem` is given without them."""

    problem: Problem
    sample: int
    seed: int
    """The experiment's seed."""
    speakers: Mapping[str, Speaker]
    """By role; "solver" is always there, other roles default to it."""
    journal: Journal
    environment: str
    sandbox: Sandbox | None
    used: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    """By id of the graph's task: (kind, key, role) of what its node used, which the runner takes."""
    _asked: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.problem = without_hidden(self.problem)

    async def ask(
        self,
        path: str,
        messages: Sequence[Message],
        *,
        role: str = "solver",
        heat: float | None = None,
        draw: str = "0",
    ) -> Reply:
        """One reply of the role's model to these messages.

        `path` is the branch path of the asking state. `heat` replaces the temperature. `draw` is the independent draw a
        parallel branch starts from, its path: the n-th repetition on the trunk and the first ask of branch n are the
        same draw, and so are the n-th repetition on branch b and the first ask of branch b.n.
        Raises `ModelError`, `Cancelled`, `JournalMiss`.
        """
        speaker = self.speakers.get(role) or self.speakers["solver"]
        params = dict(speaker.params)
        if heat is not None:
            params["temperature"] = heat
        sent = tuple({"role": message["role"], "content": message["content"]} for message in messages)
        # Parameters do not count: a draw at another temperature is another draw, not the same one warmer.
        what = (path, digest([speaker.identity, list(sent), draw]))
        count = self._asked.get(what, 0)
        self._asked[what] = count + 1
        occurrence = f"{draw}.{count}" if path else str(count)
        while occurrence.endswith(".0"):
            occurrence = occurrence.removesuffix(".0")
        seed = derive_seed(self.seed, problem_key(self.problem), self.sample, occurrence)
        asked = Asked(problem_key(self.problem), speaker.identity, self.sample, occurrence)
        key, reply = await self.journal.reply(asked, Request(sent, params, seed), speaker.model)
        self._use("reply", key, role)
        return reply

    async def run(self, program: str) -> tuple[SuiteVerdict, str]:
        """The visible suite's verdict on a program, and the key of its evidence.

        A timeout is run again alone before it is believed. Raises `SandboxError`, `JournalMiss`.
        """
        job = Job(self.problem.language, program, self.problem.visible.tests, self.problem.limits)
        verdict, key = await run_suite(self.problem.visible, job, self.journal, self.environment, self.sandbox)
        self._use("execution", key, "visible")
        return verdict, key

    def _use(self, kind: str, key: str, role: str) -> None:
        # The task that runs this code, not the event that the runner last saw: events of inner graphs come late.
        info = get_runtime().execution_info
        self.used.setdefault(info.task_id if info else "", []).append((kind, key, role))

    def render(self, template: Template, values: Mapping[str, Any]) -> str:
        """A template's text; the problem's fields are added to `values`."""
        problem = self.problem
        limits = f"{problem.limits.cpu:g} CPU seconds, {problem.limits.memory // 2**20} MiB"
        example = problem.visible.tests[0].show if problem.visible.tests else ""
        base = {
            "statement": problem.statement,
            "language": problem.language,
            "entry_point": problem.entry_point or "",
            "interface": problem.interface,
            "example": example,
            "limits": limits,
        }
        return template.render(base | dict(values))

    def rng(self, path: str, purpose: str) -> random.Random:
        """Randomness of a branch for one purpose, the same in every re-drive."""
        return random.Random(derive_seed(self.seed, problem_key(self.problem), self.sample, path, purpose))


async def run_suite(
    suite: Suite, job: Job, journal: Journal, environment: str, sandbox: Sandbox | None
) -> tuple[SuiteVerdict, str]:
    """Execute a job through the journal and judge it (see `confirm`); the verdict and the key of its evidence."""
    key = ""

    async def execute(job: Job, ordinal: int) -> Execution:
        nonlocal key
        key, execution = await journal.execution(job, environment, ordinal, sandbox)
        return execution

    verdict, _ = await confirmed(suite, job, execute)
    return verdict, key


def without_hidden(problem: Problem) -> Problem:
    """The problem as strategy code may see it."""
    return replace(problem, hidden=Suite("hidden", ()), references=())
